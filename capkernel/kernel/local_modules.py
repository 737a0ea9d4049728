"""Local modules: which of a cell's imports lie beside the notebook, in what order they load, when they load again.

Rule 1: only the broker reads them. What is judged, and what the worker compiles, is the text it gave.
Rule 2: a file never takes the place of a module that Python has anyway: the standard library and what is installed win.
Rule 3: a module counts as loaded when it has run to its end; before that, the next import tries again.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from capkernel.diagnostics import Diagnostic, Span
from capkernel.diagnostics.source_lines import source_lines
from capkernel.wire.codekey import FIRST_MODULE
from capkernel.wire.local_imports import exports_of, imported_modules
from capkernel.wire.local_names import NO_NAMES, LocalNames, without_prefixes
from capkernel.wire.local_renaming import rename

MOST_MODULES = 200
_CELL = re.compile(r"\b[Cc]ell\[(9\d{8})\]|\b[Cc]ell (9\d{8})|<cell (9\d{8})>")

Read = Callable[[str], Awaitable[bytes | None]]
"""The bytes of a file by its path in the notebook's directory; None when there is none to read."""


@dataclass(frozen=True)
class LocalModule:
    """One module to be judged and run. `because`: the import in the cell that needs it."""

    number: int
    path: str
    text: str
    names: LocalNames
    because: Span


class UnreadableModule(Exception):
    """A module that is there and cannot be taken. The text says why."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__(diagnostic.message)
        self.diagnostic = diagnostic


class LocalModules:
    """The local modules of one session."""

    def __init__(self) -> None:
        self._exports: dict[str, dict[str, str]] = {}
        self._aliases: dict[str, str] = {}
        self._texts: dict[str, str] = {}  # of those that have run
        self._paths: dict[int, str] = {}
        self._next = FIRST_MODULE

    def copy(self) -> LocalModules:
        """One to ask `wanted` of for a cell that does not run: what it notes is gone with it."""
        made = LocalModules()
        made._exports, made._aliases, made._texts = dict(self._exports), dict(self._aliases), dict(self._texts)
        made._paths, made._next = dict(self._paths), self._next
        return made

    def forget(self) -> None:
        """The worker is a new one."""
        self._exports, self._aliases, self._texts = {}, {}, {}

    async def wanted(self, cell: int, text: str, read: Read) -> list[LocalModule]:
        """What has to run before the cell does, in order: new modules and those whose file changed.

        Raises UnreadableModule.
        """
        if "import" not in text:
            return []
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []  # the checker says so
        search = _Search(cell, read, {name: dict(names) for name, names in self._exports.items()})
        for statement, source, members in imported_modules(tree, "", False):
            search.because = _span(statement, text)
            await search.need(source, members)
        if len(search.found) > MOST_MODULES:
            raise UnreadableModule(search.problem(f"a cell cannot need more than {MOST_MODULES} local modules"))
        self._exports = search.exports
        found = []
        for one in search.found:
            if self._texts.get(one.module) == one.text:
                continue
            names = LocalNames(one.module, one.package, search.exports)
            found.append(LocalModule(self._next, one.path, one.text, names, one.because))
            self._paths[self._next] = one.path
            self._next += 1
        return found

    def loaded(self, module: LocalModule) -> None:
        """It has run to its end."""
        self._texts[module.names.module] = module.text

    def names(self) -> LocalNames:
        """What the next cell means by names of local modules."""
        return LocalNames("", False, self._exports, dict(self._aliases)) if self._exports else NO_NAMES

    def ran(self, text: str, names: LocalNames, bound: tuple[str, ...], deleted: tuple[str, ...]) -> None:
        """A cell ran, and bound and deleted these names."""
        if names is NO_NAMES:
            return
        for name in (*bound, *deleted):
            self._aliases.pop(name, None)
        self._aliases |= rename(ast.parse(text), names).aliases

    def named(self, text: str) -> str:
        """`text` with the files of local modules in place of their numbers, and their own names for things."""
        if not self._paths:
            return text
        return without_prefixes(_CELL.sub(self._file, text))

    def _file(self, found: re.Match[str]) -> str:
        number = int(found[1] or found[2] or found[3])
        return self._paths.get(number, found[0])


@dataclass(frozen=True)
class _Found:
    module: str
    package: bool
    path: str
    text: str
    because: Span


class _Search:
    """Finds what a text needs, depth first, so that a module comes after those it imports."""

    def __init__(self, cell: int, read: Read, exports: dict[str, dict[str, str]]) -> None:
        self._cell = cell
        self._read = read
        self.exports = exports
        self.found: list[_Found] = []
        self.because = Span(1, 0, 1, 1)
        self._seen: dict[str, _Found | None] = {}

    async def need(self, source: str, members: tuple[str, ...]) -> None:
        parts = source.split(".")
        if is_elsewhere(parts[0]) or len(parts) > 20:
            return
        for length in range(1, len(parts) + 1):
            found = await self._visit(".".join(parts[:length]))
            if found is not None:
                for above in range(1, length):
                    self.exports.setdefault(".".join(parts[:above]), {})  # a folder without `__init__.py`
        last = self._seen.get(source)
        if last is None or last.package:
            for name in members:
                if await self._visit(f"{source}.{name}") is not None:
                    for above in range(1, len(parts) + 1):
                        self.exports.setdefault(".".join(parts[:above]), {})

    async def _visit(self, module: str) -> _Found | None:
        if module in self._seen or len(self._seen) > 4 * MOST_MODULES:
            return self._seen.get(module)
        self._seen[module] = None
        found = self._seen[module] = await self._find(module)
        if found is None:
            return None
        try:
            tree = ast.parse(found.text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            tree = ast.Module([], [])  # the checker says so
        self.exports.setdefault(module, {})
        for _, source, members in imported_modules(tree, module, found.package):
            await self.need(source, members)
        self.exports[module] = exports_of(tree, LocalNames(module, found.package, self.exports))
        self.found.append(found)
        return found

    async def _find(self, module: str) -> _Found | None:
        base = module.replace(".", "/")
        for path, package in ((f"{base}/__init__.py", True), (f"{base}.py", False)):
            data = await self._read(path)
            if data is None:
                continue
            try:
                text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
            except UnicodeDecodeError:
                raise UnreadableModule(self.problem(f"{path} is not UTF-8 text")) from None
            return _Found(module, package, path, text, self.because)
        return None

    def problem(self, why: str) -> Diagnostic:
        return Diagnostic("unsafe-import", why, self._cell, self.because)


_installed: set[str] = set()  # found once: what is uninstalled meanwhile keeps its name until the kernel ends


def is_elsewhere(root: str) -> bool:
    """Whether Python has a module of this name without looking beside the notebook."""
    if root in sys.stdlib_module_names or root in sys.builtin_module_names or root == "capkernel":
        return True
    if root in _installed:
        return True
    try:
        found = importlib.util.find_spec(root) is not None
    except (ImportError, ValueError, AttributeError):
        return True
    if found:
        _installed.add(root)
    return found


def refusal(module: LocalModule, found: Diagnostic, cell: int) -> Diagnostic:
    """What is wrong in a module, said at the import of the cell."""
    message = f"{module.path}:{found.span.line}:{found.span.column + 1}: {without_prefixes(found.message)}"
    return Diagnostic(found.code, message, cell, module.because, why=found.why, help=found.help)


def _span(node: ast.stmt, text: str) -> Span:
    line = source_lines(text)[node.lineno - 1]
    start = len(line.encode()[: node.col_offset].decode("utf-8", "replace"))
    end_line = node.end_lineno or node.lineno
    end = len(source_lines(text)[end_line - 1].encode()[: node.end_col_offset].decode("utf-8", "replace"))
    return Span(node.lineno, start, end_line, end)
