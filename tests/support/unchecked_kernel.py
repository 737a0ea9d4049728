"""A kernel for tests of the front, the worker and the firewall: real processes, a checker that accepts what parses.

Only a program that builds the supervisor's parts itself can leave the checker out; this is one.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import os
import sys
from pathlib import Path

from capkernel.checker.protocol import Accepted, Rejected
from capkernel.diagnostics import Diagnostic, Span
from capkernel.kernel import runtime_dir
from capkernel.kernel.app import serve
from capkernel.kernel.settings import Settings
from capkernel.kernel.supervisor import Parts
from capkernel.kernel.worker_spawn import WorkerSpawner
from capkernel.sandbox import Level
from capkernel.wire.plan import Plan
from capkernel.wire.worker import Call, CallResult, Failure, Invoke, OpenScope


class AcceptsWhatParses:
    """Refuses what holds `REFUSE`, warns of `WARN`, takes its time over `SLOWLY`, accepts the rest."""

    def __init__(self) -> None:
        self.committed: list[tuple[int, tuple[str, ...], tuple[str, ...]]] = []

    async def start(self) -> None:
        pass

    async def check(self, cell: int, text: str, _names: object = None) -> Accepted | Rejected:
        if "SLOWLY" in text:
            await asyncio.sleep(0.3)
        if "REFUSE" in text:
            return Rejected(cell, (Diagnostic("unsafe-feature", "no `REFUSE` here", cell, Span(1, 0, 1, 6)),))
        try:
            ast.parse(text)
        except (SyntaxError, ValueError) as problem:
            return Rejected(cell, (Diagnostic("syntax", str(problem), cell, Span(1, 0, 1, 1)),))
        warned = (Diagnostic("assignment", "a warning", cell, Span(1, 0, 1, 4), "warning"),) if "WARN" in text else ()
        return Accepted(cell, Plan(), warned)

    async def commit(
        self, cell: int, bound: tuple[str, ...], deleted: tuple[str, ...] = (), *, raised: bool = False
    ) -> None:
        self.committed.append((cell, bound, deleted))

    async def discard(self, cell: int) -> None:
        pass

    async def look(self, question: object) -> None:
        return None

    async def close(self) -> None:
        pass


class SlowBroker:
    """Every effect: scopes open at once, `read_bytes` of `slow` takes for ever, of anything else answers its path."""

    def __init__(self) -> None:
        self.open = False

    def refuse_cell(self, cell: int, codes: tuple[str, ...]) -> None: ...

    def open_cell(self, cell: int, plan: Plan) -> None:
        self.open = True

    def close_cell(self) -> None:
        self.open = False

    async def call(self, call: Call, blob: bytes) -> tuple[CallResult, bytes]:
        if not self.open:
            return CallResult(call.call, error=Failure("CapabilityRevoked", "no cell runs")), b""
        match call.effect:
            case OpenScope():
                return CallResult(call.call, "scope"), b""
            case Invoke(method="access", path=path):
                return CallResult(call.call, [path, path]), b""
            case Invoke(method="read_bytes", handle="slow"):
                await asyncio.sleep(3600)
            case Invoke(method="read_bytes", handle=handle):
                return CallResult(call.call), handle.encode()
        return CallResult(call.call), b""

    def call_quickly(self, call: int, effect: Invoke) -> tuple[CallResult, bytes]:
        return asyncio.run(self.call(Call(call, effect), b""))

    def post(self, operation: object, blob: bytes) -> None:
        pass

    def worker_lost(self) -> None: ...

    async def close(self) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-f", required=True)
    parser.add_argument("--output-bytes", type=int, default=10 * 1024 * 1024)
    parser.add_argument("--cell-seconds", type=float, default=60.0)
    parser.add_argument("--minimum", default="standard")
    arguments = parser.parse_args()
    directory, _lock = runtime_dir.make()
    os.chdir(directory)

    def parts() -> Parts:
        return Parts(
            WorkerSpawner(Path(directory)), AcceptsWhatParses, SlowBroker(), None, Level.parse(arguments.minimum)
        )

    serve(arguments.f, directory, parts, Settings(arguments.output_bytes, arguments.cell_seconds))


if __name__ == "__main__":
    sys.exit(main())
