"""Starting a checker: a trusted process, outside any sandbox, in an empty directory, with a clean environment."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

from capkernel.checker.client import Process
from capkernel.sandbox import Child, clean_environment, interpreter_argv, launch

# Where its cache of library types is: below the user's cache directory.
_KEPT = ("HOME", "XDG_CACHE_HOME")


@dataclass
class CheckerSpawner:
    """Fulfils `checker.client.Spawn`. `runtime` is the session's own directory."""

    runtime: Path

    def __call__(self, descriptors: list[int], arguments: list[str]) -> Process:
        """A started checker. Raises SandboxError or OSError when there is none."""
        directory = self.runtime / "checker"
        directory.mkdir(mode=0o700, exist_ok=True)
        extra = {name: os.environ[name] for name in _KEPT if name in os.environ}
        return _Checker(
            launch(
                interpreter_argv("capkernel.checker.main", *arguments),
                profile=None,
                pass_fds=descriptors,
                env=clean_environment(extra),
                cwd=str(directory),
            )
        )


class _Checker:
    def __init__(self, child: Child) -> None:
        self._child = child

    @property
    def pid(self) -> int:
        return self._child.pid

    def kill(self) -> None:
        self._child.send_signal(signal.SIGKILL)

    def poll(self) -> int | None:
        return self._child.poll()
