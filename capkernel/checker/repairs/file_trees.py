"""What a directory holds and where a file goes, as a cell writes it with `pathlib`, `shutil` and `os`, on a capability.

Rule 1: a listing of `pathlib` gives paths, so its items stay paths: `Path` is then `PurePath`, which names and joins.
Rule 2: a file that is copied or moved is read and written whole. That is `safe` only where both ends are written as
files: what is a directory there goes another way.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from capkernel.checker.repairs.file_paths import PATHS, Paths, quoted
from capkernel.checker.repairs.source import literal, unparsed

COPIES = frozenset(("shutil.copy", "shutil.copy2", "shutil.copyfile"))
MOVES = frozenset(("shutil.move", "os.rename", "os.replace"))
_LISTINGS = ("iterdir", "glob", "rglob")


@dataclass(frozen=True)
class Tree:
    """`text` in place of a call, with `{fs}` for the file system; `keeps`: names of the cell that it uses."""

    text: str
    is_safe: bool
    imports: frozenset[str] = frozenset()
    keeps: frozenset[str] = frozenset()


def listed(paths: Paths, call: ast.Call, entry: str) -> Tree | None:
    """`Path("d").iterdir()`, `.glob("*.csv")`, `.rglob("*.py")`; `entry`: the directory as code."""
    assert isinstance(call.func, ast.Attribute)
    method, path = call.func.attr, paths.name_of_path()
    if not path or call.keywords or len(call.args) != (method != "iterdir"):
        return None
    _, is_safe, _ = paths.path(call.func.value)
    every, made = f"{entry}.children", f"{path}(entry.path)"
    if method == "iterdir":
        return Tree(f"[{made} for entry in {every}]", is_safe, keeps=frozenset((path,)))
    pattern = literal(call.args[0]) or ""
    if pattern.startswith("**/"):
        method, pattern = "rglob", pattern[3:]
    if not pattern or "/" in pattern or "**" in pattern or "\\" in pattern:
        return None
    if method == "rglob":
        every = f"{entry}.walk()"
    test = f"fnmatch.fnmatchcase(entry.name, {quoted(pattern)})".replace("{", "{{").replace("}", "}}")
    text = f"[{made} for entry in {every} if {test}]"
    return Tree(text, is_safe, frozenset(("import fnmatch",)), frozenset((path,)))


def put(paths: Paths, source: ast.expr, target: ast.expr, function: str) -> Tree | None:
    """`shutil.copy(a, b)`, `os.rename(a, b)`: a whole statement."""
    old, inside, name = paths.path(source)
    new, also, other = paths.path(target)
    if not old or not new or unparsed(source) == unparsed(target):
        return None
    if (literal(target) or "").endswith("/"):
        if not name or "?" in name:
            return None
        new, other = quoted(f"{literal(target)}{name}"), name
    as_files = "." in name and "." in other and "?" not in name + other
    entries = ["{fs}.access(" + one.replace("{", "{{").replace("}", "}}") + ")" for one in (old, new)]
    text = f"{entries[1]}.write_bytes({entries[0]}.read_bytes())"
    if function in MOVES:
        text += f"; {entries[0]}.delete()"
    known = function == "shutil.copyfile" or (as_files and function != "shutil.copy2")
    return Tree(text, inside and also and known)


def is_listing(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _LISTINGS


def is_refused(full: str) -> bool:
    """Whether an import of this is there for nothing else."""
    return full == "shutil" or full in COPIES or full in MOVES or full in PATHS
