// @ts-check
/** Asks again and again, one question at a time: often while things change, seldom when they do not or nobody looks. */

const OFTEN_MS = 1000;
const SELDOM_MS = 5000;
const FAILED_MS = 15000;

/** @param {() => Promise<boolean>} work  whether anything is new @param {(problem: unknown) => void} failed
 * @param {() => boolean} over
 * @returns {() => void} asks at once, or as soon as what is being asked is answered */
export function polled(work, failed, over) {
  let waiting = 0;
  let busy = false;
  let again = false;
  let pause = OFTEN_MS;

  async function once() {
    if (busy) { again = true; return; }
    busy = true;
    again = false;
    window.clearTimeout(waiting);
    try {
      pause = (await work()) ? OFTEN_MS : Math.min(pause * 1.3, SELDOM_MS);
    } catch (problem) {
      failed(problem);
      pause = Math.min(pause * 2, FAILED_MS);
    } finally {
      busy = false;
    }
    if (over()) return;
    waiting = window.setTimeout(once, again ? 0 : document.hidden ? SELDOM_MS : pause);
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden && !over()) once(); });
  once();
  return () => { if (!over()) once(); };
}
