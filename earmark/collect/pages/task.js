// A page with one caption and its sounds.

import { el } from "/web/dom.js";
import { Row } from "./row.js";

const DOUBLE_MS = 400;
const listed = (words) => (words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words[words.length - 1]}`);

export class Task {
  /** `shown` as the server tells it; `onnext` and `onback` are told that the rater wants to go. */
  constructor(shown, study, { onnext, onback }) {
    Object.assign(this, { shown, study, player: study.player, onnext, current: null, began: performance.now(), asked: false, waiting: false });
    this.heading = el("h2", { className: "caption", tabIndex: -1, id: "caption", dir: "auto" }, shown.text);
    this.rows = shown.items.map((item, at) => new Row(item, at + 1, this));
    this.missing = el("p", { className: "error", role: "alert", id: "missing", hidden: true });
    this.saved = el("p", { className: "saved" });
    this.next = el("button", { type: "button", className: "button strong", onclick: () => this.go() }, shown.number === shown.of ? "Finish" : "Next");
    const back = shown.number > 1 ? el("button", { type: "button", className: "button", onclick: () => onback() }, "Back") : "";
    this.element = el(
      "div",
      { className: "task" },
      el("div", { className: "asked" }, el("p", { className: "question" }, "How well does each sound match this text?"), this.heading),
      el("ol", { className: "rows", "aria-labelledby": "caption" }, ...this.rows.map((row) => row.element)),
      el("p", { className: "hint" }, "Keys: ", el("kbd", {}, "space"), " plays, ", el("kbd", {}, "1"), " … ", el("kbd", {}, String(shown.items.length)), " play a sound, ", el("kbd", {}, "←"), " ", el("kbd", {}, "→"), " move a slider, ", el("kbd", {}, "?"), " shows all."),
      el("div", { className: "foot" }, this.missing, el("div", { className: "foot-line" }, this.saved, back, this.next)),
    );
  }

  /** It stands on the page now: it follows the one player, and asks for its waveforms. */
  begin() {
    const { player } = this;
    player.onchange = () => this.rows.forEach((row) => row.follow());
    player.onfail = (track, why) => {
      this.row(track)?.fail(why);
      this.study.back(); // the server may know by now that this sound has gone
    };
    player.onheard = (track, from, to) => this.row(track)?.heard(from, to);
    for (const row of this.rows) if (!row.silent) row.wave.load();
  }

  row(track) {
    return track && this.rows.find((row) => row.track.key === track.key);
  }

  /** The sound that the rater is at. */
  at(row) {
    this.current = row;
  }

  /** Seconds since the page was shown. */
  get seconds() {
    return Math.round(performance.now() - this.began) / 1000;
  }

  /** A sound began to play. */
  played() {
    this.row(this.player.track)?.listening.begun(this.seconds);
  }

  /** Plays or pauses a sound, counted from 1, or the one that the rater is at. */
  toggle(number = null) {
    const row = number === null ? this.current || this.row(this.player.track) || this.rows[0] : this.rows[number - 1];
    row?.toggle();
  }

  /** What is missing, in words; "" where nothing is. */
  lacks() {
    const unheard = this.rows.filter((row) => !row.silent && !row.unlocked);
    const unrated = this.rows.filter((row) => !row.silent && row.unlocked && !row.rated);
    const which = (rows) => `sound${rows.length > 1 ? "s" : ""} ${listed(rows.map((row) => String(row.number)))}`;
    const wants = [unheard.length && `listen to and rate ${which(unheard)}`, unrated.length && `rate ${which(unrated)}`];
    return wants.filter(Boolean).length ? `Before you go on, please ${wants.filter(Boolean).join(", and ")}.` : "";
  }

  /** Goes on where nothing is missing; else says what is, and leads there. */
  go() {
    if (performance.now() - this.began < DOUBLE_MS) return; // the second click of a double one, meant for the page before
    this.rows.forEach((row) => row.slider.flush());
    const lacks = this.lacks();
    this.tell(lacks);
    this.asked = true;
    this.rows.forEach((row) => row.update());
    if (!lacks) {
      this.onnext();
      return;
    }
    const first = this.rows.find((row) => !row.complete);
    (first.unlocked ? first.slider.element : first.button).focus();
    first.element.scrollIntoView({ block: "center" });
  }

  tell(text) {
    if (this.missing.textContent === text) return;
    this.missing.textContent = text;
    this.missing.hidden = !text;
  }

  /** Shows whether what was answered is kept: "saved", "saving" or "waiting". */
  state(state) {
    const rated = this.rows.filter((row) => row.rated).length;
    const words = { saved: rated ? "All answers are saved." : "", saving: "Saving…", waiting: "Not saved: no connection. Trying again…" };
    this.saved.textContent = words[state];
    if (state === "waiting" && !this.waiting) this.study.say(words.waiting);
    if (state === "saved" && this.waiting) this.study.say(words.saved);
    if (state !== "saving") this.waiting = state === "waiting";
    this.saved.classList.toggle("trouble", state === "waiting");
    this.rows.forEach((row) => row.update());
  }

  /** While it is sent nothing more is. */
  busy(busy) {
    this.next.setAttribute("aria-disabled", String(busy));
    this.next.classList.toggle("busy", busy);
  }

  refresh(shown) {
    for (const item of shown.items) this.rows.find((row) => row.item.id === item.id)?.refresh(item);
  }

  /** Something was heard or rated: what was said to be missing may not be any more. */
  changed() {
    if (this.asked && !this.missing.hidden) this.tell(this.lacks());
  }

  redraw() {
    this.rows.forEach((row) => row.wave.draw());
  }

  close() {
    this.player.moved();
    this.rows.forEach((row) => row.close());
    this.player.onchange = this.player.onfail = this.player.onheard = () => {};
  }
}
