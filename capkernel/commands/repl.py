"""`capkernel repl`: a session at the terminal.

A thin client of `bridge.session`: it reads a cell, runs it, shows what comes. Ctrl-C interrupts a running cell or
drops what is being typed; Ctrl-D ends. Without a terminal, cells are read from standard input, a line each or as many
lines as make a cell.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nbformat.notebooknode import NotebookNode

    from capkernel.bridge.session import Session

OK, FAILED, USAGE = 0, 1, 2
MORE = "   ...: "
_BOLD_RED, _DIM, _PLAIN = "\x1b[1;31m", "\x1b[2m", "\x1b[0m"

Read = Callable[[str, str], Awaitable[str]]
"""Prompt and what stands there already; the line. Raises EOFError at the end, KeyboardInterrupt for Ctrl-C."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    repl = commands.add_parser("repl", help="a session at the terminal, every line checked before it runs")
    repl.add_argument("directory", nargs="?", type=Path, default=None, help="the notebook's folder (default: here)")
    repl.add_argument("--policy", type=Path, default=None, help="a policy file, the operator's")
    repl.add_argument("--profile", choices=("strict", "standard", "relaxed"), default=None)
    repl.set_defaults(run=_repl)


def _repl(arguments: argparse.Namespace) -> int:
    from capkernel.bridge.session import SessionError

    directory = Path.cwd() if arguments.directory is None else arguments.directory
    if not directory.is_dir():
        print(f"{directory}: there is no such folder", file=sys.stderr)
        return USAGE
    try:
        return asyncio.run(_session(arguments, directory))
    except SessionError as problem:
        print(f"capkernel: {problem}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:  # before the first prompt, or after the last
        return FAILED


async def _session(arguments: argparse.Namespace, directory: Path) -> int:
    from capkernel.bridge.session import Session

    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    asker = _Asker(terminal)
    opened = Session(policy=arguments.policy, profile=arguments.profile, directory=directory, ask=asker.ask)
    async with opened as session:
        asker.serve(session, asyncio.get_running_loop())
        if terminal:
            await session.check("None")  # answered when the session is ready
            state = await session.state()
            print(f"capkernel: {state.profile} profile, {state.sandbox} sandbox. Ctrl-C interrupts, Ctrl-D ends.")
        await converse(session, _terminal(session) if terminal else _standard_input(), Page(colours=terminal))
    return OK


async def converse(session: Session, read: Read, page: Page) -> None:
    """Read, run and show cells until the end of the input."""
    count = 1
    while True:
        try:
            cell = await read_cell(session, read, f"In [{count}]: ")
        except EOFError:
            return
        except KeyboardInterrupt:
            continue
        if not cell.strip():
            continue
        with _interrupting(session):
            result = await session.execute(cell, watch=page.show)
        page.end()
        if result.count is not None:
            count = result.count + 1


async def read_cell(session: Session, read: Read, prompt: str) -> str:
    """Lines until they make a cell. At the end of the input in the midst of one, what is there."""
    lines = [await read(prompt, "")]
    while lines[0].strip():
        status, indent = await session.is_complete("\n".join(lines))
        if status != "incomplete":
            break
        try:
            lines.append(await read(MORE, indent))
        except EOFError:
            break
    return "\n".join(lines)


class Page:
    """Shows outputs as they come: text, errors and diagnostics; of a refusal, only the whole one."""

    def __init__(self, *, colours: bool, write: Callable[[str], object] | None = None) -> None:
        self._colours = colours
        self._write = _print if write is None else write
        self._in_line = False

    def show(self, output: NotebookNode) -> None:
        from capkernel.bridge.session import is_authority, repeats_refusal, shown
        from capkernel.diagnostics.render_json import MIME_TYPE

        if repeats_refusal(output):
            return
        if output.output_type == "stream":
            self._put(output.text)
            return
        self.end()
        if output.output_type == "error":
            lines = "\n".join(output.traceback)
            self._put((lines if self._colours else shown(output)) + "\n")
        elif is_authority(output):
            self._put(self._marked(_DIM, output.data["text/plain"]) + "\n")
        elif MIME_TYPE in output.data:
            first, _, rest = shown(output).partition("\n")
            self._put(f"{self._marked(_BOLD_RED, first)}\n{rest}".rstrip("\n") + "\n")
        else:
            self._put(shown(output) + "\n")

    def end(self) -> None:
        """What comes next begins on a line of its own."""
        if self._in_line:
            self._put("\n")

    def _put(self, text: str) -> None:
        if text:
            self._write(text)
            self._in_line = not text.endswith("\n")

    def _marked(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self._colours else text


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


@contextlib.contextmanager
def _interrupting(session: Session) -> Any:
    """While a cell runs, Ctrl-C interrupts it and nothing else."""
    loop = asyncio.get_running_loop()
    running: set[asyncio.Task[None]] = set()
    loop.add_signal_handler(signal.SIGINT, lambda: running.add(loop.create_task(session.interrupt())))
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


class _Asker:
    """Answers `input()` of a cell. Called in a thread of its own."""

    def __init__(self, terminal: bool) -> None:
        self._terminal = terminal
        self._interrupt: Callable[[], object] = lambda: None

    def serve(self, session: Session, loop: asyncio.AbstractEventLoop) -> None:
        self._interrupt = lambda: asyncio.run_coroutine_threadsafe(session.interrupt(), loop)

    def ask(self, prompt: str, hidden: bool) -> str | None:
        if not self._terminal:
            print(prompt, flush=True)  # nobody types the end of its line
            line = sys.stdin.readline()
            return line.removesuffix("\n") if line else None
        from prompt_toolkit import PromptSession

        try:
            return str(PromptSession[str]().prompt(prompt, is_password=hidden, handle_sigint=False))
        except EOFError:
            return None
        except KeyboardInterrupt:
            self._interrupt()
            return None


def _standard_input() -> Read:
    async def read(_prompt: str, _indent: str) -> str:
        line: str = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            raise EOFError
        return line.removesuffix("\n")

    return read


def _terminal(session: Session) -> Read:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class ByType(Completer):
        """What the kernel offers, on Tab."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Any:  # noqa: ARG002
            return iter(())

        async def get_completions_async(
            self, document: Document, complete_event: CompleteEvent  # noqa: ARG002
        ) -> AsyncGenerator[Completion, None]:  # fmt: skip
            matches, start, end = await session.complete(document.text, document.cursor_position)
            if end == document.cursor_position:
                for match in matches[:200]:
                    yield Completion(match, start_position=start - document.cursor_position)

    reader: PromptSession[str] = PromptSession(completer=ByType(), complete_while_typing=False)

    async def read(prompt: str, indent: str) -> str:
        return str(await reader.prompt_async(prompt, default=indent))

    return read
