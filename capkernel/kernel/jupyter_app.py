"""The Jupyter side of the kernel process: sockets, heartbeat, signals.

A thin IPKernelApp: connection file, sockets, heartbeat and parent watch are ipykernel's; configuration files, profiles,
startup files, extensions, the debugger and the user's module path are not there at all.
"""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel and IPython leave their methods without annotations)
from __future__ import annotations

import logging
import signal
import sys
from typing import Any

sys.modules["debugpy"] = None  # type: ignore[assignment]  # ipykernel would advertise a debugger

from ipykernel.kernelapp import IPKernelApp  # noqa: E402
from tornado.ioloop import IOLoop  # noqa: E402
from zmq.eventloop.zmqstream import ZMQStream  # noqa: E402

from capkernel.kernel.kernel import CapKernel  # noqa: E402
from capkernel.kernel.packing import pack  # noqa: E402
from capkernel.kernel.publisher import Publisher  # noqa: E402
from capkernel.kernel.settings import Settings  # noqa: E402
from capkernel.kernel.supervisor import Supervisor  # noqa: E402


class CapKernelApp(IPKernelApp):
    """IPKernelApp without everything that reads or runs something of the user's."""

    kernel_class = CapKernel

    def run(self, connection_file: str, supervisor: Supervisor, settings: Settings) -> None:
        """Serve until shut down."""
        self.log = logging.getLogger("capkernel")
        self.log.setLevel(logging.ERROR)
        self.log_level = logging.ERROR
        self.connection_file = connection_file
        self.session.pack = pack
        self.init_connection_file()
        self.init_poller()
        self.init_sockets()
        self.init_heartbeat()
        self.write_connection_file()
        self._make_kernel(supervisor, settings)
        signal.signal(signal.SIGINT, lambda *_: self.kernel.interrupt())
        signal.signal(signal.SIGTERM, self._terminated)
        if self.poller is not None:
            self.poller.start()
        self.kernel.start()
        self.io_loop = IOLoop.current()
        self.io_loop.start()

    def init_iopub(self, context: Any) -> None:
        # No thread and no pipe for forked children: see `publisher`.
        import zmq

        socket = context.socket(zmq.XPUB)
        socket.linger = 1000
        self._apply_curve_server_options(socket)
        self.iopub_port = self._bind_socket(socket, self.iopub_port)
        self.configure_tornado_logger()
        self.iopub_thread = self.iopub_socket = Publisher(socket, self.session, IOLoop.current())

    def init_control(self, context: Any) -> None:
        # No shell channel thread: it exists for subshells, and costs a hop for every message.
        import zmq
        from ipykernel.control import ControlThread

        self.control_socket = context.socket(zmq.ROUTER)
        self.control_socket.linger = 1000
        self._apply_curve_server_options(self.control_socket)
        self.control_port = self._bind_socket(self.control_socket, self.control_port)
        self.control_socket.router_handover = 1
        self.control_thread = ControlThread(daemon=True)

    def _make_kernel(self, supervisor: Supervisor, settings: Settings) -> None:
        shell_stream = ZMQStream(self.shell_socket)
        control_stream = ZMQStream(self.control_socket, self.control_thread.io_loop)
        self.control_thread.start()
        self.kernel = CapKernel.instance(
            parent=None,
            session=self.session,
            control_stream=control_stream,
            shell_stream=shell_stream,
            control_thread=self.control_thread,
            iopub_thread=self.iopub_thread,
            iopub_socket=self.iopub_socket,
            stdin_socket=self.stdin_socket,
            log=self.log,
            supervisor=supervisor,
            settings=settings,
        )

    def _terminated(self, *_: Any) -> None:
        async def leave() -> None:
            await self.kernel._supervisor.close()
            self.io_loop.stop()

        IOLoop.current().add_callback_from_signal(leave)
