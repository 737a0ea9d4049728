"""HTML of a cell, reduced to structure: tables, lists, text. Nothing that loads, runs, points, names or styles.

Rule 1: an allow-list. A tag or attribute that is not here is dropped; no attribute can hold a URL, a name or a style.
"""

from __future__ import annotations

import nh3

_TAGS = frozenset({
    "table", "caption", "colgroup", "col", "thead", "tbody", "tfoot", "tr", "th", "td",
    "p", "div", "span", "br", "hr", "pre", "code", "samp", "kbd", "var", "blockquote",
    "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "dl", "dt", "dd",
    "b", "strong", "i", "em", "u", "s", "del", "ins", "small", "sub", "sup", "mark", "q", "abbr",
    "details", "summary", "figure", "figcaption", "section", "article", "header", "footer",
})  # fmt: skip
_ATTRIBUTES = {
    "table": {"border"},
    "td": {"colspan", "rowspan"},
    "th": {"colspan", "rowspan", "scope"},
    "ol": {"start"},
    "details": {"open"},
}
# These go with all they hold: their text is no text for a reader.
_WHOLE = {
    "script", "style", "svg", "math", "iframe", "object", "embed", "template", "noscript", "noembed", "noframes",
    "title", "textarea", "select", "canvas", "audio", "video", "xmp", "plaintext", "head", "frameset",
}  # fmt: skip

_cleaner = nh3.Cleaner(
    tags=set(_TAGS),
    attributes=_ATTRIBUTES,
    clean_content_tags=_WHOLE,
    url_schemes=set(),
    strip_comments=True,
    link_rel=None,
)


def clean_html(html: str) -> str:
    """`html` with only the allowed tags and attributes. May be empty."""
    return _cleaner.clean(html)
