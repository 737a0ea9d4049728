// @ts-check
/** One value at a time, after a click, for a short time.
 *
 * Rule 1: a revealed value lives in the nodes that show it and nowhere else: no variable outlives the drawing, nothing is
 * stored, and hiding takes the nodes away.
 * Rule 2: a value is hidden by the button, Esc, the clock, another reveal, another session or pane, and when the tab is not
 * seen. */
import { copyable, draw, what } from "./draw.js";
import { button, byId, make } from "./make.js";
import { freshKey } from "./open.js";
import { ask, Refused, toBytes, toText } from "./server.js";
import { tell } from "./tell.js";

const HIDE_SECONDS = 30;

/** @type {{ box: HTMLElement, ticking: number, back: HTMLElement | null } | null} */
let revealed = null;
let asked = 0; // reveals, to drop an answer that another action has overtaken

/** Ask with a key made for this one time, and open the answer.
 * @param {string} path @param {Record<string, string>} body @param {string} name what it is sealed for */
async function opened(path, body, name) {
  const key = await freshKey().catch(() => {
    throw new Refused("this browser has no X25519 in WebCrypto; use a newer one, or `capkernel view --tty`");
  });
  const { sealed } = await ask(path, { ...body, key: toText(key.publicKey) });
  return JSON.parse(await key.open(toBytes(sealed), name));
}

/** Show what the session seals to us in `box`, until it is hidden. Returns what `draws` gave, or null when it came too late.
 * @template T
 * @param {HTMLElement} box @param {string} path @param {Record<string, string>} body @param {string} name
 * @param {(shown: any, body: HTMLElement) => [string, T]} draws  draws into the body: the words above it, and a result
 * @param {HTMLElement | null} back  what takes the focus when it is hidden
 * @returns {Promise<T | null>} */
export async function showSealed(box, path, body, name, draws, back) {
  hide();
  const number = ++asked;
  tell("asking the vault …");
  const shown = await opened(path, body, name);
  if (number !== asked || document.hidden) return null;
  const value = make("div", undefined, "body");
  value.tabIndex = 0;
  value.setAttribute("role", "group");
  value.setAttribute("aria-label", "the revealed value");
  const [words, result] = draws(shown, value);
  const left = make("span", undefined, "left");
  left.setAttribute("aria-hidden", "true");
  const hider = button("Hide", () => hide(), "hide");
  const copy = button("Copy", () => copied(value), "copy");
  copy.title = "The clipboard can be read by every program of yours, and may be kept.";
  const bar = make("div", undefined, "bar");
  bar.append(make("span", words, "what"), left, copy, hider);
  copy.hidden = copyable(/** @type {HTMLElement} */ (value.firstElementChild)) === null;
  value.addEventListener("resized", () => {
    copy.hidden = copyable(/** @type {HTMLElement} */ (value.firstElementChild)) === null;
  });
  box.replaceChildren(bar, value);
  box.hidden = false;
  hider.focus();
  box.scrollIntoView({ block: "nearest" });
  const end = Date.now() + HIDE_SECONDS * 1000;
  const tick = () => {
    const seconds = Math.ceil((end - Date.now()) / 1000);
    left.textContent = `hides in ${seconds} s`;
    if (seconds <= 0) hide();
  };
  revealed = { box, ticking: window.setInterval(tick, 250), back };
  tick();
  tell(`revealed here, and written into the session's audit; hides after ${HIDE_SECONDS} s`);
  return result;
}

/** @param {HTMLElement} box @param {string} session @param {string} handle @param {HTMLElement} back */
export function reveal(box, session, handle, back) {
  return showSealed(box, "/api/reveal", { session, handle }, handle, (shown, body) => {
    body.append(draw(shown));
    return [what(shown), true];
  }, back);
}

/** @param {HTMLElement} value */
function copied(value) {
  const text = copyable(/** @type {HTMLElement} */ (value.firstElementChild));
  if (text === null) return;
  navigator.clipboard.writeText(text).then(
    () => tell("copied: what is in the clipboard is no longer hidden, every program of yours can read it"),
    () => tell("the browser did not allow copying", true));
}

export function hide() {
  asked += 1;
  if (revealed === null) return;
  const { box, ticking, back } = revealed;
  revealed = null;
  window.clearInterval(ticking);
  const inside = box.contains(document.activeElement);
  box.replaceChildren();
  box.hidden = true;
  box.dispatchEvent(new Event("hidden"));
  if (inside) back?.focus();
  tell("hidden");
}

/** Whether something is shown in this box. @param {HTMLElement} box */
export const isShown = (box) => revealed !== null && revealed.box === box;

document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
document.addEventListener("visibilitychange", () => { if (document.hidden) hide(); });
window.addEventListener("pagehide", () => hide());
byId("tabs").addEventListener("click", () => hide());
