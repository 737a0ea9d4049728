"""A keeper without its processes: the test plays the kernel, the runner and the person's viewer."""

from __future__ import annotations

from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from capkernel.vault.keeper import Keeper
from capkernel.vault.seal import unseal
from capkernel.wire.plan import CodeKey
from capkernel.wire.shown import Shown, from_json
from capkernel.wire.values import encode
from capkernel.wire.vault import (
    Begin,
    Count,
    Describe,
    Described,
    FunctionBundle,
    Job,
    KeeperMessage,
    Limits,
    Map,
    Piece,
    Put,
    Reveal,
    Revealed,
    Status,
)

KEY = X25519PrivateKey.generate()  # of the viewer
PUBLIC = KEY.public_key().public_bytes_raw()
BUNDLE = FunctionBundle(CodeKey(1, 1, "<lambda>", (1, 0, 1, 5)))
NOTHING_CAPTURED = encode({"globals": {}, "closure": {}})


class PlayedKeeper:
    """What it told the kernel, and the jobs it started, which end when the test says so (`keeper.job_done`)."""

    def __init__(self, limits: Limits | None = None, *, runner: bool = True) -> None:
        """runner: whether one is there and takes jobs."""
        self.told: list[Any] = []
        self.jobs: list[tuple[Job, list[tuple[Piece, bytes]]]] = []
        self.runner = runner
        self.keeper = Keeper(tell=self.told.append, start=self._start)
        self.send(Begin(limits or Limits()))

    def _start(self, job: Job, pieces: list[tuple[Piece, bytes]]) -> bool:
        if self.runner:
            self.jobs.append((job, pieces))
        return self.runner

    def send(self, message: KeeperMessage, blob: bytes = b"", descriptor: int | None = None) -> None:
        self.keeper.accept(message, blob, descriptor)

    def put(self, handle: str, value: object, origin: str = "", label: str = "") -> None:
        self.send(Put(handle, origin, label), encode(value))

    def map(self, new: str, source: str, captured: bytes = NOTHING_CAPTURED) -> None:
        self.send(Map(new, source, BUNDLE), captured)

    def reveal(self, handle: str, key: bytes = PUBLIC) -> None:
        self.send(Reveal(5, handle, key))

    def shown(self, handle: str) -> Shown:
        """The last answer, to `reveal`, opened."""
        answer = self.told.pop()
        assert isinstance(answer, Revealed)
        assert answer.ticket == 5
        return from_json(unseal(answer.sealed, KEY, handle))

    def described(self, handle: str) -> Described:
        self.send(Describe(7, handle))
        answer = self.told.pop()
        assert isinstance(answer, Described)
        return answer

    def status(self) -> Status:
        self.send(Count(7))
        answer = self.told.pop()
        assert isinstance(answer, Status)
        return answer
