"""What the running cell is granted: scopes, and the handles within them.

Rule 1: authority = policy ∩ plan ∩ now. A scope is opened only when the running cell's plan lists it and the policy
allows it, and in it nothing is done that the plan does not list for it.
Rule 2: a grant ends with its block, and with its cell. What holds a descriptor is closed then, and at once when its
cell was over before there was a handle.
"""

from __future__ import annotations

from typing import Final

from capkernel.broker.audit import AuditLog
from capkernel.broker.failures import denied, revoked
from capkernel.broker.files import FileEffects
from capkernel.broker.handles import Grant, HandleTable
from capkernel.broker.ledger import MAX_TEXT
from capkernel.broker.opened import OpenFile
from capkernel.broker.places import FileHandle, FileScope
from capkernel.broker.running import Cell, Running
from capkernel.broker.threads import run_whole
from capkernel.wire.plan import VERB_OF_METHOD
from capkernel.wire.worker import Invoke, OpenScope

MAX_HELD: Final = 100  # grants that are told to the person one by one
_CHANGES: Final = frozenset(("write", "write_classified"))

Target = FileScope | FileHandle | OpenFile


class Scopes:
    """The grants of one session. Thread-safe where `HandleTable` is."""

    def __init__(self, running: Running, files: FileEffects, audit: AuditLog) -> None:
        self._running = running
        self._files = files
        self._audit = audit
        self._table: HandleTable[Target] = HandleTable()

    def begin(self, cell: int) -> None:
        """From now on this cell holds handles, and no other."""
        self._table.begin(cell)

    def end(self) -> None:
        """No cell runs any more: everything is revoked."""
        _end(self._table.end())

    async def open(self, effect: OpenScope, cell: Cell) -> str:
        """The handle of a new scope. Raises EffectError, OSError, AuditUnavailable, as all do."""
        if not any(site.kind == effect.kind and site.argument in (None, effect.argument) for site in cell.plan.scopes):
            reason = "the plan of the running cell does not list this request"
            self._audit.record("scope.open", "denied", cell=cell.number, path=effect.argument, reason=reason)
            raise denied(f"{reason}; write it in the cell as `with request_file_system(...)`")
        if effect.kind != "file_system":
            raise denied("this kind of capability is not available")
        scope = await run_whole(lambda: self._files.open_scope(effect.argument, cell.number))
        try:
            self._running.require(cell)
            return self._table.mint_scope(scope)
        except BaseException:
            scope.end()
            raise

    def close(self, scope: str) -> None:
        """End a scope and everything in it. Nothing when it has ended already."""
        _end(self._table.revoke_scope(scope))

    def find(self, handle: str) -> Grant[Target]:
        """What a handle designates for the cell that runs now."""
        return self._table.find(handle)

    def find_for(self, handle: str, cell: Cell) -> Grant[Target]:
        """What a handle designates for this cell, which may be over by now."""
        grant = self._table.find(handle)
        if grant.cell != cell.number:
            raise revoked()
        return grant

    def path_of(self, effect: Invoke) -> str:
        """The path that an effect is about, as the cell wrote it."""
        target = self._table.find(effect.handle).target
        return effect.path if isinstance(target, FileScope) else target.path

    def require_listed(self, file: FileHandle, method: str, cell: Cell) -> None:
        """Refuse what the plan of the cell does not list for this scope. A method that is none is told apart later."""
        verb = VERB_OF_METHOD.get(method)
        if verb is None:
            return
        if verb in _CHANGES and not file.scope.writable:
            reason = "this is a view of the files for reading alone (read_only())"
            self._audit.record(f"files.{method}", "denied", cell=cell.number, path=file.planned, reason=reason)
            raise denied(reason)
        for site in cell.plan.scopes:
            if site.kind != "file_system" or site.argument not in (None, file.scope.argument):
                continue
            if site.uses is None:
                return
            if any(use.verb == verb and (use.paths is None or file.planned in use.paths) for use in site.uses):
                return
        what = verb.replace("_", " ")
        reason = f"the plan of the running cell does not list {what} for this path"
        self._audit.record(f"files.{method}", "denied", cell=cell.number, path=file.planned, reason=reason)
        raise denied(
            f"{reason}; do it in the block, by the methods of FileSystem and FileEntry, so that it can be seen"
        )

    def mint(self, scope: str, file: FileHandle, cell: Cell) -> str:
        """A handle for a file of a scope: the same for the same path."""
        self._running.require(cell)
        known = file.scope.minted.get(file.path)  # two threads may both mint: two handles of one file, both listed
        if known is None:
            known = file.scope.minted[file.path] = self._table.mint(scope, file)
        return known

    def keep(self, scope: str, target: FileScope | OpenFile, cell: Cell) -> str:
        """A handle for what holds a descriptor, which is closed when there can be none."""
        try:
            self._running.require(cell)
            return self._table.mint(scope, target)
        except BaseException:
            target.end()
            raise

    def close_file(self, handle: str, file: OpenFile) -> None:
        """End the handle of an open file before its scope does. Nothing when it has ended already."""
        for closed in self._table.revoke(handle):
            _end([closed])
            file.scope.open_files -= 1

    def words(self) -> tuple[str, ...]:
        """For the person: what is open now."""
        targets = self._table.targets(MAX_HELD)
        said = [_folder_words(target) for target in targets if isinstance(target, FileScope)]
        files = sum(not isinstance(target, FileScope) for target in targets)
        if files:
            said.append(f"{files} of its files" if files > 1 else "one of its files")
        return tuple(said)

    def __len__(self) -> int:
        """How many handles the running cell holds."""
        return len(self._table)


def _end(targets: list[Target]) -> None:
    for target in targets:
        if not isinstance(target, FileHandle):
            target.end()


def _folder_words(scope: FileScope) -> str:
    where = scope.argument if scope.prefix == "." else f"{scope.argument.rstrip('/')}/{scope.prefix}"
    return f"the folder {where[:MAX_TEXT]}{'' if scope.writable else ' (to read)'}"
