// One player a page, and waveforms that are drawn from the server's peaks and followed by it.

import { ask, detail, el, length, time } from "./dom.js";

const WHOLE_S = 90; // longer sounds are drawn in part
const PART_S = 80;
const shown = (level) => level ** 0.7; // quiet sounds are seen too

/** Plays one sound at a time. `onchange` is told whenever what plays, or whether, or where, has changed. */
export class Player {
  constructor() {
    this.audio = el("audio", { preload: "metadata" });
    this.track = null; // { address, key }
    this.onchange = () => {};
    this.onfail = () => {};
    this.onheard = () => {}; // is told each piece that sounded: the track, from where to where
    this.heard = new Map(); // key → seconds listened to
    this.last = 0;
    this.wanted = null; // where to begin, until the sound is there
    for (const name of ["play", "pause", "ended", "seeked", "loadedmetadata"]) {
      this.audio.addEventListener(name, () => this.moved());
    }
    this.audio.addEventListener("timeupdate", () => this.moved());
    this.audio.addEventListener("loadedmetadata", () => this.begin());
    this.audio.addEventListener("error", () => this.failed());
    const step = () => {
      if (this.playing) this.onchange();
      requestAnimationFrame(step);
    };
    requestAnimationFrame(step);
  }

  /** Whether the sound is still being brought. */
  get waiting() {
    return this.playing && this.audio.readyState < 3;
  }

  get playing() {
    return this.track !== null && !this.audio.paused && !this.audio.ended;
  }

  /** Seconds into the sound. */
  get position() {
    return this.wanted ?? this.audio.currentTime;
  }

  is(track) {
    return this.track !== null && this.track.key === track.key;
  }

  /** Plays a sound from there on; without a time it goes on where it stands. */
  play(track, at = null) {
    if (!this.is(track)) {
      this.audio.pause();
      this.moved(); // what sounded since it last was looked at
      this.track = track;
      this.wanted = this.last = at ?? 0;
      this.audio.src = track.address;
    } else if (at !== null) {
      this.seek(at);
    } else if (this.audio.ended) {
      this.seek(0);
    }
    this.audio.play().catch((error) => {
      // browsers that want a click first, and sounds that were changed for others, are no failures
      if (error.name !== "NotAllowedError" && error.name !== "AbortError") this.failed();
    });
    this.onchange();
  }

  toggle(track, at) {
    if (this.is(track) && this.playing) this.audio.pause();
    else this.play(track, this.is(track) ? null : at);
  }

  seek(at) {
    if (this.wanted === null) this.moved(); // what sounded before
    if (this.audio.readyState > 0) this.audio.currentTime = Math.max(0, at);
    else this.wanted = Math.max(0, at);
    this.last = at;
    this.onchange();
  }

  begin() {
    if (this.wanted === null) return;
    this.audio.currentTime = this.wanted;
    this.last = this.wanted;
    this.wanted = null;
  }

  /** Adds up what was listened to: time that passed by playing, not by seeking. */
  moved() {
    const now = this.audio.currentTime;
    const passed = now - this.last;
    if (this.track && passed > 0 && passed < 1.5) {
      this.heard.set(this.track.key, (this.heard.get(this.track.key) || 0) + passed);
      this.onheard(this.track, this.last, now);
    }
    this.last = now;
    this.onchange();
  }

  async failed() {
    const track = this.track;
    if (!track || !this.audio.error) return;
    this.track = null;
    this.wanted = null;
    let why = "The browser cannot play this sound. Cut or download it instead.";
    try {
      const answer = await fetch(track.address, { headers: { Range: "bytes=0-0" } });
      if (!answer.ok) why = await detail(answer);
    } catch {
      why = "The server does not answer. Is it still running?";
    }
    this.onfail(track, why);
    this.onchange();
  }
}

/**
 * A waveform with the time axis, of a sound { address, name, duration }, whole or the part around a region.
 * Click, or the arrow keys, seek; `onseek` is told the time. `parts` are the other regions that came near. `onfail` is told why a sound is refused.
 */
export class Wave {
  constructor(sound, region, parts, onseek, onfail = () => {}) {
    Object.assign(this, { sound, region, parts, onseek, onfail, peaks: null, position: null, failure: "" });
    this.view = this.around(region.start);
    this.canvas = el("canvas", {
      className: "wave-canvas",
      tabIndex: 0,
      role: "slider",
      "aria-label": `Position in ${sound.name}`,
      "aria-valuemin": "0",
      "aria-valuemax": sound.duration.toFixed(1),
      onclick: (event) => this.onseek(this.at(event)),
      onkeydown: (event) => this.key(event),
    });
    this.left = el("span", {}, "");
    this.right = el("span", {}, "");
    this.axis = el("div", { className: "wave-axis", "aria-hidden": "true" }, this.left, this.right);
    this.element = el("div", { className: "wave" }, this.canvas, this.axis);
    this.abort = new AbortController();
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(this.canvas);
    this.label();
  }

  around(at) {
    const { duration } = this.sound;
    if (duration <= WHOLE_S) return { start: 0, end: duration };
    const start = Math.min(Math.max(0, at - PART_S / 2 + 5), duration - PART_S);
    return { start, end: start + PART_S };
  }

  /** Asks for the peaks of what is in view. */
  async load() {
    const { start, end } = this.view;
    const points = Math.min(1000, Math.max(100, Math.round(this.canvas.clientWidth / 2)));
    try {
      const address = `${this.sound.address}/peaks?start=${start}&end=${end}&points=${points}`;
      const { peaks } = await ask(address, { signal: this.abort.signal });
      if (this.view.start === start) this.peaks = peaks;
    } catch (error) {
      if (error.name === "AbortError") return;
      this.failure = error.message;
      if ([404, 422].includes(error.status)) this.onfail(error.message);
    }
    this.element.classList.toggle("failed", Boolean(this.failure));
    this.element.classList.add("loaded");
    this.draw();
  }

  close() {
    this.abort.abort();
    this.sizes.disconnect();
  }

  /** Moves the playhead; null takes it away. Long sounds turn the page. */
  move(position) {
    if (this.position === position) return;
    this.position = position;
    if (position !== null && (position < this.view.start || position > this.view.end)) {
      this.view = this.around(position + PART_S / 2 - 7);
      this.peaks = null;
      this.load();
    }
    this.label();
    this.draw();
  }

  label() {
    const whole = this.view.end - this.view.start >= this.sound.duration - 0.01;
    this.left.textContent = time(this.view.start);
    this.right.textContent = whole ? length(this.sound.duration) : time(this.view.end);
    const at = this.position ?? this.region.start;
    this.canvas.setAttribute("aria-valuenow", at.toFixed(1));
    this.canvas.setAttribute("aria-valuetext", `${time(at, true)} of ${time(this.sound.duration, true)}`);
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    return this.view.start + share * (this.view.end - this.view.start);
  }

  key(event) {
    const step = event.shiftKey ? 10 : 1;
    const at = this.position ?? this.region.start;
    const to = {
      ArrowLeft: at - step,
      ArrowRight: at + step,
      Home: 0,
      End: Math.max(0, this.sound.duration - 1),
    }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.onseek(Math.min(Math.max(0, to), this.sound.duration));
  }

  draw() {
    const box = this.canvas.getBoundingClientRect();
    if (!box.width) return;
    const scale = window.devicePixelRatio || 1;
    const width = Math.round(box.width * scale);
    const height = Math.round(box.height * scale);
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    const styles = getComputedStyle(this.canvas);
    const colour = (name) => styles.getPropertyValue(name).trim();
    const pen = this.canvas.getContext("2d");
    const { start, end } = this.view;
    const x = (seconds) => ((seconds - start) / (end - start)) * width;
    pen.clearRect(0, 0, width, height);
    for (const part of this.parts) {
      pen.fillStyle = colour("--region-other");
      pen.fillRect(x(part.start), 0, x(part.end) - x(part.start), height);
    }
    const whole = this.region.start <= 0 && this.region.end >= this.sound.duration - 0.01;
    if (!whole) {
      pen.fillStyle = colour("--region");
      pen.fillRect(x(this.region.start), 0, x(this.region.end) - x(this.region.start), height);
      pen.fillStyle = colour("--accent");
      pen.fillRect(x(this.region.start), 0, Math.max(scale, x(this.region.end) - x(this.region.start)), 2 * scale);
    }
    if (this.peaks) this.drawPeaks(pen, width, height, scale, colour, x);
    else {
      pen.fillStyle = colour("--wave");
      pen.fillRect(0, Math.round(height / 2), width, scale);
    }
    if (end - start < this.sound.duration - 0.01) {
      pen.fillStyle = colour("--line");
      pen.fillRect(0, height - 3 * scale, width, 3 * scale);
      pen.fillStyle = colour("--muted");
      const share = width / this.sound.duration;
      pen.fillRect(start * share, height - 3 * scale, Math.max(3 * scale, (end - start) * share), 3 * scale);
    }
    if (this.position !== null) {
      pen.fillStyle = colour("--text");
      pen.fillRect(Math.round(x(this.position)) - scale, 0, 2 * scale, height);
    }
  }

  drawPeaks(pen, width, height, scale, colour, x) {
    const middle = height / 2;
    const tall = height / 2 - 3 * scale;
    const played = this.position === null ? -1 : x(this.position);
    const inside = [x(this.region.start), x(this.region.end)];
    const step = width / this.peaks.length;
    this.peaks.forEach(([least, largest], at) => {
      const left = at * step;
      const active = left >= inside[0] - 1 && left <= inside[1] + 1;
      pen.fillStyle = left < played ? colour("--accent") : colour(active ? "--wave-active" : "--wave");
      const top = middle - shown(Math.max(0, largest)) * tall;
      const bottom = middle + shown(Math.max(0, -least)) * tall;
      pen.fillRect(left, top, Math.max(scale * 0.5, step * 0.8), Math.max(scale, bottom - top));
    });
  }
}
