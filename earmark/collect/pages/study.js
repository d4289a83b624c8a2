// The study's page: the server says which step comes next, the address says which page is looked at.

import { ask, el } from "/web/dom.js";
import { Player } from "/web/player.js";
import { listen } from "./keys.js";
import { Listening } from "./listening.js";
import { Outbox } from "./outbox.js";
import { insist, passing, randomName, send } from "./requests.js";
import { SoundCheck } from "./sound.js";
import { consent, final, instructions, refusal, words } from "./steps.js";
import { Task } from "./task.js";

const ENTRY = "earmark-entry"; // what the address brought, until the server has it
const at = (id) => document.getElementById(id);

class Study {
  constructor() {
    Object.assign(this, { view: randomName(), about: null, step: null, current: null, moving: false, heard: new Map() });
    this.player = new Player();
    this.outbox = new Outbox((state) => this.current?.state?.(state));
    this.player.audio.addEventListener("play", () => this.current?.played?.());
    window.addEventListener("popstate", () => this.show());
    window.addEventListener("pagehide", () => this.leave());
    window.addEventListener("pageshow", (event) => event.persisted && this.back());
    document.addEventListener("visibilitychange", () => (document.visibilityState === "hidden" ? this.leave() : this.back()));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.current?.redraw?.());
    at("show-help").addEventListener("click", () => at("help").showModal());
    listen(this, at("help"));
  }

  async begin() {
    try {
      this.about = await insist(() => ask("/api/study"), (text) => this.trouble(text));
      this.titled();
      this.step = await this.enter();
      this.outbox.flush(); // what an earlier visit could not send
      await this.show();
    } catch (error) {
      this.put(refusal(error));
    }
  }

  titled() {
    document.title = at("title").textContent = this.about.title;
    at("instructions").replaceChildren(words(this.about.instructions));
  }

  /** Says who this is: by the cookie, an invitation, or a crowd platform's ids, which then leave the address. */
  async enter() {
    const query = Object.fromEntries(new URLSearchParams(location.search));
    if (Object.keys(query).length) store(ENTRY, query);
    const { invite = "", ...platform } = Object.keys(query).length ? query : stored(ENTRY);
    history.replaceState(null, "", location.pathname);
    try {
      return await insist(() => send("/api/enter", { invite, platform: this.kept(platform) }), (text) => this.trouble(text));
    } finally {
      store(ENTRY, null);
    }
  }

  kept(platform) {
    return Object.fromEntries(this.about.platform_ids.filter((name) => name in platform).map((name) => [name, platform[name]]));
  }

  // What is shown

  get address() {
    const found = location.pathname.match(/^\/page\/(\d+)$/);
    return found ? Number(found[1]) : 0;
  }

  /** Shows what the address asks, where that is there by now; else where the rater stands. */
  async show() {
    const { step, number } = this.step;
    if (step !== "qualification" && step !== "task") {
      this.move("/", true);
      this.showStep(step);
      return;
    }
    const wanted = this.address && this.address <= number ? this.address : number;
    this.move(`/page/${wanted}`, true);
    await this.showPage(wanted);
  }

  showStep(step) {
    const steps = {
      consent: () => consent(this.about, () => this.do("/api/consent")),
      sound: () => instructions(this.about, () => this.put(new SoundCheck((answers) => this.do("/api/sound-check", { answers })))),
    };
    this.put((steps[step] || (() => final(this.step, () => this.again())))());
  }

  async showPage(number) {
    try {
      const shown = await insist(() => ask(`/api/pages/${number}`), (text) => this.trouble(text));
      if (this.address !== number) return; // the rater went on meanwhile
      const task = new Task(shown, this, { onnext: () => this.submit(shown), onback: () => this.go(number - 1) });
      this.put(task, `Page ${number} of ${shown.of}`);
      task.begin();
    } catch (error) {
      this.put(refusal(error));
    }
  }

  /** Puts a step in the place of the one before; its heading has the focus. */
  put(step, progress = "") {
    this.current?.close?.();
    this.current = step;
    at("main").replaceChildren(step.element);
    at("progress").textContent = progress;
    at("progress").hidden = !progress;
    at("show-help").hidden = !this.step || ["consent", "failed", "nothing_left", "done"].includes(this.step.step);
    scrollTo(0, 0);
    step.heading?.focus({ preventScroll: true });
    step.state?.(this.outbox.tries ? "waiting" : "saved");
  }

  move(address, instead = false) {
    if (address === location.pathname) return;
    if (instead) history.replaceState(null, "", address);
    else history.pushState(null, "", address);
  }

  go(number) {
    this.move(`/page/${number}`);
    return this.show();
  }

  // What is done

  /** Does one step at a time: a second click does nothing. */
  async alone(action) {
    if (this.moving) return;
    this.moving = true;
    this.current?.busy?.(true);
    try {
      await action();
    } catch (error) {
      this.put(refusal(error));
    } finally {
      this.moving = false;
      this.current?.busy?.(false);
    }
  }

  do(address, body = {}) {
    return this.alone(async () => {
      this.step = await insist(() => send(address, body), (text) => this.trouble(text));
      await this.show();
    });
  }

  submit(shown) {
    return this.alone(async () => {
      await this.outbox.flush();
      try {
        this.step = await insist(() => send(`/api/pages/${shown.number}/submit`), (text) => this.trouble(text));
      } catch (error) {
        if (error.status !== 409) throw error;
        await this.back(); // it was changed elsewhere: shows what is missing
        this.current.tell(error.message);
        return;
      }
      const { step, number } = this.step;
      const further = step === "qualification" || step === "task";
      this.move(further ? `/page/${shown.number < number ? shown.number + 1 : number}` : "/");
      await this.show();
    });
  }

  again() {
    return this.alone(async () => {
      this.step = await insist(() => ask("/api/state"), (text) => this.trouble(text));
      await this.show();
    });
  }

  /** The page is in sight again: another tab may have gone on. */
  async back() {
    const { shown } = this.current || {};
    this.outbox.flush();
    if (!shown) return;
    try {
      this.current.refresh(await ask(`/api/pages/${shown.number}`));
    } catch (error) {
      if (!passing(error)) this.put(refusal(error));
    }
  }

  leave() {
    this.current?.rows?.forEach((row) => {
      row.slider.flush(true);
      if (this.player.is(row.track)) row.report();
    });
    this.outbox.leave();
  }

  listening(item) {
    if (!this.heard.has(item.id)) this.heard.set(item.id, new Listening(item.duration_s));
    return this.heard.get(item.id);
  }

  /** Tells screen readers. */
  say(text) {
    at("live").textContent = "";
    requestAnimationFrame(() => (at("live").textContent = text));
  }

  /** What stands in the way, until it is gone. */
  trouble(text) {
    const shown = at("main").querySelector(":scope > .trouble");
    if (!text) shown?.remove();
    else if (!shown) at("main").prepend(el("p", { className: "error trouble", role: "alert" }, text));
  }
}

function store(name, value) {
  try {
    if (value === null) sessionStorage.removeItem(name);
    else sessionStorage.setItem(name, JSON.stringify(value));
  } catch {
    // a browser that keeps nothing
  }
}

function stored(name) {
  try {
    return JSON.parse(sessionStorage.getItem(name)) || {};
  } catch {
    return {};
  }
}

new Study().begin();
