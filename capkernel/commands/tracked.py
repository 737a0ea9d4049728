"""Classified files that git tracks: they are in its history, and in every copy of the repository.

Rule 1: nothing of the repository runs. Git is asked for its list of files alone, with its monitor, hooks and fetching
off, and git itself is not one that lies in the repository.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from capkernel.policy.discover import directories_above
from capkernel.policy.errors import PolicyError
from capkernel.policy.paths import PathRules, is_below
from capkernel.policy.resolve import resolve_ambient
from capkernel.wire.shown_text import visible

_SECONDS: Final = 20
_BYTES: Final = 64 * 1024 * 1024
_SHOWN: Final = 20


def warnings_ambient(base: Path, rules: PathRules) -> list[str]:
    """What there is to say of classified files below `base` (canonical) that git tracks; nothing without a repository.

    Ambient authority: asks git for the files of the repository that `base` is in.
    """
    top = next((at for at in directories_above(base) if os.path.lexists(at / ".git")), None)
    if top is None:
        return []
    names, problem = _files_of(top)
    secret = [name for name in names if rules.is_classified(str(top / name)) and is_below(str(top / name), str(base))]
    said = [problem] if problem else []
    said += [f"{name!r} is classified and tracked by git: its history has it" for name in secret[:_SHOWN]]
    if len(secret) > _SHOWN:
        said.append(f"and {len(secret) - _SHOWN} more classified files that git tracks")
    return said


def lines_ambient(base: Path) -> list[str]:
    """The same for `capkernel doctor`, as lines of visible text, by the policy that holds in the directory `base`.

    Ambient authority: reads that policy, asks git.
    """
    named = os.environ.get("CAPKERNEL_POLICY") or None
    if named is not None and not os.path.isabs(named):
        return []  # no session would start, as is said of the secure output
    try:
        policy = resolve_ambient(base, named).policy
    except PolicyError:
        return []
    return [f"git: {visible(words)}" for words in warnings_ambient(base.resolve(), PathRules(policy))]


def _files_of(top: Path) -> tuple[list[str], str]:
    """Names that git tracks, and why they cannot be had, or ""."""
    git = shutil.which("git")
    if git is None or not os.path.isabs(git) or is_below(os.path.realpath(git), str(top)):
        return [], "git is not installed, so it was not looked whether it tracks classified files"
    command = [git, "--no-optional-locks", "--no-pager"]
    for setting in ("core.fsmonitor=false", "core.hooksPath=/dev/null", "protocol.allow=never"):
        command += ["-c", setting]
    command += ["-C", str(top), "ls-files", "-z", "--cached"]
    keep = {name: os.environ[name] for name in ("HOME", "PATH", "XDG_CONFIG_HOME") if name in os.environ}
    keep |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
    try:
        ran = subprocess.run(
            command, env=keep, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as problem:
        return [], f"git could not be asked ({type(problem).__name__}), so its files were not looked at"
    if ran.returncode != 0 or len(ran.stdout) > _BYTES:
        return [], "git gave no list of its files, so they were not looked at"
    return [os.fsdecode(name) for name in ran.stdout.split(b"\0") if name], ""
