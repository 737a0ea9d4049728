// @ts-check
/** The page: a list of masks; one value at a time, after a click, as text, for a short time.
 *
 * Rule 1: a revealed value lives in the nodes that show it and nowhere else: no variable outlives the drawing, nothing is
 * stored, and hiding takes the nodes away.
 * Rule 2: a value is hidden by the button, Esc, the clock, another reveal, another session, and when the tab is not seen.
 */
import { draw, what } from "./draw.js";
import { freshKey } from "./open.js";

const HIDE_SECONDS = 30;
const REFRESH_MS = 2000;
const COPIED = new Set(["text", "number", "atom"]);
const KEPT = "capkernel-key"; // in this tab and origin only

/** @template {HTMLElement} T @param {string} id @returns {T} */
const byId = (id) => /** @type {T} */ (document.getElementById(id));
/** @param {HTMLElement} card @param {string} kind */
const part = (card, kind) => /** @type {HTMLElement} */ (card.querySelector("." + kind));

const list = byId("values");
const chooser = /** @type {HTMLSelectElement} */ (byId("session"));
const template = /** @type {HTMLTemplateElement} */ (byId("card"));
const audit = /** @type {HTMLDetailsElement} */ (byId("audit"));

/** @type {Map<string, HTMLElement>} */
const cards = new Map();
/** @type {{ card: HTMLElement, ticking: number } | null} */
let revealed = null;
let asked = 0; // reveals, to drop an answer that another action has overtaken
let ended = false;

/** @param {string} path @param {Record<string, string>} body @returns {Promise<any>} */
async function ask(path, body) {
  const answer = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Capkernel-Key": sessionStorage.getItem(KEPT) ?? "" },
    body: JSON.stringify(body),
    credentials: "same-origin",
    cache: "no-store",
  });
  const said = await answer.json();
  if (!answer.ok) {
    ended = ended || answer.status === 403;
    throw new Error(said.error ?? "refused");
  }
  return said;
}

/** Never a value. @param {string} words @param {boolean} [bad] */
function tell(words, bad = false) {
  const line = byId("status");
  line.textContent = words;
  line.classList.toggle("bad", bad);
}

/** @param {unknown} problem */
function failed(problem) {
  // Only what the viewer's server says is shown; an exception of the browser could quote what it failed on.
  const said = problem instanceof Error && problem.constructor === Error ? problem.message : "the viewer does not answer: is `capkernel view` still running?";
  tell(said, true);
}

async function start() {
  const token = location.hash.slice(1);
  if (token) {
    history.replaceState(null, "", location.pathname); // a used link is of no use, but need not stand there either
    sessionStorage.setItem(KEPT, (await ask("/api/open", { token })).key);
  }
  await refresh();
  window.setInterval(() => { if (!document.hidden && !ended) refresh().catch(failed); }, REFRESH_MS);
}

async function refresh() {
  const { sessions } = await ask("/api/sessions", {});
  showSessions(sessions);
  if (!chooser.value) {
    hide();
    clear();
    byId("empty").hidden = false;
    byId("empty").textContent = "No session of capkernel runs.";
    byId("may").textContent = "";
    return;
  }
  const session = chooser.value;
  const [{ values, total }, authority] = await Promise.all([ask("/api/values", { session }), ask("/api/authority", { session })]);
  if (session !== chooser.value) return;
  showValues(values, total);
  byId("may").textContent = authority.cell === null ? "No cell is running."
    : `Cell ${authority.cell} is running. It may: ${authority.may.join(" · ") || "nothing beyond computing"}. Live handles: ${authority.handles}.`;
  if (audit.open) await showAudit();
}

/** @param {{ name: string, directory: string, pid: number }[]} sessions */
function showSessions(sessions) {
  const names = sessions.map((session) => session.name).join();
  if (chooser.dataset.names === names) return;
  chooser.dataset.names = names;
  const before = chooser.value;
  chooser.replaceChildren(...sessions.map((session) => {
    const option = document.createElement("option");
    option.value = session.name;
    option.textContent = `${session.directory} (process ${session.pid}, ${session.name.slice(0, 8)})`;
    return option;
  }));
  if (sessions.some((session) => session.name === before)) chooser.value = before;
  else { hide(); clear(); }
}

function clear() {
  cards.clear();
  list.replaceChildren();
  byId("count").textContent = "";
}

/** @param {any[]} values @param {number} total */
function showValues(values, total) {
  byId("empty").hidden = values.length > 0;
  byId("empty").textContent = "No cell has made a classified value yet.";
  byId("count").textContent = String(total);
  // New ones go on top; what is there stays, with the focus and what is revealed in it.
  for (const value of [...values].reverse()) {
    if (cards.has(value.handle)) continue;
    const card = newCard(value);
    cards.set(value.handle, card);
    list.prepend(card);
  }
  const first = list.firstElementChild;
  if (first instanceof HTMLElement && !list.querySelector('[tabindex="0"].card')) first.tabIndex = 0;
}

/** @param {any} value */
function newCard(value) {
  const card = /** @type {HTMLElement} */ (/** @type {HTMLElement} */ (template.content.firstElementChild).cloneNode(true));
  card.dataset.handle = value.handle;
  const mask = `Classified${value.type ? `[${value.type}]` : ""}(***)`;
  part(card, "mask").textContent = mask;
  part(card, "meta").textContent = [`cell ${value.cell}`, value.how, value.origins.join(", ")].filter(Boolean).join(" · ");
  part(card, "reveal").setAttribute("aria-label", `Reveal ${mask} of cell ${value.cell}`);
  if (value.label) {
    part(card, "claim").hidden = false;
    /** @type {HTMLElement} */ (card.querySelector("q")).textContent = value.label;
  }
  if (value.code) {
    part(card, "code").hidden = false;
    part(card, "code").textContent = value.code;
  }
  const known = value.parents.filter((/** @type {string} */ handle) => cards.has(handle));
  if (known.length) {
    const line = part(card, "parents");
    line.hidden = false;
    line.append("made from ");
    known.forEach((/** @type {string} */ handle, /** @type {number} */ at) => {
      const parent = /** @type {HTMLElement} */ (cards.get(handle));
      const jump = document.createElement("button");
      jump.type = "button";
      jump.className = "jump";
      jump.textContent = `${part(parent, "mask").textContent} of ${part(parent, "meta").textContent}`;
      jump.addEventListener("click", () => choose(parent));
      line.append(at ? ", " : "", jump);
    });
  }
  part(card, "reveal").addEventListener("click", () => { reveal(card).catch(failed); });
  part(card, "hide").addEventListener("click", () => hide());
  part(card, "copy").addEventListener("click", () => {
    navigator.clipboard.writeText(part(card, "body").textContent ?? "").then(
      () => tell("copied: what is in the clipboard is no longer hidden"), () => tell("the browser did not allow copying", true));
  });
  return card;
}

/** @param {HTMLElement} card */
async function reveal(card) {
  hide();
  const number = ++asked;
  tell("asking the vault …");
  const handle = card.dataset.handle ?? "";
  const key = await freshKey().catch(() => {
    throw Error("this browser has no X25519 in WebCrypto; use a newer one, or `capkernel view --tty`");
  });
  const publicKey = btoa(String.fromCharCode(...key.publicKey));
  const { sealed } = await ask("/api/reveal", { session: chooser.value, handle, key: publicKey });
  const shown = JSON.parse(await key.open(Uint8Array.from(atob(sealed), (letter) => letter.charCodeAt(0)), handle));
  if (number !== asked || document.hidden) return;
  part(card, "what").textContent = what(shown);
  part(card, "body").replaceChildren(draw(shown));
  part(card, "shown").hidden = false;
  part(card, "reveal").hidden = true;
  part(card, "copy").hidden = !COPIED.has(shown.kind);
  part(card, "hide").focus();
  card.scrollIntoView({ block: "nearest" });
  const end = Date.now() + HIDE_SECONDS * 1000;
  const left = part(card, "left");
  const tick = () => {
    const seconds = Math.ceil((end - Date.now()) / 1000);
    left.textContent = `hides in ${seconds} s`;
    if (seconds <= 0) hide();
  };
  revealed = { card, ticking: window.setInterval(tick, 250) };
  tick();
  tell(`revealed here, and written into the session's audit; hides after ${HIDE_SECONDS} s`);
}

function hide() {
  asked += 1;
  if (revealed === null) return;
  const { card, ticking } = revealed;
  revealed = null;
  window.clearInterval(ticking);
  const inside = card.contains(document.activeElement);
  part(card, "body").replaceChildren();
  part(card, "what").textContent = "";
  part(card, "shown").hidden = true;
  part(card, "reveal").hidden = false;
  if (inside) part(card, "reveal").focus();
  tell("hidden");
}

async function showAudit() {
  const { lines } = await ask("/api/audit", { session: chooser.value });
  const body = /** @type {HTMLElement} */ (audit.querySelector("tbody"));
  body.replaceChildren(...lines.reverse().map((/** @type {any} */ line) => {
    const row = document.createElement("tr");
    const time = new Date(line.time * 1000).toLocaleTimeString();
    for (const word of [time, line.who, line.cell ?? "", line.what, line.decision, [line.path, line.reason].filter(Boolean).join(" · ")]) {
      const cell = document.createElement("td");
      cell.textContent = String(word);
      row.append(cell);
    }
    return row;
  }));
}

/** @param {HTMLElement} card */
function choose(card) {
  for (const other of cards.values()) other.tabIndex = -1;
  card.tabIndex = 0;
  card.focus();
  card.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  const at = event.target instanceof HTMLElement ? event.target : document.body;
  if (event.key === "Escape") { hide(); return; }
  const here = /** @type {HTMLElement | null} */ (at.closest(".card"));
  if (event.key === "Enter" && here !== null && at === here) {
    event.preventDefault();
    reveal(here).catch(failed);
  } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && !at.closest(".body, select")) {
    const all = /** @type {HTMLElement[]} */ ([...list.children]);
    const step = event.key === "ArrowDown" ? 1 : -1;
    const next = here === null ? all[0] : all[all.indexOf(here) + step];
    if (next) { event.preventDefault(); choose(next); }
  }
});
document.addEventListener("visibilitychange", () => { if (document.hidden) hide(); });
window.addEventListener("pagehide", () => hide());
chooser.addEventListener("change", () => { hide(); clear(); refresh().catch(failed); });
audit.addEventListener("toggle", () => { if (audit.open) showAudit().catch(failed); });

start().catch(failed);
