"""Text for a terminal or a list: controls made visible, renderings as lines.

Rule 1: what comes out of `visible` holds no character that moves a cursor, changes a colour, reorders or hides text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from capkernel.wire.shown import (
    Atom,
    Bool,
    Bytes,
    Cut,
    Image,
    Items,
    Nothing,
    Number,
    Pairs,
    Pending,
    Poison,
    Shown,
    Table,
    Text,
    Unknown,
)

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_PER_LINE = 16


def visible(text: str) -> str:
    """One line: every control, format and unassigned character as `\\xNN`, `\\uNNNN` or `\\UNNNNNNNN`."""
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if character.isascii() and character.isprintable():
        return character
    if unicodedata.category(character) not in _HIDDEN:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def what(shown: Shown) -> str:
    """The type and the size in a few words, visible."""
    return visible(_what(shown))


def _what(shown: Shown) -> str:
    match shown:
        case Text():
            return f"str, {shown.length} characters{_first(len(shown.text), shown.length)}"
        case Number() | Atom():
            return shown.type
        case Bool():
            return "bool"
        case Nothing():
            return "None"
        case Bytes():
            picture = f", a picture ({shown.picture.format}, {_size(shown.picture)})" if shown.picture else ""
            return f"{shown.type}, {shown.length} bytes{picture}"
        case Image():
            return f"picture, {_size(shown)}"
        case Items():
            return f"{shown.type}, {shown.count} items{_first(len(shown.items), shown.count)}"
        case Pairs():
            return f"dict, {shown.count} entries{_first(len(shown.items), shown.count)}"
        case Table():
            size = " × ".join(map(str, shown.shape))
            note = f", {shown.note}" if shown.note else ""
            return f"{shown.type}, {size}{note}{_cut(shown)}"
        case Poison():
            return "failed: there is no value"
        case Pending():
            return "not computed yet"
        case Unknown():
            return "gone"
        case Cut():
            return "not shown"


def _first(shown: int, there: int) -> str:
    return f" (the first {shown} are shown)" if shown < there else ""


def _cut(table: Table) -> str:
    rows, columns = table.shape[-2:] if len(table.shape) > 1 else ((*table.shape, 1)[0], len(table.columns))
    cut = [f"{len(table.rows)} rows"] if len(table.rows) < rows else []
    cut += [f"{len(table.columns)} columns"] if len(table.columns) < columns else []
    return f" (the first {' and '.join(cut)} are shown)" if cut else ""


def _size(picture: Image) -> str:
    size = f"{picture.width} × {picture.height} pixels" if picture.width else ""
    return ", ".join(filter(None, (size, picture.note)))


def ways(shown: Shown) -> list[tuple[str, list[str]]]:
    """The ways to see it in a terminal, each with a name and its lines; the first is the one to begin with."""
    match shown:
        case Text():
            return [("text", lines(shown)), *([("tree", lines(shown.json))] if shown.json is not None else [])]
        case Bytes():
            picture = [("picture", lines(shown.picture))] if shown.picture is not None else []
            return [*picture, *(ways(shown.text) if shown.text is not None else []), ("hex", lines(shown))]
        case _:
            return [("", lines(shown))]


def lines(shown: Shown) -> list[str]:
    """The rendering as lines of visible text."""
    match shown:
        case Text():
            return [visible(line) for line in shown.text.replace("\r\n", "\n").split("\n")]
        case Bytes():
            data = bytes.fromhex(shown.hex)
            rest = [f"… {shown.length - len(data)} bytes more"] if len(data) < shown.length else []
            return [*(_dumped(data, at) for at in range(0, len(data), _PER_LINE)), *rest] or ["(empty)"]
        case Image():
            return ["A picture: a terminal does not draw it, the page of `capkernel view` does."]
        case Table():
            return list(_table(shown))
        case Items() | Pairs():
            return list(_tree(shown, ""))
        case _:
            return [_leaf(shown)]


def _leaf(shown: Shown) -> str:
    match shown:
        case Text():
            return f'"{visible(shown.text)}"' + ("…" if len(shown.text) < shown.length else "")
        case Number() | Atom():
            return visible(shown.text)
        case Bool():
            return str(shown.value)
        case Nothing():
            return "None"
        case Bytes(picture=Image()):
            return what(shown)
        case Bytes():
            return f"{visible(shown.type)} {visible(shown.hex)}" + ("…" if len(shown.hex) < 2 * shown.length else "")
        case Poison():
            return visible(shown.reason) + (f" in {visible(shown.place)}" if shown.place else "")
        case Pending():
            return "The vault is still computing it: ask again in a moment."
        case Unknown():
            return "The vault has no such value any more."
        case _:
            return "…"


def _tree(shown: Shown, indent: str) -> Iterator[str]:
    """Containers with their parts below, indented."""
    if isinstance(shown, Items):
        entries = [(f"{number}: ", part) for number, part in enumerate(shown.items)]
        missing = shown.count - len(shown.items)
    elif isinstance(shown, Pairs):
        entries = [(f"{_leaf(key)}: ", part) for key, part in zip(shown.keys, shown.items, strict=False)]
        missing = shown.count - len(entries)
    else:
        yield indent + _leaf(shown)
        return
    for name, part in entries:
        if isinstance(part, Items | Pairs | Table):
            yield f"{indent}{name}{what(part)}"
            yield from (
                indent + "    " + line for line in (_table(part) if isinstance(part, Table) else _tree(part, ""))
            )
        else:
            yield f"{indent}{name}{_leaf(part)}"
    if missing > 0:
        yield f"{indent}… {missing} more"
    if not entries and not missing:
        yield f"{indent}(empty)"


def _table(shown: Table) -> Iterator[str]:
    index = shown.index or ("",) * len(shown.rows)
    rows = [[visible(label), *map(visible, row)] for label, row in zip(index, shown.rows, strict=False)]
    head = ["", *map(visible, shown.columns)]
    widths = [max(len(row[at]) if at < len(row) else 0 for row in [head, *rows]) for at in range(len(head))]
    yield _row(head, widths)
    for row in rows:
        yield _row(row, widths)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=False)).rstrip()


def _dumped(data: bytes, at: int) -> str:
    part = data[at : at + _PER_LINE]
    text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
    return f"{at:08x}  {part.hex(' '):<{3 * _PER_LINE}} {text}"
