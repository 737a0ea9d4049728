"""`capkernel audit`: what sessions asked for and what was decided, and whether the files that say so are whole.

Rule 1: it only reads. No link is followed, no pipe waited for, no line read beyond its bound.
Rule 2: text of a file is shown with control characters made visible.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from capkernel.broker.audit import MAX_LINE, AuditCheck, directory_ambient, verify

OK, FAILED, USAGE = 0, 1, 2
_ENDINGS = {
    "ended": "sound, to the end of the session",
    "running": "sound so far; the session is running",
    "missing": "sound as far as it goes, but it does not say that the session ended: "
    "its kernel was killed, or lines at the end were cut off",
}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register `capkernel audit`."""
    words = "what sessions asked for and what was decided; --verify: whether the audit is whole"
    parser = commands.add_parser("audit", help=words, description=words)
    parser.add_argument("--verify", action="store_true", help="name the first broken line of each session's audit")
    parser.add_argument("--session", default="", help="only sessions whose name starts so; `last`: the newest")
    parser.add_argument("--cell", type=int, help="only lines of this cell (not with --verify)")
    parser.add_argument("--kind", help='only lines of this kind: "files" is also "files.read" (not with --verify)')
    parser.add_argument("--json", action="store_true", help="lines of JSON as they are kept; with --verify one list")
    parser.add_argument("--directory", type=Path, help="where the audits lie (default: the user's state directory)")
    parser.set_defaults(run=_audit)


def _audit(arguments: argparse.Namespace) -> int:
    if arguments.verify and (arguments.cell is not None or arguments.kind is not None):
        return _fail("--verify is about whole sessions: leave --cell and --kind out")
    where = arguments.directory or directory_ambient()
    try:
        files = _files(where, arguments.session)
    except OSError as problem:
        return _fail(f"{_plain(where)}: {os.strerror(problem.errno or 0)}; no session has written an audit there")
    if not files:
        return _fail(f"{_plain(where)}: no audit of {'any session' if not arguments.session else 'such a session'}")
    return _verify(files, arguments.json) if arguments.verify else _show(files, arguments)


def _files(where: Path, session: str) -> list[Path]:
    """Audits, the oldest first. Raises OSError."""
    entries = [entry for entry in os.scandir(where) if entry.name.endswith(".jsonl")]
    known = sorted((entry.stat(follow_symlinks=False).st_mtime, entry.path) for entry in entries)
    paths = [Path(path) for _, path in known]
    return paths[-1:] if session == "last" else [path for path in paths if path.name.startswith(session)]


def _verify(files: list[Path], as_json: bool) -> int:
    found: list[dict[str, Any]] = []
    for path in files:
        try:
            check = verify(path)
        except OSError as problem:
            check = AuditCheck(0, 1, "", f"the file cannot be read: {os.strerror(problem.errno or 0)}")
        found.append({
            "session": path.stem, "lines": check.lines, "broken": check.broken, "problem": check.problem,
            "end": check.end, "head": check.head,
        })  # fmt: skip
        if not as_json:
            lines = f"{check.lines} line{'' if check.lines == 1 else 's'}"
            if check.broken is None:
                print(f"{_plain(path.stem)}: {lines}, {_ENDINGS[check.end]}\n  head {check.head}")
            else:
                print(f"{_plain(path.stem)}: BROKEN at line {check.broken}: {check.problem} ({lines} sound before it)")
    if as_json:
        print(json.dumps(found, indent=1))
    return FAILED if any(entry["broken"] is not None for entry in found) else OK


def _show(files: list[Path], arguments: argparse.Namespace) -> int:
    failed = False
    for path in files:
        try:
            for number, entry in _entries(path):
                if entry is None:
                    failed = True
                    print(
                        f"{_plain(path.stem)}: line {number} is not a line of an audit; see --verify", file=sys.stderr
                    )
                elif _wanted(entry, arguments):
                    print(json.dumps(entry) if arguments.json else _as_text(entry))
        except OSError as problem:
            failed = True
            print(f"{_plain(path)}: {os.strerror(problem.errno or 0)}", file=sys.stderr)
    return FAILED if failed else OK


def _entries(path: Path) -> Iterator[tuple[int, dict[str, Any] | None]]:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(22, "not a regular file")
        number = 0
        while line := file.readline(MAX_LINE):
            number += 1
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                entry = None
            yield number, entry if isinstance(entry, dict) else None


def _wanted(entry: dict[str, Any], arguments: argparse.Namespace) -> bool:
    if arguments.cell is not None and entry.get("cell") != arguments.cell:
        return False
    kind = str(entry.get("what"))
    return arguments.kind is None or kind == arguments.kind or kind.startswith(f"{arguments.kind}.")


def _as_text(entry: dict[str, Any]) -> str:
    when = entry.get("time")
    stamp = "?"
    if isinstance(when, int | float) and 0 <= when < 1e11:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when))
    cell = entry.get("cell")
    where = "session" if cell is None else f"cell {cell}"
    said = [str(entry.get("session"))[:8], where, str(entry.get("who")), str(entry.get("what"))]
    said += [str(entry.get("decision")), str(entry.get("path") or "")]
    more = entry.get("reason") or entry.get("authority") or ""
    return _plain(f"{stamp}  {'  '.join(part for part in said if part)}{f'  ({more})' if more else ''}")


def _plain(text: object) -> str:
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(text))


def _fail(why: str) -> int:
    print(why, file=sys.stderr)
    return USAGE
