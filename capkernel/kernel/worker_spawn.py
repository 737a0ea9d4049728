"""Starting a worker: its scratch directory, its environment, its ends of the links."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from capkernel.kernel import font_cache, runtime_dir
from capkernel.kernel.worker_process import Spawned
from capkernel.sandbox import Profile, clean_environment, interpreter_argv, launch, prefers_bwrap, verify

_MEMORY_SHARE = 0.75


@dataclass
class WorkerSpawner:
    """Starts workers, each with a scratch directory of its own below `runtime`."""

    runtime: Path
    cell_memory_mb: int | None = None  # of all that cells allocate and leave
    active_outputs: bool = False
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __call__(self) -> Spawned:
        """A started worker. Raises OSError or SandboxError when there is none."""
        scratch = self.runtime / f"worker-{next(self._numbers)}"
        scratch.mkdir(mode=0o700)
        matplotlib = scratch / ".matplotlib"
        matplotlib.mkdir(mode=0o700)
        font_cache.provide(matplotlib)
        profile = Profile(
            "worker", scratch=str(scratch), memory_bytes=memory_limit(),
            data_bytes=None if self.cell_memory_mb is None else self.cell_memory_mb * 2**20,
        )  # fmt: skip
        wrapped = prefers_bwrap(profile)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        requests, requests_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        quick, quick_child = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        out, out_child = os.pipe()
        err, err_child = os.pipe()
        try:
            child = launch(
                interpreter_argv(
                    "capkernel.worker.main", "--fd", str(theirs.fileno()),
                    "--request-fd", str(requests_child.fileno()), "--quick-fd", str(quick_child.fileno()),
                    "--profile", profile.to_json(), "--inside", "bwrap" if wrapped else "plain",
                    *(["--active-outputs"] if self.active_outputs else []),
                ),
                profile=profile, pass_fds=(theirs.fileno(), requests_child.fileno(), quick_child.fileno()),
                env=environment(scratch, matplotlib), cwd=str(scratch),
                stdout=out_child, stderr=err_child, use_bwrap=wrapped,
            )  # fmt: skip
        except BaseException:
            ours.close()
            requests.close()
            quick.close()
            os.close(out)
            os.close(err)
            runtime_dir.remove(str(scratch))
            raise
        finally:
            theirs.close()
            requests_child.close()
            quick_child.close()
            os.close(out_child)
            os.close(err_child)
        return Spawned(
            child, ours, requests, quick, out, err, verify=lambda: verify(child.pid),
            clean_up=lambda: runtime_dir.remove(str(scratch)),
        )  # fmt: skip


def environment(scratch: Path, matplotlib: Path) -> dict[str, str]:
    """The environment of a worker."""
    return clean_environment({
        "HOME": str(scratch), "TMPDIR": str(scratch), "MPLCONFIGDIR": str(matplotlib),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    })  # fmt: skip


def memory_limit() -> int | None:
    """Address space for a worker, in bytes: most of the machine's memory, so that a runaway cell gets a MemoryError
    before the machine is in trouble."""
    with contextlib.suppress(ValueError, OSError):
        return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _MEMORY_SHARE)
    return None
