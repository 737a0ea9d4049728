"""A broker over a real directory with nothing behind it, for properties of files: effects as a worker asks for them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, cast

from capkernel.api.errors import exception_from
from capkernel.broker.audit import AuditLog
from capkernel.broker.broker import Broker
from capkernel.broker.ports import VaultPort
from capkernel.policy import Exclusions, default_policy
from capkernel.wire.plan import Plan, ScopeSite, Span
from capkernel.wire.worker import Call, CloseScope, Invoke, OpenScope

_ANY = Plan((ScopeSite("file_system", None, 1, Span(1, 0, 1, 0)),), ("write_classified",))


Tree = dict[str, bytes | None]


def tree(base: Path) -> Tree:
    """All below a directory: the content of a file, where a link leads, None for a folder."""
    found: Tree = {}
    for folder, folders, files in os.walk(base):
        for name in (*folders, *files):
            path = Path(folder, name)
            found[str(path.relative_to(base))] = (
                os.fsencode(os.readlink(path)) if path.is_symlink() else path.read_bytes() if path.is_file() else None
            )
    return found


class _NoVault:
    """No property here makes a secret."""


class FileBroker:
    """One session. `ask` raises what the cell would see."""

    def __init__(self, base: Path, audit: Path) -> None:
        self._loop = asyncio.new_event_loop()
        log = AuditLog.open_ambient("properties", audit)
        self._broker = Broker(default_policy(base), base, cast("VaultPort", _NoVault()), log, Exclusions([]))
        self._cell = 0

    def begin_cell(self) -> None:
        self._cell += 1
        self._broker.open_cell(self._cell, _ANY)

    def end_cell(self) -> None:
        self._broker.close_cell()

    def ask(self, effect: OpenScope | CloseScope | Invoke, blob: bytes = b"") -> Any:
        """The value of the answer, or its bytes when it has none."""
        answer, out = self._loop.run_until_complete(self._broker.call(Call(1, effect), blob))
        if answer.error is not None:
            raise exception_from(answer.error)
        return out if answer.value is None else answer.value

    def do(self, view: str, path: str, method: str, blob: bytes = b"") -> Any:
        """A method of the entry at `path` of a file system."""
        entry, _name = self.ask(Invoke(view, "access", path))
        return self.ask(Invoke(entry, method), blob)

    def close(self) -> None:
        self._loop.run_until_complete(self._broker.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
