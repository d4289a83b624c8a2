// The filters: a form whose values stand in the address.

import { el, icon } from "/web/dom.js";

const TEXTS = ["not", "shortest_s", "longest_s", "folder"];
const SWITCHES = ["keywords", "fold"]; // on unless they are said to be off
const CHANNELS = { 1: "mono", 2: "stereo" };

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
    const box = (name, { value, files }, text) =>
      el("label", { className: "tick" }, el("input", { type: "checkbox", name, value }), ` ${text} `, el("span", { className: "muted" }, files.toLocaleString("en")));
    const hertz = (value) => `${(Number(value) / 1000).toLocaleString("en")} kHz`;
    this.form.querySelector("#rates").replaceChildren(...rates.slice(0, 8).map((each) => box("rate", each, hertz(each.value))));
    this.form.querySelector("#channels").replaceChildren(
      ...channels.slice(0, 6).map((each) => box("channels", each, CHANNELS[each.value] || `${each.value} channels`)),
    );
    this.tick();
  }

  tick() {
    for (const name of ["rate", "channels"]) {
      for (const box of this.form.querySelectorAll(`input[name=${name}]`)) box.checked = this.given[name].includes(box.value);
    }
  }

  ticked(name) {
    const boxes = [...this.form.querySelectorAll(`input[name=${name}]`)];
    return boxes.length ? boxes.filter((box) => box.checked).map((box) => box.value) : this.given[name];
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
          this.tags = this.tags.filter((each) => each !== tag);
          this.showTags();
          this.changed();
        },
      });
      off.append(icon("clear"));
      return el("li", { className: "chip" }, tag, off);
    };
    this.form.querySelector("#chosen-tags").replaceChildren(...this.tags.map(chip));
  }
}
