// Requests to the study's server, and what is done while it cannot be reached.

import { ask } from "/web/dom.js";

const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 10000;

/** What the server answers to JSON. */
export function send(address, body = {}, method = "POST", more = {}) {
  return ask(address, { method, headers: { "content-type": "application/json" }, body: JSON.stringify(body), ...more });
}

/** Whether a refusal may be gone the next time: no connection, or a server that is busy or being started. */
export const passing = (error) => !error.status || error.status >= 500 || [408, 429].includes(error.status);

/** Milliseconds to wait before the next try, after so many. */
export const wait = (tries) => Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (tries - 1));

/** Waits so long, or until the connection is back. */
export function pause(milliseconds) {
  return new Promise((done) => {
    const timer = setTimeout(end, milliseconds);
    function end() {
      clearTimeout(timer);
      window.removeEventListener("online", end);
      done();
    }
    window.addEventListener("online", end);
  });
}

/** What a request gives, tried again for as long as that may help; `tell` is told of it, and "" once it worked. */
export async function insist(request, tell) {
  for (let tries = 1; ; tries++) {
    try {
      const answer = await request();
      tell("");
      return answer;
    } catch (error) {
      if (!passing(error)) {
        tell("");
        throw error;
      }
      tell("The server cannot be reached. Trying again…");
      await pause(wait(tries));
    }
  }
}

/** A random name that nobody else has. */
export function randomName() {
  return [...crypto.getRandomValues(new Uint8Array(12))].map((each) => each.toString(16).padStart(2, "0")).join("");
}
