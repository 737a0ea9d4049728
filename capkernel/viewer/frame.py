"""The document of the isolated frame in which a card shows a value: one file, made of files of the page.

Rule 1: it is the same for every value, kernel and person, and holds nothing of any: it may be cached.
Rule 2: its policy lets run and style it exactly what is in it, by hash; nothing loads but images in `data:`. With the
policy's own `sandbox` it has an origin of its own also where someone opens it without the frame's attribute.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.resources
import re
from typing import Final

_IMPORT: Final = re.compile(r'^import \{ ([\w, ]+) \} from "\./(\w+\.js)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export ((?:async )?function|const|class) (\w+)", re.MULTILINE)
_MODULE_WORD: Final = re.compile(r"^\s*(?:import|export)\b", re.MULTILINE)
_SCRIPT: Final = '<script type="module"></script>'
_STYLE: Final = "<style></style>"


@functools.cache
def document() -> tuple[bytes, dict[str, str]]:
    """The document and the headers it is served with."""
    script = "\n" + _module("frame.js") + "\n"
    style = "\n" + _text("viewer.css") + _text("frame.css")
    if "</script" in script.lower() or "</style" in style.lower():
        raise ValueError("a file of the frame ends its own element")
    page = _text("frame.html")
    if page.count(_SCRIPT) != 1 or page.count(_STYLE) != 1:
        raise ValueError("frame.html has no place for its script or style")
    page = page.replace(_SCRIPT, f'<script type="module">{script}</script>')
    page = page.replace(_STYLE, f"<style>{style}</style>")
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox allow-scripts; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return page.encode("utf-8"), {
        "Content-Type": "text/html; charset=utf-8",
        "Content-Security-Policy": policy,
        "Cache-Control": "private, max-age=86400",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), microphone=(), geolocation=(), display-capture=()",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def _module(name: str, within: tuple[str, ...] = ()) -> str:
    """A module with the ones it imports in place, each in a scope of its own: a frame of no origin imports nothing."""
    if name in within:
        raise ValueError(f"{name} imports itself")

    def imported(found: re.Match[str]) -> str:
        return f"const {{ {found[1]} }} = (() => {{\n{_module(found[2], (*within, name))}}})();\n"

    own = _text(name)
    names = [found[2] for found in _EXPORT.finditer(own)]
    own = _IMPORT.sub(lambda found: "\0" + found[0], own)  # marked: what is put in place is not looked at again
    own = _EXPORT.sub(r"\1 \2", own)
    if _MODULE_WORD.search(re.sub(r"\0import .*\n", "", own)):
        raise ValueError(f"{name} imports or exports in a way that is not known here")
    own = re.sub(r"\0(import .*\n)", lambda found: imported(_IMPORT.match(found[1])), own)  # type: ignore[arg-type]
    return own + (f"return {{ {', '.join(names)} }};\n" if within else "")


def _text(name: str) -> str:
    return (importlib.resources.files("capkernel.viewer") / "page" / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
