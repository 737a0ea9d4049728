"""Reading cells out of files that may be anything."""

# ruff: noqa: E501  (cells, as they are written)
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from capkernel.commands import cells_of as module
from capkernel.commands.cells_of import Cell, Unreadable, cells_of


def notebook(*cells: Any, nbformat: Any = 4) -> str:
    return json.dumps({"nbformat": nbformat, "nbformat_minor": 5, "metadata": {}, "cells": cells})


def code(source: Any, **metadata: Any) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "metadata": metadata, "outputs": [], "execution_count": None}


def test_a_notebook(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    path.write_text(
        notebook(
            {"cell_type": "markdown", "source": "# x"},
            code(["a = 1\n", "a"]),
            code(" \n"),
            code("b", tags=["refused", 3]),
        )
    )
    assert cells_of(path) == [Cell(1, "a = 1\na"), Cell(2, "b", ("refused",))]


def test_a_script(tmp_path: Path) -> None:
    path = tmp_path / "n.py"
    path.write_text(
        '"""Doc."""\nimport os\n# %%\na = 1\n\n# %% [markdown]\n# # words\n#%% a title tags=["refused"]\nb\n# %% tags=[not json]\nc\n# %%\n\n'
    )
    assert cells_of(path) == [
        Cell(1, '"""Doc."""\nimport os', (), 0),
        Cell(2, "a = 1", (), 3),
        Cell(3, "b", ("refused",), 8),
        Cell(4, "c", (), 10),
    ]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("n.txt", "x", "not a notebook (.ipynb) or a script"),
        ("n.ipynb", "", "not JSON"),
        ("n.ipynb", "[" * 200_000, "not JSON"),
        ("n.ipynb", "3", "format 4"),
        ("n.ipynb", '{"cells": 3, "nbformat": 4}', "format 4"),
        ("n.ipynb", notebook(nbformat=3), "format 4"),
        ("n.ipynb", notebook(5), "cell 1 is not one"),
        ("n.ipynb", notebook({"cell_type": 3}), "cell 1 is not one"),
        ("n.ipynb", notebook(code(5)), "source of its cell 1"),
        ("n.ipynb", notebook(code(["a", 5])), "source of its cell 1"),
        ("n.py", b"\xff\xfe\x00", "not UTF-8"),
    ],
)  # fmt: skip
def test_what_is_none(tmp_path: Path, name: str, content: str | bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(Unreadable, match=words.replace("(", r"\(").replace(")", r"\)")):
        cells_of(path)


def test_only_regular_files_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "big.py").write_text("a = 1\n")
    monkeypatch.setattr(module, "MOST_BYTES", 3)
    for name, words in (("d.py", "folder"), ("pipe.py", "regular"), ("big.py", "larger"), ("no.py", "no such file")):
        with pytest.raises(Unreadable, match=words):
            cells_of(tmp_path / name)


def test_bounded_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_CELLS", 2)
    (tmp_path / "n.py").write_text("a\n# %%\nb\n# %%\nc\n")
    with pytest.raises(Unreadable, match="more than 2 cells"):
        cells_of(tmp_path / "n.py")
