"""Operations on Classified values that a worker posts: `classify`, `map`, `zip`, and what it shows and lets go.

Rule 1: nothing comes back, so no answer can depend on a value. What is refused leaves a handle that is poison.
Rule 2: a function, a source and a type are looked up among what accepted cells have; the worker's word is none.
Rule 3: a value is let go of only while nothing under way may ask for it.
"""

from __future__ import annotations

import logging

from capkernel.broker.audit import AuditLog, AuditUnavailable
from capkernel.broker.captured import require_types
from capkernel.broker.classified_files import ClassifiedFiles
from capkernel.broker.classified_handles import ClassifiedHandles
from capkernel.broker.functions import NOTHING, FunctionRegistry
from capkernel.broker.ledger import Ledger
from capkernel.broker.ports import VaultPort
from capkernel.broker.running import Cell, Running
from capkernel.broker.secure_output import SecureOutput
from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.plan import Plan
from capkernel.wire.types import Mismatch
from capkernel.wire.worker import MAX_DROPPED, Classify, Dropped, MapClassified, MaskShown, Post, ZipClassified

_log = logging.getLogger(__name__)

_Making = Classify | MapClassified | ZipClassified


class ClassifiedPosts:
    """Of one session. On the event loop; nothing blocks."""

    def __init__(
        self,
        running: Running,
        vault: VaultPort,
        audit: AuditLog,
        handles: ClassifiedHandles,
        ledger: Ledger,
        sink: ClassifiedFiles,
    ) -> None:
        self._running = running
        self._vault = vault
        self._audit = audit
        self._handles = handles
        self._ledger = ledger
        self._sink = sink
        self._functions = FunctionRegistry()
        self._dropped: list[tuple[str, bool]] = []  # values that are still to be released
        self.secure_output: SecureOutput | None = None  # set before the first cell

    def begin_cell(self, plan: Plan) -> None:
        """An accepted cell starts: from now on its functions may be named."""
        self._functions.accept(plan)
        if self.secure_output is not None:
            self.secure_output.begin_cell()

    async def settle(self, seconds: float) -> None:
        """Give what the person is still to see so long."""
        if self.secure_output is not None:
            await self.secure_output.settle(seconds)

    def post(self, message: Post, blob: bytes) -> None:
        """Act on one. Raises RemoteProtocolError for what only a broken worker sends."""
        cell = self._running.cell
        if isinstance(message, MaskShown):
            self._handles.show(message.handle)
            if self.secure_output is not None and cell is not None and self._handles.knows(message.handle):
                self.secure_output.shown(message.handle, cell.number)
            return
        if isinstance(message, Dropped):
            self._drop(message.handles)
            return
        if not self._handles.accept(message.new):
            self._refuse(message, cell, "the handle is malformed, was used before, or is one too many")
            return  # not poison: the handle may be that of a sound value
        if cell is None:
            self._refuse(message, cell, "no cell is running")
            self._spoil(message.new, "no cell was running")
            return
        try:
            self._audit.record(f"classified.{_kind(message)}", "allowed", cell=cell.number)
        except AuditUnavailable as problem:
            self._spoil(message.new, str(problem))
            return
        try:
            self._hand_over(message, blob, cell)
        except Exception as problem:  # nothing may reach the worker, so nothing may stop the kernel either
            reason = f"a captured value: {problem}" if isinstance(problem, Mismatch) else type(problem).__name__
            self._refuse(message, cell, reason)
            self._spoil(message.new, reason)

    def worker_lost(self) -> None:
        """The worker ended, and with it every name of a classified value."""
        known = self._handles.known()
        for start in range(0, len(known), MAX_DROPPED):
            self._drop(tuple(known[start : start + MAX_DROPPED]))

    def _hand_over(self, message: _Making, blob: bytes, cell: Cell) -> None:
        # The ledger first: what is refused has a line in the person's list as well, and says there why.
        if isinstance(message, Classify):
            self._ledger.classified(message.new, cell.number, message.label, blob, _static(message, cell), cell.plan)
            self._vault.put(message.new, blob, f"cell:{cell.number}", message.label[:200])
        elif isinstance(message, ZipClassified):
            self._ledger.zipped(
                message.new, cell.number, message.left, message.right, _static(message, cell), cell.plan
            )
            if self._handles.knows(message.left) and self._handles.knows(message.right):
                self._vault.zip(message.new, message.left, message.right)
            else:
                self._spoil(message.new, "one of the two is no value of this session")
        else:
            bundle = self._functions.bundle(message.function)
            self._ledger.mapped(
                message.new, cell.number, cell.plan, bundle, message.source, blob, _static(message, cell),
                flat=message.flat,
            )  # fmt: skip
            if bundle is NOTHING or not self._handles.knows(message.source):
                reason = "the function or the source is not of an accepted cell"
                self._refuse(message, cell, reason)
                self._spoil(message.new, reason)
            else:
                if bundle.functions:
                    require_types(bundle, blob)
                self._vault.map(message.new, message.source, bundle, blob, message.flat)

    def _drop(self, handles: tuple[str, ...]) -> None:
        if len(handles) > MAX_DROPPED:
            raise RemoteProtocolError("more values dropped at once than one message may name")
        self._dropped += self._handles.drop(handles)
        # An effect, a write or an entry of the secure output that is under way may ask for its value yet.
        if not self._running.effects and self._sink.idle and (self.secure_output is None or self.secure_output.idle):
            gone, self._dropped = self._dropped, []
            for start in range(0, len(gone), MAX_DROPPED):
                part = gone[start : start + MAX_DROPPED]
                self._vault.drop(tuple(handle for handle, _ in part), tuple(shown for _, shown in part))

    def _spoil(self, handle: str, reason: str) -> None:
        try:
            self._vault.spoil(handle, reason)
        except Exception as problem:  # then the vault never hears of the handle, which is poison as well
            _log.warning("a classified operation was dropped: %s", type(problem).__name__)

    def _refuse(self, message: _Making, cell: Cell | None, reason: str) -> None:
        number = None if cell is None else cell.number
        try:
            self._audit.record(f"classified.{_kind(message)}", "denied", cell=number, reason=reason)
        except AuditUnavailable as problem:
            _log.error("%s", problem)


def _kind(message: _Making) -> str:
    return {Classify: "classify", MapClassified: "map", ZipClassified: "zip"}[type(message)]


def _static(message: _Making, cell: Cell) -> str:
    """The type of the new value that the worker found, if it is one that the checker gave to a value of this cell."""
    return message.mask if any(site.type == message.mask for site in cell.plan.masks) else ""
