// @ts-check
/** Which kernel an output belongs to, and what the server says of it. */

const STATE_MS = 20_000;

/** @typedef {{ reveal: "card" | "pair" | "view", why: string }} State */

export class Kernels {
  /** @param {ReturnType<typeof import("./server.js").makeServer>} server @param {any[]} trackers of notebooks and
   * consoles */
  constructor(server, trackers) {
    this._server = server;
    this._trackers = trackers;
    /** @type {Map<string, { at: number, state: Promise<State> }>} */
    this._states = new Map();
  }

  /** The session context of the notebook or console that holds this node. @param {Node} node */
  contextOf(node) {
    for (const tracker of this._trackers) {
      const panel = tracker.find((/** @type {any} */ found) => found.node.contains(node));
      if (panel) return panel.sessionContext;
    }
    return null;
  }

  /** One question for all cards of a kernel. Throws Refused. @param {string} kernel @returns {Promise<State>} */
  state(kernel) {
    const known = this._states.get(kernel);
    if (known && Date.now() - known.at < STATE_MS) return known.state;
    const state = this._server.ask("state", { kernel });
    this._states.set(kernel, { at: Date.now(), state });
    state.catch(() => this._states.delete(kernel));
    return state;
  }

  forget() {
    this._states.clear();
  }
}
