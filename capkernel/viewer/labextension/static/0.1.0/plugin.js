// @ts-check
/** The extension: a renderer for one MIME type, and a badge. */
import { cardClass, MIME } from "./card.js";
import { watchApprovals, words } from "./badge.js";
import { Kernels } from "./kernels.js";
import { makeServer } from "./server.js";
import { addStyle } from "./style.js";

const RANK = 0; // before every other type of the same output

/** @param {(name: string) => Promise<any>} shared a module that the application shares */
export async function plugin(shared) {
  const [{ IRenderMimeRegistry }, { Widget }, { Signal }, { Notification }] = await Promise.all(
    ["@jupyterlab/rendermime", "@lumino/widgets", "@lumino/signaling", "@jupyterlab/apputils"].map(shared));
  const { INotebookTracker, NotebookActions } = await shared("@jupyterlab/notebook");
  const optional = async (/** @type {string} */ name, /** @type {string} */ token) =>
    (await shared(name).catch(() => ({})))[token];
  const IConsoleTracker = await optional("@jupyterlab/console", "IConsoleTracker");
  const IStatusBar = await optional("@jupyterlab/statusbar", "IStatusBar");

  return {
    id: "@capkernel/card:plugin",
    description: "Shows classified values of capkernel as cards.",
    autoStart: true,
    requires: [IRenderMimeRegistry],
    optional: [INotebookTracker, IConsoleTracker, IStatusBar].filter(Boolean),
    activate: (/** @type {any} */ app, /** @type {any} */ rendermime, /** @type {any[]} */ ...found) => {
      const service = (/** @type {any} */ token) => (token ? found[[INotebookTracker, IConsoleTracker, IStatusBar].filter(Boolean).indexOf(token)] : null);
      const notebooks = service(INotebookTracker);
      const server = makeServer(app.serviceManager.serverSettings.baseUrl);
      const kernels = new Kernels(server, [notebooks, service(IConsoleTracker)].filter(Boolean));
      const Card = cardClass(Widget, server, kernels);
      const factory = { safe: true, mimeTypes: [MIME], defaultRank: RANK, createRenderer: () => new Card() };
      addStyle();
      rendermime.addFactory(factory, RANK);

      let warned = false;
      /** Whoever adds a renderer last has the type, without a word. @param {any} registry */
      const hold = (registry) => {
        if (registry.getFactory(MIME) === factory) return;
        registry.addFactory(factory, RANK);
        if (!warned) Notification.warning("Another extension wanted to show capkernel's classified values. It does not; find out which one it is.", { autoClose: false });
        warned = true;
      };
      const holdAll = () => {
        hold(rendermime);
        notebooks?.forEach((/** @type {any} */ panel) => hold(panel.content.rendermime)); // each has a copy
      };
      app.restored.then(holdAll);
      notebooks?.widgetAdded.connect(holdAll);
      document.addEventListener("visibilitychange", () => { kernels.forget(); holdAll(); }); // it may come back from pairing
      if (notebooks) watchApprovals(notebooks, server, badge(service(IStatusBar), Widget, Signal, Notification));
      NotebookActions?.executionScheduled?.connect((/** @type {any} */ _, /** @type {any} */ { cell }) => {
        holdAll();
        hideIn(cell);
      });
    },
  };
}

/** Take away what is shown below a cell that runs again. @param {any} cell */
function hideIn(cell) {
  for (const area of [cell.outputArea].filter(Boolean)) {
    for (const output of area.widgets) {
      for (const part of output.widgets ?? []) part.hideValue?.();
    }
  }
}

/** @param {any} statusBar or null @param {any} Widget @param {any} Signal @param {any} Notification
 * @returns {(count: number) => void} */
function badge(statusBar, Widget, Signal, Notification) {
  let shown = 0;
  if (!statusBar) {
    let note = "";
    return (count) => {
      if (count === shown) return;
      if (note) Notification.dismiss(note);
      note = count ? Notification.info(words(count), { autoClose: false }) : "";
      shown = count;
    };
  }
  const item = new Widget();
  item.addClass("capk-badge");
  item.node.setAttribute("role", "status");
  const activeStateChanged = new Signal(item);
  statusBar.registerStatusItem("@capkernel/card:approvals", { item, align: "left", rank: 0, isActive: () => shown > 0, activeStateChanged });
  return (count) => {
    if (count === shown) return;
    shown = count;
    item.node.textContent = count ? words(count) : "";
    activeStateChanged.emit(undefined);
  };
}
