// The listener's own rating of a hit, kept as it is given.

import { ask, el, icon } from "/web/dom.js";
import { Slider } from "/web/slider.js";

export class Rating {
  /** `given` tells what goes with a rating; `onfail` is told why one was not kept, and "" once one is. */
  constructor(name, words, value, given, onfail) {
    Object.assign(this, { given, onfail, sent: 0, sending: Promise.resolve() });
    this.shown = el("span", { className: "rate-value", "aria-hidden": "true" });
    this.slider = new Slider(`How well ${name} fits “${words}”, 0 to 100`, value, {
      onanswer: (answer, leaving) => this.keep(answer, leaving),
      onshow: (answer) => (this.shown.textContent = answer === null ? "–" : String(answer)),
    });
    this.back = el("button", { type: "button", className: "chip-off", title: "Take the rating back", "aria-label": `Take the rating of ${name} back`, onclick: () => this.takeBack() });
    this.back.append(icon("clear"));
    const label = el("span", { className: "rate-label", "aria-hidden": "true", title: words }, `Fits “${words}”?`);
    this.element = el("div", { className: "rate" }, label, this.slider.element, this.shown, this.back);
  }

  /** Keeps at once what keys have set. */
  flush(leaving = false) {
    this.slider.flush(leaving);
  }

  takeBack() {
    this.slider.element.focus(); // the button goes
    this.slider.answer(null);
  }

  async keep(value, leaving = false) {
    const mine = ++this.sent;
    const body = JSON.stringify({ ...this.given(), rating: value });
    // one behind the other, so that the last one stays; a page that is left can wait for none
    const options = { method: "PUT", headers: { "content-type": "application/json" }, body, keepalive: true };
    const send = () => ask("/api/ratings", options);
    this.sending = leaving ? send() : this.sending.catch(() => {}).then(send);
    try {
      await this.sending;
      this.slider.kept = value;
      if (mine === this.sent) this.onfail("");
    } catch (error) {
      if (mine !== this.sent || this.slider.waiting) return; // the next one tells
      this.slider.show(this.slider.kept);
      this.onfail(`The rating was not kept: ${error.message}`);
    }
  }
}
