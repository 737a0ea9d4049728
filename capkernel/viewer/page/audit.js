// @ts-check
/** The newest lines of the session's audit, filtered by words. */
import { byId, clock, make } from "./make.js";
import { whenShown } from "./panes.js";
import { ask } from "./server.js";
import { chosen } from "./sessions.js";
import { failed } from "./tell.js";

const filter = /** @type {HTMLInputElement} */ (byId("filter"));
let asked = 0;
let seen = "";

export async function showAudit() {
  const session = chosen();
  const number = ++asked;
  if (!session) return;
  const { lines } = await ask("/api/audit", { session, words: filter.value.trim() });
  if (number !== asked || session !== chosen()) return;
  byId("lines").textContent = lines.length ? `${lines.length} lines, the newest first` : "no line has all of these words";
  const now = JSON.stringify(lines);
  if (now === seen && byId("audit").children.length) return; // what is selected stays so
  seen = now;
  byId("audit").replaceChildren(...lines.reverse().map(row));
}

/** @param {any} line */
function row(line) {
  const made = make("tr");
  const where = [line.path, line.reason, line.authority].filter(Boolean).join(" · ");
  const cells = [clock(line.time), line.who, line.cell ?? "", line.what, line.decision, where];
  made.append(...cells.map((word) => make("td", String(word))));
  made.classList.toggle("denied", line.decision === "denied");
  return made;
}

let waiting = 0;
filter.addEventListener("input", () => {
  window.clearTimeout(waiting);
  waiting = window.setTimeout(() => { showAudit().catch(failed); }, 150);
});
whenShown("audit", () => { showAudit().catch(failed); });
