// What was answered and is not yet acknowledged. It is kept in the browser until it is, however often it must be sent.

import { passing, pause, send, wait } from "./requests.js";

const PREFIX = "earmark-unsent ";

/** Where entries lie: in the browser's storage, shared by all tabs; in memory where it lets us have none. */
class Shelf {
  constructor() {
    this.memory = new Map();
  }

  put(name, entry) {
    this.memory.set(name, entry);
    try {
      localStorage.setItem(PREFIX + name, JSON.stringify(entry));
    } catch {
      // full, or forbidden: memory has it
    }
  }

  remove(name) {
    this.memory.delete(name);
    try {
      localStorage.removeItem(PREFIX + name);
    } catch {
      // it was never there
    }
  }

  /** All entries, oldest first; also those of other tabs, and of earlier visits. */
  all() {
    const found = new Map(this.memory);
    try {
      for (const key of Object.keys(localStorage)) {
        if (key.startsWith(PREFIX)) found.set(key.slice(PREFIX.length), JSON.parse(localStorage.getItem(key)));
      }
    } catch {
      // what cannot be read is not ours
    }
    return [...found.entries()].filter(([, entry]) => entry?.address).sort((one, other) => one[1].at - other[1].at);
  }
}

export class Outbox {
  /** `onstate` is told "saved", "saving" or "waiting" (for a connection). */
  constructor(onstate) {
    Object.assign(this, { onstate, shelf: new Shelf(), listeners: new Map(), running: null, tries: 0 });
    window.addEventListener("online", () => this.flush());
  }

  /** Whoever shows an item is told what became of what was sent for it: `kept(entry, answer)`, `refused(entry, error)`. */
  listen(item, listener) {
    this.listeners.set(item, listener);
  }

  /** Sends it until it is acknowledged. What has the same name and was not yet sent is replaced. */
  add(name, item, address, body) {
    const last = Math.max(0, ...this.shelf.all().map(([, entry]) => entry.at));
    this.shelf.put(name, { item, address, body, at: Math.max(Date.now(), last + 1) }); // clocks are set back at times
    this.flush();
  }

  /** Whether something for an item waits. */
  holds(item) {
    return this.shelf.all().some(([name, entry]) => entry.item === item && name.startsWith("answer"));
  }

  /** Sends all that waits; done once nothing does. */
  flush() {
    this.running ??= this.run().finally(() => (this.running = null));
    return this.running;
  }

  async run() {
    for (let next; (next = this.shelf.all()[0]); ) {
      const [name, entry] = next;
      if (!this.tries && entry.body.key) this.onstate("saving");
      const [answer, error] = await send(entry.address, entry.body, "PUT").then((answer) => [answer], (error) => [null, error]);
      if (error && passing(error)) {
        this.tries += 1;
        this.onstate("waiting");
        await pause(wait(this.tries));
        continue;
      }
      this.done(name, entry);
      const listener = this.listeners.get(entry.item);
      if (error) listener?.refused(entry, error);
      else listener?.kept(entry, answer);
    }
    this.onstate("saved");
  }

  /** Takes it away, unless something newer took its place meanwhile. */
  done(name, entry) {
    this.tries = 0;
    const now = this.shelf.all().find(([each]) => each === name);
    if (now && now[1].at === entry.at) this.shelf.remove(name);
  }

  /** Sends what waits while the page is being left: nobody waits for an answer, so it stays on the shelf.
   *
   * All is sent at once and may overtake each other: of the answers for an item only the last one goes, and stays. */
  leave() {
    const last = new Map();
    for (const [name, entry] of this.shelf.all()) {
      const what = name.startsWith("answer") ? `answer ${entry.item}` : name;
      if (last.has(what)) this.shelf.remove(last.get(what)[0]);
      last.set(what, [name, entry]);
    }
    for (const [, entry] of last.values()) send(entry.address, entry.body, "PUT", { keepalive: true }).catch(() => {});
  }
}
