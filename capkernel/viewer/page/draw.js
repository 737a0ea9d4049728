// @ts-check
/** A rendering (wire/shown.py) as nodes of text. Nothing here takes markup; there is no innerHTML, and the page's
 * Content-Security-Policy refuses it. */

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

/** The type and the size in a few words. @param {any} shown @returns {string} */
export function what(shown) {
  switch (shown.kind) {
    case "text": return `str, ${shown.length} characters${first([...shown.text].length, shown.length)}`;
    case "number": case "atom": return shown.type;
    case "bool": return "bool";
    case "none": return "None";
    case "bytes": return `${shown.type}, ${shown.length} bytes${first(shown.hex.length / 2, shown.length)}`;
    case "items": return `${shown.type}, ${shown.count} items${first(shown.items.length, shown.count)}`;
    case "pairs": return `dict, ${shown.count} entries${first(shown.items.length, shown.count)}`;
    case "table": return [shown.type, shown.shape.join(" × ") || "one", shown.note].filter(Boolean).join(", ")
      + first(shown.rows.length, shown.shape[0] ?? 1);
    case "poison": return "failed: there is no value";
    case "pending": return "not computed yet";
    case "unknown": return "gone";
    default: return "not shown";
  }
}

/** @param {any} shown @returns {HTMLElement} */
export function draw(shown) {
  switch (shown.kind) {
    case "text": return node("pre", shown.text, "text");
    case "number": case "atom": return node("pre", shown.text, "number");
    case "bool": return node("pre", shown.value ? "True" : "False", "number");
    case "none": return node("pre", "None", "number");
    case "bytes": return node("pre", dump(shown.hex), "hex");
    case "items": case "pairs": return tree(shown, true);
    case "table": return table(shown);
    case "poison": return node("p", shown.reason + (shown.place ? ` in ${shown.place}` : ""), "poison");
    case "pending": return node("p", "The vault is still computing it: ask again in a moment.", "note");
    case "unknown": return node("p", "The vault has no such value any more.", "note");
    default: return node("span", "…", "note");
  }
}

/** @param {any} part @returns {HTMLElement} */
function leaf(part) {
  switch (part.kind) {
    case "text": return node("span", JSON.stringify(part.text) + ([...part.text].length < part.length ? "…" : ""), "string");
    case "bytes": return node("span", `${part.type} ${part.hex}${part.hex.length < 2 * part.length ? "…" : ""}`, "number");
    case "items": case "pairs": return tree(part, false);
    case "table": return table(part);
    default: {
      const made = node("span", undefined, "number");
      made.textContent = draw(part).textContent;
      return made;
    }
  }
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
  names.append(node("th"), ...shown.columns.map((/** @type {string} */ name) => node("th", name)));
  head.append(names);
  const body = node("tbody");
  shown.rows.forEach((/** @type {string[]} */ cells, /** @type {number} */ at) => {
    const row = node("tr");
    row.append(node("th", shown.index[at] ?? ""), ...cells.map((cell) => node("td", cell)));
    body.append(row);
  });
  made.append(head, body);
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
