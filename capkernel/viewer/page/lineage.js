// @ts-check
/** What a value was made from and what was made from it: functions with their checked source, and cells. */
import { button, make, mask, place } from "./make.js";
import { ask } from "./server.js";
import { failed } from "./tell.js";

/** Draw the lineage of `handle` into `box`; each value in it leads to its own.
 * @param {HTMLElement} box @param {string} session @param {string} handle
 * @param {(handle: string) => void} go  to the card of a value */
export async function showLineage(box, session, handle, go) {
  const { steps, children, cut } = await ask("/api/lineage", { session, handle });
  const list = make("ol", undefined, "steps");
  steps.forEach((/** @type {any} */ step, /** @type {number} */ at) => list.append(entry(step, at === 0)));
  const parts = [make("h3", "Where it comes from"), list];
  if (children.length) {
    const made = make("ul", undefined, "steps");
    made.append(...children.map((/** @type {any} */ child) => entry(child, false)));
    parts.push(make("h3", "Made from it"), made);
  }
  if (cut) parts.push(make("p", "There are more than can be listed here.", "note"));
  box.replaceChildren(...parts);
  box.hidden = false;

  /** @param {any} value @param {boolean} here */
  function entry(value, here) {
    const item = make("li");
    const line = make("div", undefined, "step");
    line.append(make("code", mask(value), "mask"), make("span", place(value), "meta"));
    if (!here) {
      const words = `${mask(value)} of cell ${value.cell}`;
      const lineage = button("its lineage", () => { showLineage(box, session, value.handle, go).then(focus, failed); }, "jump");
      lineage.setAttribute("aria-label", `the lineage of ${words}`);
      const card = button("go to it", () => go(value.handle), "jump");
      card.setAttribute("aria-label", `go to ${words}`);
      line.append(lineage, card);
    }
    item.append(line);
    if (value.name || value.label) item.append(claim(value));
    for (const used of value.functions ?? []) item.append(...functionOf(used));
    return item;
  }

  function focus() {
    /** @type {HTMLElement | null} */ (box.querySelector("h3"))?.scrollIntoView({ block: "nearest" });
    /** @type {HTMLElement | null} */ (box.querySelector("button"))?.focus();
  }
}

/** The cell's own words about a value. @param {{ name: string, label: string }} value */
export function claim(value) {
  const line = make("p", "the cell calls it ", "claim");
  if (value.name) line.append(make("code", value.name, "name"));
  if (value.name && value.label) line.append(" and ");
  if (value.label) line.append(make("q", value.label));
  return line;
}

/** @param {{ name: string, cell: number | null, source: string }} used */
function functionOf(used) {
  if (used.cell === null) return [make("p", `by ${used.name}`, "claim")];
  const name = used.name === "<lambda>" ? "this lambda" : used.name;
  return [make("p", `by ${name} of cell ${used.cell}, as it was checked`, "claim"), make("pre", used.source, "code")];
}
