// The search page: what is asked stands in the address, and everything else follows from it.

import { ask, count, el, icon } from "/web/dom.js";
import { Player } from "/web/player.js";
import { Filters } from "./filters.js";
import { Hits } from "./hits.js";
import { listen } from "./keys.js";

const STEP = 20;
const MOST = 500;
const at = (id) => document.getElementById(id);

const player = new Player();
const hits = new Hits(at("hits"), player, (like) => go({ ...asked(), q: undefined, like, limit: undefined }));
const filters = new Filters(at("filters"), () => go({ ...asked(), q: at("q").value.trim(), limit: undefined }));
const held = ask("/api/about");
const LIKE = /^([0-9a-f]{32}@\d+(\.\d+)?|u[0-9a-f]{32})$/; // as the API takes it
let running = new AbortController();
let remark = ""; // on how the question came about, for its answer alone

/** The question in the address, as names and values; lists for what may stand several times. */
function asked() {
  const found = {};
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (["tag", "rate", "channels"].includes(name)) (found[name] ||= []).push(value);
    else if (name !== "like" || LIKE.test(value)) found[name] = value;
  }
  return { ...found, ...(filters.ready ? filters.values() : {}) };
}

function written(question) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(question)) {
    for (const each of [value].flat()) if (each !== undefined && each !== "" && each !== null) parts.append(name, each);
  }
  return parts.toString();
}

/** Asks another question: it goes into the address, so that back leads to the one before. */
function go(question, about = "") {
  remark = about;
  const next = written(question);
  if (next !== location.search.slice(1)) history.pushState(null, "", next ? `?${next}` : location.pathname);
  show();
}

/** Shows what the address asks. */
async function show() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const text = location.search.slice(1);
  const question = Object.fromEntries(new URLSearchParams(text));
  at("q").value = question.q || "";
  filters.show(new URLSearchParams(text));
  showGiven(question);
  fail("");
  at("notes").replaceChildren();
  document.title = question.q ? `${question.q} · earmark` : "earmark";
  if (!question.q && !question.like) {
    empty();
    return;
  }
  at("start").hidden = true;
  if (question.like && !LIKE.test(question.like)) {
    none(question, "The address names no sound to search by: drop one here, or search by words.");
    return;
  }
  at("hits").setAttribute("aria-busy", "true");
  say("Searching…");
  try {
    const [{ roots }, answer, ratings] = await Promise.all([
      held,
      ask(`/api/search?${text}`, { signal }),
      question.q ? ask(`/api/ratings?${new URLSearchParams({ q: question.q.slice(0, 1000) })}`, { signal }) : [],
    ]);
    hits.roots = roots;
    if (!signal.aborted) found(question, answer, ratings, text);
  } catch (error) {
    if (error.name === "AbortError" || signal.aborted) return;
    none(question, error.message);
  }
}

/** Shows that there is no answer, and why. */
function none(question, why) {
  hits.show([], question, []);
  at("hits").removeAttribute("aria-busy");
  at("export").hidden = at("more").hidden = true;
  say("");
  fail(why);
}

function found(question, answer, ratings, text) {
  hits.show(answer.hits, question, ratings);
  at("hits").removeAttribute("aria-busy");
  const shown = answer.hits.length;
  const of = answer.searched > shown ? ` of ${answer.searched.toLocaleString("en")}` : "";
  say(shown ? `${shown.toLocaleString("en")}${of} ${answer.searched === 1 ? "sound" : "sounds"}, best first` : nothing(answer));
  at("notes").replaceChildren(...[remark, ...answer.notes].filter(Boolean).map((note) => el("li", {}, note)));
  for (const form of ["m3u", "csv", "json"]) at(`as-${form}`).href = `/api/export?${text}&form=${form}`;
  at("export").hidden = !shown;
  at("more").hidden = shown < (Number(question.limit) || STEP) || shown >= MOST || shown >= answer.searched;
}

function nothing(answer) {
  if (answer.searched) return "Nothing found";
  return filters.set ? "No sound passes the filters" : "The index holds no sound";
}

async function empty() {
  hits.show([], {}, []);
  at("export").hidden = at("more").hidden = true;
  at("start").hidden = false;
  say("");
  const { name, files, hours, model } = await held;
  const many = hours < 1 ? `${Math.round(hours * 60)} min` : `${hours.toFixed(1)} hours`;
  at("holds").textContent = `${name}: ${count(files, "sound")}, ${many}; searched by ${model.split("/").pop()}.`;
}

const say = (text) => (at("status").textContent = text);

function fail(text) {
  at("error").textContent = text;
  at("error").hidden = !text;
}

// What is searched by, beside words

const names = {
  get: (like) => sessionStorage.getItem(`like ${like}`),
  set: (like, name) => sessionStorage.setItem(`like ${like}`, name),
};

async function showGiven({ like }) {
  if (!like || !LIKE.test(like)) {
    at("given").replaceChildren();
    return;
  }
  const drop = el("button", {
    type: "button",
    className: "chip-off",
    "aria-label": "Do not search by this sound",
    onclick: () => {
      go({ ...asked(), like: undefined, limit: undefined });
      at("q").focus();
    },
  });
  drop.append(icon("clear"));
  const name = el("span", { className: "chip-name" }, names.get(like) || "a sound");
  at("given").replaceChildren(el("li", { className: "chip" }, "like ", name, drop));
  name.title = name.textContent;
  if (names.get(like) || like.startsWith("u")) return;
  try {
    const known = await ask(`/api/sounds/${like.split("@")[0]}/facts`);
    names.set(like, known.name);
    name.textContent = name.title = known.name;
  } catch {
    name.textContent = "a sound that is not there any more";
  }
}

async function byFile(file, others = 0) {
  fail("");
  const about = await held;
  if (file.size > about.most_upload_bytes) {
    fail(`${file.name} has ${Math.ceil(file.size / 1e6)} MB; at most ${Math.floor(about.most_upload_bytes / 1e6)} MB.`);
    return;
  }
  const before = at("status").textContent;
  say(`Listening to ${file.name}…`);
  at("hits").setAttribute("aria-busy", "true");
  try {
    const { like } = await ask("/api/like", { method: "POST", body: file });
    names.set(like, file.name);
    const first = others ? `Of ${others + 1} files that were dropped, the first is searched by: ${file.name}.` : "";
    go({ ...asked(), q: undefined, like, limit: undefined }, first);
  } catch (error) {
    at("hits").removeAttribute("aria-busy");
    say(before);
    fail(error.status === 422 ? `${file.name} is no sound that can be read.` : `${file.name}: ${error.message}`);
  }
}

function takeDrops() {
  const isFile = (event) => [...(event.dataTransfer?.types || [])].includes("Files");
  const shown = (on) => (at("drop").hidden = !on);
  let depth = 0;
  document.addEventListener("dragenter", (event) => isFile(event) && shown(++depth > 0));
  document.addEventListener("dragleave", (event) => isFile(event) && shown(--depth > 0));
  document.addEventListener("dragover", (event) => isFile(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!isFile(event)) return;
    event.preventDefault();
    shown((depth = 0));
    const dropped = [...event.dataTransfer.items].filter((item) => item.kind === "file");
    const [file, ...others] = dropped.filter((item) => !item.webkitGetAsEntry()?.isDirectory).map((item) => item.getAsFile());
    if (file) byFile(file, others.length);
    else if (dropped.length) fail("A folder was dropped: drop a sound.");
  });
  // a hit that is dragged out of the page is for other programs: no box here takes its path
  let own = false;
  document.addEventListener("dragstart", (event) => (own = event.target.closest?.(".hit") !== null));
  document.addEventListener("dragend", () => (own = false));
  document.addEventListener("dragover", (event) => {
    if (!own) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "none";
  });
  document.addEventListener("drop", (event) => own && event.preventDefault());
}

// Begin

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  go({ ...asked(), q: at("q").value.trim(), limit: undefined });
  at("q").blur();
});
at("by-file").addEventListener("click", () => at("file").click());
at("file").addEventListener("change", () => {
  const [file] = at("file").files;
  at("file").value = "";
  if (file) byFile(file);
});
at("more").addEventListener("click", async () => {
  const shown = hits.rows.length;
  const limit = Math.min(MOST, (Number(asked().limit) || STEP) + STEP);
  const next = written({ ...asked(), limit });
  history.replaceState(null, "", `?${next}`);
  await show();
  if (at("more").hidden) hits.rows[shown]?.element.focus(); // the button that had the focus is gone
});
at("show-keys").addEventListener("click", () => at("keys").showModal());
window.addEventListener("popstate", () => {
  remark = "";
  show();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => hits.redraw());
takeDrops();
listen({ hits, player, box: at("q"), keys: at("keys") });
show();
held.then((about) => filters.offer(about)).catch((error) => fail(error.message));
