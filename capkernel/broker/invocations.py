"""Methods on what a cell was granted: which one it is, and which effect does it.

Rule 1: no word of the worker is trusted. Handles, methods and paths are looked up; what is wrong with them is an
EffectError.
Rule 2: whether the plan lists it comes before anything is done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from capkernel.broker.classified_effects import ClassifiedEffects
from capkernel.broker.failures import EffectError, denied
from capkernel.broker.files import FileEffects
from capkernel.broker.opened import MAX_OPEN, PIECE, OpenFile
from capkernel.broker.places import FileHandle, FileScope
from capkernel.broker.running import Cell
from capkernel.broker.scopes import Scopes
from capkernel.broker.threads import run_whole
from capkernel.wire.worker import QUICK_METHODS, Invoke

_METHOD = re.compile(r"[a-z_]{1,40}")


class Invocations:
    """Methods return what goes back to the worker: a value and bytes. They raise EffectError, OSError,
    AuditUnavailable."""

    def __init__(self, scopes: Scopes, files: FileEffects, classified: ClassifiedEffects) -> None:
        self._scopes = scopes
        self._files = files
        self._classified = classified
        self._methods: dict[str, Callable[[FileHandle, int, bytes], tuple[Any, bytes]]] = {
            "exists": lambda file, cell, _: (files.exists(file, cell), b""),
            "is_directory": lambda file, cell, _: (files.is_directory(file, cell), b""),
            "is_classified": lambda file, cell, _: (files.is_classified(file, cell), b""),
            "size": lambda file, cell, _: (files.size(file, cell), b""),
            "read_bytes": lambda file, cell, _: (None, files.read(file, cell)),
            "write": self._write,
            "append": self._append,
            "mkdir": self._mkdir,
            "create": self._create,
            "may_write": self._may_write,
            "may_create": self._may_create,
            "delete": self._delete,
            "files": self._files_below,
        }

    def quickly(self, effect: Invoke, cell: Cell) -> tuple[Any, bytes]:
        """Blocks. An effect of QUICK_METHODS on a directory's scope or a file of it."""
        grant = self._scopes.find_for(effect.handle, cell)
        target = grant.target
        if isinstance(target, OpenFile):
            raise _no_method("file", effect.method)
        if isinstance(target, FileScope):
            if effect.method != "access":
                raise _no_method("FileSystem", effect.method)
            file = self._files.access(target, effect.path, cell.number)
            return [self._scopes.mint(grant.scope, file, cell), file.path], b""
        self._scopes.require_listed(target, effect.method, cell)
        perform = self._methods.get(effect.method)
        if perform is None:
            raise _no_method("FileEntry", effect.method)
        return perform(target, cell.number, b"")

    async def perform(self, effect: Invoke, cell: Cell, blob: bytes) -> tuple[Any, bytes]:
        """Any effect; what blocks of it is done in threads."""
        if effect.method in QUICK_METHODS:
            return await run_whole(lambda: self.quickly(effect, cell))
        grant = self._scopes.find(effect.handle)
        target = grant.target
        if isinstance(target, OpenFile):
            return await self._read_on(target, effect)
        if isinstance(target, FileScope):
            if effect.method in ("read_only", "subtree"):
                return await self._attenuate(grant.scope, target, effect, cell), b""
            raise _no_method("FileSystem", effect.method)
        self._scopes.require_listed(target, effect.method, cell)
        if effect.method == "children":
            found = await run_whole(lambda: self._files.children(target, cell.number))
            return self._minted(grant.scope, target, found, cell), b""
        if effect.method == "walk":
            walked = await run_whole(lambda: self._files.walk(target, cell.number))
            return self._minted(grant.scope, target, walked.paths, cell), b""
        if effect.method == "open_read":
            return await self._open_to_read(grant.scope, target, cell)
        if effect.method == "read_many":
            return await run_whole(lambda: self._files.read_many(target, effect.paths, cell.number))
        if effect.method in ("read_classified", "read_classified_bytes"):
            return await self._classified.read(target, cell, text=effect.method == "read_classified"), b""
        if effect.method == "write_classified":
            await self._classified.write(target, effect.secret, cell)
            return None, b""
        perform = self._methods.get(effect.method)
        if perform is None:
            raise _no_method("FileEntry", effect.method)
        return await run_whole(lambda: perform(target, cell.number, blob))

    def _minted(self, scope: str, directory: FileHandle, paths: Sequence[str], cell: Cell) -> list[list[str]]:
        """A handle and the path of each."""
        files = [FileHandle(directory.scope, path) for path in paths]
        return [[self._scopes.mint(scope, file, cell), file.path] for file in files]

    def _write(self, file: FileHandle, cell: int, data: bytes) -> tuple[Any, bytes]:
        self._files.write(file, data, cell)
        return None, b""

    def _append(self, file: FileHandle, cell: int, data: bytes) -> tuple[Any, bytes]:
        self._files.append(file, data, cell)
        return None, b""

    def _mkdir(self, file: FileHandle, cell: int, _data: bytes) -> tuple[Any, bytes]:
        self._files.make_directory(file, cell)
        return None, b""

    def _create(self, file: FileHandle, cell: int, data: bytes) -> tuple[Any, bytes]:
        self._files.create(file, data, cell)
        return None, b""

    def _may_write(self, file: FileHandle, cell: int, _data: bytes) -> tuple[Any, bytes]:
        self._files.may_write(file, cell, new=False)
        return None, b""

    def _may_create(self, file: FileHandle, cell: int, _data: bytes) -> tuple[Any, bytes]:
        self._files.may_write(file, cell, new=True)
        return None, b""

    def _delete(self, file: FileHandle, cell: int, _data: bytes) -> tuple[Any, bytes]:
        self._files.delete(file, cell)
        return None, b""

    def _files_below(self, file: FileHandle, cell: int, _data: bytes) -> tuple[Any, bytes]:
        walked = self._files.walk(file, cell)
        return [path for path in walked.paths if path not in walked.others], b""

    async def _attenuate(self, scope: str, target: FileScope, effect: Invoke, cell: Cell) -> str:
        path = effect.path if effect.method == "subtree" else None
        made = await run_whole(lambda: self._files.attenuated(target, path=path, cell=cell.number))
        return self._scopes.keep(scope, made, cell)

    async def _open_to_read(self, scope: str, file: FileHandle, cell: Cell) -> tuple[Any, bytes]:
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
        return [self._scopes.keep(scope, opened, cell), opened.size], piece

    async def _read_on(self, file: OpenFile, effect: Invoke) -> tuple[Any, bytes]:
        if effect.method == "close":
            self._scopes.close_file(effect.handle, file)
            return None, b""
        if effect.method != "piece":
            raise _no_method("file", effect.method)
        return None, await run_whole(lambda: file.piece(effect.offset))


def _no_method(kind: str, method: str) -> EffectError:
    shown = method if _METHOD.fullmatch(method) else "(not a name)"
    return EffectError("TypeError", f"a {kind} has no method {shown}")
