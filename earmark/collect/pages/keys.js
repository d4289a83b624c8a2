// Keys that work anywhere on the page.

const acts = (target) => target.closest("button, a, summary, dialog[open]") !== null;

export function listen(study, help) {
  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing || help.open) return;
    const task = study.current?.toggle ? study.current : null;
    if (event.key === "?" && study.step) help.showModal();
    else if (event.key === " " && task && !acts(event.target)) task.toggle();
    else if (/^[1-9]$/.test(event.key) && task) task.toggle(Number(event.key));
    else return;
    event.preventDefault();
  });
}
