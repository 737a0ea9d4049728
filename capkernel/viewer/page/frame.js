// @ts-check
/** Inside the card's frame: makes a key, opens one sealed value, draws it for its time. It talks to the card alone.
 *
 * Rule 1: the private key and the value never leave this document, which has an origin of its own. Out go the public
 * key, a height, and words from here; of an exception its name.
 * Rule 2: one key, one value, one document: the card throws the frame away when it hides.
 */
import { copyable, draw, what } from "./draw.js";
import { freshKey } from "./open.js";

const COLOURS = ["card", "ink", "soft", "line", "accent", "on-accent", "bad", "shown", "shown-line", "string", "number"];

/** @param {string} kind */
const part = (kind) => /** @type {HTMLElement} */ (document.querySelector("." + kind));

/** @param {MessagePort} card */
async function serve(card) {
  const key = await freshKey();
  card.onmessage = ({ data }) => {
    if (data.kind !== "open") return;
    card.onmessage = null;
    show(card, key, data).catch((problem) => failed(card, problem));
  };
  card.postMessage({ kind: "key", key: btoa(String.fromCharCode(...key.publicKey)) });
}

/** @param {MessagePort} card @param {Awaited<ReturnType<typeof freshKey>>} key
 * @param {{ sealed: string, handle: string, seconds: number }} given */
async function show(card, key, { sealed, handle, seconds }) {
  const shown = JSON.parse(await key.open(Uint8Array.from(atob(sealed), (letter) => letter.charCodeAt(0)), handle));
  part("what").textContent = what(shown);
  part("body").replaceChildren(draw(shown));
  part("shown").hidden = false;
  const copy = part("copy");
  const offer = () => { copy.hidden = copyable(drawn()) === null; };
  offer();
  part("body").addEventListener("resized", offer); // it is seen in another way now
  copy.addEventListener("click", async () => card.postMessage({ kind: "copied", ok: await copied() }));
  const end = Date.now() + seconds * 1000;
  const tick = () => { part("left").textContent = `hides in ${Math.max(0, Math.ceil((end - Date.now()) / 1000))} s`; };
  window.setInterval(tick, 250);
  tick();
  const size = () => card.postMessage({ kind: "height", height: Math.ceil(part("shown").getBoundingClientRect().height) });
  size();
  card.postMessage({ kind: "shown" });
  new ResizeObserver(size).observe(part("shown"));
}

const drawn = () => /** @type {HTMLElement} */ (part("body").firstElementChild);

/** What is shown, into the clipboard. @returns {Promise<boolean>} */
async function copied() {
  const text = copyable(drawn()) ?? "";
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const chosen = window.getSelection();
    if (chosen === null) return false;
    chosen.selectAllChildren(part("body").querySelector("pre, table") ?? part("body"));
    const done = document.execCommand("copy");
    chosen.removeAllRanges();
    return done;
  }
}

/** @param {MessagePort} card @param {unknown} problem */
function failed(card, problem) {
  card.postMessage({ kind: "failed", name: problem instanceof Error ? problem.name : "Error" });
}

window.addEventListener("message", function begin({ data, ports, source }) {
  if (source !== window.parent || data?.kind !== "begin" || ports.length !== 1) return;
  window.removeEventListener("message", begin);
  for (const name of COLOURS) {
    if (typeof data.colours[name] === "string") document.documentElement.style.setProperty("--" + name, data.colours[name]);
  }
  const card = ports[0];
  document.addEventListener("keydown", ({ key }) => { if (key === "Escape") card.postMessage({ kind: "hide" }); });
  serve(card).catch((problem) => failed(card, problem));
});
