// @ts-check
/** What the person did: reveals and decisions, when, in which viewer, about which value. From the session's audit. */
import { button, byId, clock, make, mask } from "./make.js";
import { show, whenShown } from "./panes.js";
import { ask } from "./server.js";
import { chosen } from "./sessions.js";
import { failed } from "./tell.js";
import { goTo, known } from "./values.js";

let seen = "";
const HANDLE = /^[0-9a-f]{32}$/;

export async function showHistory() {
  const session = chosen();
  if (!session) return;
  const { lines } = await ask("/api/audit", { session, who: "person" });
  if (session !== chosen()) return;
  byId("nothing").hidden = lines.length > 0;
  const now = JSON.stringify(lines);
  if (now === seen && byId("history").children.length) return; // what has the focus keeps it
  seen = now;
  byId("history").replaceChildren(...lines.reverse().map(row));
}

/** @param {any} line */
function row(line) {
  const made = make("tr");
  const what = line.what === "classified.reveal" ? "revealed" : `${line.decision}: ${line.what}`;
  const about = make("td");
  if (HANDLE.test(line.path)) {
    const value = known(line.path);
    about.append(button(value ? `${mask(value)}, cell ${value.cell}` : `value ${line.path.slice(0, 8)}, cell ${line.cell}`,
      () => { show("values"); goTo(line.path); }, "jump"));
  } else about.textContent = line.path || "";
  made.append(make("td", clock(line.time)), make("td", what), about, make("td", line.reason ?? ""));
  return made;
}

whenShown("history", () => { showHistory().catch(failed); });
