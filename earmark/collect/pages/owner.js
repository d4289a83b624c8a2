// The owner's page: how far the study is, how raters agree, who needs a look.

import { ask, count, el } from "/web/dom.js";

const EVERY_MS = 30000;
const at = (id) => document.getElementById(id);
const whole = (number) => number.toLocaleString("en");
const plain = (number, digits = 2) => (number === null || number === undefined ? "–" : number.toFixed(digits).replace("-", "−"));
const minutes = (seconds) => `${Math.round(seconds / 60)} min`;
const day = (text) => (text ? text.slice(0, 16).replace("T", " ") : "");

function table(heads, rows, caption) {
  const numbers = heads.map(([, kind]) => kind === "number");
  const cell = (tag, value, place, more = {}) => el(tag, { className: numbers[place] ? "number" : "", ...more }, value);
  const head = el("tr", {}, ...heads.map(([name], place) => cell("th", name, place, { scope: "col" })));
  const body = rows.map(({ cells, flagged }) => el("tr", { className: flagged ? "flagged" : "" }, ...cells.map((value, place) => cell("td", value, place))));
  const name = el("caption", { className: "hidden" }, caption);
  return el("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": caption }, el("table", {}, name, el("thead", {}, head), el("tbody", {}, ...body)));
}

function numbers(pairs) {
  return el("dl", { className: "numbers" }, ...pairs.map(([name, value, more]) => el("div", {}, el("dt", {}, name), el("dd", {}, value, more ? el("small", {}, ` ${more}`) : ""))));
}

function progress({ title, progress: p, strata }) {
  document.title = `${title}: the owner's page`;
  at("title").textContent = title;
  const bar = el("progress", { max: Math.max(1, p.wanted), value: p.submitted, "aria-label": "Pages done of those that are wanted" });
  const cells = [
    ["Pages done", whole(p.submitted), `of ${whole(p.wanted)} wanted`],
    ["Ratings", whole(p.ratings)],
    ["Raters who began", whole(p.consented), `of ${whole(p.entered)} who came`],
    ["At work now", whole(p.at_work)],
    ["Completed", whole(p.completed)],
    ["Failed the qualification", whole(p.failed)],
    ["Pages with all their raters", whole(p.full), `of ${whole(p.pages)}`],
  ];
  if (p.invites) cells.push(["Invitations used", whole(p.invites_used), `of ${whole(p.invites)}`]);
  const rows = strata.map((each) => ({ cells: [each.stratum || "–", each.group || "–", whole(each.pairs), whole(each.ratings), whole(each.wanted)] }));
  const heads = [["Stratum"], ["Group"], ["Pairs", "number"], ["Ratings", "number"], ["Wanted", "number"]];
  at("progress").replaceChildren(bar, numbers(cells), silent(p.silent), table(heads, rows, "Ratings by stratum"));
}

/** Sounds that vanished or changed while the study ran; "" where none did. */
function silent(paths) {
  const found = Object.entries(paths);
  if (!found.length) return "";
  const rows = found.map(([path, raters]) => ({ flagged: true, cells: [el("code", {}, path), whole(raters)] }));
  const why = "They are not there, or are not the files that they were when the study was started. Raters go on without them. Put them back, or start the study again.";
  return el("div", {}, el("h3", {}, "Sounds that cannot be played"), el("p", {}, why), table([["Sound"], ["Raters who came upon it", "number"]], rows, "Sounds that cannot be played"));
}

function agreement({ all, passed, failed_raters }) {
  const row = (name, found) => ({
    cells: [
      name,
      whole(found.ratings),
      whole(found.raters),
      whole(found.units_of_two),
      plain(found.alpha),
      found.alpha_interval?.[0] == null ? "–" : `${plain(found.alpha_interval[0])} to ${plain(found.alpha_interval[1])}`,
      plain(found.icc?.average),
      found.near === null ? "–" : `${Math.round(found.near * 100)} %`,
    ],
  });
  const rows = [row("All raters", all)];
  if (passed) rows.push(row(`Without ${count(failed_raters, "rater")} who failed the checks`, passed));
  const heads = [["Of"], ["Ratings", "number"], ["Raters", "number"], ["Pairs of 2 ratings or more", "number"], ["Krippendorff's α", "number"], ["95 % interval", "number"], ["ICC(2,k)", "number"], ["Answers within 10 points", "number"]];
  const notes = el("ul", { className: "notes" }, ...(all.notes || []).map((note) => el("li", {}, note)));
  at("agreement").replaceChildren(table(heads, rows, "Agreement"), notes);
}

function raters({ raters: rows, flagged, expected_by_chance }) {
  const heads = [["Rater"], ["Came (UTC)"], ["State"], ["Pages", "number"], ["Ratings", "number"], ["Time", "number"], ["Listened", "number"], ["Checks right", "number"], ["r with others", "number"], ["Needs a look"]];
  const made = rows.map((each) => ({
    flagged: each.flags.length || each.failed_checks,
    cells: [
      who(each),
      day(each.entered_at),
      state(each),
      whole(each.pages),
      whole(each.ratings),
      minutes(each.seconds),
      minutes(each.played_s),
      each.checks_asked ? `${each.checks_right} of ${each.checks_asked}` : "–",
      plain(each.r),
      flags(each),
    ],
  }));
  const chance = expected_by_chance ? `; ${plain(expected_by_chance, 1)} honest ones would be by chance` : "";
  const unsound = rows.filter(({ sound_passed }) => sound_passed === false).length;
  const sounds = unsound ? ` ${whole(unsound)} did not pass the sound check, and may hear the clips otherwise.` : "";
  const told = rows.length ? `${count(rows.length, "rater")}, ${whole(flagged)} flagged by their answers${chance}.${sounds}` : "Nobody has come yet.";
  at("raters").replaceChildren(el("p", {}, told), rows.length ? table(heads, made, "Raters") : "");
}

function who(each) {
  const ids = Object.entries(each.platform).map(([name, value]) => el("span", { className: "muted" }, el("br"), `${name} ${value}`));
  const label = each.label ? el("span", { className: "muted" }, el("br"), each.label) : "";
  return el("span", { className: "ids" }, el("code", {}, each.rater_id), label, ...ids);
}

function state(each) {
  if (each.forgotten) return "forgotten";
  if (each.completed_at) return "completed";
  if (each.qualified === false) return "failed the qualification";
  return each.consented_at ? (each.qualified ? "at the tasks" : "before the tasks") : "no consent yet";
}

function flags(each) {
  const made = each.flags.map(({ name, why }) => el("span", { className: "flag" }, `${name}: ${why}`));
  if (each.sound_passed === false) made.push(el("span", { className: "muted" }, "did not pass the sound check"));
  if (each.failed_checks && !each.flags.some(({ name }) => name === "failed checks")) made.push(el("span", { className: "flag" }, "failed checks"));
  if (!made.length && each.unsure) made.push(el("span", { className: "muted" }, each.unsure));
  return el("span", {}, ...made);
}

async function refresh() {
  try {
    const shown = { progress, agreement, raters };
    for (const [name, show] of Object.entries(shown)) show(await ask(`/api/owner/${name}`));
    at("error").hidden = true;
    at("status").textContent = `As of ${new Date().toISOString().slice(11, 19)} UTC; looked up again every ${EVERY_MS / 1000} seconds.`;
  } catch (error) {
    at("error").textContent = error.message;
    at("error").hidden = false;
  }
}

at("refresh").addEventListener("click", refresh);
setInterval(() => document.visibilityState === "visible" && refresh(), EVERY_MS);
refresh();
