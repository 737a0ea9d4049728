// @ts-check
/** A rendering (wire/shown.py) as nodes of text, and pictures on a canvas. Nothing here takes markup: there is no
 * innerHTML, no address is loaded, and the page's Content-Security-Policy refuses both.
 *
 * `draw` gives the element, `what` the type and size in words, `copyable` the text that Copy takes. A value that can be
 * seen in several ways has a row of buttons above it; choosing one sends a "resized" event up. Classes for a style sheet:
 * text, hex, number, string, poison, note; tree, key; data (a table); picture, small; ways, choice, seen. */

const MOST_PIXELS = 2_000_000; // of a picture, as the vault makes them; a larger one is not decoded

/** @param {string} tag @param {string} [content] @param {string} [kind] */
function node(tag, content, kind) {
  const made = document.createElement(tag);
  if (content !== undefined) made.textContent = content;
  if (kind) made.className = kind;
  return made;
}

/** @param {number} shown @param {number} there */
function first(shown, there) {
  return shown < there ? ` (the first ${shown} are shown)` : "";
}

/** @param {any} shown */
function cutTable(shown) {
  const [rows, columns] = shown.shape.length > 1 ? shown.shape.slice(-2) : [shown.shape[0] ?? 1, shown.columns.length];
  const cut = [shown.rows.length < rows ? `${shown.rows.length} rows` : "",
    shown.columns.length < columns ? `${shown.columns.length} columns` : ""].filter(Boolean);
  return cut.length ? ` (the first ${cut.join(" and ")} are shown)` : "";
}

/** @param {any} picture */
function sizeOf(picture) {
  const size = picture.width ? `${picture.width} × ${picture.height} pixels` : "";
  return [size, picture.note].filter(Boolean).join(", ");
}

/** The type and the size in a few words. @param {any} shown @returns {string} */
export function what(shown) {
  switch (shown.kind) {
    case "text": return `str, ${shown.length} characters${first([...shown.text].length, shown.length)}`;
    case "number": case "atom": return shown.type;
    case "bool": return "bool";
    case "none": return "None";
    case "bytes": return `${shown.type}, ${shown.length} bytes`
      + (shown.picture ? `, a picture (${[shown.picture.format, sizeOf(shown.picture)].filter(Boolean).join(", ")})` : "");
    case "image": return `picture, ${sizeOf(shown)}`;
    case "items": return `${shown.type}, ${shown.count} items${first(shown.items.length, shown.count)}`;
    case "pairs": return `dict, ${shown.count} entries${first(shown.items.length, shown.count)}`;
    case "table": return [shown.type, shown.shape.join(" × ") || "one", shown.note].filter(Boolean).join(", ") + cutTable(shown);
    case "poison": return "failed: there is no value";
    case "pending": return "not computed yet";
    case "unknown": return "gone";
    default: return "not shown";
  }
}

/** The ways to see a value: a name, and what draws it when it is chosen; the first is shown.
 * @param {any} shown @returns {[string, () => HTMLElement][]} */
function ways(shown) {
  switch (shown.kind) {
    case "text":
      return shown.json ? [["text", () => node("pre", shown.text, "text")], ["tree", () => tree(shown.json, true)]] : [];
    case "bytes": {
      const text = shown.text;
      /** @type {[string, (() => HTMLElement) | null][]} */
      const all = [
        ["picture", shown.picture ? () => image(shown.picture) : null],
        ["text", text ? () => node("pre", text.text, "text") : null],
        ["tree", text?.json ? () => tree(text.json, true) : null],
        ["hex", () => bytes(shown)],
      ];
      return /** @type {[string, () => HTMLElement][]} */ (all.filter(([, make]) => make));
    }
    case "table":
      return shown.picture ? [["numbers", () => table(shown)], ["picture", () => image(shown.picture)]] : [];
    default: return [];
  }
}

/** @param {any} shown @returns {HTMLElement} */
export function draw(shown) {
  const choices = ways(shown);
  if (choices.length > 1) return switched(choices);
  switch (shown.kind) {
    case "text": return node("pre", shown.text, "text");
    case "number": case "atom": return node("pre", shown.text, "number");
    case "bool": return node("pre", shown.value ? "True" : "False", "number");
    case "none": return node("pre", "None", "number");
    case "bytes": return bytes(shown);
    case "image": return image(shown);
    case "items": case "pairs": return tree(shown, true);
    case "table": return table(shown);
    case "poison": return node("p", shown.reason + (shown.place ? ` in ${shown.place}` : ""), "poison");
    case "pending": return node("p", "The vault is still computing it: ask again in a moment.", "note");
    case "unknown": return node("p", "The vault has no such value any more.", "note");
    default: return node("span", "…", "note");
  }
}

/** What Copy takes of a drawn value as it is seen now: its text, or a table with tabs; null when there is none.
 * @param {HTMLElement} drawn @returns {string | null} */
export function copyable(drawn) {
  const seen = drawn.querySelector(":scope > .seen")?.firstElementChild ?? drawn;
  if (seen instanceof HTMLTableElement) {
    return [...seen.rows].map((row) => [...row.cells].map((cell) => cell.textContent).join("\t")).join("\n");
  }
  return seen instanceof HTMLPreElement ? seen.textContent : null;
}

/** One of several ways at a time. @param {[string, () => HTMLElement][]} choices */
function switched(choices) {
  const made = node("div", undefined, "ways");
  const bar = node("div", undefined, "choice");
  bar.setAttribute("role", "group");
  bar.setAttribute("aria-label", "how to show it");
  const seen = node("div", undefined, "seen");
  const buttons = choices.map(([name, make]) => {
    const button = /** @type {HTMLButtonElement} */ (node("button", name));
    button.type = "button";
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      seen.replaceChildren(make());
      made.dispatchEvent(new Event("resized", { bubbles: true }));
    });
    return button;
  });
  bar.append(...buttons);
  made.append(bar, seen);
  buttons[0].setAttribute("aria-pressed", "true");
  for (const other of buttons.slice(1)) other.setAttribute("aria-pressed", "false");
  seen.append(choices[0][1]());
  return made;
}

/** @param {any} part @returns {HTMLElement} */
function leaf(part) {
  switch (part.kind) {
    case "text": return node("span", JSON.stringify(part.text) + ([...part.text].length < part.length ? "…" : ""), "string");
    case "bytes":
      if (part.picture?.png) return folded(what(part), () => image(part.picture));
      return node("span", `${part.type} ${part.hex}${part.hex.length < 2 * part.length ? "…" : ""}`, "number");
    case "items": case "pairs": return tree(part, false);
    case "table": return draw(part);
    default: {
      const made = node("span", undefined, "number");
      made.textContent = draw(part).textContent;
      return made;
    }
  }
}

/** Drawn when it is opened. @param {string} title @param {() => HTMLElement} make */
function folded(title, make) {
  const made = /** @type {HTMLDetailsElement} */ (node("details", undefined, "tree"));
  made.append(node("summary", title));
  made.addEventListener("toggle", () => {
    if (made.open && made.childElementCount === 1) made.append(make());
  });
  return made;
}

/** @param {any} shown @param {boolean} open */
function tree(shown, open) {
  const made = /** @type {HTMLDetailsElement} */ (node("details", undefined, "tree"));
  made.open = open || shown.items.length <= 20;
  made.append(node("summary", what(shown)));
  const list = node("ul");
  shown.items.forEach((/** @type {any} */ part, /** @type {number} */ at) => {
    const entry = node("li");
    const name = node("span", undefined, "key");
    if (shown.kind === "pairs") name.append(shown.keys[at] ? leaf(shown.keys[at]) : "…", ": ");
    else name.textContent = `${at}: `;
    entry.append(name, leaf(part));
    list.append(entry);
  });
  if (shown.count > shown.items.length) list.append(node("li", `… ${shown.count - shown.items.length} more`, "note"));
  made.append(list);
  return made;
}

/** @param {any} shown */
function table(shown) {
  const made = node("table", undefined, "data");
  const head = node("thead");
  const names = node("tr");
  names.append(node("td"), ...shown.columns.map((/** @type {string} */ name) => header(name, "col")));
  head.append(names);
  const body = node("tbody");
  shown.rows.forEach((/** @type {string[]} */ cells, /** @type {number} */ at) => {
    const row = node("tr");
    row.append(header(shown.index[at] ?? "", "row"), ...cells.map((cell) => node("td", cell)));
    body.append(row);
  });
  made.append(head, body);
  return made;
}

/** @param {string} text @param {"col" | "row"} scope */
function header(text, scope) {
  const made = node("th", text);
  made.setAttribute("scope", scope);
  return made;
}

/** A PNG of the vault's, by the browser's decoder from memory: no address, so nothing that a policy must let load.
 * @param {any} picture */
function image(picture) {
  if (!picture.png) return node("p", `The picture is not shown: ${sizeOf(picture)}`, "note");
  const canvas = /** @type {HTMLCanvasElement} */ (node("canvas", undefined, "picture"));
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `a picture, ${sizeOf(picture)}`);
  const data = Uint8Array.from(atob(picture.png), (letter) => letter.charCodeAt(0));
  const [width, height] = sizeInHeader(data);
  if (width * height > MOST_PIXELS || !width) return node("p", "The picture is not shown: it is too large.", "note");
  canvas.width = width; // at once, so that what is around it need not move when it is there
  canvas.height = height;
  canvas.classList.toggle("small", width * height < 64 * 64);
  createImageBitmap(new Blob([data], { type: "image/png" })).then((bitmap) => {
    canvas.getContext("2d")?.drawImage(bitmap, 0, 0);
    bitmap.close();
    canvas.dataset.drawn = "yes";
  }, () => canvas.replaceWith(node("p", "The picture is not shown: this browser cannot read it.", "note")));
  return canvas;
}

/** Width and height as a PNG begins; 0, 0 for anything else. @param {Uint8Array<ArrayBuffer>} data */
function sizeInHeader(data) {
  const view = new DataView(data.buffer);
  if (data.length < 24 || view.getUint32(0) !== 0x89504e47 || view.getUint32(12) !== 0x49484452) return [0, 0];
  return [view.getUint32(16), view.getUint32(20)];
}

/** @param {any} shown */
function bytes(shown) {
  const made = node("pre", dump(shown.hex), "hex");
  if (shown.hex.length < 2 * shown.length) made.append(`\n… ${shown.length - shown.hex.length / 2} bytes more`);
  return made;
}

/** @param {string} hex */
function dump(hex) {
  const lines = [];
  for (let at = 0; at < hex.length; at += 32) {
    const bytes = hex.slice(at, at + 32).match(/../g) ?? [];
    const readable = bytes.map((byte) => {
      const code = parseInt(byte, 16);
      return code >= 32 && code < 127 ? String.fromCharCode(code) : ".";
    });
    lines.push(`${(at / 2).toString(16).padStart(8, "0")}  ${bytes.join(" ").padEnd(47)}  ${readable.join("")}`);
  }
  return lines.join("\n") || "(empty)";
}
