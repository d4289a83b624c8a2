// The filters: a form whose values stand in the address.

import { count, el, icon } from "/web/dom.js";

const TEXTS = ["not", "shortest_s", "longest_s", "folder"];
const SWITCHES = ["keywords", "fold"]; // on unless they are said to be off
const CHANNELS = { 1: "mono", 2: "stereo" };
const SAID = {
  rate: (value) => `${(Number(value) / 1000).toLocaleString("en")} kHz`,
  channels: (value) => CHANNELS[value] || `${value} channels`,
};
const OFFERED = { rate: 12, channels: 6 };

export class Filters {
  constructor(place, onchange) {
    this.place = place;
    this.form = place.querySelector("form");
    this.onchange = onchange;
    this.tags = [];
    this.ready = false; // before the first `show` the address alone knows
    place.open = matchMedia("(min-width: 60rem)").matches;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.changed();
    });
    this.form.addEventListener("change", (event) => {
      if (event.target.id === "tag") this.addTag(event.target);
      else if (event.target.reportValidity()) this.changed();
    });
    this.form.querySelector("#tag").addEventListener("input", (event) => {
      // choosing from the list ends the entry at once
      if (event.inputType === "insertReplacementText" || !event.inputType) this.addTag(event.target);
    });
    this.form.querySelector("#clear").addEventListener("click", () => {
      this.show(new URLSearchParams());
      this.changed();
    });
  }

  changed() {
    this.badge();
    this.onchange();
  }

  /** Shows the values of an address. */
  show(parts) {
    for (const name of TEXTS) this.form.elements[name].value = parts.get(name) || "";
    for (const name of SWITCHES) this.form.elements[name].checked = parts.get(name) !== "false";
    this.tags = parts.getAll("tag");
    this.showTags();
    this.given = { rate: parts.getAll("rate"), channels: parts.getAll("channels") };
    this.tick();
    this.ready = true;
    this.badge();
  }

  /** Offers what the index holds. */
  offer({ folders, tags, rates, channels }) {
    const options = (choices) => choices.map((each) => el("option", { value: each.value }));
    this.form.querySelector("#folders").replaceChildren(...options(folders));
    this.form.querySelector("#tags").replaceChildren(...options(tags));
    for (const [name, choices] of Object.entries({ rate: rates, channels })) {
      this.boxes(name).replaceChildren(...choices.slice(0, OFFERED[name]).map((each) => this.box(name, each)));
    }
    this.tick();
  }

  boxes(name) {
    return this.form.querySelector(`#${name}-choices`);
  }

  box(name, { value, files }) {
    const many = files === undefined ? "" : el("span", { className: "muted", title: count(files, "sound") }, files.toLocaleString("en"));
    return el("label", { className: "tick" }, el("input", { type: "checkbox", name, value }), ` ${SAID[name](value)} `, many);
  }

  /** Ticks what the address asks; what it asks beyond the offer gets a box of its own. */
  tick() {
    for (const name of Object.keys(SAID)) {
      const values = [...this.form.querySelectorAll(`input[name=${name}]`)].map((box) => box.value);
      const beyond = this.given[name].filter((value) => /^\d{1,8}$/.test(value) && !values.includes(value));
      this.boxes(name).prepend(...[...new Set(beyond)].map((value) => this.box(name, { value })));
      for (const box of this.form.querySelectorAll(`input[name=${name}]`)) box.checked = this.given[name].includes(box.value);
    }
  }

  ticked(name) {
    return [...this.form.querySelectorAll(`input[name=${name}]:checked`)].map((box) => box.value);
  }

  /** Names and values as the API takes them; what is left alone is empty. */
  values() {
    const found = { tag: this.tags, rate: this.ticked("rate"), channels: this.ticked("channels") };
    for (const name of TEXTS) found[name] = this.form.elements[name].value.trim();
    for (const name of SWITCHES) found[name] = this.form.elements[name].checked ? "" : "false";
    return found;
  }

  /** How many are set. */
  get set() {
    return Object.values(this.values()).filter((value) => value.length).length;
  }

  badge() {
    const badge = this.place.querySelector("#filters-set");
    badge.textContent = this.set ? `${this.set} set` : "";
    badge.hidden = !this.set;
  }

  addTag(box) {
    const tag = box.value.trim().toLowerCase();
    box.value = "";
    if (!tag || this.tags.includes(tag)) return;
    this.tags = [...this.tags, tag];
    this.showTags();
    this.changed();
  }

  showTags() {
    const chip = (tag) => {
      const off = el("button", {
        type: "button",
        className: "chip-off",
        "aria-label": `Without the tag ${tag}`,
        onclick: () => {
          const place = this.tags.indexOf(tag);
          this.tags = this.tags.filter((each) => each !== tag);
          this.showTags();
          this.changed();
          this.focusTag(place);
        },
      });
      off.append(icon("clear"));
      return el("li", { className: "chip" }, tag, off);
    };
    this.form.querySelector("#chosen-tags").replaceChildren(...this.tags.map(chip));
  }

  /** Where the eye is once a tag is gone: the next one, or the box for new ones. */
  focusTag(place) {
    const left = this.form.querySelectorAll("#chosen-tags button");
    (left[Math.min(place, left.length - 1)] || this.form.querySelector("#tag")).focus();
  }
}
