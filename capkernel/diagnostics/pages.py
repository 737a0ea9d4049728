"""The page of each code: docs/diagnostics/CODE.md, which the package ships. Its examples are tests."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

from capkernel.diagnostics.codes import CODES


def folder() -> Path:
    """Where the pages are: in the installed package, or in the sources."""
    shipped = Path(str(importlib.resources.files("capkernel") / "diagnostics" / "pages"))
    return shipped if shipped.is_dir() else Path(__file__).resolve().parents[2] / "docs" / "diagnostics"


def page(code: str) -> str:
    """The page of one of our codes, as Markdown. Raises KeyError for another code."""
    return (folder() / f"{CODES[code].name}.md").read_text("utf-8")
