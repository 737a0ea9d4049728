// @ts-check
/** A button that cannot be pressed before it could be read.
 *
 * Rule 1: it is enabled only after it stood in view, in a tab that is visible and has the focus, for ARM_MS without a break;
 * every break begins the time anew.
 * Rule 2: what it does asks `ready` once more; a press that no person made is none. */

const ARM_MS = 1000;
const LOOK_MS = 100;

/** Whether its middle is on the screen, with nothing of the page over it. @param {HTMLElement} element */
function inView(element) {
  const { left, top, width, height } = element.getBoundingClientRect();
  return width > 0 && document.elementFromPoint(left + width / 2, top + height / 2) === element;
}

/** @param {HTMLButtonElement} button @param {() => boolean} also  what else must hold
 * @param {() => void} act  when a person presses it
 * @returns {() => void} ends it; the button stays disabled */
export function arm(button, also, act) {
  let since = 0; // on the page's clock; 0: not in view
  const watched = () => !document.hidden && document.hasFocus() && inView(button) && also();
  const ready = () => watched() && since > 0 && performance.now() - since >= ARM_MS;
  const reset = () => {
    since = 0;
    button.disabled = true;
  };
  const look = () => {
    if (!watched()) { reset(); return; }
    since ||= performance.now();
    button.disabled = !ready();
  };
  /** @param {MouseEvent} event */
  const pressed = (event) => {
    const good = event.isTrusted && ready();
    reset(); // a second press begins with another second
    if (good) act();
  };
  button.disabled = true;
  button.addEventListener("click", pressed);
  const looking = window.setInterval(look, LOOK_MS);
  window.addEventListener("blur", reset);
  window.addEventListener("pagehide", reset);
  document.addEventListener("visibilitychange", reset);
  return () => {
    window.clearInterval(looking);
    window.removeEventListener("blur", reset);
    window.removeEventListener("pagehide", reset);
    document.removeEventListener("visibilitychange", reset);
    button.removeEventListener("click", pressed);
    reset();
  };
}
