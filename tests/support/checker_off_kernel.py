"""The whole kernel with real processes, and a checker that accepts everything and allows everything.

The checker is an argument of the supervisor; only a program that builds the supervisor's parts itself can leave it out.
Its plan lists every scope and sink, and every function of the cell as pure, so that nothing but the processes is left
to stop what a cell does.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from capkernel.checker.captures.codekeys import CodeKeys
from capkernel.checker.captures.sources import shipped_source
from capkernel.checker.protocol import Accepted, Rejected
from capkernel.kernel import runtime_dir
from capkernel.kernel.app import serve
from capkernel.kernel.assemble import Assembly
from capkernel.kernel.supervisor import Parts
from capkernel.kernel.worker_process import Spawned
from capkernel.kernel.worker_spawn import environment
from capkernel.sandbox import Level, launch
from capkernel.wire.plan import FreeName, Plan, PureFunction, ScopeSite, Span

NOWHERE = Span(1, 0, 1, 0)


class AcceptsEverything:
    async def start(self) -> None:
        pass

    async def check(self, cell: int, text: str, _names: object = None) -> Accepted | Rejected:
        keys = CodeKeys(cell, text)
        definitions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Lambda | ast.FunctionDef)]
        pure = []
        for node in definitions:
            key, source = keys.of(node), shipped_source(node, text)
            if key is not None and source is not None:
                kind = "lambda" if isinstance(node, ast.Lambda) else "def"
                pure.append(PureFunction(key, kind, key.name, source, _free(node)))
        tables = tuple(f"builtins.{name}" for name in dir(builtins))
        scopes = (ScopeSite("file_system", None, cell, NOWHERE),)
        return Accepted(cell, Plan(scopes, ("write_classified",), tuple(pure), tables))

    async def commit(self, cell: int, bound: tuple[str, ...], deleted: tuple[str, ...] = (), **_: object) -> None:
        pass

    async def discard(self, cell: int) -> None:
        pass

    async def look(self, question: object) -> None:
        return None

    async def close(self) -> None:
        pass


def _free(node: ast.Lambda | ast.FunctionDef) -> tuple[FreeName, ...]:
    """Every name it reads and does not bind: modules by import inside the function, all else plain data."""
    bound = {argument.arg for argument in ast.walk(node) if isinstance(argument, ast.arg)}
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    bound |= {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    read = {name.id for name in names} - bound - set(dir(builtins))
    return tuple(FreeName(name, "data") for name in sorted(read))


def bare_spawner(runtime: Path) -> Callable[[], Spawned]:
    """Starts workers without any sandbox; the vault keeps its own."""
    program = Path(__file__).with_name("bare_worker.py")

    def spawn() -> Spawned:
        scratch = runtime / "bare"
        (scratch / ".matplotlib").mkdir(mode=0o700, parents=True, exist_ok=True)
        ours, theirs = socket.socketpair()
        requests, requests_child = socket.socketpair()
        quick, quick_child = socket.socketpair()
        out, out_child = os.pipe()
        err, err_child = os.pipe()
        child = launch(
            [sys.executable, "-P", "-s", "-E", str(program), "--fd", str(theirs.fileno()),
             "--request-fd", str(requests_child.fileno()), "--quick-fd", str(quick_child.fileno())],
            profile=None, pass_fds=(theirs.fileno(), requests_child.fileno(), quick_child.fileno()),
            env=environment(scratch, scratch / ".matplotlib"), cwd=str(scratch),
            stdout=out_child, stderr=err_child,
        )  # fmt: skip
        theirs.close()
        requests_child.close()
        quick_child.close()
        os.close(out_child)
        os.close(err_child)
        return Spawned(child, ours, requests, quick, out, err, verify=list, clean_up=lambda: None)

    return spawn


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-f", required=True)
    parser.add_argument("--base", required=True)
    parser.add_argument("--policy")
    parser.add_argument("--bare", action="store_true", help="no sandbox around the worker either")
    arguments = parser.parse_args()
    directory, _lock = runtime_dir.make()
    os.chdir(directory)
    assembly = Assembly.read(base=arguments.base, runtime=directory, policy=arguments.policy, profile=None)

    def parts() -> Parts:
        unchecked = replace(assembly.parts(), make_checker=AcceptsEverything)
        if not arguments.bare:
            return unchecked
        return replace(unchecked, spawn_worker=bare_spawner(Path(directory)), minimum=Level.NONE)

    serve(arguments.f, str(Path(directory)), parts, assembly.settings())


if __name__ == "__main__":
    main()
