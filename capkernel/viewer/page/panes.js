// @ts-check
/** One pane at a time, chosen in a list of tabs: by pointer, by arrows, by Home and End. */
import { byId } from "./make.js";

const tabs = /** @type {HTMLButtonElement[]} */ ([...document.querySelectorAll('[role="tab"]')]);
/** @type {Map<string, () => void>} */
const shown = new Map();

/** @param {string} name @param {() => void} act  when the pane is shown, also again */
export const whenShown = (name, act) => { shown.set(name, act); };

export const current = () => tabs.find((tab) => tab.getAttribute("aria-selected") === "true")?.dataset.pane ?? "values";

/** @param {string} name */
export function show(name) {
  for (const tab of tabs) {
    const mine = tab.dataset.pane === name;
    tab.setAttribute("aria-selected", String(mine));
    tab.tabIndex = mine ? 0 : -1;
    byId(`pane-${tab.dataset.pane}`).hidden = !mine;
  }
  shown.get(name)?.();
}

for (const tab of tabs) tab.addEventListener("click", () => show(tab.dataset.pane ?? "values"));
byId("tabs").addEventListener("keydown", (event) => {
  const at = tabs.indexOf(/** @type {HTMLButtonElement} */ (event.target));
  const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: tabs.length - 1 }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  const tab = tabs[(to + tabs.length) % tabs.length];
  show(tab.dataset.pane ?? "values");
  tab.focus();
});
