// @ts-check
/** The card's side of the isolated frame (`viewer/page/frame.js` is the other).
 *
 * Rule 1: the frame has an origin of its own: this page can neither read it nor run in it. It sends sealed values in and
 * gets a public key, a height and words back.
 * Rule 2: a frame is for one reveal. Its key is made in it and dies with it.
 */

/** @typedef {{ onHeight(height: number): void, onHide(): void, onCopied(ok: boolean): void }} Listener */

export class IsolatedFrame {
  /** @param {string} address @param {Record<string, string>} colours @param {Listener} listener */
  constructor(address, colours, listener) {
    this.node = document.createElement("iframe");
    this.node.setAttribute("sandbox", "allow-scripts");
    this.node.setAttribute("allow", "clipboard-write");
    this.node.setAttribute("referrerpolicy", "no-referrer");
    this.node.title = "the revealed value";
    this.node.tabIndex = -1;
    this.node.style.height = "0";
    const { port1, port2 } = new MessageChannel();
    this._port = port1;
    /** @type {Promise<string>} the public key, in base64 */
    this.key = new Promise((resolve, reject) => { this._gotKey = resolve; this._noKey = reject; });
    this.key.catch(() => undefined); // told where it is awaited
    /** @type {Promise<void>} */
    this._drawn = new Promise((resolve, reject) => { this._gotDrawn = resolve; this._notDrawn = reject; });
    this._drawn.catch(() => undefined);
    port1.onmessage = ({ data }) => this._hear(data, listener);
    this.node.addEventListener("load", () => {
      this.node.contentWindow?.postMessage({ kind: "begin", colours }, "*", [port2]); // an opaque origin has no name
    }, { once: true });
    this.node.src = address;
  }

  /** Open and draw what was sealed to this frame's key. Done when it is drawn.
   * @param {{ handle: string, sealed: string, seconds: number }} given */
  show(given) {
    this._port.postMessage({ kind: "open", ...given });
    return this._drawn;
  }

  end() {
    this._port.close();
    this.node.remove(); // and with it all it holds
    this._fail("Ended");
  }

  /** @param {any} said @param {Listener} listener */
  _hear(said, listener) {
    switch (said?.kind) {
      case "key": this._gotKey?.(String(said.key)); break;
      case "shown": this._gotDrawn?.(); break;
      case "height": listener.onHeight(Number(said.height)); break;
      case "hide": listener.onHide(); break;
      case "copied": listener.onCopied(said.ok === true); break;
      case "failed": this._fail(String(said.name)); break;
    }
  }

  /** @param {string} name */
  _fail(name) {
    const problem = new Error(name);
    this._noKey?.(problem);
    this._notDrawn?.(problem);
  }
}

/** The colours of the application's theme, by the names that the frame has for them. */
export function themeColours() {
  const style = getComputedStyle(document.body);
  const of = (/** @type {string} */ name) => style.getPropertyValue("--jp-" + name).trim();
  return {
    card: of("layout-color1"), ink: of("ui-font-color1"), soft: of("ui-font-color2"), line: of("border-color2"),
    accent: of("brand-color1"), "on-accent": of("ui-inverse-font-color1"), bad: of("error-color1"),
    shown: of("layout-color1"), "shown-line": of("warn-color1"), string: of("mirror-editor-string-color"),
    number: of("mirror-editor-number-color"),
  };
}
