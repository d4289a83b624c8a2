// The sound check: the volume, then a few short questions that only someone who hears both sides can answer.

import { el, icon } from "/web/dom.js";
import { insist, send } from "./requests.js";

const ASKED = {
  side: ["On which side is the noise?", ["Left", "Right"]],
  tones: ["Three tones: which one is the quietest?", ["First", "Second", "Third"]],
};
const WRONG = {
  side: "That was the other side. Are your headphones on the right way round, and is the sound not switched to mono?",
  tones: "That was not the quietest one. Headphones make it easy to hear; loudspeakers do not. Listen again, as often as you like.",
};
const HINTS = ["Is the device muted, or its volume at zero?", "Are the headphones plugged in or connected?", "Does another program play sound?", "Did your browser mute this page? Look at its tab."];

export class SoundCheck {
  /** `ondone` is told the answers that were given. */
  constructor(ondone) {
    Object.assign(this, { ondone, answers: [] });
    this.audio = el("audio", { preload: "auto" });
    this.heading = el("h2", { tabIndex: -1 }, "Headphones and volume");
    this.body = el("div", {});
    this.told = el("p", { className: "told", role: "status", "aria-live": "polite" });
    this.element = el("section", { className: "step" }, this.heading, this.told, this.body);
    for (const name of ["play", "pause", "ended"]) this.audio.addEventListener(name, () => this.follow());
    this.audio.addEventListener("playing", () => this.heard?.());
    this.audio.addEventListener("error", () => this.audio.getAttribute("src") && this.tell("The sound could not be loaded. Please try again."));
    this.volume();
  }

  tell(text) {
    this.told.textContent = text;
  }

  follow() {
    const playing = !this.audio.paused && !this.audio.ended;
    this.play?.replaceChildren(icon("play"), playing ? "Playing…" : this.label);
  }

  /** A button that plays a sound of the server, as often as one likes. */
  player(address, label) {
    this.audio.src = address;
    this.label = label;
    this.play = el("button", { type: "button", className: "button strong play-test", onclick: () => this.start() });
    this.follow();
    return el("p", { className: "do" }, this.play);
  }

  start() {
    this.audio.currentTime = 0;
    this.audio.play().catch(() => this.tell("The sound could not be played. Please try again."));
  }

  button(text, onclick, more = {}) {
    return el("button", { type: "button", className: "button", onclick, ...more }, text);
  }

  volume() {
    this.heading.textContent = "Headphones and volume";
    const ready = this.button("I hear it well", () => this.next(0), { disabled: true });
    this.heard = () => (ready.disabled = false);
    const help = el("ul", { hidden: true }, ...HINTS.map((hint) => el("li", {}, hint)));
    const anyway = this.button("Go on without the check", () => this.ondone(this.answers), { hidden: true });
    const none = this.button("I hear nothing", () => (help.hidden = anyway.hidden = false));
    this.body.replaceChildren(
      el("p", {}, "Please put on headphones and go to a quiet place. Play the noise and set your volume so that it is pleasant. The sounds of the study are as loud; please leave the volume as it is from then on."),
      this.player("/api/sound-check/volume", "Play the noise"),
      el("p", { className: "do" }, ready, none, anyway),
      help,
    );
  }

  /** Asks the next question, or ends: the server knows which one comes. */
  async next(round) {
    const asked = await this.judged();
    if (!asked) return;
    if (asked.finished) this.end(asked.passed);
    else this.question(asked, round);
  }

  async judged() {
    try {
      return await insist(() => send("/api/sound-check/answers", { answers: this.answers }), (text) => this.tell(text));
    } catch (error) {
      this.tell(error.message);
      return null;
    }
  }

  question({ kind, number, questions }, round) {
    const [text, choices] = ASKED[kind];
    this.element.dataset.round = round;
    this.heading.textContent = text;
    const buttons = choices.map((choice, at) => this.button(choice, () => this.answer(kind, at), { disabled: true }));
    this.heard = () => buttons.forEach((each) => (each.disabled = false));
    this.body.replaceChildren(
      this.player(`/api/sound-check/${kind}/${round}`, "Play the sound"),
      el("p", { className: "do", role: "group", "aria-label": text }, ...buttons),
      el("p", { className: "muted" }, `Question ${number} of ${questions}. You may play it again as often as you like.`),
    );
    this.heading.focus();
  }

  async answer(kind, choice) {
    if (this.waiting) return;
    this.waiting = true;
    this.audio.pause();
    this.answers.push(choice);
    const asked = await this.judged();
    this.waiting = false;
    if (!asked) {
      this.answers.pop();
      return;
    }
    this.tell(asked.right ? "Right." : WRONG[kind]);
    if (asked.finished) this.end(asked.passed);
    else this.question(asked, this.answers.length);
  }

  end(passed) {
    this.heading.textContent = passed ? "Your sound works" : "Let us go on";
    this.tell("");
    const text = passed
      ? "Please keep the headphones on and the volume as it is."
      : "Some answers were not what we expected. That is no harm: please use headphones in a quiet place, if you can, and go on.";
    const again = this.button("Check once more", () => this.restart(), { hidden: passed });
    this.heard = null;
    const go = el("button", { type: "button", className: "button strong", onclick: () => this.ondone(this.answers) }, "Begin");
    this.body.replaceChildren(el("p", {}, text), el("p", { className: "do" }, go, again));
    this.heading.focus();
  }

  restart() {
    this.answers = [];
    this.volume();
    this.heading.focus();
  }

  close() {
    this.audio.pause();
    this.audio.removeAttribute("src");
  }
}
