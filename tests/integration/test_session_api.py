"""`capkernel.Session`: cells from a program, over a real kernel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from capkernel.bridge.session import Session, SessionError
from capkernel.diagnostics.model import Diagnostic


def in_session(directory: Path, body: Callable[[Session], Awaitable[None]], **options: object) -> None:
    async def main() -> None:
        async with Session(directory=directory, **options) as session:  # type: ignore[arg-type]
            await asyncio.wait_for(body(session), 120)

    asyncio.run(main())


def test_results_say_how_a_cell_went(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc")

    async def body(session: Session) -> None:
        seen: list[str] = []
        ran = await session.execute("print('hi')\n1 + 1", watch=lambda output: seen.append(output.output_type))
        assert (ran.status, ran.text, ran.error, ran.authority, ran.count) == ("ok", "hi\n2\n", "", "", 1)
        assert seen == ["stream", "execute_result"]

        raised = await session.execute("{}['missing']")
        assert (raised.status, raised.error) == ("error", "KeyError: 'missing'")
        assert "KeyError" in raised.text
        assert "\x1b" not in raised.text
        assert {found.severity for found in raised.diagnostics} <= {"warning"}  # it ran: a warning refuses nothing

        refused = await session.execute("before = 1\nopen('a.txt')")
        assert refused.status == "refused"
        (found,) = refused.diagnostics
        assert isinstance(found, Diagnostic)
        assert (found.code, found.span.line, found.severity) == ("ambient-authority", 2, "error")
        assert refused.text.startswith("error[ambient-authority]: ")
        assert refused.text.count(found.message) == 1  # the bundle says it; the error that follows would again
        assert (await session.execute("before")).status != "ok"  # nothing of it ran

        allowed = await session.execute("with request_file_system() as fs:\n    print(fs.access('a.txt').read())")
        assert (allowed.status, allowed.text) == ("ok", "abc\n")
        assert allowed.authority == "may: read a.txt · nothing else"

    in_session(tmp_path, body)


def test_it_is_found_where_a_program_looks() -> None:
    import capkernel

    assert capkernel.Session is Session
    with pytest.raises(AttributeError, match="Session_"):
        getattr(capkernel, "Session" + "_")


def test_a_secret_is_a_mask_here_too(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        shown = await session.execute("s = classify('xyzzy' * 2).map(str.upper)\ns")
        assert shown.status == "ok"
        assert shown.text == "Classified[str](***)\n"
        assert "XYZZY" not in repr(shown)

    in_session(tmp_path, body)


def test_input_is_asked_of_the_program_or_fails(tmp_path: Path) -> None:
    asked: list[tuple[str, bool]] = []

    def ask(prompt: str, hidden: bool) -> str:
        asked.append((prompt, hidden))
        return "Ada"

    async def body(session: Session) -> None:
        ran = await session.execute("input('name? ')")
        assert (ran.status, ran.text) == ("ok", "'Ada'\n")
        assert len(asked) == 1
        assert "name?" in asked[0][0]
        assert not asked[0][1]

    in_session(tmp_path, body, ask=ask)

    async def alone(session: Session) -> None:
        assert (await session.execute("input('name? ')")).error.startswith("StdinNotImplementedError")

    in_session(tmp_path, alone)


def test_cells_queue_and_a_cancelled_one_is_interrupted(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        first, second = await asyncio.gather(session.execute("x = 1"), session.execute("x + 1"))
        assert (first.status, second.text) == ("ok", "2\n")
        began = asyncio.Event()
        sleeping = asyncio.create_task(
            session.execute("import time\nprint('on')\ntime.sleep(600)", watch=lambda _output: began.set())
        )
        await began.wait()
        sleeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeping
        assert (await session.execute("x")).text == "1\n"  # the session and what it holds are there
        assert (await session.is_complete("for i in x:"))[0] == "incomplete"
        matches, start, end = await session.complete("x.bit_l")
        assert ("x.bit_l"[:start] + matches[0] + "x.bit_l"[end:]) == "x.bit_length"

    in_session(tmp_path, body)


def test_a_dead_kernel_and_a_bad_start_are_said(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        assert (await session.execute("1")).status == "ok"
        assert session._manager is not None
        psutil.Process(session._manager.provisioner.pid).kill()  # type: ignore[union-attr]
        with pytest.raises(SessionError, match="the kernel died"):
            await session.execute("2")

    in_session(tmp_path, body)

    async def no_policy() -> None:
        async with Session(policy=tmp_path / "none.toml"):
            raise AssertionError("it must not open")

    with pytest.raises(SessionError, match="no such policy file"):
        asyncio.run(no_policy())

    async def unopened() -> None:
        await Session().execute("1")

    with pytest.raises(SessionError, match="async with"):
        asyncio.run(unopened())


def test_a_cell_is_checked_without_running_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc")
    (tmp_path / "helper.py").write_text("def double(x: int) -> int:\n    return 2 * x\n")
    (tmp_path / "bad.py").write_text("import os\nos.system('ls')\n")

    async def body(session: Session) -> None:
        code = "with request_file_system() as fs:\n    text = fs.access('a.txt').read()\nlen(text)"
        assert (await session.execute("1")).status == "ok"  # the session is ready
        before = await session.state()
        verdict = await session.check(code)
        assert (verdict.verdict, verdict.diagnostics) == ("accepted", ())
        assert verdict.authority == "may: read a.txt · nothing else"
        assert (verdict.names["text"], verdict.result) == ("str", "int")
        assert await session.state() == before  # nothing ran, nothing is known of it
        assert (await session.execute("text")).status == "refused"

        refused = await session.check("later = 1\nopen('a.txt')")
        assert [found.code for found in refused.diagnostics] == ["ambient-authority"]
        assert (refused.verdict, refused.authority) == ("refused", "")
        assert "open('a.txt')" in refused.text
        missing = await session.check("later")
        assert [found.code for found in missing.diagnostics] == ["unbound-name"]
        assert "repair" not in missing.text  # the cell that would have bound it was only a question
        assert (await session.check("x = = 1")).verdict == "refused"
        assert (await session.check("len?")).verdict == "accepted"

        waits = await session.check("from helper import double\ndouble(2)")
        assert (waits.verdict, "helper.py" in waits.reason) == ("unknown", True)
        assert (await session.check("import bad")).verdict == "refused"
        assert (await session.execute("from helper import double\ndouble(2)")).text == "4\n"
        assert (await session.check("double(3)")).result == "int"
        assert (await session.execute("1 + 1")).text == "2\n"

    in_session(tmp_path, body)


def test_the_state_says_names_types_labels_and_what_is_live(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abc")

    async def body(session: Session) -> None:
        assert (await session.execute("n = 5\nkey = classify('xyzzy')\nimport time")).status == "ok"
        first = await session.state()
        names = {name.name: name for name in first.names}
        assert (names["n"].type, names["n"].label, names["n"].cell) == ("int", "plain", 1)
        assert (names["key"].type, names["key"].label) == ("Classified[str]", "classified")
        assert (first.profile, first.execution_count, first.running, first.live.may) == ("standard", 1, None, ())
        assert first.sandbox
        assert "xyzzy" not in repr(first)
        assert "5" not in repr(names["n"])

        began = asyncio.Event()
        code = (
            "with request_file_system() as fs:\n    text = fs.access('a.txt').read()\n    print(1)\n    time.sleep(600)"
        )
        running = asyncio.create_task(
            session.execute(code, watch=lambda output: began.set() if output.get("name") == "stdout" else None)
        )
        waiting = asyncio.create_task(began.wait())
        await asyncio.wait({waiting, running}, return_when=asyncio.FIRST_COMPLETED)
        assert not running.done(), running.result()
        meanwhile = await session.state()  # while the cell runs
        assert meanwhile.running == 2
        assert meanwhile.live.handles >= 1
        assert "a.txt" in meanwhile.live.authority
        await session.interrupt()
        assert (await running).error.startswith("KeyboardInterrupt")
        after = await session.state()
        assert (after.live.cell, after.live.handles, after.running) == (None, 0, None)
        assert after.epoch > first.epoch
        (fs,) = [name for name in after.names if name.name == "fs"]
        assert fs.standing.startswith("dead")
        assert (await session.state()).epoch == after.epoch

    in_session(tmp_path, body)


def test_nothing_is_left_running(tmp_path: Path) -> None:
    async def body(session: Session) -> None:
        await session.execute("classify(1)")

    before = {process.pid for process in psutil.Process().children(recursive=True)}
    in_session(tmp_path, body)
    end = time.monotonic() + 20
    while left := {p.pid for p in psutil.Process().children(recursive=True) if p.status() != "zombie"} - before:
        assert time.monotonic() < end, left
        time.sleep(0.1)
