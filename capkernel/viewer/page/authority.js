// @ts-check
/** What the running cell may do, and what it has open at this moment. */
import { byId } from "./make.js";

/** @param {{ cell: number | null, line: string, handles: number, held: string[] } | null} said */
export function showAuthority(said) {
  byId("may").textContent = words(said);
}

/** @param {{ cell: number | null, line: string, handles: number, held: string[] } | null} said */
function words(said) {
  if (said === null) return "";
  if (said.cell === null) return "No cell is running.";
  const open = said.held.length ? `Open now: ${said.held.join(" · ")}.` : "Nothing is open.";
  return `Cell ${said.cell} is running. It ${said.line || "may: nothing beyond computing"}. ${open} Live handles: ${said.handles}.`;
}
