"""A worker's shell that compiles cells and tells what it compiled, instead of running it. One JSON line in, one out."""

# ruff: noqa: E402  (as in the worker, debugpy is made absent first)
from __future__ import annotations

import ast
import asyncio
import json
import socket
import sys
from typing import Any

sys.modules["debugpy"] = None  # type: ignore[assignment]

from capkernel.wire.frames import FrameReader
from capkernel.wire.worker import Execute, ToWorker
from capkernel.worker.channel import Channel
from capkernel.worker.interrupts import Interrupts
from capkernel.worker.names import NameLog
from capkernel.worker.quick_link import QuickLink
from capkernel.worker.shell import make_kernel

_TALK = sys.stdout


async def main() -> None:
    ours, _theirs = socket.socketpair()
    quick, _theirs_too = socket.socketpair()
    interrupts = Interrupts()
    kernel = make_kernel(Channel(ours, interrupts, QuickLink(quick, interrupts)), interrupts)
    shell = kernel.shell
    log = NameLog(shell.user_ns)
    compiled: list[str] = []

    async def instead(body: list[ast.stmt], cell_name: str, **_: Any) -> bool:
        compiled.append(f"{cell_name} {dump(ast.Module(body, []))}")
        return False

    shell.run_ast_nodes = instead
    shell.showsyntaxerror = lambda *_, **__: compiled.append("syntax error")
    for line in sys.stdin:
        compiled.clear()
        reader: FrameReader[Any] = FrameReader(ToWorker)
        reader.feed(bytes.fromhex(line.strip()))
        [(cell, _)] = list(reader.frames())
        assert isinstance(cell, Execute)
        shell.begin_cell(cell, log)
        await kernel.do_execute(cell.raw, cell.silent, cell.store_history, {}, False, cell_meta={}, cell_id=None)
        _TALK.write(json.dumps(compiled) + "\n")
        _TALK.flush()


def dump(tree: ast.AST) -> str:
    return ast.dump(tree, include_attributes=True)


if __name__ == "__main__":
    asyncio.run(main())
