// @ts-check
/** One line about what happened, also for who does not see it. Never a value. */
import { byId } from "./make.js";
import { Refused } from "./server.js";

/** @param {string} words @param {boolean} [bad] */
export function tell(words, bad = false) {
  const line = byId("status");
  line.textContent = words;
  line.classList.toggle("bad", bad);
}

let silent = false; // the server did not answer the last time

/** Only what the viewer's server and our own modules say is shown: an exception of the browser could quote what it failed
 * on. @param {unknown} problem */
export function failed(problem) {
  silent = !(problem instanceof Refused);
  tell(problem instanceof Refused ? problem.message : "the viewer does not answer: is `capkernel view` still running?", true);
}

/** The server answers. */
export function answers() {
  if (silent) tell("up to date again");
  silent = false;
}
