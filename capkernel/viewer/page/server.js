// @ts-check
/** Questions to the viewer's server, which passes them on to the session. The key of this tab goes with each. */

const KEPT = "capkernel-key"; // in this tab and origin only

/** Something was refused, in words that may be shown. */
export class Refused extends Error {}

/** Whether another tab took over, or the link was never opened: nothing is answered any more. */
export let ended = false;

/** @param {string} path @param {Record<string, string | number | boolean>} body @returns {Promise<any>} */
export async function ask(path, body) {
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
    throw new Refused(said.error ?? "refused");
  }
  return said;
}

/** Turn the token of the link, when there is one, into this tab's key. */
export async function enter() {
  const token = location.hash.slice(1);
  if (!token) return;
  history.replaceState(null, "", location.pathname); // a used link is of no use, but need not stand there either
  sessionStorage.setItem(KEPT, (await ask("/api/open", { token })).key);
}

/** @param {Uint8Array} bytes */
export const toText = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
/** @param {string} text @returns {Uint8Array<ArrayBuffer>} */
export const toBytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
