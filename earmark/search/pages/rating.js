// The listener's own rating of a hit: a slider that is unset until someone answers.

import { ask, el, icon } from "/web/dom.js";

const SETTLED_MS = 400; // after the last key
const MOVES = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "PageUp", "PageDown", "Home", "End"];

export class Rating {
  /** `given` tells what goes with a rating; `onfail` is told why one was not kept, and "" once one is. */
  constructor(name, words, value, given, onfail) {
    Object.assign(this, { given, onfail, kept: value, sent: 0, sending: Promise.resolve() });
    this.slider = el("input", { type: "range", min: 0, max: 100, step: 1, "aria-label": `How well ${name} fits “${words}”, 0 to 100` });
    this.shown = el("span", { className: "rate-value", "aria-hidden": "true" });
    this.back = el("button", { type: "button", className: "chip-off", title: "Take the rating back", "aria-label": `Take the rating of ${name} back`, onclick: () => this.takeBack() });
    this.back.append(icon("clear"));
    const label = el("span", { className: "rate-label", "aria-hidden": "true", title: words }, `Fits “${words}”?`);
    this.element = el("div", { className: "rate" }, label, this.slider, this.shown, this.back);
    this.listen();
    this.show(value);
  }

  get value() {
    return Number(this.slider.value);
  }

  show(value) {
    this.unset = value === null;
    this.slider.value = value ?? 50;
    this.slider.classList.toggle("unset", this.unset);
    this.slider.setAttribute("aria-valuetext", this.unset ? "not rated" : `${value} of 100`);
    this.shown.textContent = this.unset ? "–" : String(value);
  }

  listen() {
    const on = (name, action) => this.slider.addEventListener(name, action);
    on("input", () => this.scrolled || this.show(this.value));
    on("change", () => this.changed());
    on("pointerdown", (event) => {
      this.scrolled = this.byKey = this.pending = false;
      this.held = event.pointerType === "touch";
    });
    on("pointerup", (event) => {
      this.held = false;
      if (event.button) return;
      // a tap where the thumb stands changes nothing, and is an answer all the same; what a tap changes may come after it
      setTimeout(() => (this.pending || this.unset) && this.settle(), 0);
    });
    on("pointercancel", () => {
      // the finger scrolled the page: it meant no rating
      this.held = this.pending = false;
      this.scrolled = true;
      this.show(this.kept);
    });
    on("click", () => this.unset && this.settle());
    on("keydown", (event) => this.key(event));
    on("blur", () => this.flush());
  }

  key(event) {
    this.scrolled = false;
    if (MOVES.includes(event.key)) this.byKey = true;
    if (!this.unset || !["Enter", " "].includes(event.key)) return;
    event.preventDefault(); // it is no “play”
    this.settle();
  }

  changed() {
    if (this.scrolled) this.show(this.kept);
    else if (this.held) this.pending = true; // until the finger leaves
    else if (this.byKey) {
      clearTimeout(this.waiting);
      this.waiting = setTimeout(() => this.flush(), SETTLED_MS);
    } else this.settle();
  }

  /** Keeps what the slider shows. */
  settle() {
    this.pending = false;
    if (!this.scrolled) this.keep(this.value);
  }

  /** Keeps at once what keys have set. */
  flush(leaving = false) {
    if (!this.waiting) return;
    this.settled();
    this.keep(this.value, leaving);
  }

  settled() {
    clearTimeout(this.waiting);
    this.waiting = 0;
  }

  takeBack() {
    this.settled();
    this.slider.focus(); // the button goes
    this.keep(null);
  }

  async keep(value, leaving = false) {
    this.show(value);
    const mine = ++this.sent;
    const body = JSON.stringify({ ...this.given(), rating: value });
    // one behind the other, so that the last one stays; a page that is left can wait for none
    const options = { method: "PUT", headers: { "content-type": "application/json" }, body, keepalive: true };
    const send = () => ask("/api/ratings", options);
    this.sending = leaving ? send() : this.sending.catch(() => {}).then(send);
    try {
      await this.sending;
      this.kept = value;
      if (mine === this.sent) this.onfail("");
    } catch (error) {
      if (mine !== this.sent || this.waiting) return; // the next one tells
      this.show(this.kept);
      this.onfail(`The rating was not kept: ${error.message}`);
    }
  }
}
