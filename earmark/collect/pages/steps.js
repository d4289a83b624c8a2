// Steps without sounds: what a rater agrees to, is told, and ends with.

import { el } from "/web/dom.js";

/** A heading that takes the focus, and what stands below it. */
function step(title, ...parts) {
  const heading = el("h2", { tabIndex: -1, dir: "auto" }, title);
  return { heading, element: el("section", { className: "step" }, heading, ...parts) };
}

/** The owner's words, which the server made into HTML: no markup of theirs passes it. Nothing else goes in as markup. */
export function words(html) {
  const made = el("div", { className: "prose", dir: "auto" });
  made.innerHTML = html;
  return made;
}

const button = (text, onclick, strong = true) => el("button", { type: "button", className: strong ? "button strong" : "button", onclick }, text);

/** The owner's own heading is the step's, where their words begin with one. */
function owners(title, html, ...parts) {
  const prose = words(html);
  const first = prose.firstElementChild;
  if (!first?.matches("h1, h2, h3")) return step(title, prose, ...parts);
  first.remove();
  return step(first.textContent, prose, ...parts);
}

export function consent(about, onagree) {
  const no = () => made.element.replaceChildren(...declined(() => made.element.replaceChildren(...whole)));
  const made = owners("Your consent", about.consent, el("p", { className: "do" }, button("I agree to take part", onagree), button("I do not want to take part", no, false)));
  const whole = [...made.element.childNodes];
  return made;
}

function declined(onback) {
  return [
    el("h2", {}, "Thank you all the same"),
    el("p", {}, "You do not take part, and nothing more is asked. You can close this page."),
    el("p", { className: "do" }, button("Back to the consent", onback, false)),
  ];
}

export function instructions(about, ongo) {
  return owners("What to do", about.instructions, el("p", { className: "do" }, button("Go on to the sound check", ongo)));
}

const FINAL = {
  failed: [
    "Thank you for your time",
    "The study ends here for you: in the first pages too many answers differed from what was expected. This says nothing about you; it happens with other headphones, in noisy places, or when a task is explained badly.",
  ],
  nothing_left: ["Nothing is left to rate", "Others have rated everything by now, or are at it. Thank you for coming. You may look again later."],
  done: ["Thank you, that was all", "All your answers are saved."],
};

/** The end of the study for this rater. */
export function final(state, onagain) {
  const [title, text] = FINAL[state.step];
  const parts = [el("p", {}, text)];
  if (state.code) parts.push(...code(state));
  if (state.url) parts.push(el("p", { className: "do" }, el("a", { className: "button strong", href: state.url }, state.code ? "Finish on the platform" : "Back to the platform")));
  if (state.step === "nothing_left") parts.push(el("p", { className: "do" }, button("Look again", onagain, false)));
  return step(title, ...parts, state.code ? "" : el("p", { className: "muted" }, "You can close this page."));
}

function code(state) {
  const shown = el("output", { className: "code", id: "code" }, state.code);
  const told = el("span", { className: "muted", role: "status" });
  return [
    el("p", {}, "This is your completion code. Please keep it."),
    el("p", { className: "code-line" }, shown, button("Copy", () => copy(shown, told), false), told),
  ];
}

async function copy(shown, told) {
  try {
    await navigator.clipboard.writeText(shown.textContent);
    told.textContent = "Copied.";
  } catch {
    getSelection().selectAllChildren(shown); // browsers that let no page copy
    told.textContent = document.execCommand("copy") ? "Copied." : "It is selected: copy it with your keyboard.";
  }
}

const REFUSED = {
  401: "This browser is not known here",
  403: "This link does not open the study",
  404: "This is not there",
  409: "You have taken part already",
  410: "The study is full",
};

/** Why it does not go on, kindly. */
export function refusal(error) {
  const again = button("Load the page again", () => location.reload(), false);
  return step(REFUSED[error.status] || "This did not work", el("p", {}, error.message), el("p", { className: "do" }, again));
}
