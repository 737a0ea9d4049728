"""What the kernel checks from outside, about a process that said it is locked.

Rule 1: nothing here comes from the process itself: only what the operating system says about it. Landlock domains are
not visible from outside; that part rests on the self-test.
"""

from __future__ import annotations

import os
from typing import Final

_CAPABILITY_SETS: Final = ("CapInh", "CapPrm", "CapEff", "CapAmb")
_LIMITED: Final = {"Max core file size": "core files", "Max locked memory": "locked memory"}


def verify(pid: int) -> list[str]:
    """What is wrong with the isolation of a process (every thread of it), as sentences; [] when nothing is.

    The bounding set must be empty when the process runs as root. Another user without privileges cannot empty it, and
    does not need to: it takes an exec to gain from it, and no_new_privs and the filter close that.
    """
    try:
        threads = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except (OSError, ValueError):
        return [f"process {pid} is not there"]
    problems: list[str] = []
    for thread in threads:
        try:
            fields = _status(f"/proc/{pid}/task/{thread}/status")
        except FileNotFoundError:
            continue  # a thread that ended meanwhile
        except (OSError, ValueError):
            problems.append(f"the status of thread {thread} cannot be read")
            continue
        problems += [problem for problem in _problems(fields) if problem not in problems]
    problems += _limit_problems(pid)
    return problems


def _problems(fields: dict[str, str]) -> list[str]:
    problems = []
    if fields.get("Seccomp") != "2":
        problems.append("no system call filter is in force (Seccomp is not 2)")
    if fields.get("NoNewPrivs") != "1":
        problems.append("it could gain privileges by exec (NoNewPrivs is not 1)")
    sets = list(_CAPABILITY_SETS)
    if fields.get("Uid", "0").split()[0] == "0":
        sets.append("CapBnd")
    problems += [f"it has capabilities ({name} is not 0)" for name in sets if not _is_zero(fields.get(name))]
    if fields.get("TracerPid", "0") != "0":
        problems.append("it is being traced")
    return problems


def _limit_problems(pid: int) -> list[str]:
    try:
        with open(f"/proc/{pid}/limits", encoding="ascii", errors="replace") as table:
            lines = table.read().splitlines()
    except OSError:
        return ["its resource limits cannot be read"]
    problems = []
    for label, what in _LIMITED.items():
        line = next((line for line in lines if line.startswith(label)), "")
        if line[len(label) :].split()[:2] != ["0", "0"]:
            problems.append(f"it has no limit on {what}")
    return problems


def _is_zero(text: str | None) -> bool:
    try:
        return text is not None and int(text, 16) == 0
    except ValueError:
        return False


def _status(path: str) -> dict[str, str]:
    with open(path, encoding="utf-8", errors="replace") as table:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in table)}
