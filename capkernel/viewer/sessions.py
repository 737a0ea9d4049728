"""The running sessions of this user, found by their runtime directories.

Rule 1: a directory, socket or secret that belongs to someone else, or that others may write to, is not looked at.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass

from capkernel.kernel import runtime_dir
from capkernel.viewer.link import Link, LinkRefused
from capkernel.wire.view import SOCKET_NAME


@dataclass(frozen=True)
class Session:
    """name: as in the audit. directory: the notebook's. started: Unix time. runtime: where its socket is."""

    name: str
    directory: str
    pid: int
    started: float
    runtime: str


def running(viewer: str) -> list[Session]:
    """Every session that answers, the newest first. `viewer`: what asks, for the sessions' audits."""
    parent = runtime_dir.parent_directory()
    found: list[Session] = []
    try:
        names = os.listdir(parent) if _is_private(parent) else []
    except OSError:
        names = []
    for name in names:
        runtime = os.path.join(parent, name)
        if name.startswith("session-") and _is_private(runtime) and os.path.lexists(os.path.join(runtime, SOCKET_NAME)):
            with contextlib.suppress(LinkRefused, OSError), Link.open(runtime, viewer) as link:
                said = link.welcome
                found.append(Session(said.session, said.directory, said.pid, said.started, runtime))
    return sorted(found, key=lambda session: -session.started)


def chosen(sessions: list[Session], wanted: str) -> list[Session]:
    """Those that `wanted` names: the beginning of a session's name, its process id, or its notebook's directory."""
    directory = os.path.realpath(wanted)
    return [
        session
        for session in sessions
        if session.name.startswith(wanted) or str(session.pid) == wanted or session.directory == directory
    ]


def _is_private(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022
