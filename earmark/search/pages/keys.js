// Keys that work anywhere on the page but in a box that takes text.

const takesText = (target) =>
  target.isContentEditable || target.tagName === "TEXTAREA" || (target.tagName === "INPUT" && !["range", "checkbox"].includes(target.type));
const acts = (target) => target.closest("button, a, summary, select, input[type=checkbox], dialog[open]") !== null;

export function listen({ hits, player, box, keys }) {
  const chosen = () => hits.chosen || (hits.step(1), hits.chosen);
  const actions = {
    "/": () => (box.focus(), box.select()),
    "?": () => keys.showModal(),
    j: () => hits.step(1),
    k: () => hits.step(-1),
    l: () => hits.chosen?.like(),
    " ": () => (hits.chosen || hits.playing || chosen())?.toggle(),
    Enter: () => chosen()?.start(),
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && takesText(event.target)) event.target.blur();
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (takesText(event.target) || keys.open) return;
    if ([" ", "Enter"].includes(event.key) && acts(event.target)) return;
    const action = actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
