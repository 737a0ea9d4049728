"""HTML of a cell, reduced to structure: tables, lists, text. Nothing that loads, runs, points, names or styles.

Rule 1: an allow-list. A tag or attribute that is not here is dropped; no attribute can hold a URL, a name or a style.
Rule 2: no front end typesets a command of the HTML that does more than draw.
Rule 3: cleaning takes time in proportion to the size. Markup on which a parser would take longer is not cleaned at all.
"""

from __future__ import annotations

import re
from itertools import islice

import nh3

from capkernel.kernel.latex import active_commands
from capkernel.kernel.text import show_hidden

_TAGS = frozenset({
    "table", "caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "th", "td",
    "p", "div", "span", "br", "hr", "pre", "code", "samp", "kbd", "var", "blockquote",
    "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "dl", "dt", "dd",
    "b", "strong", "i", "em", "u", "s", "del", "ins", "small", "sub", "sup", "mark", "q", "abbr",
    "details", "summary", "figure", "figcaption", "section", "article", "header", "footer",
})  # fmt: skip
_NUMBER = re.compile(r"[0-9]{1,4}")
_WORD = re.compile(r"row|col|rowgroup|colgroup")
_EMPTY = re.compile(r"")
_VALUES = {
    ("table", "border"): _NUMBER,
    ("td", "colspan"): _NUMBER,
    ("td", "rowspan"): _NUMBER,
    ("th", "colspan"): _NUMBER,
    ("th", "rowspan"): _NUMBER,
    ("th", "scope"): _WORD,
    ("ol", "start"): _NUMBER,
    ("details", "open"): _EMPTY,
}
# These go with all they hold: their text is no text for a reader.
_WHOLE = {
    "script", "style", "svg", "math", "iframe", "object", "embed", "template", "noscript", "noembed", "noframes",
    "title", "textarea", "select", "canvas", "audio", "video", "xmp", "plaintext", "head", "frameset",
}  # fmt: skip
_VOID = frozenset({"br", "hr", "col", "img", "input", "wbr", "meta", "link"})

_MOST = 4_000_000  # characters
_SMALL, _FEW = 50_000, 1_000  # characters and "<"s, with which no markup takes long, however broken
_DEEPEST = 100
# A parser moves what does not belong in a table to the front of it, one by one past all that it moved before.
_PARTS = {
    "table": frozenset({"caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "td", "th"}),
    "colgroup": frozenset({"col"}),
    "thead": frozenset({"tr", "td", "th"}),
    "tbody": frozenset({"tr", "td", "th"}),
    "tfoot": frozenset({"tr", "td", "th"}),
    "tr": frozenset({"td", "th"}),
}
# What it takes for an error in a text: it copies the text that it has for each of them.
_ERROR = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f]|&(?!(?:amp|lt|gt|quot|apos|nbsp|#[0-9]{2,5});)")
_MOST_ERRORS = 10_000
_ATTRIBUTE = r"""\s{1,40}[^\s<>"'=/]{1,40}(?:=(?:"[^"<>]{0,400}"|'[^'<>]{0,400}'|[^\s"'<>=`]{1,400}))?"""
_TAG = re.compile(rf"<(/?)([A-Za-z][A-Za-z0-9]{{0,20}})(?:{_ATTRIBUTE}){{0,20}}\s{{0,40}}/?>")


def _value(tag: str, attribute: str, value: str) -> str | None:
    allowed = _VALUES.get((tag, attribute))
    return value if allowed is not None and allowed.fullmatch(value) else None


_cleaner = nh3.Cleaner(
    tags=set(_TAGS),
    attributes={tag: {name for owner, name in _VALUES if owner == tag} for tag, _ in _VALUES},
    attribute_filter=_value,
    clean_content_tags=_WHOLE,
    url_schemes=set(),
    strip_comments=True,
    link_rel=None,
)


def clean_html(html: str) -> str | None:
    """`html` with only the allowed tags and attributes, maybe empty. None when it is too large or too entangled."""
    if len(html) > _MOST or not (_is_small(html) or (_is_orderly(html) and _has_few_errors(html))):
        return None
    return _untypeset(show_hidden(_cleaner.clean(html)))


def _untypeset(cleaned: str) -> str:
    """`cleaned` with an empty element in each command that does more than draw: it looks the same, and is no TeX."""
    places = active_commands(cleaned)
    if not places:
        return cleaned
    # Markup has no backslash, and no attribute can hold one: every place is in a text.
    pieces, at = [], 0
    for place in places:
        pieces.append(cleaned[at : place + 1])
        at = place + 1
    return "<span></span>".join([*pieces, cleaned[at:]])


def _is_small(html: str) -> bool:
    return len(html) <= _SMALL and html.count("<") <= _FEW


def _is_orderly(html: str) -> bool:
    """Whether each "<" begins a short tag, and each tag ends inside the one it began in, not too deep.

    A parser takes the square of the depth, of the tags left open, of the attributes of one tag and of what stands in a
    table between its cells. This reads the same tags as the parser does, because quotes and comments that could hide
    one from either are not orderly.
    """
    open_tags: list[str] = []
    at = html.find("<")
    while at >= 0:
        found = _TAG.match(html, at)
        if found is None:
            return False
        name = found[2].lower()
        if found[1]:
            if not open_tags or open_tags.pop() != name:
                return False
        elif open_tags and name not in _PARTS.get(open_tags[-1], (name,)):
            return False
        elif name not in _VOID:
            open_tags.append(name)
            if len(open_tags) > _DEEPEST:
                return False
        at = html.find("<", found.end())
    return True


def _has_few_errors(html: str) -> bool:
    return sum(1 for _ in islice(_ERROR.finditer(html), _MOST_ERRORS + 1)) <= _MOST_ERRORS
