// @ts-check
/** The list of a session's classified values: the newest on top, searched by the session, moved in by arrows. */
import { card } from "./cards.js";
import { byId } from "./make.js";
import { hide } from "./reveal.js";
import { chosen } from "./sessions.js";

const list = byId("values");
const search = /** @type {HTMLInputElement} */ (byId("search"));

/** @type {Map<string, any>} */
let values = new Map();
/** @type {Map<string, HTMLElement>} */
const cards = new Map();
let wanted = ""; // a handle to go to once it is in the list

/** How many values the session had made when the list was made; -1 to have it made anew. */
export let made = -1;

export const words = () => search.value.trim();

/** What the list knows of a handle. @param {string} handle */
export const known = (handle) => values.get(handle) ?? null;

export function clearValues() {
  hide();
  made = -1;
  values = new Map();
  cards.clear();
  list.replaceChildren();
  byId("count").textContent = "";
}

/** @param {string} why */
export function noValues(why) {
  clearValues();
  byId("empty").hidden = false;
  byId("empty").textContent = why;
}

/** @param {any[]} found @param {number} total @param {number} number */
export function showValues(found, total, number) {
  made = number;
  values = new Map(found.map((value) => [value.handle, value]));
  byId("empty").hidden = found.length > 0;
  byId("empty").textContent = words() ? "No value has all of these words." : "No cell has made a classified value yet.";
  byId("count").textContent = found.length === total ? String(total) : `${found.length} of ${total}`;
  // Those that stay keep their nodes, with the focus and what is revealed in them.
  const kept = found.map((value) => {
    let node = cards.get(value.handle);
    if (node === undefined) {
      node = card(value, chosen, goTo, known);
      cards.set(value.handle, node);
    }
    return node;
  });
  for (const [handle, node] of cards) {
    if (values.has(handle)) continue;
    if (node.querySelector(".shown:not([hidden])")) hide();
    cards.delete(handle);
    node.remove();
  }
  kept.forEach((node, at) => { if (list.children[at] !== node) list.insertBefore(node, list.children[at] ?? null); });
  const first = list.firstElementChild;
  if (first instanceof HTMLElement && !list.querySelector('[tabindex="0"].card')) first.tabIndex = 0;
  const node = cards.get(wanted);
  wanted = "";
  if (node) choose(node);
}

/** @param {() => void} changed */
export function whenSearched(changed) {
  let waiting = 0;
  search.addEventListener("input", () => {
    window.clearTimeout(waiting);
    waiting = window.setTimeout(() => { made = -1; changed(); }, 150);
  });
  find = changed;
}
let find = () => {};

/** Move to a value; one that is not in the list is looked for. @param {string} handle */
export function goTo(handle) {
  const node = cards.get(handle);
  if (node) { choose(node); return; }
  wanted = handle;
  search.value = handle;
  made = -1;
  find();
}

/** @param {HTMLElement} node */
function choose(node) {
  for (const other of cards.values()) other.tabIndex = -1;
  node.tabIndex = 0;
  node.focus();
  node.scrollIntoView({ block: "nearest" });
}

byId("pane-values").addEventListener("keydown", (event) => {
  const at = event.target instanceof HTMLElement ? event.target : document.body;
  if ((event.key !== "ArrowDown" && event.key !== "ArrowUp") || at.closest(".body, pre, select")) return;
  const all = /** @type {HTMLElement[]} */ ([...list.children]);
  const here = /** @type {HTMLElement | null} */ (at.closest(".card"));
  const next = here === null ? all[0] : all[all.indexOf(here) + (event.key === "ArrowDown" ? 1 : -1)];
  if (next) { event.preventDefault(); choose(next); }
});
document.addEventListener("keydown", (event) => {
  if (event.target !== document.body) return; // nothing has the focus: the arrows begin with the list
  const first = list.firstElementChild;
  if (event.key === "ArrowDown" && first instanceof HTMLElement && !byId("pane-values").hidden) {
    event.preventDefault();
    choose(first);
  } else if (event.key === "/" && !byId("pane-values").hidden) {
    event.preventDefault();
    search.focus();
  }
});
