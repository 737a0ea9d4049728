"""The viewer's socket: who is let in, what is answered, and that nothing is shown which is not in the audit."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from capkernel.broker.audit import AuditLog
from capkernel.broker.ledger import MAX_PARENTS, MAX_TEXT, Ledger, Origin
from capkernel.kernel import view
from capkernel.kernel.view import ViewServer
from capkernel.vault.processes import VaultFailed
from capkernel.viewer import link as viewer_link
from capkernel.viewer.link import Link, LinkRefused
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.values import encode as encode_value
from capkernel.wire.view import (
    MAX_BODY_TO_VIEWER,
    SECRET_NAME,
    SOCKET_NAME,
    AskValue,
    Challenge,
    ListValues,
    Open,
    Refused,
    ToViewer,
    Welcome,
    proof,
)

KEY = bytes(range(32))
HANDLE = "0" * 31 + "1"


class FakeBroker:
    def __init__(self) -> None:
        self.ledger = Ledger()
        self.ledger.classified(HANDLE, 1, "mine", encode_value(1))

    def live(self) -> tuple[int | None, tuple[str, ...], int]:
        return 3, ("file_system data",), 2

    def authority(self) -> tuple[str, tuple[str, ...]]:
        return "may: read data/a.csv · nothing else", ("the folder data",)


class FakeVault:
    """Answers with "sealed" bytes and remembers what was in the audit then."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []
        self.problem: Exception | None = None
        self.before: Callable[[], object] = lambda: None

    async def reveal(self, handle: str, key: bytes) -> bytes:
        self.asked.append((handle, key))
        self.before()
        if self.problem is not None:
            raise self.problem
        return b"sealed"

    def origins(self, handle: str) -> frozenset[str] | None:
        return frozenset(("file:.env",)) if handle == HANDLE else None


class Running:
    def __init__(self, folder: Path, user: int | None) -> None:
        self.runtime = folder / "session-x"
        self.runtime.mkdir(mode=0o700)
        self.audit = AuditLog.open_ambient("s1", folder / "audit")
        self.lines = folder / "audit" / "s1.jsonl"
        self.vault = FakeVault()
        self.server = ViewServer(self.runtime, Path("/notes"), FakeBroker(), self.vault, self.audit, user=user)

    @property
    def secret(self) -> bytes:
        return (self.runtime / SECRET_NAME).read_bytes()


def serving(folder: Path, body: Callable[[Running], Awaitable[None]], *, user: int | None = None) -> None:
    async def main() -> None:
        running = Running(folder, user)
        await running.server.start()
        try:
            await asyncio.wait_for(body(running), 30)
        finally:
            await running.server.close()

    asyncio.run(main())


def talk(running: Running, *messages: bytes) -> list[ToViewer]:
    """Send raw frames, collect what comes until the other end closes or nothing more does. Blocking."""
    reader: FrameReader[ToViewer] = FrameReader(ToViewer, max_body=MAX_BODY_TO_VIEWER)
    found: list[ToViewer] = []
    with socket.socket(socket.AF_UNIX) as link:
        link.settimeout(1.0)
        link.connect(str(running.runtime / SOCKET_NAME))
        try:
            for message in messages:
                link.sendall(message)
            while data := link.recv(65536):
                reader.feed(data)
                found += [message for message, _ in reader.frames()]
        except (TimeoutError, ConnectionError):
            pass
    return found


def reasons(found: list[ToViewer]) -> list[str]:
    return [message.reason for message in found if isinstance(message, Refused)]


def in_thread(work: Callable[[], object]) -> Awaitable[object]:
    return asyncio.to_thread(work)


# ── who is let in ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_socket_and_secret_are_for_this_user_alone_and_go_with_the_session(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        for name, kind in ((SOCKET_NAME, stat.S_IFSOCK), (SECRET_NAME, stat.S_IFREG)):
            found = (running.runtime / name).lstat()
            assert found.st_mode == kind | 0o600
        assert len(running.secret) == 32

    serving(tmp_path, body)
    assert list((tmp_path / "session-x").iterdir()) == []


def test_the_viewer_of_this_user_is_let_in(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        def look() -> None:
            with Link.open(str(running.runtime), "page") as link:
                assert (link.welcome.session, link.welcome.directory, link.welcome.pid) == ("s1", "/notes", os.getpid())
                (line,) = link.values().values
                assert (line.handle, line.type, line.label, line.origins) == (HANDLE, "int", "mine", ("file:.env",))
                assert link.reveal(HANDLE, KEY) == b"sealed"
                assert link.authority().may == ("file_system data",)
                assert "classified.reveal" in link.audit()[-1]

        await in_thread(look)

    serving(tmp_path, body)


def test_a_wrong_secret_and_a_recorded_proof_are_refused(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        def look() -> None:
            recorded = b""
            with socket.socket(socket.AF_UNIX) as link:  # the honest opening, written down
                link.connect(str(running.runtime / SOCKET_NAME))
                reader: FrameReader[ToViewer] = FrameReader(ToViewer)
                reader.feed(link.recv(65536))
                ((challenge, _),) = reader.frames()
                assert isinstance(challenge, Challenge)
                recorded = encode(Open(proof(running.secret, challenge.challenge, "page"), "page"))
                link.sendall(recorded)
                reader.feed(link.recv(65536))
                ((welcome, _),) = reader.frames()
                assert isinstance(welcome, Welcome), "the recorded opening must have worked once"
            asking = encode(AskValue(1, HANDLE, KEY))
            for opening in (recorded, encode(Open(secrets.token_bytes(32), "page"))):
                found = talk(running, opening, asking)
                assert [type(message) for message in found] == [Challenge, Refused]
                assert "viewer secret" in reasons(found)[0]
            assert running.vault.asked == []

        await in_thread(look)

    serving(tmp_path, body)


def test_nothing_is_answered_before_the_proof(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        for first in (encode(ListValues(1)), encode(AskValue(1, HANDLE, KEY)), b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64):
            found = await in_thread(lambda first=first: talk(running, first))  # type: ignore[misc]
            assert {type(message) for message in found} <= {Challenge, Refused}  # type: ignore[attr-defined]
        assert running.vault.asked == []

    serving(tmp_path, body)


STRANGER = """
import os, socket, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
link = socket.socket(socket.AF_UNIX); link.settimeout(5)
link.connect(sys.argv[1])
print(link.recv(4096))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_another_user_is_refused_by_the_kernel_even_where_the_file_lets_them(tmp_path: Path) -> None:
    """Opened for all on purpose: without the check of the peer's user the stranger gets a challenge."""

    def opened(running: Running) -> None:
        for place in (tmp_path, *tmp_path.parents[:-1], running.runtime):
            if place.stat().st_uid == os.getuid() and not place.stat().st_mode & 0o001:
                place.chmod(place.stat().st_mode | 0o011)
        (running.runtime / SOCKET_NAME).chmod(0o666)

    def stranger(running: Running) -> str:
        command = [sys.executable, "-I", "-c", STRANGER, str(running.runtime / SOCKET_NAME)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        return done.stdout + done.stderr

    said: list[object] = []

    async def closed(running: Running) -> None:
        said.append(await in_thread(lambda: stranger(running)))

    async def body(running: Running) -> None:
        opened(running)
        said.append(await in_thread(lambda: stranger(running)))

    (tmp_path / "files").mkdir()
    serving(tmp_path / "files", closed)
    (tmp_path / "off").mkdir()
    serving(tmp_path / "off", body, user=65534)
    (tmp_path / "on").mkdir()
    serving(tmp_path / "on", body)
    by_files, without, with_check = map(str, said)
    assert "PermissionError" in by_files
    assert "challenge" in without
    assert "challenge" not in with_check
    assert "only the user who runs this session" in with_check


def test_too_many_viewers_are_turned_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MAX_LINKS", 2)

    async def body(running: Running) -> None:
        def look() -> None:
            runtime = str(running.runtime)
            with (
                Link.open(runtime, "page"),
                Link.open(runtime, "page"),
                pytest.raises(LinkRefused, match="viewers at once"),
            ):
                Link.open(runtime, "page")

        await in_thread(look)

    serving(tmp_path, body)


def test_a_peer_that_says_nothing_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "OPEN_SECONDS", 0.1)

    async def body(running: Running) -> None:
        def look() -> bytes:
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(10)
                link.connect(str(running.runtime / SOCKET_NAME))
                link.recv(4096)
                return link.recv(4096)

        assert await in_thread(look) == b""

    serving(tmp_path, body)


# ── what is answered ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reveal_is_in_the_audit_before_the_vault_is_asked_and_has_no_content(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        seen: list[str] = []
        running.vault.before = lambda: seen.append(running.lines.read_text())

        def look() -> None:
            with Link.open(str(running.runtime), "terminal") as link:
                link.reveal(HANDLE, KEY)

        await in_thread(look)
        entry = json.loads(seen[0].splitlines()[-1])
        assert (entry["what"], entry["who"], entry["path"]) == ("classified.reveal", "person", HANDLE)
        assert entry["reason"] == f"terminal, process {os.getpid()}"
        assert "sealed" not in running.lines.read_text()

    serving(tmp_path, body)


def test_without_an_audit_nothing_is_revealed(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        running.audit.close()

        def look() -> None:
            with Link.open(str(running.runtime), "page") as link, pytest.raises(LinkRefused, match="nothing is shown"):
                link.reveal(HANDLE, KEY)

        await in_thread(look)
        assert running.vault.asked == []

    serving(tmp_path, body)


def test_unknown_handles_and_a_lost_vault_are_refusals(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        running.vault.problem = VaultFailed("the vault is not running")

        def look() -> None:
            with Link.open(str(running.runtime), "page") as link:
                with pytest.raises(LinkRefused, match="no such value"):
                    link.reveal("f" * 32, KEY)
                with pytest.raises(LinkRefused, match="not running"):
                    link.reveal(HANDLE, KEY)
                for handle, key in (("../x", KEY), (HANDLE, b"short"), ("F" * 32, KEY)):
                    with pytest.raises(LinkRefused, match="no such value, or no X25519"):
                        link.reveal(handle, key)

        await in_thread(look)

    serving(tmp_path, body)


def test_the_longest_list_fits_a_frame(tmp_path: Path) -> None:
    async def body(running: Running) -> None:
        wide = "\U0001f600" * 10_000
        for number in range(600):
            parents = tuple(f"{other:032x}" for other in range(100))
            running.server._broker.ledger.add(Origin(
                f"{number + 16:032x}", 1, "map", wide[:MAX_TEXT], wide[:MAX_TEXT], wide[:MAX_TEXT], wide[:MAX_TEXT], 1,
                parents[:MAX_PARENTS],
            ))  # fmt: skip
        running.vault.origins = lambda _: frozenset(f"{number}{wide}" for number in range(100))  # type: ignore[assignment,method-assign]

        def look() -> None:
            with Link.open(str(running.runtime), "page") as link:
                found = link.values()
                assert (len(found.values), found.total) == (500, 601)
                assert len(found.values[0].origins) == view.MAX_ORIGINS

        await in_thread(look)

    serving(tmp_path, body)


# ── the viewer's own checks ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("spoil", ["directory", "secret", "link"])
def test_the_viewer_does_not_trust_what_others_may_have_put_there(tmp_path: Path, spoil: str) -> None:
    async def body(running: Running) -> None:
        def look() -> None:
            Link.open(str(running.runtime), "page").close()
            target = running.runtime
            if spoil == "directory":
                target.chmod(0o750)
            elif spoil == "secret":
                (target / SECRET_NAME).chmod(0o640)
            else:
                target = tmp_path / "elsewhere"
                target.symlink_to(running.runtime)
            with pytest.raises((LinkRefused, OSError)):
                Link.open(str(target), "page")

        await in_thread(look)

    serving(tmp_path, body)


def test_a_session_that_does_not_answer_is_given_up_soon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewer_link, "OPEN_SECONDS", 0.2)
    runtime = tmp_path / "session-x"
    runtime.mkdir(mode=0o700)
    (runtime / SECRET_NAME).touch(mode=0o600)
    (runtime / SECRET_NAME).write_bytes(bytes(32))
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(runtime / SOCKET_NAME))
        silent.listen()
        with pytest.raises(TimeoutError):
            Link.open(str(runtime), "page")
