"""The pre-commit hook runs a command that exists."""

from __future__ import annotations

import re
from pathlib import Path

from capkernel import cli

HOOKS = Path(__file__).parents[3] / ".pre-commit-hooks.yaml"


def test_the_hook() -> None:
    text = HOOKS.read_text("utf-8")
    entry = re.search(r"^  entry: capkernel (\w+)$", text, re.MULTILINE)
    files = re.search(r"^  files: (.+)$", text, re.MULTILINE)
    assert entry is not None
    assert files is not None
    assert entry[1] in cli._parser().format_help()
    assert re.search(files[1], "reports/a.ipynb")
    assert not re.search(files[1], "a.py")
