"""The Jupyter kernel: a closed list of requests, each answered from here; cells go through the pipeline.

Rule 1: a request type that is not in the list is refused. No debugger, no subshell reaches anything; a comm message
does only with active outputs (`output.active`).
Rule 2: everything that goes out on iopub for a cell passed the firewall, or was made by the kernel.
Rule 3: the event loop never waits for the worker, the person or the disk.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel and IPython leave their methods without annotations)
from __future__ import annotations

import asyncio
import contextlib
import itertools
import platform
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from ipykernel.kernelbase import Kernel
from traitlets import Any as AnyTrait
from traitlets import Float
from zmq.eventloop.zmqstream import ZMQStream

from capkernel.broker.questions import Waiting
from capkernel.kernel.authority_view import KEY, message_metadata, with_authority
from capkernel.kernel.cell_text import CellTexts
from capkernel.kernel.comms import Comms
from capkernel.kernel.firewall import CellOutput, Output, stream
from capkernel.kernel.own_requests import CHECK, STATE, OwnRequests
from capkernel.kernel.pipeline import CellRun, Pipeline, failure
from capkernel.kernel.records import History
from capkernel.kernel.requests import ON_CONTROL, Requests, error
from capkernel.kernel.settings import ACTIVE_OUTPUTS
from capkernel.kernel.supervisor import NotReady, Sinks, Supervisor
from capkernel.version import __version__
from capkernel.wire.codekey import FIRST_UNNUMBERED
from capkernel.wire.worker import COMM_KINDS, Comm, InputReply, InputRequest, Published

_REQUESTS_KEPT = 1000
_COMM_REQUESTS_KEPT = 200  # a slider that is dragged sends hundreds
_EXPRESSIONS = 32  # of one cell
_CLOSE_SECONDS = 10.0
_END_OF_FILE = "\x04"
ASKS = "the cell asks: "
_INPUT = "input"
DECISION_WAITS = "capkernel: waiting for your decision in `capkernel view` or `capkernel approve`: "


@dataclass
class _Request:
    """A cell's request, for outputs that belong to it, also late ones."""

    parent: dict[str, Any]
    ident: Any
    cell: CellRun | None = None


class CapKernel(Kernel):
    """One session's kernel. `supervisor` and `settings` are given by `app`."""

    implementation = "capkernel"
    implementation_version = __version__
    banner = "capkernel: every cell is checked before it runs"
    language_info: dict[str, object] = {  # noqa: RUF012  # kernelbase declares it so
        "name": "python",
        "version": platform.python_version(),
        "mimetype": "text/x-python",
        "codemirror_mode": {"name": "ipython", "version": 3},
        "pygments_lexer": "ipython3",
        "nbconvert_exporter": "python",
        "file_extension": ".py",
    }
    _execute_sleep = Float(0.0)
    supervisor: Any = AnyTrait()  # Supervisor, begun
    settings: Any = AnyTrait()  # Settings

    if TYPE_CHECKING:  # never absent once the kernel is started
        session: Any
        shell_stream: Any

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        own = {CHECK: self.check_request, STATE: self.state_request}
        if self.settings.active_outputs:
            own |= dict.fromkeys(COMM_KINDS, self.comm_message)
        self.shell_handlers = self._shell_requests = Requests(self.shell_handlers | own, self._answer)
        control = {kind: handler for kind, handler in self.control_handlers.items() if kind in ON_CONTROL}
        control[STATE] = self.state_request_aside
        self.control_handlers = Requests(control, self._answer)
        self._comms = Comms()
        if self.settings.active_outputs:
            self.banner = f"{self.banner}\n{ACTIVE_OUTPUTS}"
        self._supervisor: Supervisor = self.supervisor
        self._supervisor.attach(
            Sinks(self._published, self._commed, self._printed, self._asked, self._worker_ended),
        )
        if self._supervisor.approvals is not None:
            self._supervisor.approvals.asked = self._decision_waits
            self._supervisor.approvals.settled = self._decision_made
        self._texts = CellTexts()
        self._numbers = itertools.count(1)
        self._pipeline = Pipeline(
            self._supervisor,
            self._texts,
            cell_seconds=self.settings.cell_seconds,
            numbers=self._numbers,
            memory_mb=self.settings.cell_memory_mb,
        )
        self._history = History()
        self._unnumbered = itertools.count(FIRST_UNNUMBERED)
        self._own = OwnRequests(self._supervisor, self._pipeline, self._texts, self._unnumbered)
        self._requests: OrderedDict[int, _Request] = OrderedDict()
        self._comm_requests: OrderedDict[int, _Request] = OrderedDict()
        self._arrivals = itertools.count(1)
        self._arrived = 0
        self._abort_through = 0
        self._question = ""
        self._stdin: ZMQStream | None = None
        self._notices = list(self.settings.notices)
        self._loop: asyncio.AbstractEventLoop | None = None

    # ── start and end ────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        super().start()
        # In place of kernelbase's callback: arrivals are counted in order, so that an error aborts exactly the cells
        # that had arrived by then.
        self.shell_stream.on_recv(self._shell_arrived, copy=False)
        self._stdin = ZMQStream(self.stdin_socket, self.io_loop)
        self._stdin.on_recv(self._stdin_arrived)
        self.io_loop.add_callback(self._begin)

    async def _begin(self) -> None:
        self._loop = asyncio.get_running_loop()
        if self.settings.later:
            with contextlib.suppress(NotReady):
                await self._supervisor.ready()
                for work in self.settings.later:
                    await asyncio.to_thread(work)

    async def do_shutdown(self, restart: bool) -> dict[str, Any]:
        # Called on the control thread's loop; the processes belong to ours.
        if self._loop is not None:
            closing = asyncio.run_coroutine_threadsafe(self._supervisor.close(), self._loop)
            with contextlib.suppress(Exception):
                await asyncio.wait_for(asyncio.wrap_future(closing), _CLOSE_SECONDS)
        return {"status": "ok", "restart": restart}

    async def _at_shutdown(self) -> None:
        # kernelbase's would look for children to end; they are the supervisor's, and have ended.
        if self._shutdown_message is not None and self.session:
            self.session.send(self.iopub_socket, self._shutdown_message, ident=self._topic("shutdown"))

    def pre_handler_hook(self) -> None:
        """kernelbase would install its own SIGINT handler here; ours stays."""

    def post_handler_hook(self) -> None:
        """See `pre_handler_hook`."""

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def kernel_info(self) -> dict[str, Any]:
        info: dict[str, Any] = dict(super().kernel_info)
        info["supported_features"] = []
        info["debugger"] = False
        return info

    def _shell_arrived(self, message: list[Any]) -> None:
        arrival = next(self._arrivals)
        task = asyncio.ensure_future(self._serve_shell(arrival, message))
        self._tasks().add(task)
        task.add_done_callback(self._tasks().discard)

    def _tasks(self) -> set[Any]:
        tasks: set[Any] = self.__dict__.setdefault("_running_tasks", set())
        return tasks

    async def _serve_shell(self, arrival: int, message: list[Any]) -> None:
        async with self._main_asyncio_lock:
            self._arrived = arrival
            self._aborting = arrival <= self._abort_through
            try:
                await self.dispatch_shell(message)
            except Exception as problem:  # kernelbase expects more of a header than a client must put there
                self.log.warning("a message that cannot be dispatched: %s", type(problem).__name__)
                parent = self.get_parent("shell")
                if parent:
                    await self._shell_requests.refuse(self.shell_stream, self._shell_parent_ident.get(), parent)
                    self._publish_status_and_flush("idle", "shell", self.shell_stream)

    def _publish_status(self, status: str, channel: str, parent: dict[str, Any] | None = None) -> None:
        parent = parent or self.get_parent(channel)
        say = partial(super()._publish_status, status, channel, parent)
        if status == "busy" and channel == "shell":
            self._say_soon(say, parent)
        else:
            say()

    def _say_soon(self, say: Callable[[], None], parent: dict[str, Any]) -> None:
        """That a request is being served, and which: said when the checker has got it to work on."""
        if _is_plain(parent["header"]):
            self.iopub_socket.soon(say)
        else:
            say()  # it may fail

    async def execute_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        content = parent["content"]
        code = content["code"]
        silent = content.get("silent") is True
        store_history = content.get("store_history", not silent) is True and not silent
        cell = self._new_cell(code, ident, parent, silent, store_history, content.get("allow_stdin") is True)
        if not silent:
            shown = code.encode("utf-8", "replace").decode("utf-8")
            self._say_soon(partial(self._publish_execute_input, shown, parent, cell.count), parent)
            self._tell_notices(cell)
        reply = await self._pipeline.run(cell)
        self._question = ""
        if self.settings.recorder is not None:
            self.settings.recorder.record(code, cell.transcript.result(reply))
        cell.output.finish()
        if store_history:
            self._history.add(cell.number, code, cell.text or code)
        expressions = content.get("user_expressions")
        if reply["status"] == "ok" and isinstance(expressions, dict):
            reply["user_expressions"] = await self._evaluate(cell, expressions)
        reply["execution_count"] = cell.count
        if reply["status"] == "error" and not silent and content.get("stop_on_error", True) is not False:
            self._abort_queues()
        self._reply_execute(stream, ident, parent, reply, cell.metadata)
        cell.let_go()

    async def _evaluate(self, cell: CellRun, expressions: dict[Any, Any]) -> dict[str, Any]:
        """Expressions that a client wants with the reply. Each is checked like a cell."""
        found: dict[str, Any] = {}
        for name, text in expressions.items():
            if len(found) >= _EXPRESSIONS:
                found[str(name)] = failure("NotEvaluated", f"a cell has at most {_EXPRESSIONS} user_expressions")
                continue
            request = next(self._numbers)
            self._requests[request] = self._requests[cell.request]  # what it prints belongs to the cell
            found[str(name)] = await self._pipeline.evaluate(cell, next(self._unnumbered), request, text)
        return found

    def _new_cell(
        self, code: str, ident: Any, parent: dict[str, Any], silent: bool, store_history: bool, allow_stdin: bool
    ) -> CellRun:
        if store_history:
            self.execution_count += 1
            number = self.execution_count
        else:
            number = next(self._unnumbered)
        request = next(self._numbers)
        count = self.execution_count
        late = {"header": parent["header"]}  # all that an output needs of it, however late it comes
        cell = CellRun(
            request, number, count, code, silent, store_history, allow_stdin,
            self._new_output(count), lambda output: self._publish(output, late, cell),
            known_as=parent["header"]["msg_id"] if self.settings.active_outputs else "",
        )  # fmt: skip
        self._requests[request] = _Request(late, ident, cell)
        while len(self._requests) > _REQUESTS_KEPT:
            self._requests.popitem(last=False)
        return cell

    def _new_output(self, count: int) -> CellOutput:
        return CellOutput(
            count, self.settings.output_bytes, active=self.settings.active_outputs,
            classified=self._supervisor.classified,
        )  # fmt: skip

    async def comm_message(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:  # noqa: ARG002
        """A widget's message. It waits for the cell that runs, as in ipykernel; what it calls has no authority."""
        request = next(self._numbers)
        made = self._comms.from_client(
            request, parent["header"], parent.get("content"), parent.get("metadata"), parent.get("buffers")
        )
        if made is None:
            return
        count = self.execution_count
        callback = CellRun(
            request, next(self._unnumbered), count, "", False, False, False,
            self._new_output(count), lambda output: self._publish(output, parent, callback), callback=True,
        )  # fmt: skip
        self._comm_requests[request] = _Request(parent, ident, callback)
        while len(self._comm_requests) > _COMM_REQUESTS_KEPT:
            self._comm_requests.popitem(last=False)
        await self._pipeline.deliver(callback, *made)
        callback.output.finish()

    async def comm_info_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        content = {"status": "ok", "comms": self._comms.info(parent["content"].get("target_name"))}
        self._answer(stream, ident, parent, "comm_info_request", content)

    def _reply_execute(
        self, stream: Any, ident: Any, parent: dict[str, Any], reply: dict[str, Any], own: dict[str, Any] | None = None
    ) -> None:
        metadata = self.finish_metadata(parent, self.init_metadata(parent), reply)
        if own is not None:
            metadata[KEY] = own
        self.session.send(stream, "execute_reply", reply, parent, metadata=metadata, ident=ident)

    def _abort_queues(self, subshell_id: str | None = None) -> None:  # noqa: ARG002
        """Abort the cells that have arrived by now, and no later one. Before the reply goes out: what is sent after
        the reply runs."""
        self.shell_stream.flush()
        self._abort_through = next(self._arrivals)

    def _answer(self, stream: Any, ident: Any, parent: dict[str, Any], kind: str, content: dict[str, Any]) -> None:
        """The reply to a request that no handler answers."""
        if kind == "execute_request":
            content = content | {"execution_count": self.execution_count, "user_expressions": {}, "payload": []}
        self.session.send(stream, f"{kind.removesuffix('_request')}_reply", content, parent, ident)

    async def do_complete(self, code: str, cursor_pos: int | None) -> dict[str, Any]:
        cursor = _within(code, len(code) if cursor_pos is None else cursor_pos)
        await self._pipeline.settle()
        if not _is_text(code):
            return {"status": "ok", "matches": [], "cursor_start": cursor, "cursor_end": cursor, "metadata": {}}
        return await self._pipeline.looking.complete(code, cursor, idle=self._pipeline.running is None)

    async def do_inspect(
        self,
        code: str,
        cursor_pos: int,
        detail_level: int = 0,
        omit_sections: Any = (),  # noqa: ARG002
    ) -> dict[str, Any]:
        if not _is_text(code):
            return {"status": "ok", "found": False, "data": {}, "metadata": {}}
        cursor, detail = _within(code, cursor_pos), 1 if detail_level == 1 else 0
        await self._pipeline.settle()
        return await self._pipeline.looking.inspect(code, cursor, detail, idle=self._pipeline.running is None)

    async def check_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        self._answer(stream, ident, parent, CHECK, await self._own.check(parent["content"]["code"]))

    async def state_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        self._answer(stream, ident, parent, STATE, await self._state())

    async def state_request_aside(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        # On the control thread's loop; what is asked for belongs to ours. So it is answered while a cell runs, too.
        if self._loop is None:
            self._answer(stream, ident, parent, STATE, error("SessionNotReady", "the session has not started yet"))
            return
        found = asyncio.run_coroutine_threadsafe(self._state(), self._loop)
        self._answer(stream, ident, parent, STATE, await asyncio.wrap_future(found))

    async def _state(self) -> dict[str, Any]:
        settings = self.settings
        return await self._own.state(self.execution_count, profile=settings.profile, active=settings.active_outputs)

    async def do_is_complete(self, code: str) -> dict[str, Any]:
        status, indent = self._texts.completeness(code) if _is_text(code) else ("invalid", None)
        reply: dict[str, Any] = {"status": status}
        if status == "incomplete":
            reply["indent"] = " " * (indent or 0)
        return reply

    async def do_history(
        self, hist_access_type: str, output: bool, raw: bool, session: int | None = None, start: int | None = None,
        stop: int | None = None, n: int | None = None, pattern: str | None = None, unique: bool = False,
    ) -> dict[str, Any]:  # fmt: skip
        found = self._history.find(
            hist_access_type, raw=raw, output=output, session=session or 0, start=start or 0, stop=stop, n=n,
            pattern=pattern, unique=unique,
        )  # fmt: skip
        return {"status": "ok", "history": found}

    # ── interrupts and questions ─────────────────────────────────────────────────────────────────────────────────────

    def interrupt(self) -> None:
        """Stop the running cell. From any thread, also from a signal handler."""
        self._pipeline.interrupt()

    async def interrupt_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        self.interrupt()
        self.session.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident=ident)

    def _asked(self, asked: InputRequest) -> None:
        request = self._requests.get(asked.request)
        cell = self._pipeline.running
        worker = self._supervisor.idle_worker
        if worker is None:
            return
        # A password would be plain text in the worker, whoever asks: nobody is asked for one.
        theirs = request is not None and cell is not None and cell.request == asked.request
        if request is None or cell is None or not theirs or not cell.allow_stdin or asked.password:
            worker.answer(InputReply(asked.request, None))
            return
        cell.waits.begin(_INPUT)
        prompt = _question(asked.prompt)
        sent = self.session.send(
            self.stdin_socket, "input_request", {"prompt": prompt, "password": False}, request.parent,
            ident=request.ident,
        )  # fmt: skip
        self._question = sent["header"]["msg_id"]

    def _stdin_arrived(self, message: list[Any]) -> None:
        try:
            _, frames = self.session.feed_identities(message)
            reply = self.session.deserialize(frames)
            value = reply["content"]["value"]
            question = (reply.get("parent_header") or {}).get("msg_id", "")
        except Exception:
            self.log.warning("an input reply that is none was dropped")
            return
        cell = self._pipeline.running
        worker = self._supervisor.idle_worker
        if cell is None or worker is None or not self._question or (question and question != self._question):
            return  # an answer to a question that an interrupt ended
        self._question = ""
        cell.waits.end(_INPUT)
        given = value if isinstance(value, str) and value != _END_OF_FILE else None
        worker.answer(InputReply(cell.request, given if given is None or _is_text(given) else None))

    def _decision_waits(self, question: Waiting) -> None:
        """Say so in the cell's output, in words of ours; nothing in a notebook can answer."""
        cell = self._pipeline.running
        if question.cell is None or cell is None:
            return
        cell.waits.begin(question.id)
        if not cell.silent:
            what = f"{question.kind} {question.about}".rstrip()
            cell.publish(stream("stderr", f"{DECISION_WAITS}{what}\n"))

    def _decision_made(self, question: Waiting) -> None:
        cell = self._pipeline.running
        if cell is not None:
            cell.waits.end(question.id)

    # ── outputs ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _handed(self, number: int) -> _Request | None:
        request = self._requests.get(number) or self._comm_requests.get(number)
        return request if request is not None and request.cell is not None and request.cell.handed else None

    def _published(self, message: Published) -> None:
        request = self._handed(message.request)
        if request is None or request.cell is None:
            return
        for output in request.cell.output.passed(message):
            self._publish(output, request.parent, request.cell)

    def _commed(self, message: Comm, blob: bytes) -> None:
        request = self._handed(message.request)
        if not self.settings.active_outputs or request is None or request.cell is None:
            return
        if request.cell.output.full and message.kind != "comm_close":
            return
        output = self._comms.from_worker(message, blob)
        if output is None:
            return
        passed = request.cell.output.counted(output)
        if output in passed or output.kind == "comm_close":
            self._comms.sent(output)
        for one in passed:
            self._publish(one, request.parent, request.cell)

    def _worker_ended(self) -> None:
        for comm in self._comms.clear():
            content = {"comm_id": comm, "data": {}}
            self.session.send(self.iopub_socket, "comm_close", content, parent={}, ident=self._topic("comm_close"))

    def _printed(self, name: str, text: str) -> None:
        running = self._pipeline.running
        callback = None if running is None else self._comm_requests.get(running.request)
        # A cell that is being judged, or was refused, shows nothing of the worker.
        handed = (found for found in reversed(self._requests.values()) if found.cell is not None and found.cell.handed)
        request = callback or next(handed, None)
        if request is None or request.cell is None:
            return  # before the first cell: kept by the worker's handle, to explain a failed start
        for output in request.cell.output.counted(stream(name, text)):
            self._publish(output, request.parent, request.cell)

    def _publish(self, output: Output, parent: dict[str, Any], cell: CellRun) -> None:
        if output.kind == "error":
            output = Output("error", self._pipeline.named_error(output.content))
        if self.settings.recorder is not None:
            cell.transcript.add(output)
        out = with_authority(output, cell.authority)
        metadata = message_metadata(cell.authority) if out.metadata is None else out.metadata
        self.session.send(
            self.iopub_socket, out.kind, out.content, parent=parent, ident=self._topic(out.kind), metadata=metadata,
            buffers=out.buffers or None,
        )  # fmt: skip

    def _tell_notices(self, cell: CellRun) -> None:
        for notice in [*self._notices, *self.settings.news]:
            cell.publish(stream("stderr", f"capkernel: {notice}\n"))
        self._notices.clear()
        self.settings.news.clear()


def _within(code: str, cursor: int) -> int:
    return max(0, min(cursor, len(code)))


def _question(prompt: str) -> str:
    """A cell's prompt, so that nobody takes it for a question of the kernel or of the page: each line begins with
    words that the cell can neither leave out nor write over."""
    text = stream("stdout", prompt).content["text"].replace("\r", " ").replace("\b", "")
    return "\n".join(ASKS + line for line in text.split("\n"))


def _is_plain(header: dict[Any, Any]) -> bool:
    """Whether any message can have it as its parent's, for certain."""
    return all(
        key.isascii() and (value is None or isinstance(value, datetime) or (isinstance(value, str) and value.isascii()))
        for key, value in header.items()
    )


def _is_text(code: Any) -> bool:
    if not isinstance(code, str):
        return False
    try:
        code.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
