// @ts-check
/** Which of the running sessions is looked at. */
import { byId, make } from "./make.js";

const chooser = /** @type {HTMLSelectElement} */ (byId("session"));

export const chosen = () => chooser.value;

/** @param {() => void} act  when the person, or the end of a session, chooses another */
export const whenChanged = (act) => chooser.addEventListener("change", act);

/** @param {{ name: string, directory: string, pid: number, waiting: number }[]} sessions */
export function showSessions(sessions) {
  const others = sessions.filter((session) => session.waiting > 0 && session.name !== chooser.value);
  byId("elsewhere").textContent = chooser.value && others.length ? `Questions wait in another session: ${others.map((session) => session.directory).join(", ")}.` : "";
  const names = sessions.map((session) => session.name + session.waiting).join();
  if (chooser.dataset.names === names) return;
  chooser.dataset.names = names;
  const before = chooser.value;
  chooser.replaceChildren(...sessions.map((session) => {
    const option = /** @type {HTMLOptionElement} */ (make("option"));
    option.value = session.name;
    const waits = session.waiting ? `, ${session.waiting} waiting` : "";
    option.textContent = `${session.directory} (process ${session.pid}, ${session.name.slice(0, 8)}${waits})`;
    return option;
  }));
  byId("choose").hidden = sessions.length === 0;
  if (sessions.some((session) => session.name === before)) chooser.value = before;
  else chooser.dispatchEvent(new Event("change"));
}
