"""How a vault process begins: arguments, lock-down, silence. Standard library only until it is locked.

Rule 1: nothing but `capkernel.sandbox` is imported before `lock_down` has returned.
Rule 2: when it fails the process says one sentence on standard error and exits with 3; it never runs unlocked.
Rule 3: from then on standard input, output and error are /dev/null, so that nothing in it can be printed out.
"""

from __future__ import annotations

import os
import socket
import sys
from typing import Never

from capkernel.sandbox import Profile, SandboxError, lock_down

REFUSED = 3
_USAGE = "usage: --fd N --profile JSON --wall bwrap|plain"


def begin(role: str, arguments: list[str]) -> tuple[socket.socket, str]:
    """The inherited link and the sandbox report as JSON. Exits when the process cannot be isolated."""
    if len(arguments) != 6 or arguments[::2] != ["--fd", "--profile", "--wall"]:
        _refuse(_USAGE)
    if arguments[5] not in ("bwrap", "plain") or not arguments[1].isdigit() or int(arguments[1]) < 3:
        _refuse(_USAGE)
    try:
        profile = Profile.from_json(arguments[3])
        if profile.role != role:
            _refuse(f"the sandbox profile is one of a {profile.role}, this is a {role}")
        report = lock_down(profile, inside_bwrap=arguments[5] == "bwrap")
        link = socket.socket(fileno=int(arguments[1]))
        if link.family != socket.AF_UNIX or link.type != socket.SOCK_STREAM:
            _refuse("the descriptor of --fd is no stream socketpair")
        null = os.open(os.devnull, os.O_RDWR)
    except (SandboxError, ValueError, OSError) as problem:
        _refuse(str(problem))
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.close(null)
    return link, report.to_json()


def _refuse(problem: str) -> Never:
    sys.stderr.write(f"capkernel vault: {problem}\n")
    sys.stderr.flush()
    os._exit(REFUSED)
