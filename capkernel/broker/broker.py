"""The broker: may this effect happen, and do it.

Rule 1: authority = policy ∩ plan ∩ now. A scope is opened only when the running cell's plan lists it and the policy
allows it, and in it nothing is done that the plan does not list for it; nothing is granted or done while no cell runs;
what a cell was granted ends with it.
Rule 2: no word of the worker is trusted. Handles, methods and paths are looked up; what is wrong with them becomes a
Failure, or, for what has no answer, poison.
Rule 3: no answer depends on a classified value, but one that the person released. Operations on Classified handles are
posts.
Rule 4: an effect that waits for the person holds nothing meanwhile: it is judged anew when it was allowed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from capkernel.broker.approvals import Approvals, Granted
from capkernel.broker.asking import Asking, NeedsPerson
from capkernel.broker.audit import AuditLog, AuditUnavailable
from capkernel.broker.captured import require_types
from capkernel.broker.classified_files import LIMIT_BYTES, ClassifiedFiles
from capkernel.broker.classified_handles import ClassifiedHandles
from capkernel.broker.failures import EffectError, denied, revoked
from capkernel.broker.files import FileEffects, in_words_of_cell
from capkernel.broker.functions import NOTHING, FunctionRegistry
from capkernel.broker.handles import HandleTable
from capkernel.broker.identity import ClassifiedIndex
from capkernel.broker.ledger import MAX_TEXT, Ledger
from capkernel.broker.opened import MAX_OPEN, PIECE, OpenFile
from capkernel.broker.person import PersonEffects
from capkernel.broker.places import FileHandle, FileScope, Places
from capkernel.broker.ports import VaultPort
from capkernel.broker.room import SECRET_BYTES, Room
from capkernel.broker.secure_output import SecureOutput
from capkernel.broker.threads import in_background, run_whole
from capkernel.policy.decision import AskPerson, Denied
from capkernel.policy.excluded import Exclusions
from capkernel.policy.model import Policy
from capkernel.policy.paths import PathRules
from capkernel.wire.authority import authority_line
from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.plan import VERB_OF_METHOD, Plan
from capkernel.wire.types import Mismatch
from capkernel.wire.worker import (
    MAX_DROPPED,
    QUICK_METHODS,
    AskRelease,
    AskSecret,
    Call,
    CallResult,
    Classify,
    CloseScope,
    Dropped,
    Failure,
    Invoke,
    MapClassified,
    MaskShown,
    OpenScope,
    Post,
    ZipClassified,
)

PARALLEL_EFFECTS: Final = 4  # of one cell
MAX_WAITING: Final = 64  # of one cell
MAX_RUNNING: Final = 32  # of the session: effects of earlier cells may still hang in a file system
SETTLE_SECONDS: Final = 5.0
GIVE_UP_SECONDS: Final = 1.0
NO_SECRETS: Final[Mapping[str, int]] = MappingProxyType({})

MAX_HELD: Final = 100  # grants that are told to the person one by one

_log = logging.getLogger(__name__)
_METHOD = re.compile(r"[a-z_]{1,40}")

Target = FileScope | FileHandle | OpenFile
_CHANGES: Final = frozenset(("write", "write_classified"))


@dataclass(eq=False)
class _Cell:
    number: int
    plan: Plan
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PARALLEL_EFFECTS))
    waiting: int = 0


class Broker:
    """The effects of one session. All methods but `call_quickly` are called on one event loop; the effects themselves
    run in threads."""

    def __init__(
        self,
        policy: Policy,
        base_dir: Path,
        vault: VaultPort,
        audit: AuditLog,
        exclusions: Exclusions | None = None,
        room: Room | None = None,
        given: Mapping[str, int] = NO_SECRETS,
    ) -> None:
        """base_dir: the notebook's directory. exclusions: `Exclusions.ambient(policy.source)` unless given. room: of a
        root in memory, which is the only one then. given: see `PersonEffects`."""
        rules = PathRules(policy)
        excluded = Exclusions.ambient(policy.source) if exclusions is None else exclusions
        self._index = ClassifiedIndex(rules, lambda: [os.path.realpath(root) for root in policy.root_paths()])
        self._places = Places(rules, excluded, self._index, hide_names=policy.files.hide_classified_names)
        self._asking = asking = Asking(policy.approvals.ask)
        self._files = FileEffects(policy, os.path.realpath(base_dir), rules, self._places, audit, asking, room)
        self._sink = ClassifiedFiles(policy, vault, audit, asking, LIMIT_BYTES if room is None else SECRET_BYTES)
        self._vault = vault
        self._audit = audit
        self._table: HandleTable[Target] = HandleTable()
        self._functions = FunctionRegistry()
        self._secrets = ClassifiedHandles()
        self.ledger = Ledger()
        self.approvals = Approvals(audit, vault, policy.limits.approval_seconds)
        self._person = PersonEffects(policy, vault, audit, self.approvals, self._secrets, self.ledger, given)
        self.secure_output: SecureOutput | None = None  # set before the first cell
        self.at_end: list[Callable[[], None]] = []  # blocking steps of `close`
        self._cell: _Cell | None = None
        self._dropped: list[tuple[str, bool]] = []  # values that are still to be released
        self._running = 0  # effects that are being done, of whatever cell
        self._methods: dict[str, Callable[[FileHandle, _Cell, bytes], tuple[Any, bytes]]] = {
            "exists": lambda file, cell, _: (self._files.exists(file, cell.number), b""),
            "is_directory": lambda file, cell, _: (self._files.is_directory(file, cell.number), b""),
            "is_classified": lambda file, cell, _: (self._files.is_classified(file, cell.number), b""),
            "size": lambda file, cell, _: (self._files.size(file, cell.number), b""),
            "read_bytes": lambda file, cell, _: (None, self._files.read(file, cell.number)),
            "write": self._write,
            "append": self._append,
            "mkdir": self._mkdir,
            "create": self._create,
            "may_write": self._may_write,
            "may_create": self._may_create,
            "delete": self._delete,
            "files": self._files_below,
        }

    # ── the running cell ─────────────────────────────────────────────────────────────────────────────────────────────

    def open_cell(self, cell: int, plan: Plan) -> None:
        """An accepted cell starts: it may do what `plan` lists, as far as the policy allows."""
        self.close_cell()
        self._functions.accept(plan)
        self._sink.begin_cell()
        if self.secure_output is not None:
            self.secure_output.begin_cell()
        self._index.begin_cell()
        self._asking.begin_cell()
        self._places.begin_cell()
        self._table.begin(cell)
        self._cell = _Cell(cell, plan)
        try:
            self._audit.record("cell", "allowed", cell=cell, authority=authority_line(plan))
        except AuditUnavailable as problem:
            _log.error("%s", problem)  # every effect is refused now

    def refuse_cell(self, cell: int, codes: tuple[str, ...]) -> None:
        """A cell that does not run, and the codes of the diagnostics that say why."""
        try:
            self._audit.record("cell", "denied", cell=cell, reason=", ".join(codes))
        except AuditUnavailable as problem:
            _log.error("%s", problem)

    def close_cell(self) -> None:
        """The cell is over, however it ended: everything that it was granted is revoked."""
        if self._cell is None:
            return
        ended, self._cell = self._cell, None
        _end(self._table.end())
        self.approvals.end_cell(ended.number)
        in_background(self._sync)  # a slow disk must not hold the loop

    def _sync(self) -> None:
        try:
            self._audit.sync()
        except AuditUnavailable as problem:
            _log.error("%s", problem)  # the log has closed itself: every later effect is refused

    async def close(self) -> None:
        """End the session: revoke, give classified writes under way SETTLE_SECONDS to finish, close the audit. What
        hangs is left behind."""
        self.close_cell()
        self.approvals.close()
        waiting = [self._sink.settle(SETTLE_SECONDS, GIVE_UP_SECONDS)]
        if self.secure_output is not None:
            waiting.append(self.secure_output.settle(SETTLE_SECONDS))
        await asyncio.gather(*waiting)
        closing = [asyncio.ensure_future(run_whole(step)) for step in (self._audit.close, *self.at_end)]
        await asyncio.wait(closing, timeout=GIVE_UP_SECONDS)

    def live(self) -> tuple[int | None, tuple[str, ...], int]:
        """For the person: the running cell or None, what its plan lets it ask for, how many handles it holds now."""
        cell = self._cell
        if cell is None:
            return None, (), 0
        asks = tuple(f"{site.kind} {'(any)' if site.argument is None else site.argument}" for site in cell.plan.scopes)
        person = dict.fromkeys(f"{site.kind} {site.argument or '(any)'}" for site in cell.plan.asks)
        return cell.number, (*asks, *cell.plan.sinks, *person), len(self._table)

    def authority(self) -> tuple[str, tuple[str, ...]]:
        """For the person: the line that says what the running cell may do, and what it has open now, in words."""
        cell = self._cell
        if cell is None:
            return "", ()
        targets = self._table.targets(MAX_HELD)
        scopes = [target for target in targets if isinstance(target, FileScope)]
        said = [_folder_words(scope) for scope in scopes]
        files = sum(not isinstance(target, FileScope) for target in targets)
        if files:
            said.append(f"{files} of its files" if files > 1 else "one of its files")
        return authority_line(cell.plan), tuple(said)

    async def read_module(self, path: str, cell: int) -> bytes | None:
        """A module beside the notebook, for the checker to judge: the text at `path`, relative to the notebook's
        directory, when the policy lets a cell read it; else None. Audited like a cell's read."""
        return await run_whole(lambda: self._module_text(path, cell))

    def _module_text(self, path: str, cell: int) -> bytes | None:
        try:
            scope = self._files.open_scope(".", cell)
        except NeedsPerson as needed:
            self._unasked(needed, cell)
            return None
        except (EffectError, OSError):
            return None
        try:
            file = self._files.access(scope, path, cell)
            return self._files.read(file, cell) if self._files.exists(file, cell) else None
        except NeedsPerson as needed:
            self._unasked(needed, cell)
            return None
        except (EffectError, OSError):
            return None
        finally:
            scope.end()

    def _unasked(self, needed: NeedsPerson, cell: int) -> None:
        reason = "the person would have to be asked, and a module is read before a cell runs"
        self._audit.record(needed.ask.kind, "denied", cell=cell, path=needed.ask.subject[0], reason=reason)

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def call(self, message: Call, blob: bytes) -> tuple[CallResult, bytes]:
        """Perform an effect for the worker. What is wrong with it is a Failure in the result, never an exception."""
        path = ""
        try:
            effect = message.effect
            if isinstance(effect, CloseScope):
                # Also after the cell, and twice: closing only takes away.
                _end(self._table.revoke_scope(effect.handle))
                return CallResult(message.call), b""
            cell = self._cell
            if cell is None and isinstance(effect, OpenScope):
                raise denied(
                    "no cell is running, and a callback, a thread or a task between cells is granted nothing: ask in a "
                    "cell, and let the callback use the plain data"
                )
            if cell is None:
                raise revoked("no cell is running, so this")
            if cell.waiting >= MAX_WAITING:
                raise denied(f"more than {MAX_WAITING} effects at once: wait for some of them")
            cell.waiting += 1
            try:
                if isinstance(effect, AskSecret | AskRelease):
                    value, out = await self._given_by_person(effect, cell)
                else:
                    path = effect.argument if isinstance(effect, OpenScope) else self._path_of(effect)
                    value, out = await self._decided(effect, cell, blob, path)
            finally:
                cell.waiting -= 1
            return CallResult(message.call, value), out
        except Exception as problem:
            return CallResult(message.call, None, _failure(problem, path)), b""

    def call_quickly(self, call: int, effect: Invoke) -> tuple[CallResult, bytes]:
        """`call` for an effect of QUICK_METHODS, done in the thread that asks: of each worker, one at a time."""
        path = ""
        try:
            cell = self._cell
            if cell is None:
                raise revoked("no cell is running, so this")
            path = self._path_of(effect)
            value, out = self._invoke_quickly(effect, cell)
            return CallResult(call, value), out
        except NeedsPerson:
            return CallResult(call, elsewhere=True), b""  # this thread must not wait for anybody
        except Exception as problem:
            return CallResult(call, None, _failure(problem, path)), b""

    async def _given_by_person(self, effect: AskSecret | AskRelease, cell: _Cell) -> tuple[Any, bytes]:
        def ask(question: AskPerson) -> Awaitable[Granted | Denied]:
            return self._ask(question, cell)

        if isinstance(effect, AskSecret):
            answer: tuple[Any, bytes] = await self._person.secret(effect, cell.number, cell.plan, ask), b""
        else:
            answer = None, await self._person.release(effect, cell.number, cell.plan, ask)
        if self._cell is not cell:
            raise revoked()
        return answer

    async def _ask(self, question: AskPerson, cell: _Cell) -> Granted | Denied:
        """Ask the person for a cell that runs: its end takes its questions along, and then there are no more."""
        if self._cell is not cell:
            raise revoked()
        return await self.approvals.ask(question, cell.number)

    async def _decided(self, effect: OpenScope | Invoke, cell: _Cell, blob: bytes, path: str) -> tuple[Any, bytes]:
        """Do the effect, and ask the person first when the policy says so: once more whenever it is another one by the
        time it was allowed. path: as the cell wrote it."""
        while True:
            try:
                async with cell.slots:
                    return await self._perform(effect, cell, blob)
            except NeedsPerson as needed:
                question = needed.ask
            answer = await self._ask(replace(question, about=path), cell)
            if isinstance(answer, Denied):
                raise denied(f"{question.kind} {path}: {answer.reason}")
            if self._cell is not cell:
                raise revoked()
            self._asking.allow(cell.number, question)

    async def _perform(self, effect: OpenScope | Invoke, cell: _Cell, blob: bytes) -> tuple[Any, bytes]:
        if self._cell is not cell:
            raise revoked()  # it ended while this waited
        if self._running >= MAX_RUNNING:
            raise denied(f"{MAX_RUNNING} effects of earlier cells have not ended: the file system hangs")
        self._running += 1
        try:
            if isinstance(effect, OpenScope):
                return await self._open_scope(effect, cell)
            return await self._invoke(effect, cell, blob)
        finally:
            self._running -= 1

    async def _open_scope(self, effect: OpenScope, cell: _Cell) -> tuple[Any, bytes]:
        if not any(site.kind == effect.kind and site.argument in (None, effect.argument) for site in cell.plan.scopes):
            reason = "the plan of the running cell does not list this request"
            self._audit.record("scope.open", "denied", cell=cell.number, path=effect.argument, reason=reason)
            raise denied(f"{reason}; write it in the cell as `with request_file_system(...)`")
        if effect.kind != "file_system":
            raise denied("this kind of capability is not available")
        scope = await run_whole(lambda: self._files.open_scope(effect.argument, cell.number))
        try:
            if self._cell is not cell:
                raise revoked()
            return self._table.mint_scope(scope), b""
        except BaseException:
            scope.end()
            raise

    def _invoke_quickly(self, effect: Invoke, cell: _Cell) -> tuple[Any, bytes]:
        """Blocks. An effect of QUICK_METHODS on a directory's scope or a file of it."""
        grant = self._table.find(effect.handle)
        if grant.cell != cell.number:
            raise revoked()
        target = grant.target
        if isinstance(target, OpenFile):
            raise _no_method("file", effect.method)
        if isinstance(target, FileScope):
            if effect.method != "access":
                raise _no_method("FileSystem", effect.method)
            file = self._files.access(target, effect.path, cell.number)
            return [self._mint(grant.scope, file, cell), file.path], b""
        self._require_listed(target, effect.method, cell)
        perform = self._methods.get(effect.method)
        if perform is None:
            raise _no_method("FileEntry", effect.method)
        return perform(target, cell, b"")

    async def _invoke(self, effect: Invoke, cell: _Cell, blob: bytes) -> tuple[Any, bytes]:
        if effect.method in QUICK_METHODS:
            return await run_whole(lambda: self._invoke_quickly(effect, cell))
        grant = self._table.find(effect.handle)
        target = grant.target
        if isinstance(target, OpenFile):
            return await self._read_on(target, effect)
        if isinstance(target, FileScope):
            if effect.method in ("read_only", "subtree"):
                return await self._attenuate(grant.scope, target, effect, cell), b""
            raise _no_method("FileSystem", effect.method)
        self._require_listed(target, effect.method, cell)
        if effect.method == "children":
            found = await run_whole(lambda: self._files.children(target, cell.number))
            files = [FileHandle(target.scope, path) for path in found]
            return [[self._mint(grant.scope, file, cell), file.path] for file in files], b""
        if effect.method == "walk":
            walked = await run_whole(lambda: self._files.walk(target, cell.number))
            files = [FileHandle(target.scope, path) for path in walked.paths]
            return [[self._mint(grant.scope, file, cell), file.path] for file in files], b""
        if effect.method == "open_read":
            return await self._open_to_read(grant.scope, target, cell)
        if effect.method == "read_many":
            return await run_whole(lambda: self._files.read_many(target, effect.paths, cell.number))
        if effect.method in ("read_classified", "read_classified_bytes"):
            return await self._read_classified(target, effect.method, cell), b""
        if effect.method == "write_classified":
            await self._write_classified(target, effect.secret, cell)
            return None, b""
        perform = self._methods.get(effect.method)
        if perform is None:
            raise _no_method("FileEntry", effect.method)
        return await run_whole(lambda: perform(target, cell, blob))

    def _require_listed(self, file: FileHandle, method: str, cell: _Cell) -> None:
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

    def _mint(self, scope: str, file: FileHandle, cell: _Cell) -> str:
        if self._cell is not cell:
            raise revoked()
        known = file.scope.minted.get(file.path)  # two threads may both mint: two handles of one file, both listed
        if known is None:
            known = file.scope.minted[file.path] = self._table.mint(scope, file)
        return known

    def _write(self, file: FileHandle, cell: _Cell, data: bytes) -> tuple[Any, bytes]:
        self._files.write(file, data, cell.number)
        return None, b""

    def _append(self, file: FileHandle, cell: _Cell, data: bytes) -> tuple[Any, bytes]:
        self._files.append(file, data, cell.number)
        return None, b""

    def _mkdir(self, file: FileHandle, cell: _Cell, _data: bytes) -> tuple[Any, bytes]:
        self._files.make_directory(file, cell.number)
        return None, b""

    def _create(self, file: FileHandle, cell: _Cell, data: bytes) -> tuple[Any, bytes]:
        self._files.create(file, data, cell.number)
        return None, b""

    def _may_write(self, file: FileHandle, cell: _Cell, _data: bytes) -> tuple[Any, bytes]:
        self._files.may_write(file, cell.number, new=False)
        return None, b""

    def _may_create(self, file: FileHandle, cell: _Cell, _data: bytes) -> tuple[Any, bytes]:
        self._files.may_write(file, cell.number, new=True)
        return None, b""

    def _delete(self, file: FileHandle, cell: _Cell, _data: bytes) -> tuple[Any, bytes]:
        self._files.delete(file, cell.number)
        return None, b""

    def _files_below(self, file: FileHandle, cell: _Cell, _data: bytes) -> tuple[Any, bytes]:
        walked = self._files.walk(file, cell.number)
        return [path for path in walked.paths if path not in walked.others], b""

    async def _attenuate(self, scope: str, target: FileScope, effect: Invoke, cell: _Cell) -> str:
        path = effect.path if effect.method == "subtree" else None
        made = await run_whole(lambda: self._files.attenuated(target, path=path, cell=cell.number))
        return self._keep(scope, made, cell)

    async def _open_to_read(self, scope: str, file: FileHandle, cell: _Cell) -> tuple[Any, bytes]:
        """The first piece, the size, and a handle for the rest unless that was all."""
        if file.scope.open_files >= MAX_OPEN:
            raise denied(f"more than {MAX_OPEN} files open at once: close some of them")
        opened = await run_whole(lambda: self._files.open_to_read(file, cell.number))
        try:
            piece = await run_whole(opened.piece)
        except BaseException:
            opened.end()
            raise
        if len(piece) < PIECE:
            opened.end()
            return ["", len(piece)], piece
        file.scope.open_files += 1
        return [self._keep(scope, opened, cell), opened.size], piece

    async def _read_on(self, file: OpenFile, effect: Invoke) -> tuple[Any, bytes]:
        if effect.method == "close":
            for closed in self._table.revoke(effect.handle):
                _end([closed])
                file.scope.open_files -= 1
            return None, b""
        if effect.method != "piece":
            raise _no_method("file", effect.method)
        return None, await run_whole(lambda: file.piece(effect.offset))

    def _keep(self, scope: str, target: FileScope | OpenFile, cell: _Cell) -> str:
        """A handle for what holds a descriptor, which is closed when there can be none."""
        try:
            if self._cell is not cell:
                raise revoked()
            return self._table.mint(scope, target)
        except BaseException:
            target.end()
            raise

    async def _read_classified(self, file: FileHandle, method: str, cell: _Cell) -> str:
        fd, origin = await run_whole(lambda: self._files.open_for_vault(file, cell.number))
        try:
            handle = self._secrets.mint()
            kind: Literal["str", "bytes"] = "str" if method == "read_classified" else "bytes"
            try:
                if fd is None:
                    self._vault.spoil(handle, "there is no such file", origin, text=kind == "str")
                else:
                    self._vault.fill(handle, fd, kind, origin)
            except Exception as problem:
                _log.warning("a classified read was refused by the vault: %s", type(problem).__name__)
                raise denied("this session has made as many classified values as it may: restart it") from None
            self.ledger.read(handle, cell.number, origin, text=method == "read_classified", plan=cell.plan)
            return handle
        finally:
            if fd is not None:
                os.close(fd)

    async def _write_classified(self, file: FileHandle, secret: str, cell: _Cell) -> None:
        self._secrets.require(secret)
        self._sink.count()
        sinks = cell.plan.sinks
        reservation = await run_whole(lambda: self._files.reserve_classified(file, self._sink, sinks, cell.number))
        if reservation is not None:
            self._sink.start(reservation, secret)

    def _path_of(self, effect: Invoke) -> str:
        target = self._table.find(effect.handle).target
        return effect.path if isinstance(target, FileScope) else target.path

    # ── posts ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def post(self, message: Post, blob: bytes) -> None:
        """An operation on Classified values. No answer: what is refused leaves a handle that is poison."""
        cell = self._cell
        if isinstance(message, MaskShown):
            self._secrets.show(message.handle)
            if self.secure_output is not None and cell is not None and self._secrets.knows(message.handle):
                self.secure_output.shown(message.handle, cell.number)
            return
        if isinstance(message, Dropped):
            self._drop(message.handles)
            return
        if not self._secrets.accept(message.new):
            self._refuse_post(message, cell, "the handle is malformed, was used before, or is one too many")
            return  # not poison: the handle may be that of a sound value
        if cell is None:
            self._refuse_post(message, cell, "no cell is running")
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
            self._refuse_post(message, cell, reason)
            self._spoil(message.new, reason)

    def _hand_over(self, message: Classify | MapClassified | ZipClassified, blob: bytes, cell: _Cell) -> None:
        # The ledger first: what is refused has a line in the person's list as well, and says there why.
        if isinstance(message, Classify):
            self.ledger.classified(message.new, cell.number, message.label, blob, _static(message, cell), cell.plan)
            self._vault.put(message.new, blob, f"cell:{cell.number}", message.label[:200])
        elif isinstance(message, ZipClassified):
            self.ledger.zipped(message.new, cell.number, message.left, message.right, _static(message, cell), cell.plan)
            if self._secrets.knows(message.left) and self._secrets.knows(message.right):
                self._vault.zip(message.new, message.left, message.right)
            else:
                self._spoil(message.new, "one of the two is no value of this session")
        else:
            bundle = self._functions.bundle(message.function)
            self.ledger.mapped(
                message.new, cell.number, cell.plan, bundle, message.source, blob, _static(message, cell),
                flat=message.flat,
            )  # fmt: skip
            if bundle is NOTHING or not self._secrets.knows(message.source):
                reason = "the function or the source is not of an accepted cell"
                self._refuse_post(message, cell, reason)
                self._spoil(message.new, reason)
            else:
                if bundle.functions:
                    require_types(bundle, blob)
                self._vault.map(message.new, message.source, bundle, blob, message.flat)

    def _drop(self, handles: tuple[str, ...]) -> None:
        if len(handles) > MAX_DROPPED:
            raise RemoteProtocolError("more values dropped at once than one message may name")
        self._dropped += self._secrets.drop(handles)
        # An effect, a write or an entry of the secure output that is under way may ask for its value yet.
        if not self._running and self._sink.idle and (self.secure_output is None or self.secure_output.idle):
            gone, self._dropped = self._dropped, []
            for start in range(0, len(gone), MAX_DROPPED):
                part = gone[start : start + MAX_DROPPED]
                self._vault.drop(tuple(handle for handle, _ in part), tuple(shown for _, shown in part))

    def worker_lost(self) -> None:
        """The worker ended, and with it every name of a classified value."""
        known = self._secrets.known()
        for start in range(0, len(known), MAX_DROPPED):
            self._drop(tuple(known[start : start + MAX_DROPPED]))

    def _spoil(self, handle: str, reason: str) -> None:
        try:
            self._vault.spoil(handle, reason)
        except Exception as problem:  # then the vault never hears of the handle, which is poison as well
            _log.warning("a classified operation was dropped: %s", type(problem).__name__)

    def _refuse_post(self, message: Classify | MapClassified | ZipClassified, cell: _Cell | None, reason: str) -> None:
        number = None if cell is None else cell.number
        try:
            self._audit.record(f"classified.{_kind(message)}", "denied", cell=number, reason=reason)
        except AuditUnavailable as problem:
            _log.error("%s", problem)


def _end(targets: list[Target]) -> None:
    for target in targets:
        if not isinstance(target, FileHandle):
            target.end()


def _failure(problem: Exception, path: str) -> Failure:
    if isinstance(problem, EffectError):
        return problem.failure()
    if isinstance(problem, AuditUnavailable):
        return Failure("CapabilityDenied", str(problem))
    if isinstance(problem, OSError):
        return in_words_of_cell(problem, path).failure()
    # Not foreseen: refused. Only the type and our own place in the code are safe to tell anyone.
    _log.error("effect failed inside the broker: %s", _where(problem))
    return Failure("RuntimeError", f"the effect failed inside the broker ({type(problem).__name__})")


def _folder_words(scope: FileScope) -> str:
    where = scope.argument if scope.prefix == "." else f"{scope.argument.rstrip('/')}/{scope.prefix}"
    return f"the folder {where[:MAX_TEXT]}{'' if scope.writable else ' (to read)'}"


def _no_method(kind: str, method: str) -> EffectError:
    shown = method if _METHOD.fullmatch(method) else "(not a name)"
    return EffectError("TypeError", f"a {kind} has no method {shown}")


def _kind(message: Classify | MapClassified | ZipClassified) -> str:
    return {Classify: "classify", MapClassified: "map", ZipClassified: "zip"}[type(message)]


def _static(message: Classify | MapClassified | ZipClassified, cell: _Cell) -> str:
    """The type of the new value that the worker found, if it is one that the checker gave to a value of this cell."""
    return message.mask if any(site.type == message.mask for site in cell.plan.masks) else ""


def _where(problem: BaseException) -> str:
    place = problem.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "?" if place is None else f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}"
    return f"{type(problem).__name__} at {where}"
