"""The viewer's socket as a card sees it: which proofs and processes are let in, and what a page gets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from capkernel.broker.audit import AuditLog
from capkernel.broker.ledger import Ledger
from capkernel.kernel import launcher as launcher_module
from capkernel.kernel.launcher import Launcher
from capkernel.kernel.page_reveal import PageReveal
from capkernel.kernel.view import ViewServer
from capkernel.policy.load import Source, parse, policy_from
from capkernel.policy.model import Policy
from capkernel.viewer.link import Link, LinkRefused
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.values import encode as encode_value
from capkernel.wire.view import (
    CARD,
    SECRET_BYTES,
    SECRET_NAME,
    SOCKET_NAME,
    AskAudit,
    AskAuthority,
    AskForPage,
    AskPage,
    AskValue,
    AuditLines,
    Challenge,
    ListValues,
    Open,
    Page,
    Refused,
    SealedValue,
    ToViewer,
    Values,
    Welcome,
    proof,
)

KEY = bytes(range(32))
HANDLE = "0" * 31 + "1"
HIGH = "0" * 31 + "2"
LOST = "0" * 31 + "3"
OUTSIDE = "Only the process that started this kernel"
NOT_PROVED = "not the viewer secret that this kernel was started with"


class FakeBroker:
    def __init__(self) -> None:
        self.ledger = Ledger()
        for handle in (HANDLE, HIGH, LOST):
            self.ledger.classified(handle, 1, "mine", encode_value(1))

    def live(self) -> tuple[int | None, tuple[str, ...], int]:
        return None, (), 0


class FakeVault:
    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes]] = []

    async def reveal(self, handle: str, key: bytes) -> bytes:
        self.asked.append((handle, key))
        return b"sealed"

    def origins(self, handle: str) -> frozenset[str] | None:
        return {HANDLE: frozenset(["file:.env"]), HIGH: frozenset(["file:.env", "file:prod/key"])}.get(handle)


class Session:
    """A ViewServer whose launcher is this process: Jupyter server, kernel and client in one."""

    def __init__(self, folder: Path, policy: Policy, launcher: Launcher | None) -> None:
        self.runtime = folder / "session-x"
        self.runtime.mkdir(mode=0o700)
        audit = AuditLog.open_ambient("s1", folder / "audit")
        self.vault = FakeVault()
        page = PageReveal(launcher, policy)
        self.server = ViewServer(self.runtime, Path("/notes"), FakeBroker(), self.vault, audit, page=page)

    @property
    def file_secret(self) -> bytes:
        return (self.runtime / SECRET_NAME).read_bytes()

    def card(self, secret: bytes) -> Link:
        return Link.open_card(str(self.runtime), secret, os.getpid())


SECRET = secrets.token_bytes(SECRET_BYTES)


@pytest.fixture
def as_launcher(monkeypatch: pytest.MonkeyPatch) -> Launcher:
    monkeypatch.setattr(launcher_module.os, "getppid", os.getpid)
    return Launcher(SECRET, os.getpid())


def policy(folder: Path, text: str = "") -> Policy:
    return policy_from(parse(Source(folder / "capkernel.toml", text.encode())))


def serving(folder: Path, launcher: Launcher | None, look: Callable[[Session], None], text: str = "") -> Session:
    session = Session(folder, policy(folder, text), launcher)

    async def main() -> None:
        await session.server.start()
        try:
            await asyncio.wait_for(asyncio.to_thread(look, session), 110)
        finally:
            await session.server.close()

    asyncio.run(main())
    return session


def talk(session: Session, answer: Callable[[bytes], list[bytes]]) -> list[ToViewer]:
    """Answer the challenge with these frames; what comes until the other end closes, or as many as were sent."""
    reader: FrameReader[ToViewer] = FrameReader(ToViewer)
    found: list[ToViewer] = []
    frames: list[bytes] | None = None
    # The other end may close before it has read all that was sent.
    with socket.socket(socket.AF_UNIX) as link, contextlib.suppress(ConnectionError):
        link.settimeout(30)
        link.connect(str(session.runtime / SOCKET_NAME))
        while frames is None or len(found) <= len(frames):
            data = link.recv(65536)
            if not data:
                break
            reader.feed(data)
            found += [message for message, _ in reader.frames()]
            if frames is None and found and isinstance(found[0], Challenge):
                frames = answer(found[0].challenge)
                link.sendall(b"".join(frames))
    return found


# ── who is a card ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_launcher_is_let_in_and_gets_a_value(tmp_path: Path, as_launcher: Launcher) -> None:
    def look(session: Session) -> None:
        with session.card(SECRET) as link:
            assert (link.page().off, link.page().pairing) == ("", False)
            about = link.about(HANDLE)
            assert (about.value.type, about.value.label, about.high) == ("int", "mine", False)
            assert link.reveal_in_page(HANDLE, KEY, paired=False) == b"sealed"

    session = serving(tmp_path, as_launcher, look)
    assert session.vault.asked == [(HANDLE, KEY)]
    assert "card, process" in (tmp_path / "audit" / "s1.jsonl").read_text()


def test_the_secret_of_the_file_is_no_card_and_the_launchers_is_no_page(tmp_path: Path, as_launcher: Launcher) -> None:
    """Each secret opens its own role and not the other, also when the proof is made for the role that is asked for."""

    def look(session: Session) -> None:
        def opened(secret: bytes, proved_as: str, said: str) -> ToViewer:
            return talk(session, lambda c: [encode(Open(proof(secret, c, proved_as), said))])[-1]

        assert isinstance(opened(SECRET, CARD, CARD), Welcome)
        assert isinstance(opened(session.file_secret, "page", "page"), Welcome)
        for secret, proved_as, said in (
            (session.file_secret, CARD, CARD), (session.file_secret, "page", CARD),
            (SECRET, "page", "page"), (SECRET, CARD, "page"), (session.file_secret, "page", "terminal"),
        ):  # fmt: skip
            answer = opened(secret, proved_as, said)
            assert isinstance(answer, Refused), (proved_as, said)
            assert "viewer secret" in answer.reason

    assert serving(tmp_path, as_launcher, look).vault.asked == []


def test_a_proof_works_for_its_challenge_only(tmp_path: Path, as_launcher: Launcher) -> None:
    def look(session: Session) -> None:
        recorded: list[bytes] = []

        def honest(challenge: bytes) -> list[bytes]:
            recorded.append(encode(Open(proof(SECRET, challenge, CARD), CARD)))
            return [*recorded, encode(AskForPage(1, HANDLE, KEY, paired=True))]

        assert isinstance(talk(session, honest)[-1], SealedValue)
        again = talk(session, lambda _: [*recorded, encode(AskForPage(1, HANDLE, KEY, paired=True))])
        assert [type(message) for message in again] == [Challenge, Refused]
        assert NOT_PROVED in again[-1].reason  # type: ignore[union-attr]

    assert len(serving(tmp_path, as_launcher, look).vault.asked) == 1


ASK = """
import sys
from capkernel.viewer.link import Link, LinkRefused
secret = bytes.fromhex(sys.stdin.read())
try:
    with Link.open_card(sys.argv[1], secret, int(sys.argv[2])) as link:
        print(link.reveal_in_page(sys.argv[3], bytes(range(32)), paired=True))
except LinkRefused as refused:
    print(refused)
"""


def another_process(session: Session) -> str:
    """The whole secret in the hands of another process of the same user."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(session.runtime), str(os.getpid()), HANDLE],
        input=SECRET.hex(), capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONPATH": _PATH},
    )  # fmt: skip
    return done.stdout + done.stderr


_PATH = os.pathsep.join(sys.path)


def test_another_process_of_the_same_user_is_refused_although_it_has_the_secret(
    tmp_path: Path, as_launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def look(session: Session) -> None:
        with monkeypatch.context() as off:
            off.setattr(Launcher, "is_process", lambda *_: True)
            said.append(another_process(session))
        said.append(another_process(session))

    serving(tmp_path, as_launcher, look)
    assert "b'sealed'" in said[0], said[0]
    assert OUTSIDE in said[1], said[1]
    assert "sealed" not in said[1]


def test_the_launcher_is_refused_when_it_is_no_longer_our_parent(
    tmp_path: Path, as_launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its number may be another process's by then."""

    def look(session: Session) -> None:
        session.card(SECRET).close()
        monkeypatch.setattr(launcher_module.os, "getppid", lambda: 1)
        with pytest.raises(LinkRefused, match=OUTSIDE):
            session.card(SECRET)

    serving(tmp_path, as_launcher, look)


def test_a_kernel_that_was_handed_no_secret_has_no_cards(tmp_path: Path) -> None:
    def look(session: Session) -> None:
        for secret in (SECRET, session.file_secret, bytes(SECRET_BYTES)):
            with pytest.raises(LinkRefused, match="got no viewer secret"):
                session.card(secret)
        with Link.open(str(session.runtime), "page") as link:
            assert link.reveal(HANDLE, KEY) == b"sealed", "the person's own viewer works"

    serving(tmp_path, None, look)


# ── what each kind may ask ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_card_may_not_ask_what_a_page_may_and_the_other_way_round(tmp_path: Path, as_launcher: Launcher) -> None:
    of_a_viewer = [
        (ListValues(1), Values),
        (AskAudit(1), AuditLines),
        (AskAuthority(1), None),
        (AskValue(1, HANDLE, KEY), SealedValue),
    ]
    of_a_card = [(AskPage(1), Page), (AskForPage(1, HANDLE, KEY, paired=True), SealedValue)]

    def look(session: Session) -> None:
        def asked(secret: bytes, viewer: str, message: object) -> ToViewer:
            return talk(session, lambda c: [encode(Open(proof(secret, c, viewer), viewer)), encode(message)])[-1]  # type: ignore[arg-type]

        for message, kind in of_a_viewer:
            right = asked(session.file_secret, "page", message)
            assert kind is None or isinstance(right, kind)
            assert not isinstance(right, Refused)
            wrong = asked(SECRET, CARD, message)
            assert isinstance(wrong, Refused)
            assert wrong.reason == "a page may not ask this"
        for message, kind in of_a_card:
            assert isinstance(asked(SECRET, CARD, message), kind)
            wrong = asked(session.file_secret, "page", message)
            assert isinstance(wrong, Refused)
            assert "only the page of a Jupyter server" in wrong.reason

    serving(tmp_path, as_launcher, look)


# ── what a page gets ─────────────────────────────────────────────────────────────────────────────────────────────────


def refusal(link: Link, handle: str, *, paired: bool = False) -> str:
    try:
        link.reveal_in_page(handle, KEY, paired=paired)
    except LinkRefused as refused:
        return refused.name
    return ""


def test_high_origins_need_a_paired_page(tmp_path: Path, as_launcher: Launcher) -> None:
    def look(session: Session) -> None:
        with session.card(SECRET) as link:
            assert not link.page().pairing
            assert [link.about(handle).high for handle in (HANDLE, HIGH, LOST)] == [False, True, True]
            assert [refusal(link, handle) for handle in (HANDLE, HIGH, LOST)] == [
                "",
                "pairing-needed",
                "pairing-needed",
            ]
            assert [refusal(link, handle, paired=True) for handle in (HANDLE, HIGH, LOST)] == ["", "", ""]

    session = serving(tmp_path, as_launcher, look, '[viewer]\nhigh = ["prod/"]')
    assert [handle for handle, _ in session.vault.asked] == [HANDLE, HANDLE, HIGH, LOST]


def test_the_policy_can_want_pairing_for_every_value(tmp_path: Path, as_launcher: Launcher) -> None:
    def look(session: Session) -> None:
        with session.card(SECRET) as link:
            assert link.page().pairing
            assert refusal(link, HANDLE) == "pairing-needed"
            assert refusal(link, HANDLE, paired=True) == ""

    serving(tmp_path, as_launcher, look, "[viewer]\npairing = true")


def test_active_outputs_switch_it_off(tmp_path: Path, as_launcher: Launcher) -> None:
    def look(session: Session) -> None:
        with session.card(SECRET) as link:
            assert "output.active" in link.page().off
            assert refusal(link, HANDLE, paired=True) == "reveal-off"
        with Link.open(str(session.runtime), "page") as link:
            assert link.reveal(HANDLE, KEY) == b"sealed", "the person's own viewer is no part of that page"

    assert len(serving(tmp_path, as_launcher, look, "[output]\nactive = true").vault.asked) == 1


def test_unknown_values_are_named_so(tmp_path: Path, as_launcher: Launcher) -> None:
    def look(session: Session) -> None:
        with session.card(SECRET) as link:
            assert refusal(link, "f" * 32) == "no-such-value"
            for nonsense in ("", "F" * 32, "../x", "f" * 33):
                assert refusal(link, nonsense) == "no-such-value"
            with pytest.raises(LinkRefused) as refused:
                link.about("f" * 32)
            assert refused.value.name == "no-such-value"

    assert serving(tmp_path, as_launcher, look).vault.asked == []


# ── the server's own checks ──────────────────────────────────────────────────────────────────────────────────────────


def test_only_the_kernels_own_socket_is_asked(tmp_path: Path, as_launcher: Launcher) -> None:
    """Another process of the user that listens in the kernel's place, or a link to its socket, gets no question."""

    def look(session: Session) -> None:
        session.card(SECRET).close()
        with pytest.raises(LinkRefused, match="not the kernel's"):
            Link.open_card(str(session.runtime), SECRET, os.getpid() + 1)
        (session.runtime / SOCKET_NAME).rename(session.runtime / "moved")
        (session.runtime / SOCKET_NAME).symlink_to("moved")
        with socket.socket(socket.AF_UNIX) as plain:
            plain.connect(str(session.runtime / SOCKET_NAME))  # without the check the link would be followed
        with pytest.raises(LinkRefused, match="not a socket"):
            session.card(SECRET)
        other = session.runtime.parent / "linked"
        other.symlink_to(session.runtime)
        with pytest.raises(OSError, match="Not a directory"):
            Link.open_card(str(other), SECRET, os.getpid())

    serving(tmp_path, as_launcher, look)
