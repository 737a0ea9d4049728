// @ts-check
/** What JupyterLab and Notebook 7 load: a module-federation container, written by hand. Nothing is built: the files that
 * are here are the files that run. All are in a directory named by the version, so that no browser mixes two. */
(() => {
  "use strict";
  const here = /** @type {HTMLScriptElement} */ (document.currentScript).src;
  /** @type {Record<string, Record<string, { get: () => Promise<() => any>, loaded?: number | boolean }>>} */
  let scope = {};

  /** A module that the application shares, in the version that it uses itself. @param {string} name */
  async function shared(name) {
    const versions = scope[name];
    if (!versions) throw new Error(`the application shares no ${name}`);
    const chosen = Object.keys(versions).reduce((one, other) =>
      !versions[one].loaded && one.localeCompare(other, undefined, { numeric: true }) < 0 ? other : one);
    return (await versions[chosen].get())();
  }

  const page = /** @type {any} */ (window);
  page._JUPYTERLAB ??= {};
  page._JUPYTERLAB["@capkernel/card"] = {
    init: (/** @type {any} */ given) => { scope = given; },
    get: async (/** @type {string} */ module) => {
      if (module !== "./extension") throw new Error(`there is no ${module} here`);
      const { plugin } = await import(new URL("plugin.js", here).href);
      const made = await plugin(shared);
      return () => ({ __esModule: true, default: made });
    },
  };
})();
