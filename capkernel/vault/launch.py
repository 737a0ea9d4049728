"""Starting keeper and runner from the kernel: their sandbox profiles and command lines."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Protocol

from capkernel.sandbox import Profile, clean_environment, interpreter_argv, launch, prefers_bwrap

WRITE_BYTES = 1024**3  # the largest file the keeper may fill
_MAX_WORDS = 2000


class ChildProcess(Protocol):
    """What the client needs of a started process; `sandbox.Child` is one."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def terminate_hard(self) -> None: ...


def last_words(child: ChildProcess | None) -> str:
    """Why a process that was started here refused to run; it says so on standard error before it is locked down."""
    process = getattr(child, "process", None)
    stream = process.stderr if isinstance(process, subprocess.Popen) else None
    if stream is None or stream.closed:
        return ""
    os.set_blocking(stream.fileno(), False)
    said: bytes = stream.read(_MAX_WORDS) or b""
    return said.decode("utf-8", "replace").strip()


Spawn = Callable[[int], ChildProcess]


def keeper_profile(*, memory_bytes: int | None = None) -> Profile:
    """The keeper makes no process and writes only through descriptors it is handed."""
    return Profile("keeper", memory_bytes=memory_bytes, allow_fork=False, file_bytes=WRITE_BYTES)


def runner_profile(*, read: tuple[str, ...] = (), memory_bytes: int | None = None) -> Profile:
    """The runner forks its jobs. `read`: library directories beyond the usual ones."""
    return Profile("runner", read=read, memory_bytes=memory_bytes, allow_fork=True, file_bytes=0)


def spawners(keeper: Profile, runner: Profile, *, cwd: str, use_bwrap: bool | None = None) -> tuple[Spawn, Spawn]:
    """The two callables of VaultClient: each starts its process on the given end of a socketpair (and blocks shortly).

    `cwd`: an empty directory. `use_bwrap`: as for `sandbox.launch`.
    """

    def spawn(module: str, profile: Profile, descriptor: int) -> ChildProcess:
        wrapped = prefers_bwrap(profile) if use_bwrap is None else use_bwrap
        argv = interpreter_argv(
            module, "--fd", str(descriptor), "--profile", profile.to_json(), "--wall", "bwrap" if wrapped else "plain"
        )
        return launch(
            argv, profile=profile, pass_fds=(descriptor,), env=clean_environment(), cwd=cwd,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, use_bwrap=wrapped,
        )  # fmt: skip

    return (
        lambda descriptor: spawn("capkernel.vault.keeper_main", keeper, descriptor),
        lambda descriptor: spawn("capkernel.vault.runner_main", runner, descriptor),
    )
