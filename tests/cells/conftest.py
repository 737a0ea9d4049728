"""Golden sessions: Markdown in this folder, a heading is a session, a `py` fence is a cell.

Rule 1: the expectation stands beside the code: `# error: [code] "part of the message"` (a column, 1-based, may stand
before the code) on the line of the refusal; `# warning: [code]` likewise. A cell without such a comment must be
accepted, and a refusal for another reason, or in another line, fails the session.
Rule 2: a cell that is refused changes nothing: it is not committed, and the next cell sees the session as it was.
Rule 3: what rejects something also accepts its twin: the nearest code that is fine, in the same session after the
refusal, or in another of the same file.

`# raises` on a line says that the cell fails there when it runs: then it is kept as one that came half-way.
A `diagnostic` fence after a cell holds the whole rendered refusal; `--update-golden` rewrites those. A `toml` fence may
set `profile`, and `python = "3.12"` (that Python and newer ones) or `before = "3.12"` (older ones): elsewhere the
session is skipped, and the run ends with how many were. Lines that a magic would transform are written as the
transformer leaves them.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from golden import Block, Mismatch, Run, Section, compare, expectations, new_session, sections_of

__all__ = ["Block", "compare", "expectations", "sections_of"]


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
        accepting = [section.name for section in self._sections if not section.rejects]
        for section in self._sections:
            if section.rejects and section.rejected == len(section.cells) and not accepting:
                raise Mismatch(f"`{section.name}` rejects, and neither it nor its file has a twin that is accepted")
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
        if self._section.elsewhere:
            pytest.skip(f"a session for {self._section.elsewhere}")
        run = Run(new_session(self._section.profile))
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    ran = [item for item in terminalreporter.stats.get("passed", []) if ".md::" in item.nodeid]
    if not ran:
        return
    files = {Path(__file__).parents[2] / item.nodeid.partition("::")[0] for item in ran}
    every = [section for path in files for section in sections_of(path.read_text("utf-8"))]
    sections = [section for section in every if not section.elsewhere]
    refused = sum(section.rejected for section in sections)
    twins = sum(len(section.cells) - section.rejected for section in sections)
    fine = sum(not section.rejects for section in sections)
    terminalreporter.write_line(
        f"golden sessions: {len(sections)} sections, {refused} refused cells, {twins} accepted ones: "
        f"{min(refused, twins)} pairs; {fine} sections ({fine / len(sections):.0%}) only look dangerous or are plain"
    )
    if len(sections) < len(every):
        running = f"{sys.version_info.major}.{sys.version_info.minor}"
        terminalreporter.write_line(
            f"golden sessions: {len(every) - len(sections)} more are for another Python than {running}: NOT run here"
        )
