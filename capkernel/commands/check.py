"""`capkernel check`: the verdict on every cell of a file and what it may do, without running any of it.

The cells are judged in order, as if each accepted one had run to its end. The same checker in the same kind of process
as in a session decides. A cell tagged `refused` must be refused; one tagged `raises-exception` may be.

Rule 1: exit code 0: all is as it should be. 1: some cell is not. 2: some file could not be judged.
Rule 2: text of a file reaches the terminal and the annotations with control characters made visible.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from capkernel.commands.cells_of import Cell, Unreadable, cells_of
from capkernel.commands.files_of import expanded, module_beside
from capkernel.diagnostics.model import Diagnostic
from capkernel.diagnostics.render_json import to_json
from capkernel.diagnostics.render_text import render_concise, render_text
from capkernel.wire.authority import authority_data
from capkernel.wire.plan import NOTHING, Plan

if TYPE_CHECKING:
    from capkernel.checker.protocol import Rejected
    from capkernel.kernel.local_modules import LocalModules

OK, FAILED, USAGE = 0, 1, 2
FORMATS = ("text", "json", "github")


@dataclass
class CellVerdict:
    """What the checker says of one cell. `text` is what it judged, after IPython's transformation."""

    cell: Cell
    text: str
    accepted: bool
    plan: Plan = NOTHING
    diagnostics: tuple[Diagnostic, ...] = ()
    more: int = 0  # warnings that are not listed

    @property
    def expected(self) -> bool:
        if "refused" in self.cell.tags:
            return not self.accepted
        return self.accepted or "raises-exception" in self.cell.tags


@dataclass
class FileVerdict:
    """Of a file: its cells, or why there are none."""

    path: str
    cells: list[CellVerdict] = field(default_factory=list)
    error: str = ""

    @property
    def ok(self) -> bool:
        return not self.error and all(cell.expected for cell in self.cells)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `capkernel check`."""
    words = "judge notebooks (.ipynb) and scripts (.py with `# %%` cells) without running them"
    check = commands.add_parser("check", help=words, description=words)
    check.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH",
        help="a notebook, a script, a folder (its notebooks and scripts with `# %%%%` cells, also below), or a pattern",
    )  # fmt: skip
    check.add_argument("--format", choices=FORMATS, default="text")
    check.add_argument("--profile", choices=("strict", "standard", "relaxed"), default="standard")
    check.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code as in Rule 1."""
    verdicts = asyncio.run(check_files(expanded(arguments.paths), arguments.profile))
    text = {"text": as_text, "json": as_json, "github": as_annotations}[arguments.format](verdicts)
    for line in text.splitlines():
        print(_visible(line))
    for verdict in verdicts:
        if verdict.error:
            print(_visible(f"{verdict.path}: {verdict.error}"), file=sys.stderr)
    if any(verdict.error for verdict in verdicts):
        return USAGE
    return OK if all(verdict.ok for verdict in verdicts) else FAILED


# ── judging ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def check_files(paths: Iterable[Path], profile: str) -> list[FileVerdict]:
    """A verdict per file, each judged as a session of its own."""
    verdicts = []
    for path in paths:
        verdict = FileVerdict(str(path))
        try:
            verdict.cells = await _check_cells(cells_of(path), profile, path.parent)
        except Unreadable as problem:
            verdict.error = str(problem)
        verdicts.append(verdict)
    return verdicts


async def _check_cells(cells: Sequence[Cell], profile: str, folder: Path) -> list[CellVerdict]:
    from capkernel.checker.client import CheckerClient, CheckerUnavailable
    from capkernel.kernel.checker_spawn import CheckerSpawner

    with tempfile.TemporaryDirectory() as runtime:
        client = CheckerClient(
            CheckerSpawner(Path(runtime)), profile=profile, progress=lambda line: print(line, file=sys.stderr)
        )
        try:
            await client.start()
            return await _verdicts(client, cells, folder)
        except CheckerUnavailable as problem:
            raise Unreadable(f"nothing was checked: {problem}") from None
        finally:
            await client.close()


async def _verdicts(client: Any, cells: Sequence[Cell], folder: Path) -> list[CellVerdict]:
    from capkernel.checker.protocol import Rejected
    from capkernel.kernel.cell_text import CellRefused, CellTexts, help_wanted
    from capkernel.kernel.local_modules import LocalModules

    texts = CellTexts()
    modules = LocalModules()

    async def read(path: str) -> bytes | None:
        return module_beside(folder, path)

    found = []
    for cell in cells:
        try:
            text = texts.checked_text(cell.source, cell.index)
        except CellRefused as problem:
            found.append(CellVerdict(cell, problem.text, False, diagnostics=(problem.diagnostic,)))
            continue
        if help_wanted(text) is not None:  # such a cell is not run, but looked up
            found.append(CellVerdict(cell, text, True))
            continue
        refused = await _load_modules(client, modules, cell, text, read)
        names = modules.names()
        said = refused or await client.check(cell.index, text, names)
        if isinstance(said, Rejected):
            found.append(CellVerdict(cell, text, False, diagnostics=said.diagnostics))
            continue
        gone = _deleted(text)
        bound = tuple(name for name in said.names if name not in gone)
        await client.commit(cell.index, bound, tuple(sorted(gone)))
        modules.ran(text, names, bound, tuple(sorted(gone)))
        found.append(CellVerdict(cell, text, True, said.plan, said.warnings, said.more))
    return found


async def _load_modules(
    client: Any, modules: LocalModules, cell: Cell, text: str, read: Callable[[str], Awaitable[bytes | None]]
) -> Rejected | None:
    """Judge the local modules that a cell imports, as if each had run to its end; the refusal, if there is one."""
    from capkernel.checker.protocol import Rejected
    from capkernel.kernel.local_modules import UnreadableModule, refusal

    try:
        wanted = await modules.wanted(cell.index, text, read)
    except UnreadableModule as problem:
        return Rejected(cell.index, (problem.diagnostic,))
    for module in wanted:
        said = await client.check(module.number, module.text, module.names)
        if isinstance(said, Rejected):
            return Rejected(cell.index, tuple(refusal(module, one, cell.index) for one in said.diagnostics))
        await client.commit(module.number, tuple(said.names))
        modules.loaded(module)
    return None


def _deleted(text: str) -> set[str]:
    """Names that are gone when the cell has run to its end."""
    from capkernel.checker.scan import GONE, scan

    return {name for name, states in scan(ast.parse(text)).end.items() if states == GONE}


# ── saying it ────────────────────────────────────────────────────────────────────────────────────────────────────────


def as_text(verdicts: Sequence[FileVerdict]) -> str:
    """For a person: what each cell may do, and in full what is refused and should not be."""
    lines: list[str] = []
    for verdict in verdicts:
        if verdict.error:
            continue
        lines.append(verdict.path)
        sources = {one.cell.index: one.text for one in verdict.cells}
        for one in verdict.cells:
            lines.append(f"  [{one.cell.index}] {_words(one)}")
            wrong = not one.expected and not one.accepted
            if wrong:
                lines += [f"      {line}" for line in render_text(one.diagnostics, sources).split("\n")]
            else:
                lines += [f"      {render_concise(diagnostic)}" for diagnostic in one.diagnostics]
                lines += [f"      ... and {one.more} more"] * bool(one.more)
        failed = sum(not one.expected for one in verdict.cells)
        refused = sum(not one.accepted and one.expected for one in verdict.cells)
        lines.append(f"  {_count(len(verdict.cells))}, {refused} refused as expected, {failed} not as expected")
    return "\n".join(lines)


def as_json(verdicts: Sequence[FileVerdict]) -> str:
    """For a program: one object, `{"version": 1, "files": [...]}`."""
    return json.dumps({"version": 1, "ok": all(one.ok for one in verdicts), "files": [_file(one) for one in verdicts]})


def as_annotations(verdicts: Sequence[FileVerdict]) -> str:
    """For GitHub: one workflow command per finding, at its line of a script, at its cell of a notebook."""
    lines: list[str] = []
    for verdict in verdicts:
        if verdict.error:
            lines.append(_annotation("error", verdict.path, 1, "capkernel", verdict.error))
        for one in verdict.cells:
            if one.accepted and not one.expected:
                message = "tagged `refused`, but it is accepted"
                lines.append(_annotation("error", verdict.path, (one.cell.line or 0) + 1, _title(one, None), message))
            for found in one.diagnostics:
                if one.expected and found.severity == "error":
                    continue
                line = 1 if one.cell.line is None else one.cell.line + found.span.line
                lines.append(_annotation(found.severity, verdict.path, line, _title(one, found), found.message))
    return "\n".join(lines)


def _words(one: CellVerdict) -> str:
    if one.accepted:
        said = authority_data(one.plan)["authority"] or "ok"
        return said if one.expected else f"{said}; but it is tagged `refused`"
    return "refused, as expected" if one.expected else "refused"


def _file(verdict: FileVerdict) -> dict[str, Any]:
    if verdict.error:
        return {"path": verdict.path, "ok": False, "error": verdict.error, "cells": []}
    return {"path": verdict.path, "ok": verdict.ok, "cells": [_cell(one) for one in verdict.cells]}


def _cell(one: CellVerdict) -> dict[str, Any]:
    return {
        "cell": one.cell.index,
        "line": None if one.cell.line is None else one.cell.line + 1,
        "tags": list(one.cell.tags),
        "verdict": "accepted" if one.accepted else "refused",
        "expected": one.expected,
        **authority_data(one.plan),
        **{key: value for key, value in to_json(one.diagnostics, one.more).items() if key != "version"},
    }


def _title(one: CellVerdict, found: Diagnostic | None) -> str:
    where = f"cell {one.cell.index}" + ("" if found is None else f", line {found.span.line}")
    return where if found is None else f"{where}: {found.code}"


def _annotation(severity: str, path: str, line: int, title: str, message: str) -> str:
    return f"::{severity} file={_property(path)},line={line},title={_property(title)}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _visible(line: str) -> str:
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in line
    )


def _count(cells: int) -> str:
    return f"{cells} cell{'' if cells == 1 else 's'}"
