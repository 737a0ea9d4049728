"""lock_down: a fresh process closes itself, proves it, and says what it proved.

Rule 1: called before any import of a third party, in a single-threaded process (Landlock and seccomp bind one thread
and what it starts later; a thread that existed before would stay open).
Rule 2: nothing is irreversible before everything that can be missing has been looked up: a mechanism that the machine
does not have lowers the level; a mechanism that was put in force and does not hold is an error.
Rule 3: no environment variable, file or argument of a program weakens this; only the private parameter that the tests
use.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from . import landlock, levels, libc, privileges, seccomp, selftest
from .levels import SandboxError
from .paths import WRITABLE_FILES, default_read_paths
from .profile import MAX_NOTE, Profile, Report


@dataclass(frozen=True)
class _Features:
    """What to pretend the machine offers; for tests of older kernels."""

    landlock: int | None = None  # at most this version
    seccomp: bool = True
    namespaces: bool = True


def lock_down(profile: Profile, *, inside_bwrap: bool = False, _features: _Features | None = None) -> Report:
    """Give up everything that `profile` does not name, for good, and return what was proved.

    Raises SandboxError when the process has threads, when the kernel refuses a step, or when a property that a
    mechanism in force promises does not hold; the caller must then exit. A machine without Landlock or seccomp gives
    a lower level, which the caller compares with the policy's minimum.
    """
    features = _features or _Features()
    if sys.platform != "linux":
        note = f"no OS isolation on {sys.platform}: native code in a cell could read your files"
        return Report(levels.Level.NONE, 0, dict.fromkeys(levels.ALL_PROPERTIES, False), (note,))
    _require_one_thread()
    notes: list[str] = []

    abi = landlock.version()
    if features.landlock is not None:
        abi = min(abi, features.landlock)
    architecture = seccomp.current_architecture() if features.seccomp else None
    if abi == 0:
        notes.append("Landlock is missing: only the mount namespace of bubblewrap closes files")
    if architecture is None:
        notes.append("no system call filter: sockets, processes and signals stay open")

    allowed = default_read_paths() + profile.read
    canaries = selftest.FileCanaries(allowed, profile.scratch, inside_bwrap=inside_bwrap)

    if inside_bwrap:
        pass  # it made the namespaces
    elif features.namespaces:
        refused = privileges.leave_namespaces()
        if refused:
            notes.append(f"no own user and network namespace: {refused}")
    measured = {levels.OWN_NETWORK: privileges.has_own_network(), levels.OWN_PROCESS_TREE: _is_alone(inside_bwrap)}

    if inside_bwrap and abi == 0:
        refused = privileges.cover_proc()
        if refused:
            notes.append(f"/proc could not be covered, so bubblewrap's own process can be read: {refused}")

    privileges.set_limits(profile)
    libc.required_prctl("forbidding dumps", libc.PR_SET_DUMPABLE, 0)
    libc.required_prctl("forbidding new privileges", libc.PR_SET_NO_NEW_PRIVS, 1)
    privileges.drop_capabilities()
    measured[levels.NO_CAPABILITIES] = privileges.has_no_capabilities()
    measured[levels.CAPABILITY_BOUND_EMPTY] = privileges.has_empty_bound()

    # The program names the process id, so it is built here; building needs no file.
    program = b""
    if architecture is not None:
        program = seccomp.compile_lock(
            architecture, os.getpid(), allow_fork=profile.allow_fork, scratch=profile.scratch is not None
        )
    if abi > 0:
        landlock.restrict(abi, read=allowed, write_files=WRITABLE_FILES, scratch=profile.scratch)
    measured[levels.LANDLOCK_SCOPES] = abi >= 6
    if architecture is not None:
        error = seccomp.install(architecture, program)
        if error:
            notes.append(f"the system call filter was refused: {libc.describe(error)}")
            architecture = None

    properties = selftest.measure(profile, canaries, architecture, measured)
    broken = sorted(
        name
        for name in _promised(landlock_abi=abi, filtered=architecture is not None, inside_bwrap=inside_bwrap)
        if not properties[name]
    )
    if broken or (architecture is not None and not selftest.filter_in_force()):
        raise SandboxError(
            f"sandbox self-test failed ({', '.join(broken) or 'filter not in force'}): the process is not isolated as "
            "promised and must not run code; run `capkernel doctor`"
        )
    return Report(levels.level_of(properties), abi, properties, tuple(note[:MAX_NOTE] for note in notes))


def _promised(*, landlock_abi: int, filtered: bool, inside_bwrap: bool) -> frozenset[str]:
    """The properties that the mechanisms in force must give."""
    promised = levels.PROCESS_PROPERTIES
    if filtered:
        promised |= levels.SECCOMP_PROPERTIES
    if landlock_abi > 0:
        promised |= levels.FILE_PROPERTIES
    if inside_bwrap:
        promised |= {levels.FILES_CLOSED, levels.METADATA_HIDDEN, levels.OWN_PROCESS_TREE, levels.OWN_NETWORK}
    return promised


def _require_one_thread() -> None:
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError:
        raise SandboxError("sandbox: /proc is not mounted, so it cannot be told whether there are threads") from None
    if threads != 1:
        raise SandboxError(
            f"sandbox: the process has {threads} threads; lock_down must come before any import that starts threads"
        )


def _is_alone(inside_bwrap: bool) -> bool:
    """True when the only other process in sight is bubblewrap's own first process, the parent."""
    if not inside_bwrap or os.getppid() != 1:
        return False
    seen = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    return seen <= {1, os.getpid()}
