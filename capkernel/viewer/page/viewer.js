// @ts-check
/** The page: enters with the link's token, then keeps up with the chosen session. */
import { clearQuestions, showQuestions, whenDecided } from "./approvals.js";
import { showAudit } from "./audit.js";
import { showAuthority } from "./authority.js";
import { showHistory } from "./history.js";
import { byId } from "./make.js";
import { current } from "./panes.js";
import { polled } from "./polling.js";
import { hide } from "./reveal.js";
import { ask, ended, enter } from "./server.js";
import { chosen, showSessions, whenChanged } from "./sessions.js";
import { answers, failed } from "./tell.js";
import { clearValues, made, noValues, showValues, whenSearched, words } from "./values.js";

let seen = ""; // of the last answer, to tell whether anything is new

/** Whether anything was new. */
async function refresh() {
  const { sessions } = await ask("/api/sessions", {});
  showSessions(sessions);
  const session = chosen();
  if (!session) {
    noValues("No session of capkernel runs.");
    clearQuestions();
    showAuthority(null);
    return false;
  }
  const looked = words();
  const state = await ask("/api/state", { session, made, words: looked });
  if (session !== chosen()) return true;
  if (state.values !== null && looked === words()) showValues(state.values, state.total, state.made);
  showAuthority(state.authority);
  showQuestions(state.questions, state.denied);
  if (current() === "history") await showHistory();
  if (current() === "audit") await showAudit();
  const now = JSON.stringify([state.made, state.authority, state.questions, state.denied]);
  const changed = now !== seen || state.questions.length > 0;
  seen = now;
  answers();
  return changed;
}

/** @param {unknown} problem */
function lost(problem) {
  if (ended) {
    hide();
    clearQuestions();
  }
  failed(problem);
}

async function start() {
  await enter();
  const soon = polled(refresh, lost, () => ended);
  whenChanged(() => {
    clearValues();
    clearQuestions();
    for (const id of ["history", "audit"]) byId(id).replaceChildren();
    soon();
  });
  whenSearched(soon);
  whenDecided(soon);
}

start().catch(failed);
