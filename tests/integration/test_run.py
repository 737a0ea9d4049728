"""`capkernel run`: what a person at a terminal gets, with good and with bad input."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from capkernel.bridge.run import read_notebook, write_notebook


def capkernel(*arguments: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "capkernel.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=seconds)


def save(path: Path, *cells: tuple[str, ...]) -> Path:
    """A notebook of (source, tag...) cells."""
    made = [new_code_cell(source, metadata={"tags": list(tags)}) for source, *tags in cells]
    nbformat.write(new_notebook(cells=made), path)
    return path


def test_cells_without_an_id_and_two_with_the_same_get_one(tmp_path: Path) -> None:
    path = tmp_path / "n.ipynb"
    cell = {"cell_type": "code", "metadata": {}, "source": "1", "outputs": [], "execution_count": None}
    cells = [cell, cell | {"id": "same"}, cell | {"id": "same"}]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Exception, match="id"):
            nbformat.validate(json.loads(path.read_text()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the reader of notebooks tells of it
        write_notebook(read_notebook(path), path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        saved = json.loads(path.read_text())
        nbformat.validate(saved)
    assert len({one["id"] for one in saved["cells"]}) == 3


def test_runs_every_cell_and_saves_the_outputs(project: Path) -> None:
    notebook = save(
        project / "n.ipynb",
        ("a = 6\nprint('six', a)",),
        ("a * 7",),
        ("x: int = 'hello'", "refused"),
        ("1 / 0", "raises-exception"),
        ("a",),
    )
    done = capkernel("run", str(notebook))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[5/5]" in done.stdout
    saved = nbformat.read(project / "n.executed.ipynb", as_version=4)
    nbformat.validate(saved)
    assert saved.cells[0].outputs[0].text == "six 6\n"
    assert saved.cells[1].outputs[0].data["text/plain"] == "42"
    assert "assignment" in str(saved.cells[2].outputs)
    assert saved.cells[3].outputs[-1].ename == "ZeroDivisionError"
    assert not nbformat.read(notebook, as_version=4).cells[1].outputs, "the source notebook is left alone"


def test_an_unexpected_error_stops_the_run_and_keeps_what_ran(project: Path) -> None:
    notebook = save(project / "n.ipynb", ("print('before')",), ("1 / 0",), ("print('after')",))
    done = capkernel("run", str(notebook), "--out", str(project / "o.ipynb"))
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    saved = nbformat.read(project / "o.ipynb", as_version=4)
    assert saved.cells[0].outputs[0].text == "before\n"
    assert saved.cells[2].outputs == []


def test_a_refusal_that_was_not_expected_fails(project: Path) -> None:
    done = capkernel("run", str(save(project / "n.ipynb", ("open('data/a.txt')",))))
    assert done.returncode == 1
    assert "ambient-authority" in done.stdout


def test_a_cell_that_should_be_refused_and_runs_fails(project: Path) -> None:
    done = capkernel("run", str(save(project / "n.ipynb", ("1 + 1", "refused"))))
    assert done.returncode == 1
    assert "tagged `refused`, but it ran" in done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "no such notebook"), ("not json", "not a notebook"), ('{"cells": 3}', "not a notebook")],
)
def test_bad_notebooks_get_one_clear_line(tmp_path: Path, content: str | None, words: str) -> None:
    path = tmp_path / "n.ipynb"
    if content is not None:
        path.write_text(content)
    done = capkernel("run", str(path))
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_policy_that_is_not_there_is_said_before_anything_runs(project: Path) -> None:
    done = capkernel("run", str(save(project / "n.ipynb", ("1",))), "--policy", str(project / "no.toml"))
    assert done.returncode == 2
    assert "no such policy file" in done.stderr


def test_the_policy_of_the_launcher_holds(project: Path) -> None:
    (project / "p.toml").write_text('[files]\nroots = ["data"]\n')
    cells = ("with request_file_system('secrets') as fs:\n    pass", "raises-exception"), ("1",)
    done = capkernel("run", str(save(project / "n.ipynb", *cells)), "--policy", str(project / "p.toml"))
    assert done.returncode == 0, done.stderr
    assert "CapabilityDenied" in done.stdout


def test_explain_and_doctor() -> None:
    assert "pure" in capkernel("explain", "impure-map").stdout
    missed = capkernel("explain", "impure-mep")
    assert missed.returncode == 2
    assert "did you mean impure-map" in missed.stderr
    doctor = capkernel("doctor")
    assert doctor.stdout.startswith("sandbox level: ")
    assert doctor.returncode == 0, "this machine must offer at least `standard` for the other tests to mean anything"
