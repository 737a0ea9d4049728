"""`capkernel check`: the verdicts of a session without running anything, on good, bad and hostile files."""

# ruff: noqa: E501  (cells, as they are written)
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

TOUR = Path(__file__).parents[2] / "notebooks" / "tour.ipynb"
CANARY = "canary-7f3a"


def check(*arguments: str | Path, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "capkernel.cli", "check", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds)


def script(path: Path, *cells: str) -> Path:
    path.write_text("\n".join(f"# %%{cell}" if cell.startswith(" tags") else f"# %%\n{cell}" for cell in cells) + "\n")
    return path


def test_the_tour_is_as_it_says() -> None:
    done = check(TOUR, "--format", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = json.loads(done.stdout)["files"]
    tagged = [cell["cell"] for cell in file["cells"] if "refused" in cell["tags"]]
    assert len(tagged) >= 5
    assert [cell["cell"] for cell in file["cells"] if cell["verdict"] == "refused"] == tagged
    assert all(cell["diagnostics"] for cell in file["cells"] if cell["verdict"] == "refused")
    said = [cell["authority"] for cell in file["cells"] if cell["authority"]]
    assert any("read classified" in line for line in said)
    assert all(line.startswith("may: ") and line.endswith(" · nothing else") for line in said)


def test_cells_see_what_earlier_ones_would_have_bound(tmp_path: Path) -> None:
    path = script(
        tmp_path / "n.py",
        "import numpy as np\na = np.arange(3)",
        "%matplotlib inline\nb = a.sum()\nc = 1",
        "del c",
        "c",
        "b?",
        "print(b)",
    )
    done = check(path)
    assert done.returncode == 1
    assert "[2] ok" in done.stdout
    assert "[4] refused\n      error[unbound-name]: `c` is not bound" in done.stdout
    assert "[6] ok" in done.stdout
    assert "6 cells, 0 refused as expected, 1 not as expected" in done.stdout


def test_nothing_runs(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    path = script(tmp_path / "n.py", f"open({str(mark)!r}, 'w')", "import utils_beside", "print(1)")
    (tmp_path / "utils_beside.py").write_text(f"open({str(mark)!r}, 'w')\n")
    assert check(path).returncode == 1
    assert not mark.exists()
    # The same text would have made the file.
    exec(path.read_text().split("# %%")[1])
    assert mark.exists()


def test_tags_and_exit_codes(tmp_path: Path) -> None:
    good = script(
        tmp_path / "good.py", ' tags=["refused"]\nopen("x")', ' tags=["raises-exception"]\nopen("x")', "1 / 0"
    )
    assert check(good).returncode == 0
    wrong = check(script(tmp_path / "wrong.py", ' tags=["refused"]\n1'))
    assert wrong.returncode == 1
    assert "[1] ok; but it is tagged `refused`" in wrong.stdout
    both = check(good, tmp_path / "none.ipynb")
    assert both.returncode == 2
    assert both.stderr == f"{tmp_path / 'none.ipynb'}: there is no such file\n"
    assert "0 not as expected" in both.stdout, "the other file is judged all the same"


def test_files_are_sessions_of_their_own(tmp_path: Path) -> None:
    first, second = script(tmp_path / "a.py", "only_here = 1"), script(tmp_path / "b.py", "only_here")
    done = check(first, second)
    assert done.returncode == 1
    assert "error[unbound-name]" in done.stdout


def test_profiles(tmp_path: Path) -> None:
    path = script(tmp_path / "n.py", "def f(x):\n    return x")
    assert check(path).returncode == 0
    assert check(path, "--profile", "strict").returncode == 1


def test_annotations(tmp_path: Path) -> None:
    path = script(tmp_path / "a,b:c%.py", "x = 1", 'y = 2\nopen("x")', ' tags=["refused"]\nz = 1')
    done = check(path, "--format", "github")
    assert done.returncode == 1
    place = str(path).replace("%", "%25").replace(",", "%2C").replace(":", "%3A")
    assert done.stdout.splitlines() == [
        f"::error file={place},line=5,title=cell 2%2C line 2%3A ambient-authority::"
        "`open` opens files without asking for them",
        f"::error file={place},line=7,title=cell 3::tagged `refused`, but it is accepted",
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [("n.ipynb", "not json"), ("n.ipynb", '{"cells": 3}'), ("n.py", "\0"), ("n.txt", "x"), ("n.ipynb", "[" * 100_000)],
)
def test_bad_files_get_one_clear_line(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    done = check(tmp_path / name)
    assert done.returncode == (1 if content == "\0" else 2)
    assert "Traceback" not in done.stdout + done.stderr
    assert len(done.stderr.splitlines()) == (0 if content == "\0" else 1)


def test_hostile_cells_are_refused_and_the_next_is_judged(tmp_path: Path) -> None:
    cells = [
        "(" * 3000 + ")" * 3000, "x = " + "-" * 100_000 + "1", "# mypy: ignore-errors", "'\ud800'".encode("unicode_escape").decode(),
        "get_ipython().system('id')", "!id", ">>> >>> 1", "a = '" + "y" * 300_000 + "'", "1 + 1",
    ]  # fmt: skip
    done = check(script(tmp_path / "n.py", *cells), "--format", "json")
    assert done.returncode == 1
    verdicts = [cell["verdict"] for cell in json.loads(done.stdout)["files"][0]["cells"]]
    assert verdicts == [
        "refused",
        "refused",
        "refused",
        "accepted",
        "refused",
        "refused",
        "refused",
        "refused",
        "accepted",
    ]


def test_nothing_of_a_file_controls_the_terminal(tmp_path: Path) -> None:
    path = script(tmp_path / "n\x1b[2J.py", 'open("\x1b]0;title\x07\u202e")')
    for form in ("text", "json", "github"):
        done = check(path, "--format", form)
        assert done.returncode == 1
        assert not {"\x1b", "\x07", "\u202e"} & set(done.stdout + done.stderr)


def test_values_stay_out_of_what_it_says(tmp_path: Path) -> None:
    path = script(tmp_path / "n.py", f'token = "{CANARY}"\nopen("x")')
    assert CANARY not in check(path, "--format", "json").stdout
    assert CANARY not in check(path, "--format", "github").stdout


def test_local_modules_are_judged_too(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text("def clean(text: str) -> str:\n    return text.strip()\n")
    (tmp_path / "leaky.py").write_text("import os\n\ndef key():\n    return os.environ['KEY']\n")
    path = script(
        tmp_path / "n.py",
        "from tools import clean\nimport tools\nclassify(' a ').map(clean)",
        "tools.clean('a')",
        "import leaky",
        "from tools import nothing",
    )
    done = check(path)
    assert done.returncode == 1
    assert "[1] ok" in done.stdout, done.stdout
    assert "[2] ok" in done.stdout, done.stdout
    assert "error[ambient-authority]: leaky.py:4:" in done.stdout
    assert "has no name `nothing`" in done.stdout
