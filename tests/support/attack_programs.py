"""The attack programs: Markdown in `tests/attacks/programs/`, a heading is a program, a `py` fence is a cell of it.

Under the heading stands one line of `key: value` parts, separated by ` · `:

source: the public cases (`a001`) and holes of other systems (`H6`) it is a variant of
gains: what shows that it worked where nothing protects: `secret` (the value, in any spelling), `differs` (two secrets
    give two outputs), `marker` (a file of the project, outside its block), `outside`, `sibling` (files outside the
    project), `environment` (a variable of the kernel), `knock` (a connection arrives), `written` (a file appears),
    `audit` (the kernel's log), `damaged` (a file that no cell may change is not what it was)
by: the way it would come out
full: the code of the refusal with everything on (several: `a + b`), or `runs, REASON` when every cell is accepted and
    learns nothing
open: why the checker does not refuse it yet; what holds is the layer below
needs: `sandbox` when the thing is stopped by the operating system alone once the checker is off
off: why it may work once the checker is off; it still must learn nothing of a secret
fresh: `yes` when it changes its process so much that no other program may run after it
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "attacks" / "programs"
GAINS = {"secret", "differs", "marker", "outside", "sibling", "environment", "knock", "written", "audit", "damaged"}
_KEYS = {"source", "gains", "by", "full", "needs", "off", "open", "fresh"}


@dataclass(frozen=True)
class Program:
    name: str
    kind: str  # the file it is in
    source: str
    gains: str
    by: str
    full: str
    cells: tuple[str, ...]
    needs: str = ""
    off: str = ""
    open: str = ""
    fresh: str = ""

    @property
    def codes(self) -> set[str]:
        """The diagnostic codes of its refusal; none when it runs and learns nothing."""
        return set() if self.full.startswith("runs,") else set(self.full.split(" + "))


def read_all() -> list[Program]:
    """Every program, in a fixed order. Raises ValueError for what is not in the format."""
    found = [program for path in sorted(FOLDER.glob("*.md")) for program in _read(path)]
    names = [program.name for program in found]
    if len(names) != len(set(names)):
        raise ValueError("two attack programs have the same name")
    return found


def _read(path: Path) -> list[Program]:
    programs = []
    for section in re.split(r"^## ", path.read_text(), flags=re.M)[1:]:
        name, facts, rest = section.split("\n", 2)
        said = dict(part.split(": ", 1) for part in facts.split(" · "))
        cells = tuple(re.findall(r"^```py\n(.*?)^```$", rest, flags=re.M | re.S))
        if not cells or said.keys() - _KEYS or said.get("gains") not in GAINS:
            raise ValueError(f"{path.name}: {name} is no attack program")
        programs.append(Program(name=name, kind=path.stem, cells=cells, **said))
    return programs
