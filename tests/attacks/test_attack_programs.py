"""The attack programs of `programs/`: with nothing on, everything on, the checker off, the worker's sandbox off too.

Rule 1: a program counts only when it works where nothing protects.
Rule 2: with everything on it is refused for the reason it states, or runs and learns nothing; another code is a
failure.
Rule 3: oracles: two sessions that differ in their secret alone (its length, its letters, the first one) put out the
same bytes, in replies, outputs and file names.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from attack_programs import Program, read_all
from attack_world import VARIABLE, World
from leaks import leaked, spellings
from live_kernel import LiveKernel, Ran, live_kernel
from loopback import Listener, listening
from memory import count_in_memory, readable
from unchecked import checker_off_kernel

PROGRAMS = read_all()
BARE = [program for program in PROGRAMS if program.needs != "sandbox"]
UNPROTECTED = Path(__file__).parents[1] / "support" / "unprotected.py"
BARE_WORKER = UNPROTECTED.with_name("bare_worker.py")
STARTING = threading.Lock()  # the environment is one for all threads
STARTED = "print('started')\n"
STARTS = {
    "full": live_kernel,
    "checker off": checker_off_kernel,
    "checker and sandbox off": lambda project: checker_off_kernel(project, "--bare"),
}


def secret_pair() -> tuple[str, str]:
    """Two secrets that differ in every way that a program could ask for."""
    return "canary" + secrets.token_hex(20), "Quagga-and-more" + secrets.token_hex(8).upper()


@dataclass
class Attack:
    """What one program did in one session."""

    cells: list[Ran] = field(default_factory=list)
    text: str = ""  # all of it, for looking for what must not be there
    trace: str = ""  # what a client saw, without what differs by chance
    gained: set[str] = field(default_factory=set)


@dataclass
class Session:
    """All programs in one mode with one secret."""

    world: World
    attacks: dict[str, Attack] = field(default_factory=dict)
    beside: str = ""  # completion, help and history
    alive: bool = False  # a map and a classified write worked, after all of it
    in_memory: int | None = None  # copies of the secret in the worker; None where that cannot be read
    logs: str = ""


# ── nothing protects ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def unprotected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Program], tuple[Attack, Attack]]]:
    """Runs a program in a plain IPython, with two secrets."""
    environment = {**os.environ, VARIABLE: "environment" + secrets.token_hex(12)}
    first, second = secret_pair()
    process = subprocess.Popen(
        [sys.executable, str(UNPROTECTED)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True, env=environment,
    )  # fmt: skip

    def run(program: Program, secret: str, listener: Listener) -> Attack:
        world = World(tmp_path_factory.mktemp("world"), secret, listener)
        world.marks["environment"] = environment[VARIABLE]
        out, knocks, heard = world.base / "out", listener.knocks, len(listener.heard)
        order = {
            "cells": program.cells, "names": world.names, "directory": str(world.project), "out": str(out),
        }  # fmt: skip
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ended\n"
        _let_it_arrive(program)
        said = out.read_text(errors="replace")
        text = "\n".join([said, world.left_behind(), listener.heard[heard:].decode("utf-8", "replace")])
        return Attack(
            text=text, trace=_without_chance(said + world.left_behind(), world),
            gained=world.gained(text, listener.knocks - knocks, world.left_behind()),
        )  # fmt: skip

    with listening() as listener:
        yield lambda program: (run(program, first, listener), run(program, second, listener))
    process.stdin.close()
    process.wait(10)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_it_works_where_nothing_protects(
    program: Program, unprotected: Callable[[Program], tuple[Attack, Attack]]
) -> None:
    first, second = unprotected(program)
    if program.gains == "differs":
        assert first.trace != second.trace, first.text
    else:
        assert program.gains in first.gained, first.text
        assert program.gains in second.gained


# ── sessions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Session, Session]]:
    """Two sessions in a mode, that differ in their secret alone; run when first asked for."""
    pair = secret_pair()
    done: dict[str, tuple[Session, Session] | Exception] = {}

    def both(mode: str) -> tuple[Session, Session]:
        if mode not in done:
            try:
                with listening() as one, listening() as other, ThreadPoolExecutor() as both_at_once:
                    worlds = [
                        World(tmp_path_factory.mktemp("world"), secret, listener)
                        for secret, listener in zip(pair, (one, other), strict=True)
                    ]
                    first, second = both_at_once.map(lambda world: _session(mode, world), worlds)
                    done[mode] = first, second
            except Exception as problem:  # once is enough to know
                done[mode] = problem
        found = done[mode]
        if isinstance(found, Exception):
            raise found
        return found

    return both


def _session(mode: str, world: World) -> Session:
    session = Session(world)
    programs = BARE if mode == "checker and sandbox off" else PROGRAMS
    with _started(mode, world) as kernel:
        for program in programs:
            if not program.fresh:
                session.attacks[program.name] = _attack(kernel, program, world)
        _look_beside(kernel, session)
    for program in programs:
        if program.fresh:
            with _started(mode, world) as kernel:
                session.attacks[program.name] = _attack(kernel, program, world)
    session.logs = _kernel_logs(world)
    return session


@contextlib.contextmanager
def _started(mode: str, world: World) -> Iterator[LiveKernel]:
    """A kernel whose environment has the variable that nobody may see. Two sessions start one after the other."""
    with contextlib.ExitStack() as stack:
        with STARTING, pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(world.base / "state"))
            patch.setenv(VARIABLE, world.marks["environment"])
            start: Callable[[Path], AbstractContextManager[LiveKernel]] = STARTS[mode]
            kernel = stack.enter_context(start(world.project))
        yield kernel


def _attack(kernel: LiveKernel, program: Program, world: World) -> Attack:
    attack, listener = Attack(), world.listener
    knocks, heard = listener.knocks, len(listener.heard)
    ready = kernel.run(world.setup(), allow_stdin=False)
    assert ready.ok, f"before {program.name}: {ready.everything}"
    scratch = Path(_worker(kernel).environ()["TMPDIR"])
    for cell in program.cells:
        prefix = "" if cell.startswith(("%", "!")) else STARTED
        attack.cells.append(kernel.run(prefix + cell, allow_stdin=False))
    _let_it_arrive(program)
    behind = world.left_behind(scratch)
    seen = "\n".join(ran.everything for ran in attack.cells)
    attack.text = "\n".join([seen, behind, listener.heard[heard:].decode("utf-8", "replace")])
    # Texts as they are, beside their JSON, where a line end or a quote is spelled otherwise.
    attack.text += "\n".join(
        _texts([ran.reply, *[message["content"] for message in ran.messages]]) for ran in attack.cells
    )
    attack.gained = world.gained(attack.text, listener.knocks - knocks, world.left_behind())
    attack.trace = "\n".join(
        [*[_trace(ran, world) for ran in attack.cells], _without_chance(world.left_behind(), world)]
    )
    world.tidy()
    return attack


def _let_it_arrive(program: Program) -> None:
    if program.by == "socket":
        time.sleep(0.3)  # the listener has a thread of its own


def _look_beside(kernel: LiveKernel, session: Session) -> None:
    """What a client may ask beside cells, and whether the session still works at all."""
    world = session.world
    assert kernel.run(world.setup(), allow_stdin=False).ok
    client, replies = kernel.client, []
    for ask in (
        lambda: client.complete("s.", 2), lambda: client.complete("s.m", 3), lambda: client.complete("_", 1),
        lambda: client.inspect("s", 1), lambda: client.inspect("s.map", 4, 1),
        lambda: client.history(hist_access_type="tail", n=50),
        lambda: client.is_complete("s.map("),
    ):  # fmt: skip
        request = ask()
        while True:
            reply = client.get_shell_msg(timeout=30)
            if reply["parent_header"].get("msg_id") == request:
                replies.append(reply["content"])
                break
    looked = [kernel.run(code, allow_stdin=False) for code in ("s?", "s.map?", "s")]
    session.beside = _without_chance(json.dumps(replies) + "".join(_trace(ran, world) for ran in looked), world)
    writes = (
        "with request_file_system('.') as fs:\n    fs.write_classified('secrets/up', s.map(lambda t: t.swapcase()))"
    )
    assert kernel.run(writes, allow_stdin=False).ok
    session.alive = _wait_for(world.project / "secrets" / "up", world.secret.swapcase())
    worker = _worker(kernel).pid
    if readable(worker):
        session.in_memory = sum(count_in_memory(worker, form.encode()) for form in (world.secret, world.secret[::-1]))


def _worker(kernel: LiveKernel) -> psutil.Process:
    for command in ("capkernel.worker.main", str(BARE_WORKER)):
        with contextlib.suppress(AssertionError):
            return kernel.process(command)
    raise AssertionError("the session has no worker")


def _kernel_logs(world: World) -> str:
    """The audit, and whatever else is in the state directory."""
    files = [path for path in (world.base / "state").rglob("*") if path.is_file() and path.name != "0.jsonl"]
    return "\n".join(path.read_text() for path in files)


def _texts(value: Any) -> str:
    if isinstance(value, str):
        return value + "\n"
    if isinstance(value, dict):
        return "".join(_texts(key) + _texts(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return "".join(_texts(item) for item in value)
    return ""


def _trace(ran: Ran, world: World) -> str:
    """Reply and outputs; what the streams said as one text each, for threads may mix their pieces."""
    streams = {"stdout": "", "stderr": ""}
    others = []
    for message in ran.messages:
        if message["msg_type"] == "stream":
            streams[message["content"]["name"]] += message["content"]["text"]
        elif message["msg_type"] != "status":
            others.append([message["msg_type"], message["content"]])
    said = [_without_waiting(ran.reply), streams, [[kind, _without_waiting(content)] for kind, content in others]]
    return _without_chance(json.dumps(said, indent=1), world)


def _without_waiting(content: dict[str, Any]) -> dict[str, Any]:
    """A future that was done when it was asked raises at another line than one that is waited for: that is time."""
    if "traceback" not in content:
        return content
    return content | {"traceback": [part for part in content["traceback"] if "futures/_base.py" not in part]}


def _without_chance(text: str, world: World) -> str:
    """Addresses, process numbers, temporary names, ports and times are no answer to a question about a secret."""
    for place, name in (
        (str(world.base), "<base>"),
        (str(world.listener.port), "<port>"),
        *[(m, f"<{n}>") for n, m in world.marks.items()],
    ):
        text = text.replace(place, name)
    text = re.sub(r"0x[0-9a-f]{6,}", "<address>", text)
    text = re.sub(r"capkernel-[\w-]+|session-\w+", "<runtime>", text)
    text = re.sub(r"leak-\w{8}\b", "leak-<random>", text) if "leak-numpy" not in text else text
    text = re.sub(r"ipykernel_\d+|(?<=pid=)\d+|(?<=\bpid )\d+", "<pid>", text)
    return re.sub(r"\b[0-9a-f]{32}\b", "<handle>", text)


def _wait_for(path: Path, expected: str) -> bool:
    end = time.monotonic() + 40
    while time.monotonic() < end:
        if path.exists() and path.read_text() == expected:
            return True
        time.sleep(0.1)
    return False


def _granted(program: Program, allowed: set[str] = frozenset()) -> set[str]:  # type: ignore[assignment]
    """What it may gain: a file that it wrote through a capability is no attack, unless the file was all it wanted."""
    return allowed | ({"written"} if program.gains != "written" else set())


def _open(program: Program) -> Any:
    marks = pytest.mark.xfail(strict=True, reason=program.open) if program.open else ()
    return pytest.param(program, marks=marks, id=program.name)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", [_open(program) for program in PROGRAMS])
def test_with_everything_on_it_is_refused_for_its_reason(
    program: Program, sessions: Callable[[str], tuple[Session, Session]]
) -> None:
    for session in sessions("full"):
        refused = next((ran for ran in session.attacks[program.name].cells if ran.codes), None)
        assert set(refused.codes if refused else ()) == program.codes
        assert refused is None or ("started" not in refused.stdout and not refused.ok), "a refused cell ran"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_with_everything_on_nothing_leaks(program: Program, sessions: Callable[[str], tuple[Session, Session]]) -> None:
    for session in sessions("full"):
        attack = session.attacks[program.name]
        assert attack.gained <= _granted(program), attack.text


@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_with_the_checker_off_nothing_leaks(
    program: Program, sessions: Callable[[str], tuple[Session, Session]]
) -> None:
    for session in sessions("checker off"):
        attack = session.attacks[program.name]
        assert not any(ran.codes for ran in attack.cells)
        assert attack.gained <= _granted(program, {program.gains} if program.off else set()), attack.text


@pytest.mark.timeout(600)
@pytest.mark.parametrize("program", BARE, ids=lambda program: program.name)
def test_with_the_sandbox_off_as_well_the_objects_hold_no_secret(
    program: Program, sessions: Callable[[str], tuple[Session, Session]]
) -> None:
    for session in sessions("checker and sandbox off"):
        attack = session.attacks[program.name]
        assert attack.gained <= _granted(program, {program.gains} if program.off else set()), attack.text


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("mode", "program"),
    [
        pytest.param(mode, program, id=f"{program.name}, {mode}")
        for mode in STARTS
        for program in (BARE if mode == "checker and sandbox off" else PROGRAMS)
    ],
)
def test_two_secrets_cannot_be_told_apart(
    program: Program, mode: str, sessions: Callable[[str], tuple[Session, Session]]
) -> None:
    first, second = sessions(mode)
    assert first.attacks[program.name].trace == second.attacks[program.name].trace


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", STARTS)
def test_nothing_is_left_in_the_session(mode: str, sessions: Callable[[str], tuple[Session, Session]]) -> None:
    first, second = sessions(mode)
    assert first.beside == second.beside
    for session in (first, second):
        assert session.alive, "a map and a classified write work, so the vault took functions of this session at all"
        secret = session.world.secret
        assert not leaked(secret, session.beside)
        assert session.logs, "the audit is where it is looked for"
        assert not leaked(secret, session.logs)
        assert not leaked(secret, "".join(attack.text for attack in session.attacks.values()))
        assert not session.in_memory
    if os.geteuid() == 0:
        assert first.in_memory == 0, "memory was searched"


def test_the_search_finds_every_spelling() -> None:
    secret, _ = secret_pair()
    raw = secret.encode()
    for text in (
        secret, secret.upper(), secret[::-1], raw.hex(), base64.b64encode(raw).decode(), repr(list(secret)),
        repr(list(raw)), "\n".join(secret), json.dumps("\n".join(secret)), secret[3:20],
        base64.b64encode(b"k=" + raw).decode(),
    ):  # fmt: skip
        assert leaked(secret, f"some {text} text"), text
    assert not leaked(secret, secret_pair()[1] + "Classified[str](***)")
    assert len(spellings(secret)) > 10
