// One sound of a page: its player, its waveform, its slider.

import { el, icon } from "/web/dom.js";
import { Wave } from "/web/player.js";
import { Slider } from "/web/slider.js";
import { randomName } from "./requests.js";

const REPORT_MS = 3000;
const SURE = 0.003;
const percent = (share) => `${Math.floor(share * 100 + 1e-6)} %`;

export class Row {
  /** `item` as the server tells it, `task` the page that it is on. */
  constructor(item, number, task) {
    Object.assign(this, { item, number, task, name: `Sound ${number}`, share: item.heard, reported: 0 });
    this.listening = task.study.listening(item);
    this.address = `/api/items/${item.id}`;
    this.track = { key: item.id, address: `${this.address}/sound` };
    const sound = { address: this.address, name: this.name, duration: item.duration_s };
    this.wave = new Wave(sound, { start: 0, end: item.duration_s }, [], (at) => this.seek(at), (why) => this.fail(why));
    this.button = el("button", { type: "button", className: "play", onclick: () => this.toggle() });
    this.note = el("p", { className: "row-note", id: `note-${item.id}` });
    this.trouble = el("p", { className: "error", role: "alert", hidden: true });
    this.element = el(
      "li",
      { className: "row", "aria-labelledby": `name-${item.id}`, onfocusin: () => task.at(this), onpointerdown: () => task.at(this) },
      el("h3", { className: "row-name", id: `name-${item.id}` }, this.name),
      this.button,
      this.wave.element,
      this.scale(),
      this.note,
      this.trouble,
    );
    task.study.outbox.listen(item.id, this);
    this.follow();
    this.update();
  }

  scale() {
    const { low_end, high_end } = this.task.study.about;
    const shown = el("output", { className: "scale-value", "aria-hidden": "true" });
    const label = `${this.name}: how well does it match the text? 0 ${low_end}, 100 ${high_end}`;
    this.slider = new Slider(label, this.item.rating, {
      onanswer: (value) => this.answer(value),
      onshow: (value) => (shown.textContent = value === null ? "–" : String(value)),
      onlocked: () => this.tellLocked(),
      confirms: [],
    });
    this.slider.element.setAttribute("aria-describedby", this.note.id);
    const ends = el("div", { className: "scale-ends", "aria-hidden": "true" }, el("span", { dir: "auto" }, low_end), el("span", { dir: "auto" }, high_end));
    return el("div", { className: "scale", onclick: () => this.slider.locked && this.tellLocked() }, this.slider.element, shown, ends);
  }

  // Playing

  /** Whether its sound cannot be played: nothing is asked of it. */
  get silent() {
    return this.item.playable === false;
  }

  toggle() {
    if (this.silent) return;
    this.fail("");
    this.task.player.toggle(this.track, 0);
  }

  seek(at) {
    if (this.silent) return;
    this.fail("");
    this.listening.seeks += 1;
    this.task.player.play(this.track, at);
  }

  follow() {
    const { player } = this.task;
    const mine = player.is(this.track);
    const state = mine && player.playing ? "pause" : "play";
    this.wave.move(mine ? player.position : null);
    this.element.classList.toggle("waiting", mine && player.waiting);
    if (state === this.state) return;
    if (this.state === "pause") this.report(); // it has stopped
    this.state = state;
    this.button.replaceChildren(icon(state));
    this.button.setAttribute("aria-label", `${state === "play" ? "Play" : "Pause"} ${this.name.toLowerCase()}`);
    this.element.classList.toggle("playing", state === "pause");
  }

  /** A piece of it sounded. */
  heard(from, to) {
    const before = this.unlocked;
    this.listening.heard(from, to);
    if (this.unlocked && !before) {
      this.task.study.say(`${this.name} can be rated now.`);
      this.report();
    } else if (performance.now() - this.reported > REPORT_MS) this.report();
    this.update();
  }

  /** Tells the server what was heard. */
  report() {
    if (!this.listening.plays) return;
    const { view, outbox } = this.task.study;
    this.reported = performance.now();
    outbox.add(`heard ${this.item.id} ${view}`, this.item.id, `${this.address}/heard`, { view, ...this.listening.numbers });
  }

  get unlocked() {
    const need = this.task.study.about.heard_share;
    return this.share >= need || this.listening.share >= Math.min(1, need + SURE); // else the server may count a little less
  }

  tellLocked() {
    this.task.study.say(`${this.name}: ${this.reason()}`);
    this.element.classList.remove("told");
    requestAnimationFrame(() => this.element.classList.add("told"));
  }

  reason() {
    if (this.silent) return "This sound cannot be played. You are not asked to rate it: go on with the others.";
    const share = Math.max(this.share, this.listening.share);
    const need = percent(this.task.study.about.heard_share);
    return share ? `Heard ${percent(share)}. It can be rated once ${need} were heard.` : "Play it first. Then it can be rated.";
  }

  // Rating

  answer(value) {
    const { view, outbox } = this.task.study;
    const key = randomName();
    this.given = key;
    const body = { key, view, rating: value, rated_s: this.task.seconds, heard: this.listening.numbers };
    this.slider.kept = value;
    outbox.add(`answer ${key}`, this.item.id, `${this.address}/rating`, body);
    this.update();
  }

  /** The server has what was sent. */
  kept(entry, answer) {
    this.share = Math.max(this.share, answer.heard ?? 0);
    this.item.rating = entry.body.rating ?? this.item.rating;
    this.update();
  }

  refused(entry, error) {
    if (entry.body.rating === undefined || (this.given && entry.body.key !== this.given)) return;
    this.slider.kept = this.item.rating;
    this.slider.show(this.item.rating);
    this.fail(`This rating was not kept: ${error.message}`);
    this.update();
  }

  get rated() {
    return !this.slider.unset;
  }

  get complete() {
    return this.silent || (this.unlocked && this.rated);
  }

  /** What is there of it already, in this tab or another. */
  refresh(item) {
    this.share = Math.max(this.share, item.heard);
    this.item.rating = item.rating;
    this.item.playable = item.playable;
    if (this.silent) this.fail("");
    if (!this.task.study.outbox.holds(item.id) && !this.slider.waiting && !this.slider.held) {
      this.slider.kept = item.rating;
      this.slider.show(item.rating);
    }
    this.update();
  }

  update() {
    this.slider.lock(this.silent || !this.unlocked);
    this.button.disabled = this.silent;
    const { outbox } = this.task.study;
    const saved = () => (outbox.holds(this.item.id) ? (outbox.tries ? "Not saved yet." : "Saving…") : "Saved.");
    const text = this.silent || !this.unlocked ? this.reason() : this.rated ? `Rated ${this.slider.value}. ${saved()}` : "Not rated yet.";
    if (this.note.textContent !== text) this.note.textContent = text;
    this.element.classList.toggle("missing", this.task.asked && !this.complete);
    this.task.changed();
  }

  fail(why) {
    this.trouble.textContent = why;
    this.trouble.hidden = !why;
  }

  close() {
    this.slider.flush();
    this.wave.close();
    if (!this.task.player.is(this.track)) return;
    this.task.player.audio.pause();
    this.report();
  }
}
