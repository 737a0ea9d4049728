"""Golden sessions: Markdown in this folder, a heading is a session, a `py` fence is a cell.

Rule 1: the expectation stands beside the code: `# error: [code] "part of the message"` (a column, 1-based, may stand
before the code) on the line of the refusal; `# warning: [code]` likewise. A cell without such a comment must be
accepted, and a refusal for another reason, or in another line, fails the session.
Rule 2: a cell that is refused changes nothing: it is not committed, and the next cell sees the session as it was.
Rule 3: a file that rejects something also accepts its twin: the nearest code that is fine, in a session of its own.

A `diagnostic` fence after a cell holds the whole rendered refusal; `--update-golden` rewrites those. A `toml` fence may
set `profile`. Lines that a magic would transform are written as the transformer leaves them.
"""

from __future__ import annotations

import ast
import re
import tomllib
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from mypy import build as _first  # noqa: F401  (must be the first mypy module: the others import each other in a circle)

from capkernel.checker.cache import build_cache
from capkernel.checker.captures import CaptureSession
from capkernel.checker.engine import Engine
from capkernel.checker.profiles import PROFILES
from capkernel.checker.protocol import Accepted, Rejected
from capkernel.checker.scan import GONE, NEW, scan
from capkernel.checker.session import CheckerSession
from capkernel.checker.subset import check_subset
from capkernel.diagnostics import Diagnostic, render_concise, render_text

_FENCE = re.compile(r"^```(\S*)\s*(.*)$")
_EXPECTED = re.compile(r"#\s*(error|warning):\s*(?:(\d+)\s+)?\[([a-z-]+)\](?:\s+\"([^\"]*)\")?")
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
    def rejects(self) -> bool:
        return any(found.severity == "error" for block in self.blocks for found in expectations(block))


@dataclass(frozen=True)
class Expected:
    severity: str
    line: int
    column: int | None
    code: str
    part: str


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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the diagnostic fences of golden sessions")


def pytest_collect_file(parent: pytest.Collector, file_path: Path) -> pytest.Collector | None:
    if file_path.suffix == ".md" and Path(__file__).parent in file_path.parents:
        return CellFile.from_parent(parent, path=file_path)
    return None


class CellFile(pytest.File):
    def collect(self) -> Iterator[pytest.Item]:
        sections = sections_of(self.path.read_text("utf-8"))
        yield Twins.from_parent(self, name="every rejection has an accepted twin", sections=sections)
        for section in sections:
            yield CellSession.from_parent(self, name=section.name, section=section)


class Twins(pytest.Item):
    def __init__(self, *, sections: list[Section], **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self._sections = sections

    def runtest(self) -> None:
        rejecting = [section.name for section in self._sections if section.rejects]
        accepting = [section.name for section in self._sections if not section.rejects]
        if rejecting and not accepting:
            raise Mismatch("this file rejects, and accepts nothing")
        names = [section.name for section in self._sections]
        if len(set(names)) != len(names):
            raise Mismatch("two sessions have the same heading")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:  # type: ignore[override]
        return str(excinfo.value)


class CellSession(pytest.Item):
    def __init__(self, *, section: Section, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self._section = section

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self._section.line - 1, self.name

    def runtest(self) -> None:
        settings = [tomllib.loads(block.text) for block in self._section.blocks if block.kind == "toml"]
        profile = settings[0].get("profile", "standard") if settings else "standard"
        run = _Run(new_session(profile))
        updates: list[tuple[Block, str]] = []
        for block in self._section.blocks:
            if block.kind == "py":
                problem = run.cell(block)
                if problem:
                    raise Mismatch(f"{self.path.name}:{block.line}: {problem}")
            elif block.kind == "diagnostic":
                rendered = run.rendered()
                if rendered == block.text:
                    continue
                if not self.config.getoption("--update-golden", default=False):
                    raise Mismatch(f"{self.path.name}:{block.line}: the snapshot differs; now it is\n{rendered}")
                updates.append((block, rendered))
        if updates:
            _rewrite(self.path, updates)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:  # type: ignore[override]
        if isinstance(excinfo.value, Mismatch):
            return str(excinfo.value)
        return "".join(traceback.format_exception(excinfo.value)[-4:])


class Mismatch(Exception):
    """The session went otherwise than the file says."""


class _Run:
    def __init__(self, session: CheckerSession) -> None:
        self._session = session
        self._number = 0
        self._sources: dict[int, str] = {}
        self._last: tuple[Diagnostic, ...] = ()

    def cell(self, block: Block) -> str:
        """Judge one cell; "" when everything is as expected."""
        self._number += 1
        text = block.text + "\n"
        self._sources[self._number] = text
        verdict = self._session.check(self._number, text)
        self._last = verdict.warnings if isinstance(verdict, Accepted) else verdict.diagnostics
        problem = _compare(expectations(block), self._last, isinstance(verdict, Rejected))
        if isinstance(verdict, Accepted):
            names = scan(ast.parse(text))
            bound = frozenset(name for name, states in names.end.items() if states & NEW)
            bound |= verdict.names.keys() - names.end.keys()  # of star imports
            self._session.commit(
                self._number, bound, frozenset(name for name, states in names.end.items() if states == GONE)
            )
        return problem

    def rendered(self) -> str:
        return render_text(self._last, self._sources)


def _compare(expected: list[Expected], found: Iterable[Diagnostic], refused: bool) -> str:
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


_moved: dict[Path, list[tuple[int, int]]] = {}  # by how much the text after a line has moved in this run


def _rewrite(path: Path, updates: list[tuple[Block, str]]) -> None:
    lines = path.read_text("utf-8").splitlines()
    moved = _moved.setdefault(path, [])
    for block, rendered in updates:
        start = block.line + sum(by for line, by in moved if line < block.line)
        new = rendered.splitlines()
        lines[start : start + len(block.lines)] = new
        moved.append((block.line, len(new) - len(block.lines)))
    path.write_text("\n".join(lines) + "\n", "utf-8")
