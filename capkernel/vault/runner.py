"""The runner's loop: one job at a time from the keeper, one word about its end back."""

from __future__ import annotations

import gc
import importlib
import os
import resource
import socket
import warnings

from capkernel.vault.descriptors import DescriptorQueue
from capkernel.vault.job import JobOutlivedItsLimits, KeeperGone, perform
from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.frames import FrameReader, encode
from capkernel.wire.vault import Ended, FunctionBundle, Job, RunnerReady, ToRunner

# What this process itself may import for its jobs. Closed: their import runs no user code, starts no thread here (one
# BLAS thread) and costs too much to be repeated in every job. Any other library is imported by the job that needs it.
IMPORTED_HERE = {
    "numpy": ("numpy", "capkernel.wire._arrays"),
    "pandas": ("pandas", "capkernel.wire._frames"),
}


class Runner:
    """Serves jobs on `link`; `statm` is an open /proc/self/statm of this very process."""

    def __init__(self, link: socket.socket, statm: int) -> None:
        self._link = link
        self._statm = statm
        self._descriptors = DescriptorQueue(link)
        self._reader: FrameReader[Job] = FrameReader(ToRunner)
        self._imported: set[str] = set()

    def serve(self, report: str) -> None:
        """Returns when the keeper is gone or breaks the protocol, or when a job cannot be ended."""
        self._link.setblocking(True)
        self._freeze()
        try:
            self._link.sendall(encode(RunnerReady(report)))
            while True:
                job, _ = self._next()
                stream = self._descriptors.take()
                problem = self._import_for(job)
                if problem:
                    os.close(stream)
                else:
                    problem = perform(job, stream, link=self._link.fileno(), address_space=self._address_space())
                self._link.sendall(encode(Ended(job.number, problem)))
        except (JobOutlivedItsLimits, KeeperGone, RemoteProtocolError, OSError, EOFError):
            return

    def _next(self) -> tuple[Job, bytes]:
        while True:
            for frame in self._reader.frames():
                return frame
            data = self._descriptors.receive()
            if not data:
                raise EOFError
            self._reader.feed(data)

    def _import_for(self, job: Job) -> str:
        wanted = set(job.libraries) | libraries_of(job.bundle)
        for library in IMPORTED_HERE:
            if library not in wanted or library in self._imported:
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    for module in IMPORTED_HERE[library]:
                        importlib.import_module(module)
            except Exception as problem:
                return f"{library} cannot be imported ({type(problem).__name__})"
            self._imported.add(library)
            self._freeze()
        return ""

    def _freeze(self) -> None:
        # A collection in a job would touch, and so copy, every page of what is here.
        gc.collect()
        gc.freeze()

    def _address_space(self) -> int:
        pages = int(os.pread(self._statm, 64, 0).split()[0])
        return pages * resource.getpagesize()


def libraries_of(bundle: FunctionBundle) -> set[str]:
    """The top-level modules that the functions of a bundle name."""
    names = {bundle.table.partition(".")[0]}
    for function in bundle.functions:
        names |= {free.target.partition(".")[0] for free in function.free if free.kind in ("module", "table")}
    return names
