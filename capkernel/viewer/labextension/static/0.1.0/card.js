// @ts-check
/** The card of a classified value: its mask, where it came from, and a button that shows it to the person.
 *
 * Rule 1: this page never holds a value. It is opened and drawn in an isolated frame, which goes away with the value.
 * Rule 2: what a card says of a value is the server's word once there is one; a saved notebook may say anything.
 * Rule 3: where a value cannot be shown the card says what to do. Nothing is ever shown another way.
 * Rule 4: a value is hidden by the button, Esc, the clock, and whatever takes the card or the kernel out of sight.
 */
import { IsolatedFrame, themeColours } from "./frame.js";
import { Refused } from "./server.js";

export const MIME = "application/vnd.capkernel.classified+json";
const HANDLE = /^[0-9a-f]{32}$/;
const MOST_HEIGHT = 440;
const FRAME_MS = 15_000;
const WARM_MS = 20_000;
const VIEW = "Run `capkernel view` in a terminal on that machine to see it.";
const GONE = "The value is gone with its kernel's session: run the cell again.";
const LOCK = "M4 7V5a4 4 0 0 1 8 0v2h1v8H3V7zm2 0h4V5a2 2 0 0 0-4 0z";

/** @template {keyof HTMLElementTagNameMap} K @param {K} tag @param {string} kind @param {string} [text] */
function element(tag, kind, text) {
  const made = document.createElement(tag);
  made.className = "capk-" + kind;
  if (text !== undefined) made.textContent = text;
  return made;
}

function lock() {
  const made = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  made.setAttribute("class", "capk-lock");
  made.setAttribute("viewBox", "0 0 16 16");
  made.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("fill", "currentColor");
  path.setAttribute("d", LOCK);
  made.append(path);
  return made;
}

/** The nodes of a card, in place. */
function build() {
  const card = element("div", "card");
  card.setAttribute("role", "group");
  card.dataset.lmSuppressShortcuts = "true"; // Enter on a button is the button's
  const head = element("div", "head");
  const mask = element("code", "mask");
  const meta = element("span", "meta");
  const high = element("span", "high", "high");
  high.title = "the operator marked its origin so";
  const button = element("button", "button", "Reveal");
  button.type = "button";
  button.hidden = high.hidden = true;
  head.append(lock(), mask, high, meta, button);
  const claim = element("p", "claim", "the cell calls it ");
  const claimed = document.createElement("q");
  claim.append(claimed);
  claim.hidden = true;
  const slot = element("div", "slot");
  const todo = element("p", "claim");
  todo.hidden = true;
  const status = element("p", "status");
  status.setAttribute("role", "status");
  status.setAttribute("aria-live", "polite");
  card.append(head, claim, slot, todo, status);
  return { card, mask, meta, high, button, claim, claimed, slot, todo, status };
}

/** @param {unknown} text */
const word = (text) => (typeof text === "string" ? text.slice(0, 2000) : "");
/** @param {string} type */
const maskOf = (type) => (type ? `Classified[${type}](***)` : "Classified(***)");

/** The renderer's class. @param {any} Widget Lumino's @param {ReturnType<typeof import("./server.js").makeServer>} server
 * @param {import("./kernels.js").Kernels} kernels */
export function cardClass(Widget, server, kernels) {
  return class Card extends Widget {
    constructor() {
      super();
      this.addClass("capk-output");
      this.handle = "";
      this._turn = 0; // of reveals: an answer that something has overtaken is dropped
      this._looking = 0; // the same of questions about the value
      this._busy = false;
      /** @type {IsolatedFrame | null} */
      this._frame = null;
      this._shown = "";
      this._possible = false;
      this._ending = this._cooling = 0;
      this._context = null;
      this._seen = new IntersectionObserver((entries) => {
        if (entries.some((entry) => entry.isIntersecting)) { this._seen.disconnect(); this.look(); }
      });
      this._onVisible = () => { if (document.hidden) this.hideValue(); else if (this._pairing) this.look(); };
      this._onLeave = () => this.hideValue();
      this._onStatus = (/** @type {any} */ _, /** @type {string} */ status) => {
        if (["restarting", "autorestarting", "terminating", "dead"].includes(status)) this.gone();
        else if (status === "idle" && this._unanswered) this.look();
      };
      this._onKernel = () => { this.hideValue(); this.look(); };
      this._pairing = false;
      this._unanswered = this._gone = this._rendered = false;
      this.ui = build();
      this.ui.button.addEventListener("click", () => { if (this._shown) this.hideValue(); else this.reveal(); });
      this.ui.button.addEventListener("focus", () => this._warm());
      this.ui.card.addEventListener("pointerenter", () => { if (this._unanswered) this.look(); else this._warm(); });
      this.ui.card.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Escape" && this._shown) { event.stopPropagation(); this.hideValue(); }
      });
      this.node.append(this.ui.card);
    }

    /** @param {any} model */
    async renderModel(model) {
      this.hideValue();
      this._gone = false;
      const said = model.data[MIME] ?? {};
      this.handle = HANDLE.test(said.handle) ? said.handle : "";
      this._rendered = true;
      this._tell("");
      this._offer(false);
      this._describe({ type: word(said.type), origins: [word(said.origin)].filter(Boolean), label: word(said.label) });
      if (this.isAttached) this._enter();
    }

    onAfterAttach(/** @type {any} */ message) { super.onAfterAttach(message); this._enter(); }
    onBeforeHide(/** @type {any} */ message) { super.onBeforeHide(message); this.hideValue(); }
    onBeforeDetach(/** @type {any} */ message) { this._exit(); super.onBeforeDetach(message); }
    dispose() { this._exit(); super.dispose(); }

    _enter() {
      if (!this._rendered) return;
      this._exit();
      this._context = kernels.contextOf(this.node);
      this._context?.statusChanged.connect(this._onStatus);
      this._context?.kernelChanged.connect(this._onKernel);
      document.addEventListener("visibilitychange", this._onVisible);
      window.addEventListener("pagehide", this._onLeave);
      this._seen.observe(this.node);
    }

    _exit() {
      this._looking += 1;
      this.hideValue();
      this._seen.disconnect();
      this._context?.statusChanged.disconnect(this._onStatus);
      this._context?.kernelChanged.disconnect(this._onKernel);
      this._context = null;
      document.removeEventListener("visibilitychange", this._onVisible);
      window.removeEventListener("pagehide", this._onLeave);
    }

    /** @param {{ type: string, origins: string[], label: string, cell?: number, high?: boolean }} known */
    _describe(known) {
      this.ui.mask.textContent = maskOf(known.type);
      this.ui.meta.textContent = [known.origins.join(", "), known.cell === undefined ? "" : `cell ${known.cell}`]
        .filter((text, at, all) => text && !(at === 1 && all[0] === `cell:${known.cell}`)).join(" · ");
      this.ui.claimed.textContent = known.label;
      this.ui.claim.hidden = !known.label;
      this.ui.high.hidden = known.high !== true;
      this._name();
    }

    _name() {
      this.ui.card.setAttribute("aria-label", `${this.ui.mask.textContent}, ${this._shown ? "shown" : "hidden"} value`);
      this.ui.button.textContent = this._shown ? "Hide" : "Reveal";
      this.ui.button.setAttribute("aria-label", `${this.ui.button.textContent} ${this.ui.mask.textContent}`);
      this.ui.card.classList.toggle("capk-shown", this._shown !== "");
      this.ui.card.dataset.state = this._shown ? "shown" : this._busy ? "asking" : this._possible ? "ready" : "off";
    }

    /** Never a value. @param {string} words @param {boolean} [bad] */
    _tell(words, bad = false) {
      this.ui.status.textContent = words;
      this.ui.status.classList.toggle("capk-bad", bad);
    }

    /** Whether a reveal is possible here, and what to do where it is not. @param {boolean} possible
     * @param {string} [words] @param {Node} [more] */
    _offer(possible, words = "", more) {
      this._possible = possible;
      this.ui.button.hidden = !possible;
      this.ui.todo.replaceChildren(words, ...(more ? [more] : []));
      this.ui.todo.hidden = !words;
      if (!possible) this._cool();
      this._name();
    }

    /** For good: a value does not come back. */
    gone() {
      this._looking += 1;
      this._gone = true;
      this._pairing = this._unanswered = false;
      this.hideValue();
      this._offer(false, GONE);
    }

    /** Ask the server whether a value can be revealed here, and about this one. */
    async look() {
      if (this._gone) return;
      const turn = ++this._looking;
      this._pairing = this._unanswered = false;
      const kernel = this._context?.session?.kernel?.id;
      if (!this.handle) return this._offer(false, "This output names no value of a session.");
      if (!window.isSecureContext || !crypto.subtle) {
        return this._offer(false, `This page came over plain http from another machine, where browsers have no cryptography: open it over https, or through a tunnel as localhost. ${VIEW}`);
      }
      if (!this._context) return this._offer(false, "It can be revealed in the notebook that this output belongs to.");
      if (!kernel) return this._offer(false, "There is no kernel here, and a value lives no longer than its kernel: run the cell again.");
      try {
        const state = await kernels.state(kernel);
        if (turn !== this._looking) return;
        if (state.reveal === "card") {
          this._offer(true);
          const known = await server.ask("about", { kernel, handle: this.handle });
          if (turn === this._looking) {
            this._describe({ type: word(known.type), origins: (known.origins ?? []).map(word), label: word(known.label),
              cell: Number.isInteger(known.cell) && known.cell < 1e6 ? known.cell : undefined, high: known.high === true });
          }
        } else if (state.reveal === "pair") this._pair();
        else this._offer(false, `${word(state.why)} ${VIEW}`.trim());
      } catch (problem) {
        if (turn !== this._looking) return;
        this._explain(problem);
        this._unanswered = !this._possible && problem instanceof Refused && ["unreachable", "kernel-unreachable"].includes(problem.kind);
      }
    }

    _pair() {
      const link = document.createElement("a");
      link.href = server.pair;
      link.target = "_blank";
      link.rel = "noopener noreferrer";
      link.textContent = "Pair this browser";
      this._offer(false, "Before values are shown here: ", link);
      this._pairing = true; // looked at again when the person comes back from there
    }

    /** @param {unknown} problem */
    _explain(problem) {
      const kind = problem instanceof Refused ? problem.kind : "";
      const words = problem instanceof Refused ? problem.message : "";
      if (kind === "pairing-needed") this._pair();
      else if (kind === "no-such-value" || kind === "kernel-gone") this.gone();
      else if (kind === "reveal-off" || kind === "no-extension") this._offer(false, `${words} ${VIEW}`);
      else if (problem instanceof Refused) this._tell(words, true);
      else if (problem instanceof Error && problem.name === "NotSupportedError") this._offer(false, `This browser has no X25519 in WebCrypto: use a newer one. ${VIEW}`);
      // An exception could quote what it failed on: its name alone.
      else this._tell(`Not shown (${problem instanceof Error ? problem.message.slice(0, 60) : "error"}): try again, or run \`capkernel view\`.`, true);
    }

    // ── the frame ────────────────────────────────────────────────────────────────────────────────────────────────────

    /** A frame with its key, made ahead of the click that needs it. */
    _warm() {
      if (!this._possible) return null;
      window.clearTimeout(this._cooling);
      if (!this._shown && !this._busy) this._cooling = window.setTimeout(() => this._cool(), WARM_MS);
      if (this._frame) return this._frame;
      const frame = new IsolatedFrame(server.frame, themeColours(), {
        onHeight: (height) => { if (this._frame === frame && this._opened) frame.node.style.height = `${Math.min(MOST_HEIGHT, Math.max(24, height || 0))}px`; },
        onHide: () => { if (this._frame === frame) this.hideValue(); },
        onCopied: (ok) => this._tell(ok ? "copied: what is in the clipboard is no longer hidden" : "the browser did not allow copying", !ok),
      });
      this._opened = false;
      this._frame = frame;
      this.ui.slot.replaceChildren(frame.node);
      return frame;
    }

    _cool() {
      window.clearTimeout(this._cooling);
      if (this._shown || this._busy) return;
      this._frame?.end();
      this._frame = null;
    }

    async reveal() {
      if (this._busy || this._shown || !this._possible) return;
      const turn = ++this._turn;
      this._busy = true;
      this._tell("asking the vault …");
      this._name();
      try {
        const kernel = this._context?.session?.kernel?.id ?? "";
        const frame = /** @type {IsolatedFrame} */ (this._warm());
        const key = await within(FRAME_MS, frame.key);
        if (turn !== this._turn) return;
        const { sealed, count, seconds } = await server.ask("reveal", { kernel, handle: this.handle, key });
        if (turn !== this._turn) return;
        this._opened = true;
        const shown = Math.min(300, Math.max(1, Number(seconds) || 30));
        await within(FRAME_MS, frame.show({ handle: this.handle, sealed: String(sealed), seconds: shown }));
        if (turn !== this._turn) return;
        this._busy = false;
        this._shown = `revealed ${new Date().toLocaleTimeString()}, reveal ${Number(count) || "?"}`;
        frame.node.tabIndex = 0;
        window.clearTimeout(this._cooling);
        this._ending = window.setTimeout(() => this.hideValue(), shown * 1000);
        this._tell(`${this._shown}, hides in ${shown} s`);
        this._name();
      } catch (problem) {
        if (turn !== this._turn) return;
        this.hideValue();
        this._explain(problem);
      }
    }

    /** Take the value away, or stop the reveal that is under way. */
    hideValue() {
      this._turn += 1;
      window.clearTimeout(this._ending);
      window.clearTimeout(this._cooling);
      const before = this._shown;
      const under = this._busy;
      const inside = this.ui.card.contains(document.activeElement);
      this._shown = "";
      this._busy = false;
      this._frame?.end();
      this._frame = null;
      if (!before && !under) return;
      this._tell(before ? `${before}, hidden` : "");
      this._name();
      if (inside && !document.hidden) this.ui.button.focus();
    }
  };
}

/** @template T @param {number} ms @param {Promise<T>} promise @returns {Promise<T>} */
function within(ms, promise) {
  return new Promise((resolve, reject) => {
    const late = window.setTimeout(() => reject(new Error("no answer")), ms);
    promise.then(resolve, reject).finally(() => window.clearTimeout(late));
  });
}
