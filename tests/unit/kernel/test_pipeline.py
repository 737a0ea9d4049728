"""Order and honesty of the pipeline, with parts that write down what they are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from capkernel.checker.protocol import Accepted, Rejected
from capkernel.diagnostics import MIME_TYPE, Diagnostic, Span
from capkernel.kernel.cell_text import CellTexts
from capkernel.kernel.firewall import CellOutput, Output
from capkernel.kernel.pipeline import CellRun, Pipeline
from capkernel.kernel.supervisor import NotReady
from capkernel.kernel.worker_process import WorkerDied
from capkernel.wire.plan import NOTHING, MaskSite, Plan, ScopeSite, Use
from capkernel.wire.worker import Execute, Finished


class Parts:
    """Checker, broker, worker and supervisor in one, sharing a diary."""

    def __init__(self) -> None:
        self.diary: list[str] = []
        self.verdict: Callable[[int, str], Any] = lambda cell, _text: Accepted(cell, NOTHING)
        self.answer: Callable[[Execute], Finished | Exception] = lambda m: Finished(
            m.request,
            {"status": "ok", "payload": [{"source": "set_next_input", "text": "evil"}]},
            ("x", "not a name"),
            ("y",),
        )
        self.ended = False
        self.last_words = ""
        self.executed: list[Execute] = []
        self.broker = self
        self.not_ready = ""
        self.no_vault = ""
        self.lost_between: list[str] = []
        self.lost_in_vault = ""
        self.pipeline: Pipeline | None = None
        self.during_check: Callable[[], None] = lambda: None

    @property
    def up(self) -> tuple[Any, Any] | None:
        return None if self.not_ready else (self, self)

    async def ready(self) -> tuple[Any, Any]:
        if self.not_ready:
            raise NotReady(self.not_ready)
        return self, self

    async def vault_ready(self) -> None:
        self.diary.append("wait for the vault")
        if self.no_vault:
            raise NotReady(self.no_vault)

    async def check(self, cell: int, text: str, _names: object = None) -> Any:
        self.diary.append(f"check {text!r}")
        self.during_check()
        return self.verdict(cell, text)

    async def commit(self, cell: int, bound: Any, deleted: Any = (), *, raised: bool = False) -> None:
        await asyncio.sleep(0.01)
        self.diary.append(f"commit {bound} {deleted} {raised}")

    async def discard(self, cell: int) -> None:
        self.diary.append("discard")

    async def look(self, question: object) -> None:
        return None

    def refuse_cell(self, cell: int, codes: tuple[str, ...]) -> None:
        self.diary.append(f"refuse {codes}")

    def open_cell(self, cell: int, plan: Plan) -> None:
        self.diary.append("open")

    def close_cell(self) -> None:
        self.diary.append("close")

    def request(self, message: Execute, blob: bytes = b"") -> asyncio.Future[Finished]:
        self.executed.append(message)
        self.diary.append(f"run {message.text!r}")
        future: asyncio.Future[Finished] = asyncio.get_running_loop().create_future()
        answer = self.answer(message)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        return future

    def interrupt(self) -> None:
        self.diary.append("interrupt")

    def names(self) -> None: ...

    @property
    def idle_checker(self) -> Any:
        return self

    @property
    def idle_worker(self) -> Any:
        return self

    def lost(self) -> str:
        return "these names are lost: x"

    def losses(self) -> list[str]:
        told, self.lost_between = self.lost_between, []
        return told

    def vault_loss(self) -> str:
        told, self.lost_in_vault = self.lost_in_vault, ""
        return told

    def obituary(self) -> str:
        return "it was ended by SIGKILL"


class Supervisor(Parts):
    def commit(self, *arguments: Any, **options: Any) -> Any:  # both the supervisor's and the checker's
        if len(arguments) == 2:
            return None
        return super().commit(*arguments, **options)


def drive(parts: Parts, *codes: str, silent: bool = False) -> tuple[list[dict[str, Any]], list[Output]]:
    published: list[Output] = []

    async def all_of_them() -> list[dict[str, Any]]:
        pipeline = Pipeline(parts, CellTexts(), cell_seconds=5)  # type: ignore[arg-type]
        parts.pipeline = pipeline
        replies = []
        for number, code in enumerate(codes, start=1):
            cell = CellRun(number, number, number, code, silent, True, False, CellOutput(number), published.append)
            replies.append(await pipeline.run(cell))
        await pipeline.settle()
        return replies

    return asyncio.run(all_of_them()), published


def test_check_open_run_close_commit_and_only_then_the_next_check() -> None:
    parts = Supervisor()
    replies, _ = drive(parts, "x = 1", "x")
    assert parts.diary == [
        "check 'x = 1\\n'", "open", "run 'x = 1\\n'", "close", "commit ('x',) ('y',) False",
        "check 'x\\n'", "open", "run 'x\\n'", "close", "commit ('x',) ('y',) False",
    ]  # fmt: skip
    assert replies[0] == {"status": "ok", "user_expressions": {}, "payload": []}


MASKED = Plan(masks=(MaskSite(Span(1, 0, 1, 1), "str"),))


@pytest.mark.parametrize(("text", "plan"), [("s.map(len)", MASKED), ("list(map(classify, 'ab'))", NOTHING)])
def test_only_a_cell_that_may_touch_a_secret_waits_for_the_vault(text: str, plan: Plan) -> None:
    parts = Supervisor()
    drive(parts, "1 + 1")
    assert "wait for the vault" not in parts.diary
    parts = Supervisor()
    parts.verdict = lambda cell, _text: Accepted(cell, plan)
    drive(parts, text)
    assert parts.diary[:3] == [f"check {text + chr(10)!r}", "wait for the vault", "open"]
    parts = Supervisor()
    parts.verdict = lambda cell, _text: Accepted(cell, plan)
    parts.no_vault = "the vault did not start"
    (reply,), _ = drive(parts, text)
    assert (reply["ename"], parts.executed) == ("SessionNotReady", [])
    assert parts.diary[-1] == "discard", "the checker forgets it"


def test_the_line_comes_before_the_outputs_and_only_when_there_is_one() -> None:
    site = ScopeSite("file_system", "data", 1, Span(1, 0, 1, 1), (Use("read", ("a",)),))
    parts = Supervisor()
    parts.verdict = lambda cell, _text: Accepted(cell, Plan(scopes=(site,)))
    _, published = drive(parts, "1")
    assert [output.content["data"]["text/plain"] for output in published] == ["may: read data/a · nothing else"]
    assert drive(parts, "1", silent=True)[1] == []
    assert drive(Supervisor(), "1")[1] == []


def test_warnings_are_few_lines_and_said_once_of_one_text() -> None:
    def judge(cell: int, _text: str) -> Accepted:
        found = [Diagnostic("operator", f"warning {n}", cell, Span(n, 0, n, 1), "warning") for n in range(1, 9)]
        return Accepted(cell, NOTHING, tuple(found), more=20)

    parts = Supervisor()
    parts.verdict = judge
    _, published = drive(parts, "1", "1", "2")
    shown = [output.content["data"]["text/plain"].splitlines() for output in published]
    assert [len(lines) for lines in shown] == [6, 6], "the second run of `1` says nothing"
    assert shown[0][-1] == "... and 23 more warnings"
    assert [line.partition(":")[0] for line in shown[1][:5]] == ["cell[3]"] * 5


def test_what_runs_is_what_was_checked() -> None:
    parts = Supervisor()
    drive(parts, ">>> x = 1", "%who", "  y = 2")
    checked = [line.removeprefix("check ") for line in parts.diary if line.startswith("check")]
    assert [repr(cell.text) for cell in parts.executed] == checked
    assert [cell.raw for cell in parts.executed] == [">>> x = 1", "%who", "  y = 2"]


def test_a_refusal_runs_nothing() -> None:
    parts = Supervisor()
    finding = Diagnostic("impure-map", "no", 1, Span(1, 0, 1, 1))
    parts.verdict = lambda cell, _text: Rejected(cell, (finding,))
    [reply], published = drive(parts, "x")
    assert parts.diary == ["check 'x\\n'", "refuse ('impure-map',)"]
    assert (reply["status"], reply["ename"]) == ("error", "CellRefused")
    assert reply["evalue"] == "cell[1]:1:1: error[impure-map]: no"
    assert [output.kind for output in published] == ["display_data", "error"]
    assert published[0].content["data"][MIME_TYPE]["diagnostics"][0]["code"] == "impure-map"


def test_a_silent_refusal_publishes_nothing() -> None:
    parts = Supervisor()
    parts.verdict = lambda cell, _text: Rejected(cell, ())
    [reply], published = drive(parts, "x", silent=True)
    assert reply["status"] == "error"
    assert published == []


def test_not_ready_is_said() -> None:
    parts = Supervisor()
    parts.not_ready = "the moon is in the wrong place"
    [reply], published = drive(parts, "x")
    assert parts.diary == []
    assert reply["ename"] == "SessionNotReady"
    assert "the moon is in the wrong place" in published[0].content["evalue"]


def test_an_interrupt_during_the_check_means_it_does_not_run() -> None:
    parts = Supervisor()

    def interrupt() -> None:
        assert parts.pipeline is not None
        parts.pipeline.interrupt()

    parts.during_check = interrupt
    [reply], _ = drive(parts, "x")
    assert parts.diary == ["check 'x\\n'", "discard"]
    assert reply["ename"] == "KeyboardInterrupt"


def test_a_death_closes_the_cell_and_commits_nothing() -> None:
    parts = Supervisor()
    parts.answer = lambda _: WorkerDied("it was ended by SIGKILL")
    [reply], _ = drive(parts, "x")
    assert parts.diary == ["check 'x\\n'", "open", "run 'x\\n'", "close"]
    assert reply["ename"] == "WorkerDied"
    assert "these names are lost: x" in reply["evalue"]


def test_a_cell_that_raised_is_committed_as_such() -> None:
    parts = Supervisor()
    parts.answer = lambda m: Finished(
        m.request, {"status": "error", "ename": "E", "evalue": "\x1b[2Jv", "evil": 1}, ("x",)
    )
    [reply], _ = drive(parts, "x")
    assert parts.diary[-1] == "commit ('x',) () True"
    assert reply == {
        "status": "error", "ename": "E", "evalue": "v", "traceback": [], "user_expressions": {}, "payload": [],
    }  # fmt: skip


def test_help_pages_become_text() -> None:
    parts = Supervisor()
    page = {"source": "page", "data": {"text/plain": "help", "text/html": "<script>x</script>"}, "start": 3}
    parts.answer = lambda m: Finished(m.request, {"status": "ok", "payload": [page, {"source": "edit_magic"}, 5]})
    [reply], _ = drive(parts, "%page x")
    assert reply["payload"] == [{"source": "page", "data": {"text/plain": "help"}, "start": 0}]


@pytest.mark.parametrize("status", [None, 5, "aborted", {}])
def test_an_odd_status_is_an_error(status: Any) -> None:
    parts = Supervisor()
    parts.answer = lambda m: Finished(m.request, {"status": status})
    [reply], _ = drive(parts, "x")
    assert reply["status"] == "error"


class Unhurried(Supervisor):
    """Its worker ends the cell some limits later, or when it is interrupted."""

    waits = True

    def request(self, message: Execute, blob: bytes = b"") -> asyncio.Future[Finished]:
        answered = super().request(message, blob).result()
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Finished] = loop.create_future()
        running = self.pipeline.running if self.pipeline is not None else None
        if self.waits and running is not None:
            running.waits.begin("question")
            loop.call_later(4 * LIMIT, self.future.set_result, answered)
        return self.future

    def interrupt(self) -> None:
        super().interrupt()
        self.future.set_result(Finished(1, {"status": "error", "ename": "KeyboardInterrupt"}))


LIMIT = 0.2


@pytest.mark.parametrize("waits", [True, False])
def test_the_time_of_a_cell_stands_still_while_it_waits_for_the_person(waits: bool) -> None:
    parts = Unhurried()
    parts.waits = waits
    published: list[Output] = []

    async def run() -> dict[str, Any]:
        pipeline = parts.pipeline = Pipeline(parts, CellTexts(), cell_seconds=LIMIT)  # type: ignore[arg-type]
        cell = CellRun(1, 1, 1, "x = 1", False, True, False, CellOutput(1), published.append)
        reply = await pipeline.run(cell)
        await pipeline.settle()
        return reply

    reply = asyncio.run(run())
    assert reply["status"] == ("ok" if waits else "error")
    assert ("interrupt" in parts.diary) == (not waits)
