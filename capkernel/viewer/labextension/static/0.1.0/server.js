// @ts-check
/** Questions to capkernel's part of the Jupyter server.
 *
 * Rule 1: the login cookie and the XSRF header, never the API token: JupyterLab puts that into its page, so whoever has
 * it need not be a person. Its own request functions would add it.
 * Rule 2: what goes through here is ciphertext, or is no secret.
 */

const VERSION = new URL(import.meta.url).pathname.split("/").at(-2);

/** What the server said in place of an answer. `kind`: a name of its own, "no-extension", "unreachable". */
export class Refused extends Error {
  /** @param {string} kind @param {string} words @param {number} [status] */
  constructor(kind, words, status = 0) {
    super(words);
    this.kind = kind;
    this.status = status;
  }
}

/** @param {string} baseUrl */
export function makeServer(baseUrl) {
  const root = new URL(baseUrl, location.href).href.replace(/\/?$/, "/") + "capkernel/";

  /** @param {string} what @param {Record<string, string>} body @returns {Promise<any>} */
  async function ask(what, body) {
    let answer;
    try {
      answer = await fetch(root + what, {
        method: "POST",
        headers: { "Content-Type": "application/json", "X-XSRFToken": cookie("_xsrf") },
        body: JSON.stringify(body),
        credentials: "same-origin",
        cache: "no-store",
        redirect: "error",
      });
    } catch {
      throw new Refused("unreachable", "The Jupyter server does not answer.");
    }
    let said = null;
    try { said = await answer.json(); } catch { /* not an answer of ours */ }
    if (answer.ok && said !== null) return said;
    if (typeof said?.error === "string") throw new Refused(said.error, String(said.message ?? said.error), answer.status);
    // 405 is what Jupyter's own page for files says to a POST.
    if ([404, 405].includes(answer.status)) throw new Refused("no-extension", "This Jupyter server does not have capkernel's extension.");
    throw new Refused("unreachable", `The Jupyter server refused (${answer.status}): reload the page and log in again.`);
  }

  return {
    ask,
    frame: `${root}frame?v=${VERSION}`, // a browser keeps it, and must not keep it longer than these files
    pair: root + "pair",
  };
}

/** @param {string} name */
function cookie(name) {
  const found = document.cookie.split("; ").find((pair) => pair.startsWith(name + "="));
  return found ? decodeURIComponent(found.slice(name.length + 1)) : "";
}
