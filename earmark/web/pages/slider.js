// A slider from 0 to 100 that is unset until someone answers, and that may be locked until one can.

import { el } from "./dom.js";

const SETTLED_MS = 400; // after the last key
const MOVES = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "PageUp", "PageDown", "Home", "End"];

export class Slider {
  /**
   * `onanswer` is told each answer once it is settled, and whether the page is being left; `onshow` what the slider
   * shows, null where it is unset. `confirms` are keys that answer with what an unset slider shows. `onlocked` is
   * told that someone tried to answer while it is locked.
   */
  constructor(label, value, { onanswer, onshow = () => {}, onlocked = () => {}, confirms = ["Enter", " "] }) {
    Object.assign(this, { onanswer, onshow, onlocked, confirms, kept: value, locked: false });
    this.element = el("input", { type: "range", min: 0, max: 100, step: 1, "aria-label": label });
    this.listen();
    this.show(value);
  }

  get value() {
    return Number(this.element.value);
  }

  show(value) {
    this.unset = value === null;
    this.element.value = value ?? 50;
    this.element.classList.toggle("unset", this.unset);
    this.element.setAttribute("aria-valuetext", this.unset ? "not rated" : `${value} of 100`);
    this.onshow(value);
  }

  /** Takes no answer while it is locked, and can be found by keyboard and screen reader all the same. */
  lock(locked) {
    this.locked = locked;
    this.element.classList.toggle("locked", locked);
    this.element.setAttribute("aria-disabled", String(locked));
  }

  listen() {
    const on = (name, action) => this.element.addEventListener(name, action);
    on("input", () => this.refused() || this.scrolled || this.show(this.value));
    on("change", () => this.refused() || this.changed());
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

  /** Whether it is locked; then it shows what it showed. */
  refused() {
    if (this.locked) this.show(this.kept);
    return this.locked;
  }

  key(event) {
    this.scrolled = false;
    const moves = MOVES.includes(event.key);
    if (this.locked) {
      if (!moves) return;
      event.preventDefault();
      this.onlocked();
      return;
    }
    if (moves) this.byKey = true;
    if (!this.unset || !this.confirms.includes(event.key)) return;
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

  /** Answers with what the slider shows. */
  settle() {
    this.pending = false;
    if (!this.scrolled && !this.locked) this.answer(this.value);
  }

  /** Answers at once with what keys have set. */
  flush(leaving = false) {
    if (!this.waiting) return;
    this.answer(this.value, leaving);
  }

  answer(value, leaving = false) {
    clearTimeout(this.waiting);
    this.waiting = 0;
    this.show(value);
    this.onanswer(value, leaving);
  }
}
