// @ts-check
/** A classified value of the list: its mask, where it comes from, and the buttons to see more. */
import { claim, showLineage } from "./lineage.js";
import { button, make, mask, place } from "./make.js";
import { hide, reveal } from "./reveal.js";
import { failed } from "./tell.js";

/** @param {any} value @param {() => string} session @param {(handle: string) => void} go
 * @param {(handle: string) => any} known  another value of the list */
export function card(value, session, go, known) {
  const made = make("li", undefined, "card");
  made.tabIndex = -1;
  made.dataset.handle = value.handle;
  const shown = make("div", undefined, "shown");
  shown.hidden = true;
  const lineage = make("div", undefined, "lineage");
  lineage.hidden = true;

  const revealer = button("Reveal", () => { reveal(shown, session(), value.handle, revealer).then(drawn, failed); }, "reveal");
  revealer.setAttribute("aria-label", `Reveal ${mask(value)} of cell ${value.cell}`);
  const drawn = () => { revealer.hidden = !shown.hidden; };
  shown.addEventListener("hidden", () => { revealer.hidden = false; });

  const opener = button("Lineage", () => {
    const open = opener.getAttribute("aria-expanded") === "true";
    opener.setAttribute("aria-expanded", String(!open));
    if (open) { lineage.replaceChildren(); lineage.hidden = true; }
    else showLineage(lineage, session(), value.handle, go).catch(failed);
  }, "open");
  opener.setAttribute("aria-expanded", "false");
  opener.setAttribute("aria-label", `Lineage of ${mask(value)} of cell ${value.cell}`);

  const head = make("div", undefined, "head");
  const buttons = make("span", undefined, "buttons");
  buttons.append(opener, revealer);
  head.append(make("code", mask(value), "mask"), make("span", place(value), "meta"), buttons);
  made.append(head);
  if (value.name || value.label) made.append(claim(value));
  if (value.code) made.append(make("pre", value.code, "code"));
  const parents = value.parents.map(known).filter(Boolean);
  if (parents.length) made.append(madeFrom(parents, go));
  made.append(lineage, shown);
  made.addEventListener("keydown", (event) => {
    if (event.target !== made || event.key !== "Enter") return;
    event.preventDefault();
    revealer.click();
  });
  return made;
}

/** @param {any[]} parents @param {(handle: string) => void} go */
function madeFrom(parents, go) {
  const line = make("p", "made from ", "parents");
  parents.forEach((parent, at) => {
    line.append(at ? ", " : "", button(`${mask(parent)} of ${place(parent)}`, () => { hide(); go(parent.handle); }, "jump"));
  });
  return line;
}
