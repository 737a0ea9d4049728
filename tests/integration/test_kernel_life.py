"""Refusals, aborts, deaths and ends: a session goes on, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from unchecked import UncheckedKernel, install_spec, unchecked_kernel


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runtime directory of this test alone."""
    place = tmp_path / "runtime"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    return place / "capkernel"


def children(kernel: UncheckedKernel) -> list[psutil.Process]:
    return psutil.Process(kernel.pid).children(recursive=True)


def gone(processes: list[psutil.Process], seconds: float = 5.0) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    return all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


# ── refusal ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_of_a_refused_cell_runs(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        assert kernel.run("ran = []").ok
        ran = kernel.run("ran.append(1)\nREFUSE")
        assert ran.reply["ename"] == "CellRefused"
        assert ran.reply["evalue"].startswith("cell[2]:1:1: error[unsafe-feature]: ")
        assert ran.codes == ["unsafe-feature"]
        kinds = [message["msg_type"] for message in ran.messages]
        assert kinds == ["status", "execute_input", "display_data", "error"]
        shown = ran.messages[2]["content"]["data"]
        assert "error[unsafe-feature]" in shown["text/plain"]
        assert "nothing ran" in shown["text/html"]
        assert kernel.run("ran").text == "[]"


def test_a_text_that_would_change_again_is_refused(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        ran = kernel.run(">>> >>> x = 1")
        assert ran.codes == ["unstable-text"]
        assert kernel.run(">>> x = 1\n>>> x").text == "1"


def test_half_a_surrogate_pair_is_refused_not_sent(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        # Python clients cannot send it; a page can, as an escape in its JSON.
        kernel.client.session.pack = lambda content: json.dumps(content, default=str).encode("ascii")
        assert kernel.run("x = '\ud800'").codes == ["syntax"]
        assert kernel.run("x = '\\0'\nlen(x)").text == "1"


def test_run_all_stops_at_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_spec(tmp_path)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(code) for code in ("x = 1", "x = 2\nREFUSE", "x = 3")]
    client = NotebookClient(notebook, kernel_name="unchecked", timeout=60)
    with pytest.raises(CellExecutionError) as caught:
        client.execute()
    assert caught.value.ename == "CellRefused"
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, None]
    nbformat.validate(notebook)


def test_an_error_aborts_what_was_queued_and_nothing_later(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        kernel.run("x = 0")
        for bad in ("raise ValueError", "REFUSE"):
            kernel.client.execute(f"import time; time.sleep(0.5)\n{bad}" if bad != "REFUSE" else bad)
            queued = [kernel.client.execute(f"x = {number}") for number in (1, 2, 3)]
            kernel.client.kernel_info()
            kernel.client.complete("zi")
            replies = {}
            while len(replies) < 6:
                reply = kernel.client.get_shell_msg(timeout=10)
                replies[reply["parent_header"]["msg_id"]] = reply
                if reply["msg_type"] == "execute_reply" and reply["content"]["status"] == "error":
                    late = kernel.client.execute("x += 10")
            statuses = [replies[request]["content"]["status"] for request in queued]
            assert set(statuses[:2]) <= {"aborted", "ok"}
            if bad != "REFUSE":  # they were certainly there when it failed
                assert statuses == ["aborted"] * 3
            kinds = sorted(reply["msg_type"] for reply in replies.values())
            assert kinds.count("complete_reply") == kinds.count("kernel_info_reply") == 1
            while late not in replies:
                reply = kernel.client.get_shell_msg(timeout=10)
                replies[reply["parent_header"]["msg_id"]] = reply
            assert replies[late]["content"]["status"] == "ok"


def test_an_error_told_not_to_stop_does_not(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        kernel.run("import time")
        kernel.client.execute("time.sleep(0.5); raise ValueError", stop_on_error=False)
        kernel.client.execute("1")
        statuses = [kernel.client.get_shell_msg(timeout=10)["content"]["status"] for _ in range(2)]
        assert statuses == ["error", "ok"]


def test_warnings_are_shown_and_the_cell_runs(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        ran = kernel.run("WARN = 4\nWARN")
        assert ran.ok
        assert ran.text == "4"
        assert "warning[assignment]" in ran.everything


# ── death ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("import os; os._exit(3)", "it exited with code 3"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_a_dead_worker_is_an_error_and_the_session_goes_on(tmp_path: Path, code: str, how: str) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        kernel.run("alpha = 1; beta = 2")
        ran = kernel.run(code)
        assert ran.reply["status"] == "error"
        assert ran.reply["ename"] == "WorkerDied"
        assert how in ran.reply["evalue"]
        assert "alpha, beta" in ran.reply["evalue"]
        assert kernel.run("1 + 1").text == "2"
        assert kernel.run("alpha").reply["ename"] == "NameError"


def test_a_worker_killed_from_outside_between_cells(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        kernel.run("alpha = 1")
        kernel.process("capkernel.worker.main").kill()
        ran = kernel.run("1 + 1")
        if not ran.ok:  # this one found it dead
            assert ran.reply["ename"] == "WorkerDied"
            ran = kernel.run("1 + 1")
        assert ran.text == "2"


def test_a_worker_that_speaks_out_of_turn_is_ended(tmp_path: Path) -> None:
    forge = (
        "import socket, os, stat\n"
        "for n in range(3, 200):\n"
        "    try:\n"
        "        if stat.S_ISSOCK(os.fstat(n).st_mode): os.write(n, b'\\xff' * 64)\n"
        "    except OSError: pass\n"
        "import time; time.sleep(10)"
    )
    with unchecked_kernel(tmp_path) as kernel:
        ran = kernel.run(forge)
        assert ran.reply["ename"] == "WorkerDied"
        assert "protocol" in ran.reply["evalue"]
        assert kernel.run("1 + 1").text == "2"


def test_a_cell_that_takes_too_long_is_interrupted(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path, "--cell-seconds", "1") as kernel:
        kernel.run("kept = 1")
        ran = kernel.run("while True: pass")
        assert ran.reply["ename"] == "KeyboardInterrupt"
        assert "limits.cell_seconds" in ran.everything
        assert kernel.run("kept").text == "1"


def test_a_cell_that_will_not_stop_is_ended(tmp_path: Path) -> None:
    stubborn = "import time\nwhile True:\n    try:\n        time.sleep(100)\n    except KeyboardInterrupt: pass"
    with unchecked_kernel(tmp_path, "--cell-seconds", "1") as kernel:
        assert kernel.run("kept, other = 1, 2").ok
        ran = kernel.run(stubborn)
        assert ran.reply["ename"] == "WorkerDied"
        assert "these names are lost: kept, other" in ran.reply["evalue"]
        assert "did not stop when interrupted" in ran.reply["evalue"]
        assert kernel.run("1 + 1").text == "2"


def test_waiting_for_the_person_does_not_count(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path, "--cell-seconds", "1") as kernel:
        kernel.run("1")
        kernel.client.execute("input('p> ')", allow_stdin=True)
        kernel.client.get_stdin_msg(timeout=10)
        time.sleep(1.5)
        kernel.client.input("slow")
        assert kernel.client.get_shell_msg(timeout=10)["content"]["status"] == "ok"


# ── end ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_shutdown_leaves_nothing(tmp_path: Path, runtime: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        kernel.run("open('big', 'w').write('x' * 1000)")
        started = children(kernel)
        assert started
        assert [place for place in runtime.iterdir() if place.name.startswith("session-")]
    assert gone(started)
    assert list(runtime.iterdir()) == []


def test_a_killed_kernel_takes_its_processes_along(tmp_path: Path, runtime: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        kernel.run("x = 1")
        kernel.client.execute("while True: pass")
        time.sleep(0.3)
        started = children(kernel)
        os.kill(kernel.pid, signal.SIGKILL)
        assert gone(started)
    assert list(runtime.iterdir()) != []  # nobody was left to clean up
    with unchecked_kernel(tmp_path) as kernel:
        assert kernel.run("1 + 1").text == "2"
        assert len(list(runtime.iterdir())) == 1  # the next one did
    assert list(runtime.iterdir()) == []


def test_a_kernel_whose_starter_dies_ends(tmp_path: Path, runtime: Path) -> None:
    program = (
        "import os, sys, time\nfrom pathlib import Path\nfrom unchecked import UncheckedKernel, argv\n"
        "kernel = UncheckedKernel(Path(sys.argv[1]), argv())\nkernel.run('x = 1')\nprint(kernel.pid, flush=True)\n"
        "sys.stdin.readline()\nos._exit(0)\n"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[1] / "support")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert starter.stdout is not None
    front = psutil.Process(int(starter.stdout.readline()))
    started = [front, *front.children(recursive=True)]
    assert len(started) > 1
    starter.communicate("\n", timeout=10)
    assert gone(started, 10)


def test_a_terminated_kernel_cleans_up(tmp_path: Path, runtime: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        kernel.run("x = 1")
        front, started = psutil.Process(kernel.pid), children(kernel)
        os.kill(kernel.pid, signal.SIGTERM)
        assert gone([front, *started])
    assert list(runtime.iterdir()) == []


def test_restart_gives_a_fresh_session(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        kernel.run("x = 1")
        started = children(kernel)
        kernel.manager.restart_kernel()
        kernel.client.wait_for_ready(timeout=60)
        assert gone(started)
        assert kernel.run("x").reply["ename"] == "NameError"


# ── isolation ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_below_the_demanded_level_nothing_runs_and_it_says_why(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path, "--minimum", "full") as kernel:
        ran = kernel.run("1 + 1")
        if ran.ok:  # bubblewrap works here, so `full` is what there is
            assert ran.text == "2"
        else:
            assert ran.reply["ename"] == "SessionNotReady"
            assert "the policy demands full" in ran.reply["evalue"]


def test_the_worker_cannot_do_what_this_process_can(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("s3cret")
    attempts = {
        f"open({str(secret)!r}).read()": lambda: secret.read_text(),
        "__import__('socket').socket()": lambda: __import__("socket").socket().close(),
        "__import__('os').listdir('/proc')": lambda: os.listdir("/proc"),
        f"__import__('os').kill({os.getpid()}, 0)": lambda: os.kill(os.getpid(), 0),
        "__import__('subprocess').run(['true'])": lambda: __import__("subprocess").run(["true"], check=True),
    }
    with unchecked_kernel(tmp_path) as kernel:
        for code, here in attempts.items():
            here()  # first: without the sandbox it works
            ran = kernel.run(code)
            assert ran.reply["status"] == "error", code
            assert "s3cret" not in ran.everything
