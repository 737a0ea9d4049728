"""Files that become classified values, and classified values that become files.

Rule 1: the content never passes through this process: the vault is handed descriptors.
Rule 2: the answer is a handle, or that a write was taken; neither depends on a value.
"""

from __future__ import annotations

import logging
import os
from typing import Literal

from capkernel.broker.classified_files import ClassifiedFiles
from capkernel.broker.classified_handles import ClassifiedHandles
from capkernel.broker.failures import denied
from capkernel.broker.files import FileEffects
from capkernel.broker.ledger import Ledger
from capkernel.broker.places import FileHandle
from capkernel.broker.ports import VaultPort
from capkernel.broker.running import Cell
from capkernel.broker.threads import run_whole

_log = logging.getLogger(__name__)


class ClassifiedEffects:
    """`read_classified`, `read_classified_bytes` and `write_classified` of a file. On the event loop."""

    def __init__(
        self, files: FileEffects, sink: ClassifiedFiles, handles: ClassifiedHandles, vault: VaultPort, ledger: Ledger
    ) -> None:
        self._files = files
        self._sink = sink
        self._handles = handles
        self._vault = vault
        self._ledger = ledger

    async def read(self, file: FileHandle, cell: Cell, *, text: bool) -> str:
        """The handle of the content, as str or as bytes. Raises EffectError, OSError, AuditUnavailable."""
        fd, origin = await run_whole(lambda: self._files.open_for_vault(file, cell.number))
        try:
            handle = self._handles.mint()
            kind: Literal["str", "bytes"] = "str" if text else "bytes"
            try:
                if fd is None:
                    self._vault.spoil(handle, "there is no such file", origin, text=text)
                else:
                    self._vault.fill(handle, fd, kind, origin)
            except Exception as problem:
                _log.warning("a classified read was refused by the vault: %s", type(problem).__name__)
                raise denied("this session has made as many classified values as it may: restart it") from None
            self._ledger.read(handle, cell.number, origin, text=text, plan=cell.plan)
            return handle
        finally:
            if fd is not None:
                os.close(fd)

    async def write(self, file: FileHandle, secret: str, cell: Cell) -> None:
        """The name is taken now, the content follows. Raises as `read`."""
        self._handles.require(secret)
        self._sink.count()
        sinks = cell.plan.sinks
        reservation = await run_whole(lambda: self._files.reserve_classified(file, self._sink, sinks, cell.number))
        if reservation is not None:
            self._sink.start(reservation, secret)
