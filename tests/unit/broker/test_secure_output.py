"""Which masks become entries, with which header, and what is told; the vault and the file are played."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import secrets
from pathlib import Path

import pytest

from capkernel.broker import secure_output
from capkernel.broker.secure_file import open_ambient
from capkernel.broker.secure_output import SecureOutput
from capkernel.wire.values import encode
from capkernel.wire.worker import Classify, MaskShown


class Vault:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.answer: int | None = 0
        self.gate: asyncio.Event | None = None

    def origins(self, handle: str) -> frozenset[str] | None:
        return frozenset(("file:.env", "file:a\nb"))

    async def mirror(self, handle: str, header: str) -> int | None:
        if self.gate is not None:
            await self.gate.wait()
        self.asked.append((handle, header))
        return self.answer


class Stage:
    def __init__(self, session, place: Path) -> None:
        self.session, self.vault, self.told = session, Vault(), []
        self.file = open_ambient(place, [])
        self.place = place
        broker = session.broker
        self.output = SecureOutput(self.file, self.vault, session.audit, broker.ledger, self.told.append)
        broker.posts.secure_output = self.output
        self.handle = secrets.token_hex(16)
        broker.post(Classify(self.handle, "mine"), encode("v"))

    def show(self, *handles: str) -> None:
        async def run() -> None:
            for handle in handles:
                self.session.broker.post(MaskShown(handle), b"")
            await self.output.settle(5)

        self.session.loop.run_until_complete(run())

    def audit(self) -> list[tuple[str, int | None, str]]:
        lines = [json.loads(line) for line in self.session.audit_file.read_text().splitlines()]
        return [(x["decision"], x["cell"], x.get("reason", "")) for x in lines if x["what"] == "classified.mirror"]


@pytest.fixture
def stage(session, tmp_path_factory):
    made = Stage(session, tmp_path_factory.mktemp("person") / "out.txt")
    yield made
    made.file.close()


def test_an_entry_says_when_where_and_from_what(stage):
    stage.show(stage.handle)
    [(handle, header)] = stage.vault.asked
    assert handle == stage.handle
    time, session, cell, origin, label = header.split(" | ")
    assert time.endswith(" UTC")
    assert (session, cell) == ("session test", "cell 1")
    assert origin == "from file:.env, file:a\nb"  # made visible by the keeper
    assert label == "label (the cell's own word) 'mine'"
    assert stage.audit() == [("allowed", 1, "")]


@pytest.mark.parametrize("forged", ["", "x", "f" * 32, "../../x"])
def test_a_mask_that_is_none_of_the_session_is_no_entry(stage, forged):
    stage.show(forged)
    assert stage.vault.asked == []
    assert stage.audit() == []


def test_nothing_is_shown_while_no_cell_runs(stage):
    stage.session.end()
    stage.show(stage.handle)
    assert stage.vault.asked == []
    stage.session.cell()
    stage.show(stage.handle)
    assert len(stage.vault.asked) == 1


def test_a_flood_ends_and_is_said_once(stage, monkeypatch):
    monkeypatch.setattr(secure_output, "MAX_PER_SESSION", 250)
    stage.show(*[stage.handle] * 5000)
    assert len(stage.vault.asked) == 200
    stage.session.end()
    stage.session.cell()
    stage.show(*[stage.handle] * 1000)
    assert len([decision for decision, _, _ in stage.audit() if decision == "denied"]) <= 3
    assert len(stage.vault.asked) <= 250


def test_a_problem_is_told_once_and_nothing_ends(stage):
    stage.vault.answer = errno.ENOSPC
    stage.show(stage.handle, stage.handle)
    stage.show(stage.handle)
    full = f"it cannot be written ({os.strerror(errno.ENOSPC)})"
    assert stage.told == [f"the secure output (output.secure_file) takes nothing: {full}"]
    stage.place.chmod(0o644)
    stage.show(stage.handle, stage.handle)
    assert len(stage.told) == 2
    assert len(stage.vault.asked) == 3  # the file was looked at first
    stage.place.chmod(0o600)
    stage.vault.answer = 0
    stage.show(stage.handle)
    assert len(stage.vault.asked) == 4
    decisions = [decision for decision, _, _ in stage.audit()]
    assert decisions.count("failed") == 5
    assert decisions.count("allowed") == 4


def test_a_lost_vault_is_told_by_others(stage):
    stage.vault.answer = None
    stage.show(stage.handle)
    assert stage.told == []


def test_without_an_audit_there_is_no_entry(stage):
    stage.session.audit.close()
    stage.show(stage.handle)
    assert stage.vault.asked == []


def test_the_end_of_a_session_waits_a_bounded_time(stage):
    stage.vault.gate = asyncio.Event()

    async def run() -> None:
        stage.session.broker.post(MaskShown(stage.handle), b"")
        await stage.output.settle(0.2)
        assert stage.vault.asked == []
        stage.vault.gate.set()
        await stage.output.settle(5)

    stage.session.loop.run_until_complete(run())
    assert len(stage.vault.asked) == 1
