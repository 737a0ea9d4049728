"""Effects that wait for the person, at a real broker: asked before they happen, with the broker's facts, once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from capkernel.broker.approvals import NOT_RELEASED
from capkernel.broker.audit import AuditUnavailable
from capkernel.broker.questions import MAX_QUESTIONS, NoQuestion
from capkernel.policy import Policy, default_policy
from capkernel.policy.model import Approvals, Secret
from capkernel.wire.plan import AskSite, Plan, ScopeSite, Span
from capkernel.wire.values import decode
from capkernel.wire.values import encode as encode_value
from capkernel.wire.view import Question
from capkernel.wire.worker import AskRelease, AskSecret, Call, CallResult, Classify, Invoke, OpenScope

SPAN = Span(1, 0, 1, 1)
SECONDS = 30
ANY_ROOT = ScopeSite("file_system", None, 1, SPAN)
PLAN = Plan(
    scopes=(ANY_ROOT,),
    sinks=("write_classified",),
    asks=(AskSite("secret", None, 1, SPAN), AskSite("declassify", None, 1, SPAN)),
)


class Asked:
    """A session with a cell, and the person at its side."""

    def __init__(self, session: Any) -> None:
        self.session = session
        self.broker = session.broker
        self.vault = session.vault
        self.approvals = session.broker.approvals

    def run(self, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.session.loop.run_until_complete(asyncio.wait_for(body(), SECONDS))

    def effect(self, effect: OpenScope | Invoke | AskSecret | AskRelease, blob: bytes = b"") -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(self.broker.call(Call(7, effect), blob))

    async def file(self, path: str) -> str:
        (scope, _) = await self.broker.call(Call(1, OpenScope("file_system", ".")), b"")
        (entry, _) = await self.broker.call(Call(2, Invoke(scope.value, "access", path)), b"")
        assert entry.error is None, entry
        return str(entry.value[0])

    async def question(self, count: int = 1) -> Question:
        """The open one, once so many wait."""
        while len(found := self.approvals.questions()[0]) < count:
            await asyncio.sleep(0.01)
        return found[0]

    def decisions(self, what: str) -> list[tuple[str, str]]:
        """Decision and who, of the audit's lines of this effect."""
        lines = [json.loads(line) for line in self.session.audit.recent(200)]
        return [(line["decision"], line["who"]) for line in lines if line["what"] == what]


Make = Callable[..., Asked]


@pytest.fixture
def make(start: Any, project: Path) -> Make:
    """A session whose policy asks for these effects: make("files.write")."""

    def begin(*ask: str, seconds: float = SECONDS, declassify: bool = True, policy: Policy | None = None) -> Asked:
        usual = default_policy(project) if policy is None else policy
        limits = type(usual.limits)(approval_seconds=seconds)
        session = start(replace(usual, approvals=Approvals(ask, declassify), limits=limits))
        session.cell(PLAN)
        return Asked(session)

    return begin


def failed(result: tuple[CallResult, bytes]) -> str:
    answer, _ = result
    assert answer.error is not None, "it was done"
    assert answer.error.kind == "CapabilityDenied"
    return answer.error.message


async def ended(task: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(task, SECONDS)


# ── effects on files ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_nothing_waits_where_the_policy_does_not_say_so(make: Make, project: Path) -> None:
    asked = make()

    async def body() -> None:
        answer, _ = await ended(asked.effect(Invoke(await asked.file("x.csv"), "write"), b"abc"))
        assert answer.error is None

    asked.run(body)
    assert (project / "x.csv").read_bytes() == b"abc"


def test_a_write_happens_after_the_person_allowed_it_and_not_before(make: Make, project: Path) -> None:
    asked = make("files.write")

    async def body() -> None:
        task = asked.effect(Invoke(await asked.file("x.csv"), "write"), b"abc")
        question = await asked.question()
        assert not (project / "x.csv").exists()
        assert (question.kind, question.cell, question.needs) == ("files.write", 1, "decision")
        assert question.title == "write the file x.csv"
        assert dict(question.facts) == {
            "path": "x.csv", "cell": "1", "new content": "3 bytes", "there now": "nothing",
        }  # fmt: skip
        assert await asked.approvals.decide(question.id, True, "", "page, process 3")
        answer, _ = await ended(task)
        assert answer.error is None

    asked.run(body)
    assert (project / "x.csv").read_bytes() == b"abc"
    assert asked.decisions("files.write") == [("asked", "cell"), ("allowed", "person"), ("allowed", "cell")]
    assert any('"reason":"page, process 3"' in line for line in asked.session.audit.recent(50))


def test_what_is_denied_does_not_happen_and_is_not_asked_again(make: Make, project: Path) -> None:
    asked = make("files.write")

    async def body() -> None:
        file = await asked.file("x.csv")
        task = asked.effect(Invoke(file, "write"), b"abc")
        assert not await asked.approvals.decide((await asked.question()).id, False, "", "me")
        assert "the person did not allow this" in failed(await ended(task))
        # At once, in other cells as well, whatever is written: nobody is asked.
        asked.session.cell(PLAN)
        again = await asked.file("x.csv")
        assert "denied this before" in failed(await ended(asked.effect(Invoke(again, "write"), b"other")))
        assert asked.approvals.questions() == ((), ("write the file x.csv",))
        # Until the person says otherwise.
        assert asked.approvals.forget_denied() == 1
        task = asked.effect(Invoke(again, "write"), b"abc")
        await asked.approvals.decide((await asked.question()).id, True, "", "me")
        await ended(task)

    asked.run(body)
    assert (project / "x.csv").read_bytes() == b"abc"


@pytest.mark.parametrize("method", ["write", "create", "append", "mkdir"])
def test_to_ask_for_writing_is_to_ask_for_every_way_to_write(make: Make, project: Path, method: str) -> None:
    asked = make("files.write")

    async def body() -> None:
        task = asked.effect(Invoke(await asked.file("new"), method), b"abc")
        question = await asked.question()
        assert question.kind == f"files.{method}"
        await asked.approvals.decide(question.id, False, "", "me")
        failed(await ended(task))

    asked.run(body)
    assert not (project / "new").exists()


def test_reading_and_opening_ask_as_well(make: Make, project: Path) -> None:
    (project / "x.csv").write_text("abc")
    asked = make("files.read", "files.open_scope")

    async def body() -> None:
        opening = asked.effect(OpenScope("file_system", "."))
        question = await asked.question()
        assert question.title == "open the folder ."
        await asked.approvals.decide(question.id, True, "", "me")
        scope = (await ended(opening))[0].value
        entry = (await ended(asked.effect(Invoke(scope, "access", "x.csv"))))[0].value[0]
        reading = asked.effect(Invoke(entry, "read_bytes"))
        await asked.approvals.decide((await asked.question()).id, True, "", "me")
        assert (await ended(reading))[1] == b"abc"

    asked.run(body)


def test_a_module_beside_the_notebook_is_not_read_without_asking(make: Make, project: Path) -> None:
    (project / "helper.py").write_text("x = 1\n")
    free, asked = make(), make("files.read")

    async def body() -> None:
        assert await free.broker.read_module("helper.py", 1) == b"x = 1\n"

    async def refused() -> None:
        assert await asked.broker.read_module("helper.py", 1) is None

    free.run(body)
    asked.run(refused)
    assert ("denied", "cell") in asked.decisions("files.read")


def test_when_what_was_shown_is_not_so_any_more_it_is_asked_anew(make: Make, project: Path) -> None:
    asked = make("files.write")

    async def body() -> None:
        task = asked.effect(Invoke(await asked.file("x.csv"), "write"), b"abc")
        first = await asked.question()
        assert dict(first.facts)["there now"] == "nothing"
        (project / "x.csv").write_text("someone was here")
        await asked.approvals.decide(first.id, True, "", "me")
        second = await asked.question()
        assert second.id != first.id
        assert dict(second.facts)["there now"] == "a file of 16 bytes"
        assert (project / "x.csv").read_text() == "someone was here"
        await asked.approvals.decide(second.id, True, "", "me")
        await ended(task)

    asked.run(body)
    assert (project / "x.csv").read_bytes() == b"abc"


def test_an_allowing_is_for_one_effect(make: Make) -> None:
    asked = make("files.write")

    async def body() -> None:
        file = await asked.file("x.csv")
        for content in (b"abc", b"xyz"):
            task = asked.effect(Invoke(file, "write"), content)
            await asked.approvals.decide((await asked.question()).id, True, "", "me")
            await ended(task)

    asked.run(body)
    assert asked.decisions("files.write").count(("asked", "cell")) == 2


def test_other_effects_go_on_while_many_wait(make: Make, project: Path) -> None:
    (project / "y.csv").write_text("there")
    asked = make("files.write")

    async def body() -> None:
        files = [await asked.file(f"{number}.csv") for number in range(MAX_QUESTIONS)]
        waiting = [asked.effect(Invoke(file, "write"), b"abc") for file in files]
        await asked.question(MAX_QUESTIONS)
        one_more = failed(await ended(asked.effect(Invoke(await asked.file("more.csv"), "write"), b"abc")))
        assert f"{MAX_QUESTIONS} questions wait" in one_more
        assert (await ended(asked.effect(Invoke(await asked.file("y.csv"), "read_bytes"))))[1] == b"there"
        asked.broker.close_cell()
        for task in waiting:
            assert "stopped before the person decided" in failed(await ended(task))
        assert asked.approvals.questions()[0] == ()

    asked.run(body)


def test_only_the_oldest_can_be_decided_once_and_by_its_own_number(make: Make) -> None:
    asked = make("files.write")

    async def body() -> None:
        tasks = [asked.effect(Invoke(await asked.file(name), "write"), b"abc") for name in ("a", "b")]
        first = await asked.question(2)
        second = asked.approvals.questions()[0][1]
        for number in (second.id, "0" * 32, first.id[::-1]):
            with pytest.raises(NoQuestion):
                await asked.approvals.decide(number, True, "", "me")
        assert await asked.approvals.decide(first.id, True, "", "me")
        for allow in (True, False):
            with pytest.raises(NoQuestion):
                await asked.approvals.decide(first.id, allow, "", "me")
        assert not await asked.approvals.decide(second.id, False, "", "me")
        await asyncio.gather(*tasks)

    asked.run(body)


def test_without_an_answer_the_time_denies_and_the_cell_is_not_asked_again(make: Make, project: Path) -> None:
    asked = make("files.write", seconds=0.2)

    async def body() -> None:
        file = await asked.file("x.csv")
        said = failed(await ended(asked.effect(Invoke(file, "write"), b"abc")))
        assert "nobody answered in time" in said
        assert "capkernel approve" in said
        assert "nobody answered an earlier question" in failed(await ended(asked.effect(Invoke(file, "write"), b"abc")))
        asked.session.cell(PLAN)
        await ended(asked.effect(Invoke(await asked.file("x.csv"), "write"), b"abc"))

    asked.run(body)
    assert not (project / "x.csv").exists()
    expired = [("asked", "cell"), ("denied", "kernel")]
    assert asked.decisions("files.write") == [*expired, ("denied", "kernel"), *expired]  # another cell: asked again


def test_an_interrupt_ends_the_wait(make: Make, project: Path) -> None:
    asked = make("files.write")

    async def body() -> None:
        task = asked.effect(Invoke(await asked.file("x.csv"), "write"), b"abc")
        question = await asked.question()
        await asyncio.to_thread(asked.approvals.interrupt)
        assert "stopped before the person decided" in failed(await ended(task))
        with pytest.raises(NoQuestion):
            await asked.approvals.decide(question.id, True, "", "me")

    asked.run(body)
    assert not (project / "x.csv").exists()


def test_an_answer_that_comes_after_the_cell_does_nothing(make: Make, project: Path) -> None:
    asked = make("files.write")

    async def body() -> None:
        task = asked.effect(Invoke(await asked.file("x.csv"), "write"), b"abc")
        question = await asked.question()
        asked.session.cell(PLAN)
        with pytest.raises(NoQuestion):
            await asked.approvals.decide(question.id, True, "", "me")
        failed(await ended(task))

    asked.run(body)
    assert not (project / "x.csv").exists()


def test_what_cannot_be_written_down_is_not_allowed(make: Make, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = make("files.write")

    async def body() -> None:
        task = asked.effect(Invoke(await asked.file("x.csv"), "write"), b"abc")
        question = await asked.question()

        def full(*_: object, **__: object) -> None:
            raise AuditUnavailable("the audit is full")

        monkeypatch.setattr(asked.session.audit, "record", full)
        assert not await asked.approvals.decide(question.id, True, "", "me")
        assert "the audit is full" in failed(await ended(task))

    asked.run(body)
    assert not (project / "x.csv").exists()


def test_somebody_who_joins_is_a_question_of_no_cell(make: Make) -> None:
    asked = make()

    async def body() -> None:
        joining = asyncio.get_running_loop().create_task(asked.approvals.join("helper", (("gets", "less"),)))
        question = await asked.question()
        assert (question.kind, question.cell) == ("session.join", 0)
        asked.broker.close_cell()  # it does not end with a cell
        asked.approvals.interrupt()
        assert (await asked.question()).id == question.id
        await asked.approvals.decide(question.id, True, "", "me")
        assert await ended(joining)
        denied = asyncio.get_running_loop().create_task(asked.approvals.join("other", ()))
        await asked.approvals.decide((await asked.question()).id, False, "", "me")
        assert not await ended(denied)

    asked.run(body)


# ── classified files ─────────────────────────────────────────────────────────────────────────────────────────────────


def secret_of(asked: Asked) -> str:
    asked.broker.post(Classify("a" * 32), encode_value("new secret"))
    asked.vault.content["a" * 32] = b"new secret"
    return "a" * 32


@pytest.mark.parametrize("mode", ["new", True])
def test_the_person_may_allow_to_replace_a_classified_file(make: Make, project: Path, mode: Any) -> None:
    usual = default_policy(project)
    files = type(usual.files)(classified_write=mode)
    asked = make("files.overwrite_classified", policy=replace(usual, files=files))
    (project / ".env").write_text("old secret")
    os.chmod(project / ".env", 0o600)

    async def body() -> None:
        secret = secret_of(asked)
        file = await asked.file(".env")
        denied = asked.effect(Invoke(file, "write_classified", "", secret))
        question = await asked.question()
        assert dict(question.facts)["there now"] == "a classified file"  # and nothing of its size
        await asked.approvals.decide(question.id, False, "", "me")
        failed(await ended(denied))
        assert (project / ".env").read_text() == "old secret"
        asked.approvals.forget_denied()
        allowed = asked.effect(Invoke(file, "write_classified", "", secret))
        await asked.approvals.decide((await asked.question()).id, True, "", "me")
        assert (await ended(allowed))[0].error is None

    asked.run(body)
    asked.session.settle()
    assert (project / ".env").read_text() == "new secret"


def test_without_that_word_of_the_policy_it_is_refused_as_ever(make: Make, project: Path) -> None:
    asked = make("files.write")
    (project / ".env").write_text("old secret")

    async def body() -> None:
        said = await ended(asked.effect(Invoke(await asked.file(".env"), "write_classified", "", secret_of(asked))))
        assert "this session did not write it" in failed(said)

    asked.run(body)


def test_a_file_that_changed_hands_meanwhile_is_not_replaced(make: Make, project: Path) -> None:
    asked = make("files.overwrite_classified")
    (project / ".env").write_text("old secret")
    whose = asked.broker._sink._adopt

    def swapped(place: Any, held: int) -> None:
        os.close(os.open(project / "other", os.O_CREAT | os.O_WRONLY))
        os.dup2(os.open(project / "other", os.O_PATH), held)  # another file under the same name by now
        whose(place, held)

    asked.broker._sink._adopt = swapped  # type: ignore[method-assign]

    async def body() -> None:
        task = asked.effect(Invoke(await asked.file(".env"), "write_classified", "", secret_of(asked)))
        await asked.approvals.decide((await asked.question()).id, True, "", "me")
        assert "taken meanwhile" in failed(await ended(task))

    asked.run(body)
    asked.session.settle()
    assert (project / ".env").read_text() == "old secret"


def test_with_hidden_names_nobody_is_asked_about_what_is_there(make: Make, project: Path) -> None:
    usual = default_policy(project)
    files = type(usual.files)(hide_classified_names=True)
    asked = make("files.overwrite_classified", policy=replace(usual, files=files))
    (project / ".env").write_text("old secret")

    async def body() -> None:
        secret = secret_of(asked)
        for name in (".env", "secrets/none-here.txt"):
            answer, _ = await ended(asked.effect(Invoke(await asked.file(name), "write_classified", "", secret)))
            assert answer.error is None  # the same for both

    asked.run(body)
    asked.session.settle()
    assert (project / ".env").read_text() == "old secret"


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_secret_is_typed_once_in_a_session(make: Make) -> None:
    asked = make()

    async def body() -> None:
        tasks = [asked.effect(AskSecret("KEY", "for the weather")) for _ in range(3)]
        question = await asked.question()
        assert (question.kind, question.needs, question.key) == ("secret.request", "secret", b"k" * 32)
        assert question.reason == "for the weather"
        with pytest.raises(NoQuestion):
            await asked.approvals.decide(question.id, True, "", "me")  # there is nothing to allow without a secret
        assert await asked.approvals.give(question.id, b"sealed", "me")
        handles = {(await ended(task))[0].value for task in tasks}
        assert handles == {question.handle}
        asked.session.cell(PLAN)
        assert (await ended(asked.effect(AskSecret("KEY"))))[0].value == question.handle

    asked.run(body)
    assert asked.vault.received == [(asked.vault.expected[0][0], b"sealed")]
    assert asked.vault.expected[0][1:] == ("secret:KEY", "for the weather")
    (line,) = asked.broker.ledger.newest(5)
    assert (line.how, line.type, line.origin, line.label) == ("secret", "str", "secret:KEY", "for the weather")


def test_a_secret_that_died_with_its_vault_is_asked_for_again(make: Make) -> None:
    asked = make()

    async def body() -> None:
        handles = []
        for _ in range(2):
            task = asked.effect(AskSecret("KEY"))
            await asked.approvals.give((await asked.question()).id, b"sealed", "me")
            handles.append((await ended(task))[0].value)
            asked.vault.life += 1
        assert handles[0] != handles[1]

    asked.run(body)


def test_a_secret_that_is_not_given(make: Make) -> None:
    asked = make()

    async def body() -> None:
        task = asked.effect(AskSecret("KEY"))
        question = await asked.question()
        asked.vault.opens = False
        with pytest.raises(NoQuestion, match="another question"):
            await asked.approvals.give(question.id, b"junk", "me")
        await asked.approvals.decide(question.id, False, "", "me")
        assert "the secret KEY was not given" in failed(await ended(task))
        assert "denied this before" in failed(await ended(asked.effect(AskSecret("KEY"))))

    asked.run(body)
    assert len(asked.broker.ledger) == 0


@pytest.mark.parametrize("name", ["", "1A", "a b", "a\nb", "ä", "A" * 65, "A-B"])
def test_names_that_are_none(make: Make, name: str) -> None:
    asked = make()

    async def body() -> None:
        answer, _ = await ended(asked.effect(AskSecret(name)))
        assert answer.error is not None
        assert answer.error.kind == "ValueError"

    asked.run(body)


def test_a_secret_that_the_policy_names(make: Make, project: Path) -> None:
    secrets = {"THERE": Secret("VARIABLE"), "MISSING": Secret("OTHER_VARIABLE")}
    asked = make(policy=replace(default_policy(project), secrets=secrets))
    fd = os.memfd_create("secret")
    os.write(fd, b"from the environment")
    asked.broker._person._given = {"THERE": fd}

    async def body() -> None:
        first = (await ended(asked.effect(AskSecret("THERE"))))[0].value
        assert (await ended(asked.effect(AskSecret("THERE"))))[0].value == first
        assert "OTHER_VARIABLE, which was not set" in failed(await ended(asked.effect(AskSecret("MISSING"))))
        assert asked.approvals.questions()[0] == ()

    asked.run(body)
    os.close(fd)
    ((_, content, kind, origin),) = asked.vault.fills
    assert (content, kind, origin) == (b"from the environment", "str", "secret:THERE")


def test_what_the_plan_does_not_list_is_not_asked(make: Make) -> None:
    asked = make()
    asked.session.cell(Plan(asks=(AskSite("secret", "KEY", 1, SPAN),)))

    async def body() -> None:
        asked.broker.post(Classify("b" * 32), encode_value(1))
        for effect in (AskSecret("OTHER"), AskRelease("b" * 32, "why not")):
            assert "the plan of the running cell does not list this request" in failed(
                await ended(asked.effect(effect))
            )
        assert asked.approvals.questions()[0] == ()

    asked.run(body)


# ── releases ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_value_is_released_to_the_cell_when_the_person_saw_it_and_allowed_it(make: Make) -> None:
    asked = make()

    async def body() -> None:
        asked.broker.post(Classify("b" * 32, "mine"), encode_value("plain"))
        task = asked.effect(AskRelease("b" * 32, "I need it"))
        question = await asked.question()
        assert (question.kind, question.needs, question.handle) == ("secret.declassify", "release", "b" * 32)
        assert question.reason == "I need it"
        assert dict(question.facts) == {
            "cell": "1", "static type": "str", "made from": "file:.env, secret:KEY", "the cell calls it": '"mine"',
        }  # fmt: skip
        for seen in ("", "other"):
            with pytest.raises(NoQuestion, match="look at the exact value first"):
                await asked.approvals.decide(question.id, True, seen, "me")
        assert await asked.approvals.show_release(question.id, b"K", "me") == b"b" * 32 + b"K"
        assert await asked.approvals.decide(question.id, True, "seen", "me")
        answer, blob = await ended(task)
        assert answer.error is None
        assert decode(blob) == "the value"

    asked.run(body)
    assert asked.decisions("secret.declassify") == [("asked", "cell"), ("allowed", "person")]
    assert asked.decisions("classified.reveal") == [("allowed", "person")]
    audit = asked.session.audit_file.read_text()
    assert "the value" not in audit
    assert "b" * 32 in audit


@pytest.mark.parametrize("how", ["denied", "no answer", "the cell ends", "an interrupt"])
def test_a_release_that_is_not_allowed_says_the_same_however_it_came(make: Make, how: str) -> None:
    asked = make(seconds=0.2 if how == "no answer" else SECONDS)

    async def body() -> None:
        asked.broker.post(Classify("b" * 32), encode_value("plain"))
        task = asked.effect(AskRelease("b" * 32, "I need it"))
        if how == "denied":
            await asked.approvals.decide((await asked.question()).id, False, "", "me")
        elif how != "no answer":
            await asked.question()
        if how == "the cell ends":
            asked.broker.close_cell()
        elif how == "an interrupt":
            asked.approvals.interrupt()
        assert failed(await ended(task)) == NOT_RELEASED

    asked.run(body)


def test_a_policy_can_forbid_every_release(make: Make) -> None:
    asked = make(declassify=False)

    async def body() -> None:
        asked.broker.post(Classify("b" * 32), encode_value("plain"))
        assert "approvals.declassify = false" in failed(await ended(asked.effect(AskRelease("b" * 32, "please"))))
        assert asked.approvals.questions()[0] == ()

    asked.run(body)


def test_a_handle_that_is_none_is_no_question(make: Make) -> None:
    asked = make()

    async def body() -> None:
        answer, _ = await ended(asked.effect(AskRelease("c" * 32, "made up")))
        assert answer.error is not None
        assert answer.error.kind == "ValueError"
        assert asked.approvals.questions()[0] == ()

    asked.run(body)


def test_the_cell_is_told_its_own_word_for_a_path_and_the_person_where_it_leads(make: Make, project: Path) -> None:
    (project / "real-name.csv").write_text("there")
    (project / "link.csv").symlink_to("real-name.csv")
    asked = make("files.write")
    told: list[str] = []
    asked.approvals.asked = lambda waiting: told.append(f"{waiting.kind} {waiting.about}")

    async def body() -> None:
        task = asked.effect(Invoke(await asked.file("link.csv"), "write"), b"abc")
        question = await asked.question()
        assert dict(question.facts)["path"] == "real-name.csv"
        await asked.approvals.decide(question.id, False, "", "me")
        said = failed(await ended(task))
        assert said.startswith("files.write link.csv: ")
        assert "real-name" not in said

    asked.run(body)
    assert told == ["files.write link.csv"]


def test_a_cell_that_has_ended_asks_no_more(make: Make) -> None:
    asked = make()

    async def body() -> None:
        # The second waits for the first one's turn; when it comes, its cell is over.
        tasks = [asked.effect(AskSecret("KEY")) for _ in range(2)]
        await asked.question()
        await asyncio.sleep(0)
        asked.broker.close_cell()
        kinds = set()
        for task in tasks:
            answer, _ = await ended(task)
            kinds.add(answer.error.kind)
        assert kinds == {"CapabilityDenied", "CapabilityRevoked"}
        assert asked.approvals.questions()[0] == ()

    asked.run(body)


def test_nothing_is_made_for_a_question_that_is_not_asked(make: Make) -> None:
    asked = make()

    async def body() -> None:
        task = asked.effect(AskSecret("KEY"))
        await asked.approvals.decide((await asked.question()).id, False, "", "me")
        failed(await ended(task))
        for _ in range(5):
            assert "denied this before" in failed(await ended(asked.effect(AskSecret("KEY"))))

    asked.run(body)
    assert len(asked.vault.expected) == 1
    assert asked.decisions("secret.request").count(("denied", "kernel")) == 5
