"""The stock IPython shell and kernel, with everything that could change, store or reach anything taken out.

Rule 1: the text that is compiled is the text that was checked. `transform_cell` gives the checked text for the running
cell and leaves every other text as it is; there are no transformers, of text or of syntax trees.
Names of local modules are resolved as the checker did (`wire.local_modules`).
Rule 2: a cell is compiled under the name of its number (`wire.codekey`), in this process as in the checker.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel and IPython leave their methods without annotations)
from __future__ import annotations
import __future__ as futures

import ast
import asyncio
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace, TracebackType
from typing import TYPE_CHECKING, Any, cast

from ipykernel.compiler import XCachingCompiler
from ipykernel.displayhook import ZMQShellDisplayHook
from ipykernel.ipkernel import IPythonKernel
from ipykernel.zmqshell import ZMQInteractiveShell
from IPython.utils.tokenutil import token_at_cursor
from traitlets import Type
from traitlets.config import Config

from capkernel.api.classified import Classified
from capkernel.wire.codekey import FIRST_MODULE, cell_filename, cell_of
from capkernel.wire.local_renaming import rename
from capkernel.wire.worker import HANDLE_MIME, Execute
from capkernel.worker import looking
from capkernel.worker.channel import Channel
from capkernel.worker.interrupts import Interrupts, in_cell
from capkernel.worker.names import NameLog
from capkernel.worker.reserve import Reserve
from capkernel.worker.session import SocketSession, request_of
from capkernel.worker.timing import Stopwatch, with_timing

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")

# The others are part of the language by now or, as the one joke among them, change what parses.
_KEPT_FUTURES = futures.annotations.compiler_flag


class CellCompiler(XCachingCompiler):
    """Names code after its cell."""

    cell = 0

    def get_code_name(self, raw_code: str, code: str, number: int) -> str:  # noqa: ARG002
        return cell_filename(self.cell)

    def format_code_name(self, name: str) -> Any:
        # Of a local module the kernel knows the file.
        number = cell_of(name)
        return ("File", name) if number is not None and number >= FIRST_MODULE else super().format_code_name(name)

    def forget_futures(self) -> None:
        """Between cells, keep `from __future__ import annotations` as IPython does, and nothing else."""
        kept = self.flags & _KEPT_FUTURES
        self.reset_compiler_flags()
        self.flags |= kept


class CellDisplayHook(ZMQShellDisplayHook):
    """IPython's, which takes every cell that shows a value apart to see whether a `;` ends it."""

    def quiet(self) -> Any:
        shell: Any = self.shell
        cells = shell.history_manager.input_hist_parsed
        return False if cells and ";" not in cells[-1] else super().quiet()


class WorkerShell(Stopwatch, ZMQInteractiveShell):
    """IPython without profile, startup files, history file, transformers or event loops of other toolkits."""

    displayhook_class = Type(CellDisplayHook)

    def should_run_async(self, raw_cell: str, *, transformed_cell: Any = None, **options: Any) -> Any:
        # IPython compiles the whole cell to find out, and asks twice.
        if isinstance(transformed_cell, str) and not any(word in transformed_cell for word in ("await", "async")):
            return False
        return super().should_run_async(raw_cell, transformed_cell=transformed_cell, **options)

    def begin_cell(self, cell: Execute, log: NameLog) -> None:
        self._cell: Execute | None = cell
        self._log = log
        for kept in ("outputs", "exceptions"):  # IPython collects what cells show, for %notebook, and never lets go
            getattr(self.history_manager, kept, {}).clear()
        compiler = cast(CellCompiler, self.compile)
        compiler.cell = cell.cell
        compiler.forget_futures()

    @contextmanager
    def _tee(self, channel: str) -> Iterator[None]:  # noqa: ARG002
        """IPython would keep all that a cell prints, see `begin_cell`."""
        yield

    reserve = Reserve()

    def showtraceback(self, exc_tuple: Any = None, *arguments: Any, **options: Any) -> None:
        kind, _, traceback = sys.exc_info() if exc_tuple is None else exc_tuple
        if issubclass(kind or Exception, MemoryError):
            self.reserve.release()
        _end_at_the_cell(traceback)
        super().showtraceback(exc_tuple, *arguments, **options)

    def transform_cell(self, raw_cell: str) -> str:
        cell: Execute | None = getattr(self, "_cell", None)
        if cell is not None and raw_cell is cell.raw:
            return cell.text
        return raw_cell

    def transform_ast(self, node: Any) -> Any:
        # Called with the whole cell, just before its first statement runs, and by magics with parts of it.
        cell: Execute | None = getattr(self, "_cell", None)
        if cell is not None and isinstance(node, ast.Module):
            self._cell = None
            node = rename(node, cell.names).tree
            self._log.begin(node)
            if cell.timed:
                return with_timing(node, cell.timed)
        return node

    def init_ipython_dir(self, ipython_dir: Any) -> None:  # noqa: ARG002
        self.ipython_dir = ""

    def init_profile_dir(self, profile_dir: Any) -> None:  # noqa: ARG002
        self.profile_dir = None

    def init_virtualenv(self) -> None:
        pass

    def init_prefilter(self) -> None:
        super().init_prefilter()
        self.input_transformer_manager.cleanup_transforms = []
        self.input_transformer_manager.line_transforms = []
        self.input_transformer_manager.token_transformers = []

    def enable_gui(self, gui: Any = None) -> None:  # noqa: ARG002
        self.active_eventloop = None

    def ask_exit(self) -> None:
        # The person ends a session in the front end; a cell cannot.
        sys.stderr.write("the session goes on: shut the kernel down in the front end\n")

    def system(self, cmd: str) -> None:  # noqa: ARG002
        raise PermissionError("commands run only through a capability")

    system_piped = system_raw = system


def _end_at_the_cell(traceback: TracebackType | None) -> None:
    """Cut off the frames at the end that are this package's own: what a cell asked for failed, not how it is asked."""
    last = None
    while traceback is not None:
        if not traceback.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            last = traceback
        traceback = traceback.tb_next
    if last is not None:
        last.tb_next = None


class WorkerKernel(IPythonKernel):
    """IPython's kernel without its sockets: the loop of `main` calls its `do_*` methods."""

    shell_class = WorkerShell
    if TYPE_CHECKING:
        shell: Any
    compiler_class = CellCompiler
    channel: Channel
    interrupts: Interrupts

    def _publish_status(self, *_: Any, **__: Any) -> None:
        pass

    _publish_status_and_flush = _publish_execute_input = _abort_queues = _publish_status

    def _input_request(self, prompt: Any, ident: Any, parent: Any, password: bool = False) -> str:  # noqa: ARG002
        sys.stdout.flush()
        sys.stderr.flush()
        return self.channel.ask(request_of(parent), str(prompt), password=password)

    def getpass(self, prompt: str = "", stream: Any = None, **_: Any) -> str:  # noqa: ARG002
        """What a library asks in `getpass.getpass`; a cell's own call is refused before it runs."""
        raise PermissionError(
            "a password that is typed here would be plain text in this session; keep it in a file that the policy "
            "calls classified, such as `.env`, and read it with `read_classified`"
        )

    def do_inspect(self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: Any = ()) -> Any:
        name = token_at_cursor(code, cursor_pos)
        ours, text = looking.describe(name, self.shell.user_ns)
        if not ours:
            return super().do_inspect(code, cursor_pos, detail_level, omit_sections)
        data = {} if text is None else {"text/plain": text}
        return {"status": "ok", "found": text is not None, "data": data, "metadata": {}}

    @contextmanager
    def _cancel_on_sigint(self, future: asyncio.Future[Any]) -> Iterator[None]:
        """An interrupt cancels a cell that awaits, and raises in one that computes (stock IPython never does that)."""
        loop = asyncio.get_running_loop()
        ours = self.interrupts

        def handle(number: int, frame: FrameType | None) -> None:
            if in_cell(frame) or ours.shielded:
                ours.handle(number, frame)
            else:
                loop.call_soon_threadsafe(future.cancel)

        before = signal.signal(signal.SIGINT, handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def make_kernel(channel: Channel, interrupts: Interrupts) -> WorkerKernel:
    """The one kernel of this process. Needs a current event loop."""
    from tornado.ioloop import IOLoop

    config = Config()
    config.HistoryManager.hist_file = ":memory:"
    config.HistoryManager.enabled = False
    config.Completer.use_jedi = False
    config.Completer.evaluation = "limited"
    config.IPCompleter.evaluation = "limited"
    config.IPCompleter.use_jedi = False
    config.InteractiveShell.automagic = False
    kernel: WorkerKernel = WorkerKernel.instance(
        session=SocketSession(channel), config=config, log=logging.getLogger("capkernel.worker")
    )
    kernel.channel = channel
    kernel.interrupts = interrupts
    kernel.io_loop = IOLoop.current()
    kernel.shell_channel_thread = SimpleNamespace(parent_thread=threading.main_thread())
    shell = kernel.shell
    for publisher in (shell.displayhook, shell.display_pub):
        publisher.session = kernel.session
        publisher.pub_socket = None
    # Beside its text, a displayed Classified says which one it is; the kernel shows what it knows of it.
    shell.display_formatter.mimebundle_formatter.for_type(Classified, lambda shown: {HANDLE_MIME: shown._handle})
    shell.ast_transformers = []
    # `raise SystemExit` ends a cell, and IPython recommends what is refused here.
    warnings.filterwarnings("ignore", message="To exit: use 'exit'", category=UserWarning)
    # Asking an object for its text would run the user's code without a check.
    shell.inspector.str_detail_level = 99
    looking.teach_completer()
    return kernel
