"""matplotlib's list of fonts, built once per version, so that the first plot of a session does not take seconds.

Rule 1: what a worker wrote is never handed to another session. The list is built by a process of ours that runs no
cell, locked like a worker, into a directory of its own; each worker gets a copy.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from pathlib import Path

import platformdirs

from capkernel.sandbox import Profile, SandboxError, clean_environment, interpreter_argv, launch, prefers_bwrap

_SECONDS = 120.0
_PATTERN = "fontlist-*.json"


def directory() -> Path:
    """Where lists are kept: below the user's cache directory, one directory for each installation."""
    name = f"fonts-{abs(hash_of(sys.prefix)):x}"
    return Path(platformdirs.user_cache_dir("capkernel", appauthor=False)) / name


def hash_of(text: str) -> int:
    """A number that stays the same from run to run."""
    import zlib

    return zlib.crc32(text.encode("utf-8", "surrogateescape"))


def provide(into: Path) -> None:
    """Copy the lists there are into a worker's configuration directory. Without any, matplotlib builds its own."""
    with contextlib.suppress(OSError):
        for found in directory().glob(_PATTERN):
            shutil.copyfile(found, into / found.name)


def missing() -> bool:
    """Whether no list has been built yet, and matplotlib is here to want one."""
    import importlib.util

    return importlib.util.find_spec("matplotlib") is not None and not any(directory().glob(_PATTERN))


def build() -> None:
    """Build the list and keep it. Takes seconds; failures leave things as they were. Called in a thread."""
    kept = directory()
    with contextlib.suppress(OSError, SandboxError):
        kept.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(prefix="building-", dir=kept) as scratch:
            profile = Profile("worker", scratch=scratch)
            wrapped = prefers_bwrap(profile)
            child = launch(
                interpreter_argv(
                    "capkernel.worker.fonts",
                    "--profile",
                    profile.to_json(),
                    "--inside",
                    "bwrap" if wrapped else "plain",
                ),
                profile=profile,
                pass_fds=(),
                cwd=scratch,
                use_bwrap=wrapped,
                env=clean_environment({"HOME": scratch, "TMPDIR": scratch, "MPLCONFIGDIR": scratch}),
            )
            try:
                with contextlib.suppress(Exception):
                    child.wait(_SECONDS)
            finally:
                child.terminate_hard()
            for made in Path(scratch).glob(_PATTERN):
                os.replace(made, kept / made.name)
