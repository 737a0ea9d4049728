// @ts-check
/** Questions that wait for the person, the oldest first: only that one can be decided.
 *
 * Rule 1: nothing but a press of Allow allows: closing, leaving, waiting and every error deny or leave it undecided.
 * Rule 2: what the kernel knows and what the cell claims never look alike: a claim is quoted, in a box that says so.
 * Rule 3: a value is released only while the exact value is on the screen. */
import { arm } from "./arming.js";
import { showLineage } from "./lineage.js";
import { button, byId, clock, make } from "./make.js";
import { current, show, whenShown } from "./panes.js";
import { hide, isShown, showSealed } from "./reveal.js";
import { seal } from "./seal.js";
import { ask, Refused, toBytes, toText } from "./server.js";
import { chosen } from "./sessions.js";
import { failed, tell } from "./tell.js";
import { goTo } from "./values.js";

const TITLE = document.title;
const MOST_TYPED = 8192; // bytes, as the vault takes them
const MOST_RESULTS = 10;

/** @type {any} */
let open = null;
let decided = ""; // the question that was decided here, until it is gone from the list
/** @type {(() => void)[]} */
let ends = [];
let again = () => {}; // ask the session anew

/** @param {() => void} act */
export const whenDecided = (act) => { again = act; };

/** @param {any[]} questions @param {string[]} denied */
export function showQuestions(questions, denied) {
  byId("waiting-count").textContent = questions.length ? String(questions.length) : "";
  document.title = questions.length ? `(${questions.length}) ${TITLE}` : TITLE;
  const first = questions[0] ?? null;
  if ((first?.id ?? "") !== (open?.id ?? "")) {
    if (open !== null && decided !== open.id) result(`${open.title}: not waiting any more (decided elsewhere, or denied because nobody answered)`);
    drawOpen(first);
  } else if (open !== null) open.expires = first.expires;
  showBanner();
  byId("later").replaceChildren(...questions.slice(1).map((one) => make("li", `${one.title}${inCell(one)}`)));
  byId("later-part").hidden = questions.length < 2;
  byId("no-question").hidden = questions.length > 0;
  byId("denied-part").hidden = denied.length === 0;
  byId("denied").replaceChildren(...denied.map((text) => make("li", text)));
}

export function clearQuestions() {
  decided = open?.id ?? "";
  showQuestions([], []);
}

/** @param {any} question */
const inCell = (question) => (question.cell > 0 ? ` (cell ${question.cell})` : "");

function showBanner() {
  byId("asks").hidden = open === null || current() === "approvals";
}

/** @param {string} words */
function result(words) {
  const list = byId("results");
  list.prepend(make("li", `${new Date().toLocaleTimeString()} ${words}`));
  while (list.children.length > MOST_RESULTS) list.lastElementChild?.remove();
  tell(words);
}

/** @param {any} question */
function drawOpen(question) {
  const place = byId("question");
  const hadFocus = place.contains(document.activeElement);
  for (const end of ends) end();
  ends = [];
  if (place.querySelector(".shown:not([hidden])")) hide();
  open = question;
  place.replaceChildren();
  place.hidden = question === null;
  if (question === null) return;
  byId("asks-words").textContent = `A question waits for you: ${question.title}`;
  tell(`a question waits for you: ${question.title}`);

  const title = make("h3", question.title);
  title.id = "asked";
  title.tabIndex = -1;
  const meta = make("p", [question.kind, question.cell > 0 ? `cell ${question.cell}` : "", `asked ${clock(question.asked)}`].filter(Boolean).join(" · "), "meta");
  place.append(title, meta, countdown(question), facts(question.facts));
  if (question.reason) place.append(claimed(question.reason));
  const deny = button("Deny", () => { decide(question, { allow: false }); }, "deny");
  const allow = button(question.needs === "secret" ? "Give the secret" : "Allow", () => {}, "allow");
  const bar = make("div", undefined, "decide");
  bar.append(deny, allow, make("span", `${allow.textContent} works after a second in view.`, "note"));
  if (question.needs === "release") place.append(...release(question, allow));
  else if (question.needs === "secret") place.append(...typed(question, allow));
  else ends.push(arm(allow, () => true, () => { decide(question, { allow: true }); }));
  place.append(bar);
  if (hadFocus) title.focus();
}

/** @param {[string, string][]} found */
function facts(found) {
  const list = make("dl", undefined, "facts");
  for (const [name, text] of found) list.append(make("dt", name), make("dd", text));
  return list;
}

/** @param {string} reason */
function claimed(reason) {
  const box = make("figure", undefined, "claimed");
  box.append(make("figcaption", "The cell gives this reason. Nobody checked it:"), make("blockquote", `“${reason}”`));
  return box;
}

/** @param {any} question */
function countdown(question) {
  const line = make("p", "", "left");
  const tick = () => {
    const seconds = Math.ceil(question.expires - Date.now() / 1000);
    line.textContent = !question.expires ? "" : seconds > 0 ? `Denied in ${seconds} s without an answer.` : "The time is up: denied.";
    if (question.expires && seconds <= 0 && !question.over) { question.over = true; again(); }
  };
  const ticking = window.setInterval(tick, 500);
  ends.push(() => window.clearInterval(ticking));
  tick();
  return line;
}

/** The exact value, on demand: seeing it is a reveal. @param {any} question @param {HTMLButtonElement} allow */
function release(question, allow) {
  const box = make("div", undefined, "shown");
  box.hidden = true;
  const session = chosen();
  let seen = "";
  const shower = button("Show the exact value", () => {
    showSealed(box, "/api/released", { session, question: question.id }, `release|${question.handle}`, drawExact, shower)
      .then((number) => { seen = number ?? ""; shower.hidden = seen !== ""; }, failed);
  }, "open");
  box.addEventListener("hidden", () => { seen = ""; shower.hidden = false; });
  ends.push(arm(allow, () => seen !== "" && isShown(box), () => { decide(question, { allow: true, seen }); }));
  const lineage = make("div", undefined, "lineage");
  showLineage(lineage, session, question.handle, (handle) => { show("values"); goTo(handle); }).catch(() => { lineage.hidden = true; });
  return [make("p", "Allow gives this very value to the cell in clear text, and with it to whoever reads the notebook. It can be allowed while it is shown.", "warning"),
    shower, box, lineage];
}

/** @param {any} found  wire.shown.Release @param {HTMLElement} body @returns {[string, string]} */
function drawExact(found, body) {
  if (found.problem) {
    body.append(make("p", found.problem, "poison"));
    return ["cannot be released", ""];
  }
  const exact = make("pre", found.text, "exact");
  body.append(exact);
  return [`exactly what would be released: ${found.type}, ${found.length} bytes in all, ${found.text.length} characters as written here`, found.seen];
}

/** A secret to type. @param {any} question @param {HTMLButtonElement} give */
function typed(question, give) {
  const label = make("label", "The secret, for the vault only: neither the cell nor the kernel sees it.", "typed");
  const field = /** @type {HTMLTextAreaElement} */ (make("textarea"));
  field.rows = 2;
  field.autocomplete = "off";
  field.spellcheck = false; // some browsers send what they check to a server
  field.className = "masked";
  label.append(field);
  const plain = /** @type {HTMLInputElement} */ (make("input"));
  plain.type = "checkbox";
  plain.addEventListener("change", () => field.classList.toggle("masked", !plain.checked));
  const option = make("label", undefined, "option");
  option.append(plain, " show what I type");
  const clear = () => { field.value = ""; };
  window.addEventListener("pagehide", clear);
  ends.push(clear, () => window.removeEventListener("pagehide", clear));
  ends.push(arm(give, () => field.value !== "", () => { sealAndGive(question, field).catch(failed); }));
  return [label, option];
}

/** @param {any} question @param {HTMLTextAreaElement} field */
async function sealAndGive(question, field) {
  const size = new TextEncoder().encode(field.value).length;
  if (size > MOST_TYPED) throw new Refused(`a secret has at most ${MOST_TYPED} bytes, and this has ${size}`);
  const sealed = await seal(field.value, toBytes(question.key), `secret|${question.handle}`);
  field.value = "";
  await answered(question, "/api/secret", { sealed: toText(sealed) }, "given to the vault");
}

/** @param {any} question @param {{ allow: boolean, seen?: string }} how */
function decide(question, how) {
  answered(question, "/api/decide", how, how.allow ? "allowed" : "denied").catch(failed);
}

/** @param {any} question @param {string} path @param {Record<string, any>} how @param {string} words */
async function answered(question, path, how, words) {
  const before = decided;
  decided = question.id;
  try {
    const { allowed } = await ask(path, { session: chosen(), question: question.id, ...how });
    result(`${allowed || how.allow === false ? words : "denied"}: ${question.title}${inCell(question)}`);
  } catch (problem) {
    decided = before;
    throw problem;
  } finally {
    again();
  }
}

byId("see").addEventListener("click", () => {
  show("approvals");
  /** @type {HTMLElement | null} */ (byId("question").querySelector("h3"))?.focus();
});
byId("forget").addEventListener("click", () => {
  ask("/api/forget", { session: chosen() }).then(({ count }) => {
    tell(`${count} denied before are asked again`);
    again();
  }, failed);
});
for (const tab of document.querySelectorAll('[role="tab"]')) tab.addEventListener("click", showBanner);
whenShown("approvals", showBanner);
