"""Questions to the person through a real kernel: who can answer, what is seen meanwhile, and what stands afterwards."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from live_kernel import LiveKernel, Ran, live_kernel
from memory import count_in_memory, readable
from person import allow, answering, deny, release, the_link, types, wait_for_question
from terminal_screen import read_until

from capkernel.viewer.link import Link
from capkernel.wire.view import Question

POLICY = """
[approvals]
ask = ["files.write", "files.overwrite_classified"]
[secrets.FROM_ENV]
env = "TEST_FROM_ENV"
[secrets.NOT_SET]
env = "TEST_NOT_SET"
[limits]
approval_seconds = 600
"""
WAITS = "capkernel: waiting for your decision in `capkernel view` or `capkernel approve`: "
WRITE = 'with request_file_system(".") as fs:\n    fs.access("{}").write("a,b")'
FIRST_CELL_SECONDS = 240  # the types of the libraries may have to be read first


@dataclass
class World:
    """One kernel for all tests here, its project, and what the environment's secret is."""

    kernel: LiveKernel
    project: Path
    canary: str

    def run(self, code: str) -> Ran:
        """With time for a person, who may have to start a program first."""
        return self.kernel.run(code, seconds=FIRST_CELL_SECONDS)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    project = tmp_path_factory.mktemp("project")
    (project / "secrets").mkdir()
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text(POLICY + f'[files]\nroots = ["{project}"]\n')
    canary = "canary" + uuid.uuid4().hex
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patched.setenv("TEST_FROM_ENV", canary)
        with live_kernel(project, policy=policy) as kernel:
            assert kernel.run("classify(1)", seconds=FIRST_CELL_SECONDS).ok
            yield World(kernel, project, canary)


def printed(ran: Ran) -> list[str]:
    return [m["content"]["text"] for m in ran.messages if m["msg_type"] == "stream"]


def test_a_write_waits_for_the_person_and_the_cell_says_so(world: World) -> None:
    with answering(allow) as asked:
        ran = world.run(WRITE.format("x.csv"))
    assert ran.ok
    assert (world.project / "x.csv").read_text() == "a,b"
    assert dict(asked[0].facts)["path"] == "x.csv"
    assert printed(ran) == [f"{WAITS}files.write x.csv\n"]


def test_a_denied_write_is_an_exception_and_stays_denied(world: World) -> None:
    with answering(deny):
        ran = world.run(WRITE.format("y.csv"))
    assert ran.reply["ename"] == "CapabilityDenied"
    assert "the person did not allow this" in ran.reply["evalue"]
    again = world.run(WRITE.format("y.csv"))
    assert "denied this before" in again.reply["evalue"]
    assert printed(again) == []
    assert not (world.project / "y.csv").exists()
    with the_link() as link:
        assert link.questions().denied == ("write the file y.csv",)
        assert link.forget_denied() == 1


def test_the_kernel_answers_while_a_question_waits(world: World) -> None:
    # kernel_info goes to the shell, which a cell occupies: the control channel is the one that stays free.
    def aside(link: Link, question: Question) -> None:
        message = world.kernel.client.session.msg("kernel_info_request", content={})
        world.kernel.client.control_channel.send(message)
        reply = world.kernel.client.get_control_msg(timeout=60)
        assert reply["content"]["implementation"] == "capkernel"
        assert link.values().total >= 1
        allow(link, question)

    with answering(aside):
        assert world.run(WRITE.format("free.csv")).ok


def test_an_interrupt_ends_the_wait_and_nothing_happened(world: World) -> None:
    def interrupt(link: Link, _: Question) -> None:
        world.kernel.manager.interrupt_kernel()

    with answering(interrupt):
        ran = world.run(WRITE.format("z.csv"))
    assert ran.reply["ename"] in ("KeyboardInterrupt", "CapabilityDenied")
    with the_link() as link:
        assert link.questions().questions == ()
    assert not (world.project / "z.csv").exists()
    assert world.run("1 + 1").text == "2"


def test_the_end_of_the_worker_ends_the_question(world: World) -> None:
    def kill(link: Link, _: Question) -> None:
        world.kernel.process("capkernel.worker.main").kill()

    with answering(kill):
        assert world.run(WRITE.format("killed.csv")).reply["ename"] == "WorkerDied"
    with the_link() as link:
        assert link.questions().questions == ()
    assert world.run("1 + 1").text == "2"
    assert not (world.project / "killed.csv").exists()


def test_a_classified_file_of_someone_else_is_replaced_by_the_persons_word_only(world: World) -> None:
    place = world.project / "secrets" / "old.txt"
    place.write_text("old")
    write = 'with request_file_system(".") as fs:\n    fs.write_classified("secrets/old.txt", classify("new"))'
    with answering(deny):
        assert world.run(write).reply["ename"] == "CapabilityDenied"
    assert place.read_text() == "old"
    with the_link() as link:
        link.forget_denied()
    with answering(allow) as asked:
        assert world.run(write).ok
    assert asked[0].kind == "files.overwrite_classified"


# ── secrets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_typed_secret_is_in_the_vault_and_nowhere_else(world: World) -> None:
    typed = "typed" + uuid.uuid4().hex
    with answering(types(typed)) as asked:
        ran = world.run('key = request_secret("TYPED", label="mine")\nkey')
    assert ran.ok, ran.reply
    assert ran.text == "Classified[str](***)"
    assert (asked[0].needs, asked[0].reason) == ("secret", "mine")
    assert printed(ran) == [f"{WAITS}secret.request TYPED\n"]
    again = world.run('key = request_secret("TYPED")\nsize = key.map(len)')
    assert again.ok
    assert printed(again) == []
    assert typed not in ran.everything + again.everything
    with the_link() as link:
        assert not any(typed in line for line in link.audit(200))
        assert link.values().values[-1].how in ("classify", "secret")
    if readable(world.kernel.pid):
        keeper = world.kernel.process("capkernel.vault.keeper_main").pid
        worker = world.kernel.process("capkernel.worker.main").pid
        assert count_in_memory(keeper, typed.encode()) > 0, "the control: it would be found"
        assert count_in_memory(worker, typed.encode()) == 0
        assert count_in_memory(world.kernel.pid, typed.encode()) == 0


def test_a_secret_of_the_environment_needs_nobody_and_is_seen_by_no_cell(world: World) -> None:
    ran = world.run('env = request_secret("FROM_ENV")\nenv')
    assert ran.ok, ran.reply
    assert printed(ran) == []
    environment = world.run("import os\nprint(os.environ)")
    assert environment.codes == ["ambient-authority"]
    assert world.canary not in ran.everything
    missing = world.run('request_secret("NOT_SET")')
    assert "TEST_NOT_SET, which was not set" in missing.reply["evalue"]
    if readable(world.kernel.pid):
        keeper = world.kernel.process("capkernel.vault.keeper_main").pid
        assert count_in_memory(keeper, world.canary.encode()) > 0, "the control: it would be found"
        for process in (psutil.Process(world.kernel.pid), world.kernel.process("capkernel.worker.main")):
            assert count_in_memory(process.pid, world.canary.encode()) == 0


# ── releases ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_value_is_released_with_its_type(world: World) -> None:
    assert world.run('env = request_secret("FROM_ENV")').ok
    with answering(release, release) as asked:
        ran = world.run(
            'n = request_declassify(env.map(len), "how long")\n'
            'pair = request_declassify(env.map(lambda t: (t[:6], [1.5, None])), "a part")\n'
            "print(n + 1, pair)"
        )
    assert ran.ok, ran.reply
    assert ran.stdout == f"{len(world.canary) + 1} ('canary', [1.5, None])\n"
    assert [dict(one.facts)["made from"] for one in asked] == ["secret:FROM_ENV"] * 2
    assert [dict(one.facts)["static type"] for one in asked] == ["int", "tuple[str, list[float | None]]"]
    assert printed(ran)[:2] == [f"{WAITS}secret.declassify\n"] * 2
    with the_link() as link:
        lines = [json.loads(line) for line in link.audit(200)]
    found = [(line["decision"], line["who"]) for line in lines if line["what"] == "secret.declassify"]
    assert found[-4:] == [("asked", "cell"), ("allowed", "person")] * 2


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────

COMMAND = [sys.executable, "-P", "-m", "capkernel.cli", "approve"]


def in_terminal(*lines: tuple[str, str]) -> str:
    """Run `capkernel approve` in a terminal: wait for some words, type some others. All that was shown."""
    master, slave = pty.openpty()
    program = subprocess.Popen(COMMAND, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    shown = ""
    try:
        for words, typed in lines:
            shown += read_until(master, words)
            os.write(master, typed.encode() + b"\n")
        shown += read_until(master, "q: leave")
        os.write(master, b"q\n")
        shown += read_until(master, "\x1b[?1049l")
        assert program.wait(30) == 0
        return shown
    finally:
        program.kill()
        program.wait()
        os.close(master)


def test_the_command_decides_by_a_whole_word(world: World) -> None:
    shown: list[str] = []

    def decide(link: Link, question: Question) -> None:
        # "a" is not "allow"; nothing is decided by it.
        shown.append(
            in_terminal(("q: leave", "1"), ("type 'allow'", "a"), ("q: leave", "1"), ("type 'allow'", "allow"))
        )

    with answering(decide):
        assert world.run(WRITE.format("terminal.csv")).ok
    assert (world.project / "terminal.csv").exists()
    assert "new content" in shown[0]
    assert "terminal.csv" in shown[0]


def test_the_command_shows_the_exact_value_and_takes_secrets_unseen(world: World) -> None:
    shown: list[str] = []
    typed = "typed" + uuid.uuid4().hex

    def give(link: Link, question: Question) -> None:
        shown.append(in_terminal(("q: leave", "1"), ("type 'give'", "give"), ("is not shown", typed)))

    def let_go(link: Link, question: Question) -> None:
        shown.append(in_terminal(("q: leave", "1"), ("type 'release'", "release")))

    with answering(give):
        assert world.run('other = request_secret("OTHER")').ok
    assert typed not in shown[0]
    with answering(let_go):
        ran = world.run(
            'print(request_declassify(other.map(lambda t: t[:5] + "\\n\\u202eallow"), "two lines\\nNothing to see"))'
        )
    assert ran.ok
    assert ran.stdout.startswith("typed\n")
    assert r"'typed\n\u202eallow'" in shown[1]
    assert "\u202e" not in shown[1]
    assert r'"two lines\x0aNothing to see"' in shown[1]
    assert "The cell says, and nobody checked it" in shown[1]


def test_the_command_decides_nothing_without_a_terminal_and_lists_what_waits(world: World) -> None:
    listed: list[str] = []

    def look(link: Link, question: Question) -> None:
        for arguments in ([], ["--deny-all"]):
            done = subprocess.run(
                [*COMMAND, *arguments], input="1\nallow\n", capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 2
            assert "nothing was decided" in done.stderr
        done = subprocess.run([*COMMAND, "--list"], capture_output=True, text=True, timeout=120)
        listed.append(done.stdout)
        assert wait_for_question(link).id == question.id, "it still waits"
        deny(link, question)

    with answering(look):
        assert world.run(WRITE.format("listed.csv")).reply["ename"] == "CapabilityDenied"
    assert "files.write · write the file listed.csv" in listed[0]
    with the_link() as link:
        link.forget_denied()
