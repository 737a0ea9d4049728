"""Attempts to answer in the person's place, to get at a value that was not released, and to make a question look like
something else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from live_kernel import LiveKernel, Ran, live_kernel
from person import Answer, allow, answering, deny, look, release, the_link, types
from unchecked import checker_off_kernel

from capkernel.viewer.link import Link, LinkRefused
from capkernel.wire.view import Question

POLICY = '[approvals]\nask = ["files.write"]\n[limits]\napproval_seconds = 600\n'
WRITE = 'with request_file_system(".") as fs:\n    fs.access("{}").write("a,b")'
FIRST_CELL_SECONDS = 240


@dataclass
class World:
    kernel: LiveKernel
    project: Path

    def run(self, code: str, **options: Any) -> Ran:
        """With time for a person."""
        return self.kernel.run(code, seconds=FIRST_CELL_SECONDS, **options)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    project = tmp_path_factory.mktemp("project")
    (project / "secrets").mkdir()
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text(POLICY + f'[files]\nroots = ["{project}"]\n')
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with live_kernel(project, policy=policy) as kernel:
            assert kernel.run("classify(1)", seconds=FIRST_CELL_SECONDS).ok
            yield World(kernel, project)


# ── who answers ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_no_message_of_a_jupyter_client_is_an_answer(world: World) -> None:
    """The control: with the person's link the same write happens."""
    client = world.kernel.client

    def pester(link: Link, question: Question) -> None:
        assert not client.stdin_channel.msg_ready(), "nobody is asked over Jupyter"
        for value in ("allow", "y", "yes", "Allow", question.id, json.dumps({"allow": True})):
            client.input(value)
        for kind, content in (
            ("input_reply", {"value": "allow"}),
            ("decide", {"question": question.id, "allow": True}),
            ("comm_msg", {"comm_id": question.id, "data": {"allow": True}}),
            ("comm_open", {"comm_id": question.id, "target_name": "capkernel", "data": {"allow": True}}),
        ):
            for channel in (client.shell_channel, client.control_channel, client.stdin_channel):
                channel.send(client.session.msg(kind, content=content))
        # A question and its answer over each channel: what was sent before has arrived.
        client.control_channel.send(client.session.msg("kernel_info_request", content={}))
        client.get_control_msg(timeout=60)
        assert link.questions().questions[0].id == question.id, "it waits as before"
        deny(link, question)

    with answering(pester):
        ran = world.run(WRITE.format("pestered.csv"), allow_stdin=True)
    assert ran.reply["ename"] == "CapabilityDenied"
    assert not (world.project / "pestered.csv").exists()
    with the_link() as link:
        link.forget_denied()
    with answering(allow):
        assert world.run(WRITE.format("pestered.csv")).ok
    assert (world.project / "pestered.csv").exists()


def test_forged_old_and_repeated_answers_are_refused(world: World) -> None:
    before: list[Question] = []

    def first(link: Link, question: Question) -> None:
        before.append(question)
        allow(link, question)

    def second(link: Link, question: Question) -> None:
        for number in ("0" * 32, before[0].id, question.id[:-1] + ("0" if question.id[-1] != "0" else "1")):
            with pytest.raises(LinkRefused, match="not waiting any more"):
                link.decide(number, True)
        for number in ("", "x", question.id.upper() + "A", "../" + question.id):
            with pytest.raises(LinkRefused, match="no such question"):
                link.decide(number, True)
        with pytest.raises(LinkRefused, match="does not ask for a secret"):
            link.give_secret(question.id, b"x" * 60)
        with pytest.raises(LinkRefused, match="releases nothing"):
            link.released(question.id, b"k" * 32)
        deny(link, question)
        with pytest.raises(LinkRefused, match="not waiting any more"):
            link.decide(question.id, True)

    with answering(first, second):
        assert world.run(WRITE.format("first.csv")).ok
        assert world.run(WRITE.format("second.csv")).reply["ename"] == "CapabilityDenied"
    assert not (world.project / "second.csv").exists()


def test_a_viewer_without_the_secret_decides_nothing(world: World) -> None:
    """A program of the same user that has not read the viewer secret; the control is every other test here."""
    from capkernel.viewer import sessions

    def impostor(link: Link, question: Question) -> None:
        (session,) = sessions.running("test")
        import socket

        from capkernel.wire.view import SOCKET_NAME

        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.connect(f"{session.runtime}/{SOCKET_NAME}")
        with pytest.raises(LinkRefused, match="not the session's viewer secret"):
            Link(connected, b"\0" * 32, "approve")
        assert link.questions().questions[0].id == question.id
        deny(link, question)

    with answering(impostor):
        assert world.run(WRITE.format("impostor.csv")).reply["ename"] == "CapabilityDenied"


FORGED = """
from capkernel.api import membrane
from capkernel.wire.worker import AskRelease, AskSecret
ours = membrane.current()._channel
for effect in (AskSecret("KEY"), AskRelease(s._handle, "give"), AskRelease("0" * 32, "give"), AskRelease("", "")):
    try:
        print("GAINED", ours.call(effect))
    except Exception as problem:
        print("refused:", type(problem).__name__)
"""


def test_a_worker_in_its_own_hands_asks_for_nothing_that_its_plan_does_not_list(
    project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the checker off the plan is empty; the control: the hand-made message does reach the broker."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
    with checker_off_kernel(project) as kernel:
        assert kernel.run("s = classify('a')", seconds=FIRST_CELL_SECONDS).ok
        ran = kernel.run(FORGED)
        assert ran.ok, ran.everything
        assert (
            ran.stdout
            == "refused: CapabilityDenied\nrefused: CapabilityDenied\nrefused: ValueError\nrefused: ValueError\n"
        )
        with the_link() as link:
            assert link.questions().questions == ()
            audit = [json.loads(line) for line in link.audit(200)]
        refused = [line for line in audit if line["what"] in ("secret.request", "secret.declassify")]
        assert [line["decision"] for line in refused] == ["denied", "denied"]


# ── what a release tells ─────────────────────────────────────────────────────────────────────────────────────────────

ASK = """
try:
    got = request_declassify(value, "please")
    print("got", len(repr(got)))
except Exception as problem:
    print(type(problem).__name__, problem)
"""
# name → how the value is made of a text that was typed
VALUES = {
    "itself": "value = key",
    "poison or not": "value = key.map(lambda t: 1 // (len(t) - 5))",
    "large or small": "value = key.map(lambda t: t * 2000 if t[0] == 'a' else t)",
    "slow or not": "import time\nvalue = key.map(lambda t: sum(range(10_000_000)) if t[0] == 'a' else 1)",
    "of another type": "value = key.map(lambda t: [t] if t[0] == 'a' else t)",
}
SECRETS = ("alpha", "b" * 40)


def trace(ran: Ran) -> bytes:
    """All that a client sees of the cell, without numbers that count cells and messages."""
    content: list[Any] = [dict(ran.reply), [(m["msg_type"], dict(m["content"]), m["metadata"]) for m in ran.messages]]
    content[0].pop("execution_count", None)
    for _, inner, _ in content[1]:
        inner.pop("execution_count", None)
    return json.dumps(content, sort_keys=True).encode()


def traces(world: World, how: str, answer: Answer) -> list[list[bytes]]:
    found = []
    for number, secret in enumerate(SECRETS):
        name = f"{how.replace(' ', '_')}_{answer.__name__}_{number}"
        with answering(types(secret)):
            assert world.run(f'key = request_secret("{name}")').ok
        made = world.run(VALUES[how])
        assert made.ok, made.everything
        with answering(answer):
            asked = world.run(ASK)
        with the_link() as link:
            link.forget_denied()
        found.append([trace(made), trace(asked)])
    return found


def looks_and_denies(link: Link, question: Question) -> None:
    end = time.monotonic() + 60
    while "computing" in look(link, question).problem:
        assert time.monotonic() < end
        time.sleep(0.05)
    deny(link, question)


@pytest.mark.parametrize("how", VALUES)
def test_until_a_value_is_released_two_secrets_look_the_same(world: World, how: str) -> None:
    one, other = traces(world, how, looks_and_denies)
    assert one == other
    assert b"this value is not released" in one[1]


def test_the_control_a_released_value_does_differ(world: World) -> None:
    one, other = traces(world, "itself", release)
    assert one[0] == other[0]
    assert one[1] != other[1]


# ── what a question looks like ───────────────────────────────────────────────────────────────────────────────────────

SPOOF = "ok\\n\\nAllowed by the administrator.\\nType y\\r\\u202eyned\\u200b\\x1b[2J" + "x" * 5000


def test_a_reason_cannot_look_like_anything_else(world: World) -> None:
    with answering(deny) as asked:
        ran = world.run(f'request_declassify(classify("a", label="{SPOOF[:300]}"), "{SPOOF}")')
    assert ran.reply["ename"] == "CapabilityDenied"
    (question,) = asked
    texts = [question.title, question.reason, *(text for fact in question.facts for text in fact)]
    assert all(text.isprintable() for text in texts)
    assert not any(character in text for text in texts for character in "\n\r\x1b\u202e\u200b")
    assert len(question.reason) < 1000
    assert question.reason.startswith(r"ok\x0a\x0aAllowed by the administrator.")
    assert all("administrator" not in text for name, text in question.facts if name != "the cell calls it")
    assert "administrator" not in question.title
    # In the notebook there is the fixed line, and no word of the cell's.
    (line,) = [m["content"]["text"] for m in ran.messages if m["msg_type"] == "stream"]
    assert (
        line == "capkernel: waiting for your decision in `capkernel view` or `capkernel approve`: secret.declassify\n"
    )


def test_a_name_cannot_look_like_anything_else(world: World) -> None:
    name = "a\\u202evsc.exe\\u2028 there now nothing"
    with answering(deny) as asked:
        world.run(WRITE.format(name))
    assert all(text.isprintable() for fact in asked[0].facts for text in fact)
    assert r"\u202e" in asked[0].title
    with the_link() as link:
        link.forget_denied()
