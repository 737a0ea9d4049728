"""What the worker's IPython leaves out, because the answer is known, is what stock IPython would answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ipykernel.displayhook import ZMQShellDisplayHook
from ipykernel.zmqshell import ZMQInteractiveShell

from capkernel.worker.shell import CellDisplayHook, WorkerShell

CELLS = [
    "1 + 1\n",
    "x = 1\nx;\n",
    "x; y\n",
    "x  # ;\n",
    "';'\n",
    "s = ';'; s  ;  # shown?\n",
    "import asyncio\nawait asyncio.sleep(0)\n",
    "async def f():\n    await g()\n",
    "async with a as b:\n    pass\n",
    "async for x in y:\n    pass\n",
    "[x async for x in y]\n",
    "await_ = 1\n",
    "def f():\n    return [x async for x in y]\n",
    "def f(:\n",
    "return 1\n",
    "",
]


@pytest.mark.parametrize("cell", CELLS)
def test_whether_a_cell_awaits(cell: str) -> None:
    ours, stock = WorkerShell.__new__(WorkerShell), ZMQInteractiveShell.__new__(ZMQInteractiveShell)
    for problem in (None, (ValueError, ValueError(), None)):
        options: dict[str, Any] = {"transformed_cell": cell, "preprocessing_exc_tuple": problem}
        assert ours.should_run_async(cell, **options) == stock.should_run_async(cell, **options)


def test_some_of_them_do() -> None:
    shell = WorkerShell.__new__(WorkerShell)
    assert sum(shell.should_run_async(cell, transformed_cell=cell) for cell in CELLS) == 4


@pytest.mark.parametrize("cell", [cell for cell in CELLS if cell != "def f(:\n"])
def test_whether_a_semicolon_keeps_a_cell_quiet(cell: str) -> None:
    answers = []
    for kind in (CellDisplayHook, ZMQShellDisplayHook):
        hook = kind.__new__(kind)
        shell = SimpleNamespace(history_manager=SimpleNamespace(input_hist_parsed=["", cell]))
        hook._trait_values["shell"] = shell
        answers.append(bool(hook.quiet()))
    assert answers[0] == answers[1] == (cell in ("x = 1\nx;\n", "s = ';'; s  ;  # shown?\n"))
