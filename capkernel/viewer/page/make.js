// @ts-check
/** Elements made of text. Nothing here takes markup. */

/** @template {HTMLElement} T @param {string} id @returns {T} */
export const byId = (id) => /** @type {T} */ (document.getElementById(id));

/** @param {string} tag @param {string} [text] @param {string} [kind] @returns {HTMLElement} */
export function make(tag, text, kind) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

/** @param {string} text @param {(event: MouseEvent) => void} press @param {string} [kind] */
export function button(text, press, kind) {
  const made = /** @type {HTMLButtonElement} */ (make("button", text, kind));
  made.type = "button";
  made.addEventListener("click", press);
  return made;
}

/** What stands for a value everywhere. @param {{ type: string }} value */
export const mask = (value) => `Classified${value.type ? `[${value.type}]` : ""}(***)`;

/** Where a value is from, in a few words. @param {{ cell: number, how: string, origins: string[] }} value */
export const place = (value) => [`cell ${value.cell}`, value.how, value.origins.join(", ")].filter(Boolean).join(" · ");

/** @param {number} seconds of Unix time */
export const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString();
