"""Every process of a session, ended or stopped in every state: an answer within a bound, and a session that goes on.

The kernel is the real one with short waits (`impatient_kernel`). What must hold afterwards, whatever died: the next
cells run, a cell's refusal is still a refusal, secrets are alive (but for the keeper's death) and masks stay masks;
what was lost was told; at the end nothing is left.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import psutil
import pytest
from live_kernel import Ran
from unchecked import UncheckedKernel, impatient_kernel

BOUND_SECONDS = 30  # cell time, grace, start of all parts on a busy machine
POLICY = """
[limits]
cell_seconds = 4
checker_seconds = 6
map_seconds = 2
"""
PARTS = {
    "worker": "capkernel.worker.main",
    "checker": "capkernel.checker.main",
    "keeper": "capkernel.vault.keeper_main",
    "runner": "capkernel.vault.runner_main",
}
WAYS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "crashed": signal.SIGABRT}
# A cell and the moment in it: after the first output when it prints, else after a moment.
WHEN = {
    "idle": "",
    "cell": "print('begun')\nfor i in range(30_000_000): pass",
    "check": "\n".join(f"def f{n}(x: int) -> list[int]:\n    return [x + {n} for _ in range(x)]" for n in range(1500)),
    "effect": (
        "print('begun')\nwith request_file_system('data') as fs:\n    for _ in range(3):\n        fs.access('a.txt').read()"  # noqa: E501
    ),
    "map": (
        "print('begun')\ndef slow(s: str) -> int:\n    n = 0\n    for i in range(30_000_000):\n        n += i\n    return n\n"  # noqa: E501
        "long = secret.map(slow)\nfor i in range(20_000_000): pass"
    ),
}
# The whole matrix takes minutes: `make test-slow`. One case of each process is in every run.
CASES = [
    pytest.param(way, when, marks=() if (way, when) == ("killed", "cell") else pytest.mark.slow)
    for way in WAYS
    for when in WHEN
]


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, UncheckedKernel]]:
    """One kernel per part that is ended again and again: the damage of one test must not show in the next."""
    base = tmp_path_factory.mktemp("matrix")
    for name in ("data", "secrets"):
        (base / name).mkdir()
    (base / "data" / "a.txt").write_text("hello\n")
    (base / ".env").write_text("TOKEN=canary-of-the-matrix\n")
    file = base / "capkernel.toml"
    file.write_text(POLICY)
    with impatient_kernel(base, file, "--slow", "0.3") as kernel:
        yield {"": kernel}


def prepared(kernel: UncheckedKernel) -> int:
    """A session with a secret, written to a file of its own. Returns a fresh number."""
    prepared.number += 1  # type: ignore[attr-defined]
    number: int = prepared.number  # type: ignore[attr-defined]
    ran = patient(
        kernel, "with request_file_system('.') as fs:\n    secret = fs.access('.env').read_classified()\nkept = 7"
    )
    assert ran.ok, ran.everything
    return number


prepared.number = 0  # type: ignore[attr-defined]


def patient(kernel: UncheckedKernel, code: str) -> Ran:
    began = time.monotonic()
    ran = kernel.run(code, seconds=BOUND_SECONDS)
    assert time.monotonic() - began < BOUND_SECONDS
    return ran


def strike(kernel: UncheckedKernel, part: str, way: str) -> None:
    number = WAYS[way]
    process = kernel.process(PARTS[part])
    process.send_signal(number)


def struck(kernel: UncheckedKernel, part: str, way: str, when: str) -> Ran | None:
    """Run the cell of `when`, end `part` in it; what became of the cell."""
    if when == "idle":
        strike(kernel, part, way)
        time.sleep(0.3)
        return None
    request = kernel.client.execute(WHEN[when])
    messages: list[dict[str, Any]] = []
    deadline = time.monotonic() + 10
    while "begun" in WHEN[when] and time.monotonic() < deadline:
        message = kernel.client.get_iopub_msg(timeout=10)
        if message["parent_header"].get("msg_id") == request:
            messages.append(message)
            if message["msg_type"] == "stream":
                break
    time.sleep(0.25)
    strike(kernel, part, way)
    return finish(kernel, request, messages)


def finish(kernel: UncheckedKernel, request: str, messages: list[dict[str, Any]]) -> Ran:
    end = time.monotonic() + BOUND_SECONDS
    while time.monotonic() < end:
        try:
            reply = kernel.client.get_shell_msg(timeout=1)
        except Empty:
            continue
        if reply["parent_header"].get("msg_id") == request:
            break
    else:
        pytest.fail(f"no reply within {BOUND_SECONDS} s")
    while True:
        try:
            message = kernel.client.get_iopub_msg(timeout=2)
        except Empty:
            break
        if message["parent_header"].get("msg_id") == request:
            messages.append(message)
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                break
    return Ran(reply["content"], messages)


def told(kernel: UncheckedKernel, during: Ran | None, words: str, *, tries: int = 12) -> str:
    """Everything the person was told until the words are there: with the cell that was struck, or with the next."""
    seen = during.everything if during is not None else ""
    for _ in range(tries):
        if words in seen:
            return seen
        seen += patient(kernel, "1").everything
        time.sleep(0.3)
    pytest.fail(f"nobody said {words!r}: {seen}")


def usable(kernel: UncheckedKernel) -> None:
    for _ in range(2):  # one may find what is dead, and say so
        ran = patient(kernel, "20 + 1")
        if ran.ok:
            break
    assert ran.text == "21", ran.everything
    assert patient(kernel, "eval('1')").codes == ["unsafe-feature"]
    assert patient(kernel, "with request_file_system('data') as fs:\n    fs.access('a.txt').read()").ok


def secret_is_written(kernel: UncheckedKernel, name: str) -> bool:
    """Whether `secret` still is what it was: in a file that only the vault fills."""
    ran = patient(
        kernel,
        f"with request_file_system('.') as fs:\n    fs.access('secrets/{name}').write_classified(secret.map(str.upper))",  # noqa: E501
    )
    assert ran.ok, ran.everything
    base = Path(kernel.client_base)  # type: ignore[attr-defined]
    end = time.monotonic() + 15
    while time.monotonic() < end:
        if (base / "secrets" / name).read_text() == "TOKEN=CANARY-OF-THE-MATRIX\n":
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def kernel(kernels: dict[str, UncheckedKernel]) -> UncheckedKernel:
    found = kernels[""]
    argv = psutil.Process(found.pid).cmdline()
    found.client_base = argv[argv.index("--base") + 1]  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(("way", "when"), CASES)
def test_worker(kernel: UncheckedKernel, way: str, when: str) -> None:
    number = prepared(kernel)
    during = struck(kernel, "worker", way, when)
    seen = told(kernel, during, "the worker process ended")
    assert "kept" in seen or " more" in seen  # of very many names the first are told
    assert "lost" in seen
    if during is not None:
        assert during.reply["status"] == "error"
        assert during.reply["ename"] == "WorkerDied"
    usable(kernel)
    assert patient(kernel, "kept").codes == ["unbound-name"]
    prepared(kernel)
    assert "***" in patient(kernel, "print(secret)").stdout
    assert secret_is_written(kernel, f"worker-{number}.txt")


@pytest.mark.parametrize(("way", "when"), CASES)
def test_checker(kernel: UncheckedKernel, way: str, when: str) -> None:
    number = prepared(kernel)
    during = struck(kernel, "checker", way, when)
    if during is not None and when == "check":
        assert during.reply["ename"] == "CellRefused", during.everything
        assert set(during.codes) <= {"checker-unavailable", "too-much-work"}
    elif during is not None:
        assert during.ok, during.everything
    usable(kernel)
    assert patient(kernel, "kept").text == "7"
    assert "***" in patient(kernel, "print(secret)").stdout
    assert secret_is_written(kernel, f"checker-{number}.txt")


@pytest.mark.parametrize(("way", "when"), CASES)
def test_runner(kernel: UncheckedKernel, way: str, when: str) -> None:
    """Nothing at all is told: not its death, not the poison."""
    number = prepared(kernel)
    during = struck(kernel, "runner", way, when)
    if during is not None:
        assert during.ok, during.everything
        assert "capkernel:" not in during.everything
    ran = patient(kernel, "20 + 1")
    assert [m["msg_type"] for m in ran.messages] == ["status", "execute_input", "execute_result"]
    usable(kernel)
    assert patient(kernel, "kept").text == "7"
    assert "***" in patient(kernel, "print(secret)").stdout
    # A runner that hangs costs the first job that it is given; then there is another.
    assert secret_is_written(kernel, f"runner-{number}a.txt") or secret_is_written(kernel, f"runner-{number}b.txt")


@pytest.mark.parametrize(("way", "when"), CASES)
def test_keeper(kernel: UncheckedKernel, way: str, when: str) -> None:
    number = prepared(kernel)
    during = struck(kernel, "keeper", way, when)
    told(kernel, during, "every Classified value of this session is lost")
    usable(kernel)
    assert patient(kernel, "kept").text == "7"
    assert "***" in patient(kernel, "print(secret)").stdout
    assert secret_is_written(kernel, f"keeper-{number}a.txt") is False  # it was lost
    prepared(kernel)
    assert secret_is_written(kernel, f"keeper-{number}b.txt")
