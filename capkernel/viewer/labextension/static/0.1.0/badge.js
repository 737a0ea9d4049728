// @ts-check
/** "1 approval waiting": that something waits, and where it is decided. Never here: a button in this page could be
 * pressed by any script in it. */

const POLL_MS = 5_000;
const SLOW_MS = 60_000; // where there was no answer

/** Polls for the notebook that is looked at. @param {any} tracker of notebooks
 * @param {ReturnType<typeof import("./server.js").makeServer>} server @param {(count: number) => void} show */
export function watchApprovals(tracker, server, show) {
  let pause = POLL_MS;

  async function count() {
    const panel = tracker.currentWidget;
    const kernel = panel?.isVisible && !document.hidden ? panel.sessionContext.session?.kernel : null;
    if (!kernel) return 0;
    const info = await kernel.info;
    if (info.implementation !== "capkernel") return 0;
    const said = await server.ask("waiting", { kernel: kernel.id });
    return Number.isInteger(said.count) ? said.count : 0;
  }

  async function turn() {
    try {
      show(await count());
      pause = POLL_MS;
    } catch {
      show(0);
      pause = SLOW_MS;
    }
    window.setTimeout(turn, pause);
  }
  window.setTimeout(turn, POLL_MS);
}

/** @param {number} count */
export const words = (count) =>
  `${count} approval${count === 1 ? "" : "s"} waiting: decide in \`capkernel view\` or \`capkernel approve\``;
