"""Which files a folder or a pattern stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from capkernel.commands.files_of import expanded


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "b.ipynb", "a.ipynb", "sub/c.ipynb", "sub/cells.py", "sub/plain.py", ".ipynb_checkpoints/a.ipynb",
        "venv/lib/x.ipynb", "sub/.hidden.ipynb", "notes.txt",
    ):  # fmt: skip
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# %%\n1\n" if name == "sub/cells.py" else "x = '# %%'\n", "utf-8")
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "pipe.py").symlink_to("/dev/zero")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def named(*arguments: str) -> list[str]:
    return [str(path) for path in expanded(map(Path, arguments))]


def test_a_folder(tree: Path) -> None:
    assert named(".") == ["a.ipynb", "b.ipynb", "sub/c.ipynb", "sub/cells.py"]
    assert named("sub") == ["sub/c.ipynb", "sub/cells.py"]


def test_a_pattern(tree: Path) -> None:
    assert named("*.ipynb") == ["a.ipynb", "b.ipynb"]
    assert named("**/c*") == ["sub/c.ipynb", "sub/cells.py"]


def test_what_is_named_is_taken(tree: Path) -> None:
    assert named("sub/plain.py", "notes.txt", "gone.ipynb") == ["sub/plain.py", "notes.txt", "gone.ipynb"]


def test_each_once(tree: Path) -> None:
    assert named("b.ipynb", ".", "sub") == ["b.ipynb", "a.ipynb", "sub/c.ipynb", "sub/cells.py"]


def test_what_names_nothing_stays_to_be_reported(tree: Path) -> None:
    assert named("empty", "*.nothing") == ["empty", "*.nothing"]
