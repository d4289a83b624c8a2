// The list of hits: a row each, with its waveform, its rating and what can be done with it.

import { ask, el, icon, length, time } from "/web/dom.js";
import { Wave } from "/web/player.js";
import { Rating } from "./rating.js";

const CHANNELS = { 1: "mono", 2: "stereo" };
const keyOf = (hit) => `${hit.id}@${hit.start_s}`;
const told = (hit) => JSON.stringify({ ...hit, score: 0 }); // what a row shows of it

export class Hits {
  constructor(list, player, onlike) {
    Object.assign(this, { list, player, onlike, rows: [], roots: [], current: -1, question: {} });
    player.onchange = () => this.rows.forEach((row) => row.follow());
    player.onfail = (track, why) => this.rows.find((row) => row.key === track.key)?.fail(why);
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        this.seen.unobserve(entry.target);
        this.rows.find((row) => row.element === entry.target)?.wave.load();
      }
    }, { rootMargin: "300px" });
    window.addEventListener("pagehide", () => this.rows.forEach((row) => row.rating?.flush(true)));
  }

  /** Shows hits, best first; rows that stood there already stay as they are. */
  show(hits, question, ratings) {
    const before = new Map(this.rows.map((row) => [row.key, row]));
    const same = question.q === this.question.q && question.like === this.question.like;
    this.question = question;
    const given = new Map(ratings.map((each) => [keyOf(each), each.rating]));
    this.rows = hits.map((hit, at) => {
      const row = same && before.get(keyOf(hit));
      if (row && told(row.hit) === told(hit)) {
        before.delete(row.key);
        return Object.assign(row, { rank: at + 1, question });
      }
      return new Row(hit, at + 1, this, given.get(keyOf(hit)));
    });
    for (const row of before.values()) row.close();
    this.list.replaceChildren(...this.rows.map((row) => row.element));
    for (const row of this.rows) if (!row.asked) this.watch(row);
    this.mark(same ? this.current : -1);
  }

  watch(row) {
    row.asked = true;
    this.seen.observe(row.element);
  }

  /** A folder from the indexed one on, where there is one alone. */
  short(folder) {
    const root = this.roots.find((each) => folder === each || folder.startsWith(`${each}/`));
    return root === undefined ? folder : folder.slice(root.lastIndexOf("/") + 1);
  }

  redraw() {
    this.rows.forEach((row) => row.wave.draw());
  }

  mark(at) {
    this.rows.forEach((row, place) => row.element.classList.toggle("current", place === at));
    this.current = Math.min(at, this.rows.length - 1);
  }

  /** Goes to the next hit (1) or the one before (−1). */
  step(by) {
    if (!this.rows.length) return;
    const to = this.current < 0 ? 0 : Math.min(Math.max(0, this.current + by), this.rows.length - 1);
    this.mark(to);
    this.rows[to].element.focus();
  }

  /** The row whose sound was played last, if it is still there. */
  get playing() {
    return this.rows.find((row) => this.player.is(row.track)) || null;
  }

  get chosen() {
    return this.rows[this.current] || null;
  }
}

class Row {
  constructor(hit, rank, hits, rating) {
    Object.assign(this, { hit, rank, hits, key: keyOf(hit), asked: false, question: hits.question });
    this.address = `/api/sounds/${hit.id}`;
    this.track = { key: this.key, address: `${this.address}/play` };
    const region = { start: hit.start_s, end: hit.end_s };
    const parts = hit.others.map((each) => ({ start: each.start_s, end: each.end_s }));
    const sound = { address: this.address, name: hit.name, duration: hit.duration_s };
    this.wave = new Wave(sound, region, parts, (at) => this.play(at), (why) => this.fail(why, "note"));
    this.button = el("button", { type: "button", className: "play", onclick: () => this.toggle() });
    this.trouble = el("p", { className: "error", role: "alert", hidden: true });
    this.name = el("h3", { className: "name", id: `n${hit.id}${rank}`, draggable: true, title: hit.path }, hit.name);
    this.name.addEventListener("dragstart", (event) => this.drag(event, `${this.address}?download=true`, hit.name));
    this.element = el(
      "li",
      { className: "hit", tabIndex: -1, "aria-labelledby": this.name.id, onfocusin: () => this.chosen(), onpointerdown: () => this.chosen() },
      this.button,
      el("div", { className: "what" }, this.name, el("p", { className: "where", title: hit.folder }, el("bdi", {}, this.hits.short(hit.folder))), this.facts(), this.tags()),
      this.wave.element,
      this.rated(rating ?? null),
      this.actions(),
      this.trouble,
    );
    this.follow();
  }

  chosen() {
    this.hits.mark(this.hits.rows.indexOf(this));
  }

  close() {
    this.rating?.flush();
    this.wave.close();
    if (this.hits.player.is(this.track)) this.hits.player.audio.pause();
  }

  // What is known of it

  facts() {
    const { hit } = this;
    const whole = hit.start_s <= 0 && hit.end_s >= hit.duration_s - 0.01;
    const lasts = length(hit.duration_s);
    const region = `${time(hit.start_s)}–${time(hit.end_s)}`;
    const parts = [
      whole ? lasts : el("b", { title: "where in the file" }, region),
      whole ? "" : `of ${lasts}`,
      `${(hit.rate / 1000).toLocaleString("en")} kHz`,
      CHANNELS[hit.channels] || `${hit.channels} ch`,
    ];
    const score = el("span", { className: "score", title: "cosine between what was asked and this sound" }, hit.cosine.toFixed(2).replace("-", "−"));
    const named = hit.named ? el("span", { className: "badge", title: "its name or tags hold the words" }, "named") : "";
    return el("p", { className: "facts" }, score, named, ...parts.filter(Boolean).map((each) => el("span", {}, each)));
  }

  tags() {
    const { hit } = this;
    const shown = hit.tags.slice(0, 6).map((tag) => el("span", { className: "tag" }, tag));
    const others = hit.others.map((part) =>
      el("button", { type: "button", className: "tag jump", "aria-label": `Play from ${time(part.start_s)}`, onclick: () => this.play(part.start_s) }, time(part.start_s)),
    );
    if (others.length) others.unshift(el("span", { className: "muted" }, "also at"));
    const copies = hit.copies.length
      ? el("details", { className: "copies" }, el("summary", {}, `+${hit.copies.length} near-duplicate${hit.copies.length === 1 ? "" : "s"}`), el("ul", {}, ...hit.copies.map((each) => el("li", {}, each))))
      : "";
    return shown.length || others.length || copies ? el("div", { className: "tags" }, ...shown, ...others, copies) : "";
  }

  // Playing

  play(at) {
    this.trouble.hidden = true;
    this.hits.player.play(this.track, at);
  }

  toggle() {
    this.trouble.hidden = true;
    this.hits.player.toggle(this.track, this.hit.start_s);
  }

  start() {
    this.play(this.hit.start_s);
  }

  follow() {
    const { player } = this.hits;
    const mine = player.is(this.track);
    const state = mine && player.playing ? "pause" : "play";
    this.wave.move(mine ? player.position : null);
    this.element.classList.toggle("waiting", mine && player.waiting);
    if (state === this.state) return;
    this.state = state;
    this.button.replaceChildren(icon(state));
    this.button.setAttribute("aria-label", `${state === "play" ? "Play" : "Pause"} ${this.hit.name}`);
    this.element.classList.toggle("playing", state === "pause");
  }

  /** Says what is wrong: aloud ("alert") where it answers to something that was done, else to be found ("note"). */
  fail(why, role = "alert") {
    this.trouble.setAttribute("role", role);
    this.trouble.textContent = why;
    this.trouble.hidden = !why;
  }

  // What can be done with it

  actions() {
    const { hit } = this;
    const like = el("button", { type: "button", className: "button icon-only", title: "More like this (l)", "aria-label": `More like ${hit.name}`, onclick: () => this.like() }, icon("like"));
    const cutAddress = `${this.address}/cut?start=${hit.start_s}&end=${hit.end_s}`;
    const cut = el("a", { className: "button icon-only", href: cutAddress, download: "", title: "Cut: download the part that was found", "aria-label": `Download ${time(hit.start_s)} to ${time(hit.end_s)} of ${hit.name}` }, icon("cut"));
    cut.addEventListener("dragstart", (event) => this.drag(event, cutAddress, `${hit.name.replace(/\.[^.]*$/, "")}_cut.wav`));
    const saveAddress = `${this.address}?download=true`;
    const save = el("a", { className: "button icon-only", href: saveAddress, download: hit.name, title: "Download the file", "aria-label": `Download ${hit.name}` }, icon("save"));
    save.addEventListener("dragstart", (event) => this.drag(event, saveAddress, hit.name));
    return el("div", { className: "do" }, like, cut, save);
  }

  like() {
    this.hits.onlike(this.key);
  }

  /** Hands the file to whoever it is dropped on: browsers fetch it from the address. */
  drag(event, address, name) {
    const whole = new URL(address, location.href).href;
    const plain = name.replace(/[:/\\\x00-\x1f]/g, "_");
    event.dataTransfer.setData("DownloadURL", `application/octet-stream:${plain}:${whole}`);
    event.dataTransfer.setData("text/uri-list", whole);
    event.dataTransfer.setData("text/plain", this.hit.path);
    event.dataTransfer.effectAllowed = "copy";
  }

  // The listener's own rating

  rated(value) {
    const { q } = this.question;
    if (!q) return el("div", { className: "rate" });
    this.rating = new Rating(this.hit.name, q, value, () => this.given(), (why) => this.fail(why));
    return this.rating.element;
  }

  /** What goes with a rating. */
  given() {
    const { hit, rank } = this;
    const { q, like, keywords } = this.question;
    const stratum = like ? "search-like" : keywords === "false" ? "search-embedding" : "search";
    const played_s = this.hits.player.heard.get(this.key) || 0;
    return { q, id: hit.id, start_s: hit.start_s, end_s: hit.end_s, rank, stratum, played_s, cosine: hit.cosine };
  }
}
