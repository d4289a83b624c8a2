// Elements and words that every page of earmark shares. Text goes in as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

const ICONS = {
  play: "M7 4.5v15l12-7.5z",
  pause: "M7 5h3.5v14H7zM13.5 5H17v14h-3.5z",
  like: "M4 9.5h2v5H4zM8 6.5h2v11H8zM12 3.5h2v17h-2zM16 7.5h2v9h-2zM20 10.5h1.6v3H20z",
  cut: "M6.5 3.5a3 3 0 0 1 2.6 4.5l2.9 2.9L19 4h2.2l-12 12a3 3 0 1 1-1.2-1.1L10.8 12 8 9.2a3 3 0 1 1-1.5-5.7zm0 1.8a1.2 1.2 0 1 0 0 2.4 1.2 1.2 0 0 0 0-2.4zm0 10.9a1.2 1.2 0 1 0 0 2.4 1.2 1.2 0 0 0 0-2.4zM14 13.6 21.2 20.5H19l-6.2-5.8z",
  save: "M11.1 3.5h1.8v9.3l3.4-3.4 1.2 1.3-5.5 5.4-5.5-5.4 1.2-1.3 3.4 3.4zM4.5 18.5h15v1.8h-15z",
  file: "M11.1 16.5V7.2L7.7 10.6 6.5 9.3 12 3.9l5.5 5.4-1.2 1.3-3.4-3.4v9.3zM4.5 18.5h15v1.8h-15z",
  clear: "M6.2 5 12 10.8 17.8 5 19 6.2 13.2 12l5.8 5.8-1.2 1.2-5.8-5.8L6.2 19 5 17.8l5.8-5.8L5 6.2z",
};

/** An element with properties (class, dataset, on…, aria-…) and children, which are elements or text. */
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && !name.startsWith("aria") && name !== "list" && name !== "form") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

/** A picture of 24 × 24 that takes the colour of its text, and that screen readers pass over. */
export function icon(name) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", "0 0 24 24");
  picture.setAttribute("class", "icon");
  picture.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  picture.append(path);
  return picture;
}

/** Seconds as 0:07, 12:30, 1:02:03; with tenths where they matter. */
export function time(seconds, tenths = false) {
  const whole = tenths ? Math.floor(seconds * 10 + 1e-6) / 10 : Math.floor(seconds + 1e-6);
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  const rest = (whole % 60).toFixed(tenths ? 1 : 0).padStart(tenths ? 4 : 2, "0");
  return hours ? `${hours}:${String(minutes).padStart(2, "0")}:${rest}` : `${minutes}:${rest}`;
}

/** How long a sound lasts: 0.52 s, 12.5 s, 2:03. */
export function length(seconds) {
  return seconds < 59.95 ? `${seconds.toFixed(seconds < 9.995 ? 2 : 1)} s` : time(seconds);
}

/** "1,229 sounds", "1 sound". */
export function count(number, what) {
  return `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
}

/** What the server answers to a request, as JSON; an Error with its one line, and the `status`, where it refuses. */
export async function ask(address, options = {}) {
  let answer;
  try {
    answer = await fetch(address, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
  if (answer.ok) return answer.json();
  throw Object.assign(new Error(await detail(answer)), { status: answer.status });
}

/** The one line that a refusal holds. */
export async function detail(answer) {
  if (answer.status === 401 && answer.headers.has("www-authenticate")) return "The server wants its token: open the whole address that it printed when it began.";
  try {
    return (await answer.json()).detail || `The server answered ${answer.status}.`;
  } catch {
    return `The server answered ${answer.status}.`;
  }
}
