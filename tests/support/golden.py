"""The format of golden sessions (tests/cells), and running one in this process. tests/README.md explains it."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from mypy import build as _first  # noqa: F401  (must be the first mypy module: the others import each other in a circle)

from capkernel.checker.cache import build_cache
from capkernel.checker.captures import CaptureSession
from capkernel.checker.captures.scopes import scopes_of
from capkernel.checker.engine import Engine
from capkernel.checker.profiles import PROFILES
from capkernel.checker.protocol import Accepted, Rejected
from capkernel.checker.scan import GONE, NEW, scan
from capkernel.checker.session import CheckerSession
from capkernel.checker.subset import check_subset
from capkernel.diagnostics import Diagnostic, render_concise, render_text

CELLS = Path(__file__).resolve().parents[1] / "cells"

_FENCE = re.compile(r"^```(\S*)\s*(.*)$")
_EXPECTED = re.compile(r"#\s*(error|warning):\s*(?:(\d+)\s+)?\[([a-z-]+)\](?:\s+\"([^\"]*)\")?")
_RAISES = re.compile(r"#\s*raises\b")
_KNOWN_FENCES = frozenset(("py", "diagnostic", "toml"))


@dataclass
class Block:
    kind: str
    line: int
    lines: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@dataclass
class Section:
    name: str
    line: int
    blocks: list[Block] = field(default_factory=list)

    @property
    def cells(self) -> list[Block]:
        return [block for block in self.blocks if block.kind == "py"]

    @property
    def rejected(self) -> int:
        """How many of its cells are to be refused."""
        return sum(refuses(block) for block in self.cells)

    @property
    def rejects(self) -> bool:
        return self.rejected > 0

    @property
    def _settings(self) -> dict[str, str]:
        return {
            key: str(value)
            for block in self.blocks
            if block.kind == "toml"
            for key, value in tomllib.loads(block.text).items()
        }

    @property
    def profile(self) -> str:
        return self._settings.get("profile", "standard")

    @property
    def elsewhere(self) -> str:
        """Which Python the session is for, when it is not the running one; else "".

        `python = "3.12"`: that one and newer ones. `before = "3.12"`: older ones.
        """
        least, limit = self._settings.get("python"), self._settings.get("before")
        if least is not None and sys.version_info < _version(least):
            return f"Python {least} and newer"
        if limit is not None and sys.version_info >= _version(limit):
            return f"Python before {limit}"
        return ""


@dataclass(frozen=True)
class Expected:
    severity: str
    line: int
    column: int | None
    code: str
    part: str


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split("."))


def sections_of(text: str) -> list[Section]:
    found: list[Section] = []
    trail: list[str] = []
    block: Block | None = None
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if block is not None:
            if line.rstrip() == "```":
                block = None
            else:
                block.lines.append(line)
        elif line.startswith("#"):
            depth = len(line) - len(line.lstrip("#"))
            trail[depth - 1 :] = [line.lstrip("#").strip()]
            found.append(Section(" / ".join(trail), number))
        elif fence is not None:
            assert found, f"line {number}: a fence before the first heading"
            assert fence[1] in _KNOWN_FENCES, f"line {number}: unknown fence `{fence[1]}`"
            block = Block(fence[1], number)
            found[-1].blocks.append(block)
    assert block is None, "an open fence at the end"
    return [section for section in found if section.blocks]


def expectations(block: Block) -> list[Expected]:
    if block.kind != "py":
        return []
    return [
        Expected(match[1], number, int(match[2]) if match[2] else None, match[3], match[4] or "")
        for number, line in enumerate(block.lines, 1)
        for match in _EXPECTED.finditer(line)
    ]


def refuses(block: Block) -> bool:
    return any(found.severity == "error" for found in expectations(block))


def raised_in(block: Block) -> int | None:
    """The line at which the cell fails when it runs: `# raises` stands on it."""
    return next((number for number, line in enumerate(block.lines, 1) if _RAISES.search(line)), None)


def all_sections() -> Iterator[tuple[Path, Section]]:
    """Every golden session of tests/cells that is for the running Python."""
    for path in sorted(CELLS.rglob("*.md")):
        for section in sections_of(path.read_text("utf-8")):
            if not section.elsewhere:
                yield path, section


def run_section(section: Section) -> str:
    """Judge all cells of a section; "" when it goes as the file says."""
    run = Run(new_session(section.profile))
    for block in section.cells:
        problem = run.cell(block)
        if problem:
            return f"line {block.line}: {problem}"
    return ""


class Mismatch(Exception):
    """The session went otherwise than the file says."""


class Run:
    def __init__(self, session: CheckerSession) -> None:
        self.session = session
        self.number = 0
        self.sources: dict[int, str] = {}
        self.last: tuple[Diagnostic, ...] = ()

    def cell(self, block: Block) -> str:
        """Judge one cell; "" when everything is as expected."""
        self.number += 1
        text = block.text + "\n"
        self.sources[self.number] = text
        verdict = self.session.check(self.number, text)
        self.last = verdict.warnings if isinstance(verdict, Accepted) else verdict.diagnostics
        problem = compare(expectations(block), self.last, isinstance(verdict, Rejected))
        if isinstance(verdict, Accepted):
            tree = ast.parse(text)
            line = raised_in(block)
            if line is None:
                names = scan(tree)
                bound = frozenset(name for name, states in names.end.items() if states & NEW)
                bound |= verdict.names.keys() - names.end.keys()  # of star imports
                gone = frozenset(name for name, states in names.end.items() if states == GONE)
            else:
                bound, gone = _bound_before(tree, line), frozenset[str]()
            self.session.commit(self.number, bound, gone, raised=line is not None)
        return problem

    def rendered(self) -> str:
        return render_text(self.last, self.sources)


def _bound_before(tree: ast.Module, line: int) -> frozenset[str]:
    """What a cell has bound when it fails at a line, if everything above has run."""
    return frozenset(
        name
        for name, bindings in scopes_of(tree).module.bindings.items()
        if any(
            one.how not in ("del", "global", "except") and getattr(one.node, "end_lineno", line) < line
            for one in bindings
        )
    )


def compare(expected: list[Expected], found: Iterable[Diagnostic], refused: bool) -> str:
    said = "\n".join(f"  {render_concise(diagnostic)}" for diagnostic in found) or "  nothing"
    wanted = any(one.severity == "error" for one in expected)
    if refused != wanted:
        return f"{'refused' if refused else 'accepted'}, but expected otherwise; the checker said\n{said}"
    left = [one for one in found if one.severity == "error" or any(e.severity == "warning" for e in expected)]
    for one in expected:
        match = next((diagnostic for diagnostic in left if _fits(one, diagnostic)), None)
        if match is None:
            return f"expected {one.severity}[{one.code}] in line {one.line}; the checker said\n{said}"
        left.remove(match)
    return f"more than expected; the checker said\n{said}" if left else ""


def _fits(expected: Expected, found: Diagnostic) -> bool:
    return (
        expected.code == found.code
        and expected.severity == found.severity
        and expected.line == found.span.line
        and (expected.column is None or expected.column == found.span.column + 1)
        and expected.part in found.message
    )


@cache
def _engine(profile: str) -> Engine:
    return Engine(build_cache(lambda _: None), PROFILES[profile])


def new_session(profile: str) -> CheckerSession:
    """A session without names, on the engine that all golden sessions share."""
    engine = _engine(profile)
    engine.reset()
    return CheckerSession(engine, PROFILES[profile], check_subset, CaptureSession())
