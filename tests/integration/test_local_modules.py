"""Modules beside the notebook, in a real kernel: read by the broker, judged as session code, run as judged."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_kernel import LiveKernel, live_kernel

UTILS = '''
"""What the notebook needs."""
import json, os.path
import numpy as np
from dataclasses import dataclass
from helpers import clean
SCALE = 3

@dataclass
class Point:
    x: int
    def double(self) -> "Point":
        return Point(self.x * 2)

def scaled(n: int) -> int:
    return n * SCALE

def tidy(text: str) -> str:
    return clean(text) + "!"

def noisy(text: str) -> str:
    print(text)
    return text

def broken() -> int:
    return 1 // (SCALE - SCALE)

if __name__ == "__main__":
    print("run as a program")
print("loaded", __name__, os.path.join("a", "b"), json.dumps([int(np.ones(2).sum())]))
'''


@pytest.fixture
def folder(project: Path) -> Path:
    (project / "utils.py").write_text(UTILS)
    (project / "helpers.py").write_text("def clean(text: str) -> str:\n    return text.strip()\n")
    (project / "pkg" / "sub").mkdir(parents=True)
    (project / "pkg" / "__init__.py").write_text("from .core import start\nVERSION = '1'\n")
    (project / "pkg" / "core.py").write_text("from .sub import deep\ndef start():\n    return deep.value() + 1\n")
    (project / "pkg" / "sub" / "__init__.py").write_text("")
    (project / "pkg" / "sub" / "deep.py").write_text("def value():\n    return 41\n")
    return project


@pytest.fixture
def kernel(folder: Path) -> Iterator[LiveKernel]:
    with live_kernel(folder) as running:
        yield running


def test_the_ways_to_import(kernel: LiveKernel) -> None:
    ran = kernel.run("from utils import scaled, Point as P\nprint(scaled(2), P(4).double())")
    assert ran.ok, ran.everything
    assert ran.stdout == "loaded utils a/b [2]\n6 Point(x=8)\n", ran.stdout
    ran = kernel.run("import utils\nimport utils as u\nprint(utils.scaled(1), u.SCALE, scaled(5))")
    assert ran.ok, ran.everything
    assert ran.stdout == "3 3 15\n", "and it is not loaded twice"
    assert kernel.run("utils.Point(1).x + scaled(1)").text == "4"
    assert kernel.run("import pkg\npkg.start(), pkg.VERSION").text == "(42, '1')"
    assert kernel.run("from pkg.sub import deep\nimport pkg.core\ndeep.value(), pkg.core.start()").text == "(41, 42)"
    assert kernel.run("from helpers import *\nclean(' a ')").text == "'a'"
    reply = kernel.run("3", user_expressions={"n": "scaled(3) + utils.SCALE", "gone": "utils.nothing"}).reply
    beside = reply["user_expressions"]
    assert beside["n"]["data"] == {"text/plain": "12"}
    assert beside["gone"]["ename"] == "CellRefused"
    assert kernel.run("scaled = scaled(2)\nscaled").text == "6", "a name is a name: it can be bound anew"
    assert kernel.run("scaled + 1").text == "7"


def test_its_functions_are_judged_like_those_of_cells(kernel: LiveKernel) -> None:
    ran = kernel.run(
        "from utils import tidy, noisy\nimport utils\nsecret = classify(' a ')\nkept = secret.map(tidy)\nkept"
    )
    assert ran.ok, ran.everything
    assert "Classified[str]" in ran.text
    made = kernel.run("from utils import Point\nclassify(3).map(lambda n: Point(n))").text
    assert "Classified[Point](***)" in made
    assert kernel.run("secret.map(noisy)").codes == ["impure-map"]
    assert kernel.run("secret.map(lambda text: utils.tidy(text).upper())").ok
    assert kernel.run("secret.map(lambda text: utils.noisy(text))").codes == ["impure-map"]
    ran = kernel.run("utils.nothing")
    assert (ran.codes, "has no name `nothing`" in ran.everything) == (["attr-defined"], True)
    assert kernel.run("print(utils)").codes == ["unsafe-feature"]


def test_a_changed_file_is_read_again_by_the_next_import(kernel: LiveKernel, folder: Path) -> None:
    assert kernel.run("from helpers import clean\ndef use():\n    return clean(' a ')\nuse()").text == "'a'"
    (folder / "helpers.py").write_text(
        "def clean(text: str) -> str:\n    return text.upper()\ndef more():\n    return 1\n"
    )
    assert kernel.run("use()").text == "'a'", "not before"
    assert kernel.run("from helpers import more\nuse(), more()").text == "(' A ', 1)"


def test_what_is_wrong_in_a_file_is_said_with_its_place(kernel: LiveKernel, folder: Path) -> None:
    (folder / "bad.py").write_text("x = 1\ndef f(:\n")
    ran = kernel.run("print('before')\nimport bad")
    assert ran.codes == ["syntax"]
    assert "bad.py:2:" in ran.everything
    assert "before\n" not in ran.stdout
    (folder / "bad.py").write_text("import os\nkey = os.environ['KEY']\n")
    ran = kernel.run("import bad")
    assert ran.codes == ["ambient-authority"]
    assert "bad.py:2:" in ran.everything
    (folder / "bad.py").write_text("key = 1\n")
    assert kernel.run("import bad\nbad.key").text == "1"
    ran = kernel.run("from utils import broken\nbroken()")
    assert ran.reply["ename"] == "ZeroDivisionError"
    assert "utils.py" in ran.everything
    assert "ǀ" not in ran.everything
    assert "9000000" not in ran.everything
    (folder / "fails.py").write_text("print('half')\nraise ValueError('no')\n")
    assert kernel.run("import fails").reply["ename"] == "ValueError"
    assert kernel.run("1 + 1").text == "2"


def test_no_file_takes_the_place_of_what_python_has(kernel: LiveKernel, folder: Path) -> None:
    for name in ("json", "numpy", "capkernel", "IPython"):
        (folder / f"{name}.py").write_text("print('mine')\ndumps = 1\n")
    ran = kernel.run("import json, numpy\nprint(json.dumps([1]), numpy.ones(1).sum())")
    assert (ran.ok, ran.stdout) == (True, "[1] 1.0\n")


def test_files_that_no_cell_may_read_are_no_modules(kernel: LiveKernel, folder: Path) -> None:
    (folder / "secrets").mkdir(exist_ok=True)
    (folder / "secrets" / "__init__.py").write_text("")
    (folder / "private").mkdir()
    outside = folder.parent / "outside.py"
    outside.write_text("x = 1\n")
    (folder / "linked.py").symlink_to(outside)
    assert kernel.run("import linked").reply["ename"] == "ModuleNotFoundError"


def test_after_a_new_worker_modules_load_again(kernel: LiveKernel) -> None:
    assert kernel.run("import utils\nutils.scaled(1)").text == "3"
    kernel.process("capkernel.worker.main").kill()
    assert not kernel.run("utils.scaled(1)").ok
    assert not kernel.run("utils.scaled(1)").ok
    ran = kernel.run("import utils\nutils.scaled(1)")
    assert ran.ok
    assert "loaded utils" in ran.stdout
