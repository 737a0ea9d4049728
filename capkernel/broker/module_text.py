"""Modules beside the notebook: their text, read for the checker before a cell runs.

Rule 1: one is read under the policy and the audit like a file that the cell itself reads.
Rule 2: nobody waits for the person here: what would have to be asked is not read.
"""

from __future__ import annotations

from capkernel.broker.asking import NeedsPerson
from capkernel.broker.audit import AuditLog
from capkernel.broker.failures import EffectError
from capkernel.broker.files import FileEffects


class ModuleText:
    """Of one session."""

    def __init__(self, files: FileEffects, audit: AuditLog) -> None:
        self._files = files
        self._audit = audit

    def read(self, path: str, cell: int) -> bytes | None:
        """Blocks. The text at `path`, relative to the notebook's directory; None when there is none that may be read.
        Raises AuditUnavailable."""
        try:
            scope = self._files.open_scope(".", cell)
            try:
                file = self._files.access(scope, path, cell)
                return self._files.read(file, cell) if self._files.exists(file, cell) else None
            finally:
                scope.end()
        except NeedsPerson as needed:
            self._unasked(needed, cell)
            return None
        except (EffectError, OSError):
            return None

    def _unasked(self, needed: NeedsPerson, cell: int) -> None:
        reason = "the person would have to be asked, and a module is read before a cell runs"
        self._audit.record(needed.ask.kind, "denied", cell=cell, path=needed.ask.subject[0], reason=reason)
