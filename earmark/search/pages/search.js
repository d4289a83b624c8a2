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
const hits = new Hits(at("hits"), player, (like) => go({ like }));
const filters = new Filters(at("filters"), () => go({ ...asked(), q: at("q").value.trim(), limit: undefined }));
const held = ask("/api/about");
let running = new AbortController();

/** The question in the address, as names and values; lists for what may stand several times. */
function asked() {
  const found = {};
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (["tag", "rate", "channels"].includes(name)) (found[name] ||= []).push(value);
    else found[name] = value;
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
function go(question) {
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
    hits.show([], question, []);
    at("export").hidden = at("more").hidden = true;
    say("");
    fail(error.message);
  }
  at("hits").removeAttribute("aria-busy");
}

function found(question, answer, ratings, text) {
  hits.show(answer.hits, question, ratings);
  at("hits").removeAttribute("aria-busy");
  const shown = answer.hits.length;
  const of = answer.searched > shown ? ` of ${answer.searched.toLocaleString("en")}` : "";
  say(shown ? `${shown.toLocaleString("en")}${of} ${answer.searched === 1 ? "sound" : "sounds"}, best first` : nothing(answer));
  at("notes").replaceChildren(...answer.notes.map((note) => el("li", {}, note)));
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

async function showGiven({ like, ...rest }) {
  if (!like) {
    at("given").replaceChildren();
    return;
  }
  const drop = el("button", {
    type: "button",
    className: "chip-off",
    "aria-label": "Do not search by this sound",
    onclick: () => go({ ...asked(), ...rest, like: undefined, limit: undefined }),
  });
  drop.append(icon("clear"));
  const name = el("span", {}, names.get(like) || "a sound");
  at("given").replaceChildren(el("li", { className: "chip" }, "like ", name, drop));
  if (names.get(like) || like.startsWith("u")) return;
  try {
    const known = await ask(`/api/sounds/${like.split("@")[0]}/facts`);
    names.set(like, known.name);
    name.textContent = known.name;
  } catch {
    name.textContent = "a sound that is not there any more";
  }
}

async function byFile(file) {
  fail("");
  const about = await held;
  if (file.size > about.most_upload_bytes) {
    fail(`${file.name} has ${Math.ceil(file.size / 1e6)} MB; at most ${Math.floor(about.most_upload_bytes / 1e6)} MB.`);
    return;
  }
  say(`Listening to ${file.name}…`);
  at("hits").setAttribute("aria-busy", "true");
  try {
    const { like } = await ask("/api/like", { method: "POST", body: file });
    names.set(like, file.name);
    go({ like });
  } catch (error) {
    at("hits").removeAttribute("aria-busy");
    say("");
    fail(`${file.name}: ${error.message}`);
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
    const [file] = event.dataTransfer.files;
    if (file) byFile(file);
  });
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
at("more").addEventListener("click", () => {
  const limit = Math.min(MOST, (Number(asked().limit) || STEP) + STEP);
  const next = written({ ...asked(), limit });
  history.replaceState(null, "", `?${next}`);
  show();
});
at("show-keys").addEventListener("click", () => at("keys").showModal());
window.addEventListener("popstate", show);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => hits.redraw());
takeDrops();
listen({ hits, player, box: at("q"), keys: at("keys") });
show();
held.then((about) => filters.offer(about)).catch((error) => fail(error.message));
