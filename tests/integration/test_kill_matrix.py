"""Every process of a session, ended or stopped in every state: an answer within a bound, and a session that goes on.

The kernel is the real one with short waits (`impatient_kernel`). What must hold afterwards, whatever died: the next
cells run, a cell's refusal is still a refusal, secrets are alive (but for the keeper's death) and masks stay masks;
what was lost was told; at the end nothing is left.

A process is struck when the state it is to be struck in can be seen: the cell has put something out, the question went
to the checker and keeps it busy, the job has a process. Never after a while.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import psutil
import pytest
from live_kernel import Ran
from unchecked import UncheckedKernel, impatient_kernel

BOUND_SECONDS = 60  # cell time, grace, start of all parts on a busy machine
POLICY = """
[limits]
cell_seconds = 8
checker_seconds = 12
map_seconds = 2
"""
PARTS = {
    "worker": "capkernel.worker.main",
    "checker": "capkernel.checker.main",
    "keeper": "capkernel.vault.keeper_main",
    "runner": "capkernel.vault.runner_main",
}
WAYS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "crashed": signal.SIGABRT}
WHEN = ("idle", "cell", "check", "effect", "map")
CELLS = {
    "cell": "import time\nprint('begun')\ntime.sleep(3)",
    "check": "\n".join(f"def f{n}(x: int) -> list[int]:\n    return [x + {n} for _ in range(x)]" for n in range(1000)),
    # A read takes as long as `--slow` says; after the first, the second is under way.
    "effect": (
        "with request_file_system('data') as fs:\n    for _ in range(4):\n        fs.access('a.txt').read()\n"
        "        print('begun')"
    ),
    "map": (
        "import time\ndef slow(s: str) -> int:\n    n = 0\n    for i in range(100_000_000):\n        n += i\n"
        "    return n\nlong = secret.map(slow)\nprint('begun')\ntime.sleep(3)"
    ),
}
# Minutes of work for the type checker, nothing for Python: who ends the checker ends it in the middle.
ENDLESS_CHECK = (
    "from typing import Literal\n"
    f"def f(x: Literal[{', '.join(repr(f'v{n}') for n in range(400))}]) -> int:\n"
    + "".join(f"    if x == 'v{n}':\n        return {n}\n" for n in range(400))
    + "    return 0\n"
)
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
    with impatient_kernel(base, file, "--slow", "0.5", "--asked", str(base / "asked")) as kernel:
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
    """Send the signal, and wait until it has done what it does."""
    process = kernel.process(PARTS[part])
    process.send_signal(WAYS[way])
    ends = (psutil.STATUS_STOPPED,) if way == "stopped" else (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    wait_for(lambda: not process.is_running() or process.status() in ends, f"the {part} is {way}")


def wait_for(fact: Callable[[], object], what: str, seconds: float = BOUND_SECONDS) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            if fact():
                return
        except psutil.NoSuchProcess:
            return  # of a process we wait for: it has ended
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.01)


def struck(kernel: UncheckedKernel, part: str, way: str, when: str) -> Ran | None:
    """Run the cell of `when`, end `part` in it; what became of the cell."""
    if when == "idle":
        strike(kernel, part, way)
        return None
    asked = questions(kernel)
    code = ENDLESS_CHECK if (part, when) == ("checker", "check") else CELLS[when]
    request = kernel.client.execute(code)
    messages: list[dict[str, Any]] = []
    if when == "check":
        wait_for(lambda: questions(kernel) > asked, "the checker is asked")
    else:
        wait_for(lambda: has_begun(kernel, request, messages), "the cell has put something out")
    if (part, when) == ("checker", "check"):
        busy = kernel.process(PARTS["checker"])
        before = sum(busy.cpu_times()[:2])
        wait_for(lambda: sum(busy.cpu_times()[:2]) > before + 0.3, "the checker is at work")
    if when == "map":
        wait_for(lambda: len(runners(kernel)) == 2, "the function has a process of its own")
    strike(kernel, part, way)
    return finish(kernel, request, messages)


def questions(kernel: UncheckedKernel) -> int:
    """How many checks the checker was asked for so far."""
    asked = base_of(kernel) / "asked"
    return asked.stat().st_size if asked.exists() else 0


def has_begun(kernel: UncheckedKernel, request: str, messages: list[dict[str, Any]]) -> bool:
    try:
        message = kernel.client.get_iopub_msg(timeout=0.1)
    except Empty:
        return False
    if message["parent_header"].get("msg_id") != request:
        return False
    messages.append(message)
    assert message["msg_type"] != "error", message["content"]
    return bool(message["msg_type"] == "stream" and "begun" in message["content"]["text"])


def runners(kernel: UncheckedKernel) -> list[psutil.Process]:
    """The runner, and the job it has forked, which looks like it."""
    found = []
    for process in psutil.Process(kernel.pid).children(recursive=True):
        try:
            argv = process.cmdline()
        except psutil.Error:
            continue
        if PARTS["runner"] in argv and "bwrap" not in Path(argv[0]).name:
            found.append(process)
    return found


def base_of(kernel: UncheckedKernel) -> Path:
    argv = psutil.Process(kernel.pid).cmdline()
    return Path(argv[argv.index("--base") + 1])


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
    base = base_of(kernel)
    end = time.monotonic() + 15
    while time.monotonic() < end:
        if (base / "secrets" / name).read_text() == "TOKEN=CANARY-OF-THE-MATRIX\n":
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def kernel(kernels: dict[str, UncheckedKernel]) -> UncheckedKernel:
    return kernels[""]


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
        assert during.reply.get("ename") == "CellRefused", during.everything
        assert during.codes == ["too-much-work" if way == "stopped" else "checker-unavailable"]
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
