"""The person's way to a secret through a real kernel: what they see, and that nobody else sees more than before."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import pytest
from live_kernel import LiveKernel, live_kernel
from memory import count_in_memory, readable
from terminal_screen import read_until

from capkernel.broker.audit import directory_ambient, verify
from capkernel.commands.view import _open
from capkernel.viewer import sessions
from capkernel.viewer.link import Link, LinkRefused
from capkernel.viewer.terminal import opened
from capkernel.wire.shown import Bytes, Number, Pairs, Pending, Poison, Shown, Table, Text

READ = "with request_file_system('.') as fs:\n    s = fs.read_classified('secrets/canary.txt')"
MAKE = """\
import io
import pandas as pd
n = s.map(lambda t: len(t))
d = s.map(lambda t: {'key': t, 'parts': [1, None]})
b = s.map(lambda t: t.encode())
f = s.map(lambda t: pd.DataFrame({'secret': [t, '<b>'], 'n': [1, 2]}))
p = s.map(lambda t: 1 / 0)
c = classify(7, label='seven')
"""


@pytest.fixture
def runtime(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sessions of this test only."""
    folder = tmp_path_factory.mktemp("run")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    return folder


@pytest.fixture
def canary(project: Path) -> str:
    text = "canary" + uuid.uuid4().hex
    (project / "secrets" / "canary.txt").write_text(text)
    return text


@pytest.fixture
def kernel(project: Path, canary: str, runtime: Path) -> Iterator[LiveKernel]:
    with live_kernel(project) as running:
        assert running.run(READ).ok
        yield running


def the_link() -> Link:
    (session,) = sessions.running("test")
    return Link.open(session.runtime, "test")


def reveal(link: Link, **wanted: object) -> Shown:
    """The value that these fields of its line describe, once it is computed."""
    found = [line for line in link.values().values if all(getattr(line, name) == it for name, it in wanted.items())]
    assert len(found) == 1, (wanted, found)
    end = time.monotonic() + 20
    while isinstance(shown := opened(link, found[0].handle), Pending):
        assert time.monotonic() < end
        time.sleep(0.05)
    return shown


def test_the_person_sees_every_kind_of_value_and_why_one_failed(kernel: LiveKernel, canary: str) -> None:
    made = kernel.run(MAKE)
    assert made.ok, made.everything
    with the_link() as link:
        assert reveal(link, how="read") == Text(canary, len(canary))
        assert reveal(link, type="int", how="map") == Number("int", str(len(canary)))
        assert reveal(link, label="seven") == Number("int", "7")
        assert reveal(link, type="bytes") == Bytes(
            "bytes", canary.encode().hex(), len(canary), Text(canary, len(canary))
        )
        found = reveal(link, code="lambda t: {'key': t, 'parts': [1, None]}")
        assert isinstance(found, Pairs)
        assert found.items[0] == Text(canary, len(canary))
        assert reveal(link, type="DataFrame") == Table(
            "DataFrame", (2, 2), ("secret", "n"), ("0", "1"), ((canary, "1"), ("<b>", "2"))
        )
        assert reveal(link, code="lambda t: 1 / 0") == Poison("ZeroDivisionError", "cell 2, line 7")
        lines = link.values().values
        assert {line.origins for line in lines} == {("file:secrets/canary.txt",), ("cell:2",)}
        assert canary not in repr(lines)


def test_functions_that_are_made_where_they_are_given(kernel: LiveKernel) -> None:
    setup = """\
import re, operator
from functools import partial
def add(n, x, k=1):
    return x + n * k
names = {"a": 5}
digits = re.compile("[0-9]+")
up = True"""
    assert kernel.run(setup).ok
    wanted = {
        "classify(4).map(partial(add, 3, k=2))": Number("int", "10"),
        "classify(2.55).map(partial(round, ndigits=0))": Number("float", "3.0"),
        'classify({"a": 7}).map(operator.itemgetter("a"))': Number("int", "7"),
        'classify("b,c").map(operator.methodcaller("replace", ",", "+"))': Text("b+c", 3),
        'classify(8).map(operator.attrgetter("real"))': Number("int", "8"),
        'classify(["x", "y"]).map("-".join)': Text("x-y", 3),
        'classify("a").map(names.get)': Number("int", "5"),
        'classify("a1b22").map(lambda x: digits.sub("#", x))': Text("a#b#", 4),
        'classify("a1b").map(partial(digits.sub, "_"))': Text("a_b", 3),
        'classify("é").map(str.upper if up else str.lower)': Text("É", 1),
    }
    for number, text in enumerate(wanted, 3):
        made = kernel.run(f"v = {text}")
        assert made.ok, (text, made.everything)
        with the_link() as link:
            assert reveal(link, how="map", cell=number) == wanted[text], text


def test_the_list_says_the_same_whatever_the_value_is(kernel: LiveKernel) -> None:
    """One function, a value that it takes and one that it fails on: only the reveal tells them apart."""
    lines = []
    for text in ("5", "no number"):
        assert kernel.run(f"made = classify({text!r}).map(lambda t: int(t))").ok
        with the_link() as link:
            newest = link.values().values[0]
            cell = newest.cell
            reveal(link, handle=newest.handle)  # computed by now
            found = link.values().values[:2]
        same = [(line.how, line.type, line.label, line.code, len(line.parents), line.cell - cell) for line in found]
        lines.append((same, [[origin.replace(str(cell), "N") for origin in line.origins] for line in found]))
    assert lines[0] == lines[1]
    with the_link() as link:
        assert reveal(link, how="map", cell=2) == Number("int", "5")
        assert reveal(link, how="map", cell=3) == Poison("ValueError", "cell 3, line 1")


def test_a_reveal_changes_nothing_that_a_client_can_see(kernel: LiveKernel, canary: str) -> None:
    while True:  # what the cells before put out
        try:
            kernel.client.get_iopub_msg(timeout=0.5)
        except Empty:
            break
    with the_link() as link:
        for _ in range(5):
            assert reveal(link, how="read") == Text(canary, len(canary))
        link.audit()
        link.authority()
    with pytest.raises(Empty):
        kernel.client.get_iopub_msg(timeout=1)
    shown = kernel.run("print(s)\ns")
    assert shown.stdout == "Classified[str](***)\n"
    assert canary not in shown.everything


def test_the_kernel_the_worker_and_the_viewers_disk_never_hold_what_was_revealed(
    kernel: LiveKernel, canary: str, project: Path, runtime: Path
) -> None:
    with the_link() as link:
        for _ in range(10):
            assert reveal(link, how="read") == Text(canary, len(canary))
    if not readable(kernel.pid):
        pytest.skip("reading another process's memory needs root here")
    needle = canary.encode()
    assert count_in_memory(os.getpid(), needle) > 0, "the search must find it where it is"
    assert count_in_memory(kernel.process("capkernel.vault.keeper_main").pid, needle) > 0
    for pid in (
        kernel.pid,
        kernel.process("capkernel.worker.main").pid,
        kernel.process("capkernel.vault.runner_main").pid,
    ):
        assert count_in_memory(pid, needle) == 0
    assert count_in_memory(kernel.pid, canary.encode("utf-16-le")) == 0
    searched = 0
    for folder in (runtime, directory_ambient()):
        for path in folder.rglob("*"):
            if path.is_file():
                searched += 1
                assert needle not in path.read_bytes(), path
    assert searched > 1


def test_each_reveal_is_a_line_of_a_sound_audit(kernel: LiveKernel) -> None:
    with the_link() as link:
        (line,) = link.values().values
        for _ in range(3):
            opened(link, line.handle)
        said = [json.loads(entry) for entry in link.audit()]
    found = [entry for entry in said if entry["what"] == "classified.reveal"]
    assert [(entry["who"], entry["path"], entry["cell"]) for entry in found] == [("person", line.handle, 1)] * 3
    (file,) = directory_ambient().glob("*.jsonl")
    assert verify(file).broken is None
    assert file.read_text().count("classified.reveal") == 3


def test_two_sessions_are_told_apart_and_do_not_answer_for_each_other(
    kernel: LiveKernel, canary: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    with live_kernel(other) as second:
        assert second.run("x = classify(1)").ok
        found = sessions.running("test")
        assert {session.pid for session in found} == {kernel.pid, second.pid}
        (mine,) = sessions.chosen(found, str(second.pid))
        assert sessions.chosen(found, str(other)) == [mine]
        (theirs,) = [session for session in found if session != mine]
        with Link.open(mine.runtime, "test") as link, Link.open(theirs.runtime, "test") as their_link:
            assert reveal(link, how="classify") == Number("int", "1")
            (secret,) = their_link.values().values
            with pytest.raises(LinkRefused, match="no such value"):
                opened(link, secret.handle)
    assert [session.pid for session in sessions.running("test")] == [kernel.pid]


def test_a_pending_value_says_so_and_a_slow_map_does_not_stop_the_kernel(kernel: LiveKernel) -> None:
    assert kernel.run("slow = s.map(lambda t: sum(i for i in range(60_000_000)) and 1)").ok
    with the_link() as link:
        (line,) = [line for line in link.values().values if line.how == "map"]
        assert opened(link, line.handle) == Pending()
        assert kernel.run("1 + 1").text == "2"


# ── the terminal ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_terminal_shows_a_value_made_harmless_and_cleans_up(project: Path, canary: str, runtime: Path) -> None:
    hostile = canary + "\x1b]0;owned\x07\x1b[2J"
    (project / "secrets" / "canary.txt").write_text(hostile)
    with live_kernel(project) as kernel:
        assert kernel.run(READ).ok
        master, slave = pty.openpty()
        command = [sys.executable, "-P", "-m", "capkernel.cli", "view", "--tty"]
        viewer = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)
        try:
            listed = read_until(master, "q: leave")
            assert canary not in listed
            assert "Classified[str](***) · cell 1 · read · file:secrets/canary.txt" in listed
            os.write(master, b"1\n")
            shown = read_until(master, "Enter: hide")
            assert canary + r"\x1b]0;owned\x07\x1b[2J" in shown
            own = re.sub(r"\x1b\[(2J|3J|H|\?1049[hl])", "", shown)
            assert "\x1b" not in own
            assert "\x07" not in own
            os.write(master, b"\n")
            hidden = read_until(master, "q: leave")
            assert canary not in hidden
            assert hidden.index("\x1b[2J\x1b[3J\x1b[H") < hidden.index("q: leave")
            os.write(master, b"q\n")
            assert "\x1b[?1049l" in read_until(master, "\x1b[?1049l")
            assert viewer.wait(10) == 0
        finally:
            viewer.kill()
            viewer.wait()
            os.close(master)


def test_the_terminal_refuses_a_pipe(kernel: LiveKernel, canary: str) -> None:
    command = [sys.executable, "-P", "-m", "capkernel.cli", "view", "--tty"]
    done = subprocess.run(command, input="1\n", capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "nothing was shown" in done.stderr
    assert canary not in done.stdout + done.stderr


def test_without_a_session_or_with_a_wrong_name_the_command_says_what_to_do(runtime: Path) -> None:
    command = [sys.executable, "-P", "-m", "capkernel.cli", "view"]
    none = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (none.returncode, "open a notebook" in none.stderr) == (1, True)
    wrong = subprocess.run([*command, "nobody"], capture_output=True, text=True, timeout=60)
    assert (wrong.returncode, "--list" in wrong.stderr) == (2, True)


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_prints_a_link_that_opens_the_page_and_ends_when_told(kernel: LiveKernel) -> None:
    command = [sys.executable, "-P", "-m", "capkernel.cli", "view", "--no-browser", str(kernel.pid)]
    viewer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert viewer.stdin is not None
    assert viewer.stdout is not None
    try:
        links = []
        for _ in range(2):
            found = re.match(r"viewer: (http://127\.0\.0\.1:\d+)/#(\S+)\n", viewer.stdout.readline())
            assert found is not None
            links.append(found.groups())
            assert "once" in viewer.stdout.readline()
            viewer.stdin.write("\n")
            viewer.stdin.flush()
        origin = links[0][0]
        assert open_status(origin, links[0][1]) == 403, "a new link ends the one before"
        # The third link is the valid one by now.
        third = re.match(r"viewer: \S+/#(\S+)\n", viewer.stdout.readline())
        assert third is not None
        assert open_status(origin, third[1]) == 200
        assert open_status(origin, third[1]) == 403
        viewer.send_signal(signal.SIGINT)
        assert viewer.wait(20) == 0
    finally:
        viewer.kill()
        viewer.communicate()


def open_status(origin: str, token: str) -> int:
    request = urllib.request.Request(
        origin + "/api/open",
        json.dumps({"token": token}).encode(),
        {"Content-Type": "application/json", "Origin": origin, "Sec-Fetch-Site": "same-origin"},
    )
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code


def test_the_file_that_opens_the_browser_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened_with: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened_with.append)
    _open("http://127.0.0.1:1/#token", tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert opened_with == [file.as_uri()], "the token is not among the arguments of a process"
    assert "token" not in opened_with[0]
    assert "http://127.0.0.1:1/#token" in file.read_text()
