"""A taken-over worker cannot put another value under a handle that is known, not even a worker that came later.

The checker is switched off. That the posts work at all is shown first, with a number that is new.
"""

from __future__ import annotations

import time
from pathlib import Path

from live_kernel import Ran
from unchecked import UncheckedKernel, checker_off_kernel

FORGE = """
from capkernel.api import membrane
from capkernel.api.classified import adopt
from capkernel.wire.values import encode
from capkernel.wire.worker import Classify, ZipClassified
def forge(handle, value):
    membrane.current().post(Classify(handle, ""), encode(value))
    return adopt(handle)
"""


def write(kernel: UncheckedKernel, name: str, value: str) -> Ran:
    file = f"fs.access('secrets/{name}')"
    return kernel.run(f"with request_file_system('.') as fs:\n    {file}.write_classified({value})")


def written(kernel: UncheckedKernel, folder: Path, name: str, value: str) -> str:
    ran = write(kernel, name, value)
    assert ran.ok, ran.everything
    file, end = folder / "secrets" / name, time.monotonic() + 20
    while not file.read_text() and time.monotonic() < end:
        time.sleep(0.05)
    return file.read_text()


def test_a_number_is_used_once_in_the_life_of_a_kernel(project: Path) -> None:
    with checker_off_kernel(project) as kernel:
        assert kernel.run(FORGE + "s = classify('first')\nmine = forge('a' * 32, 'mine')").ok
        assert written(kernel, project, "mine.txt", "mine") == "mine"  # the attack's own tools work
        number = kernel.run("print(s._handle)").stdout.strip()
        assert len(number) == 32
        kernel.run(f"again = forge({number!r}, 'second')")
        assert written(kernel, project, "a.txt", "again") == "first"
        kernel.process("capkernel.worker.main").kill()
        time.sleep(0.3)
        assert kernel.run(FORGE + f"later = forge({number!r}, 'third')").ok
        refused = write(kernel, "b.txt", "later")
        assert refused.reply["evalue"] == "this is no Classified value of this session"  # nor ever again
        kernel.process("capkernel.vault.keeper_main").kill()
        time.sleep(0.5)
        assert kernel.run(f"last = forge({number!r}, 'fourth')").ok
        assert kernel.run("new = classify('new')").ok
        assert written(kernel, project, "new.txt", "new") == "new"
        refused = write(kernel, "c.txt", "last")
        assert refused.reply["evalue"] == "this is no Classified value of this session"
        assert not (project / "secrets" / "c.txt").exists()
