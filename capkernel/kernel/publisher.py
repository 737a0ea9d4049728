"""The iopub socket, used where messages are made: on the event loop.

ipykernel has a thread for it, because there a cell computes on the loop. Here no cell does, and the thread would cost
each of the five messages of a cell a hop and a fight for the interpreter's lock.

Rule 1: the socket belongs to the event loop's thread. What another thread publishes is handed to the loop, in order.
Rule 2: publishing never waits: a client that does not read loses messages, as ever with this kind of socket.
Rule 3: nothing overtakes what is to be said soon.
"""

# mypy: disable-error-code="no-untyped-call"
# (pyzmq and jupyter_client leave some methods without annotations)
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import zmq
from jupyter_client.session import Session
from tornado.ioloop import IOLoop
from zmq.eventloop.zmqstream import ZMQStream


class Publisher:
    """What ipykernel calls the iopub thread and the iopub socket. Made in the thread of `loop`."""

    def __init__(self, socket: zmq.Socket[bytes], session: Session, loop: IOLoop) -> None:
        """socket: XPUB, bound."""
        self._socket = socket
        self._session = session
        self._loop = loop
        self._thread = threading.get_ident()
        self._soon: list[Callable[[], None]] = []
        self._arrivals = ZMQStream(socket, loop)
        self._arrivals.on_recv(self._subscribed)

    def send_multipart(self, parts: list[Any], *_: object, **__: object) -> None:
        """Publish one message. From any thread."""
        if threading.get_ident() == self._thread:
            self._send(parts)
        else:
            self._loop.add_callback(self._send, parts)

    def soon(self, publish: Callable[[], None]) -> None:
        """Call `publish`, which publishes, when the loop's turn is over: what is done in this turn need not wait for
        it. On the event loop; it must not raise."""
        if not self._soon:
            self._loop.add_callback(self._catch_up)
        self._soon.append(publish)

    def stop(self) -> None:
        """There is no thread to stop."""

    def close(self) -> None:
        self._arrivals.close()

    def _catch_up(self) -> None:
        due, self._soon = self._soon, []
        for publish in due:
            publish()

    def _send(self, parts: list[Any]) -> None:
        self._catch_up()
        if self._socket.closed:
            return
        with contextlib.suppress(zmq.ZMQError):  # closed meanwhile
            self._socket.send_multipart(parts)
            # Sending may take the one signal that something has arrived.
            if self._socket.poll(0, zmq.POLLIN):
                self._arrivals.flush(zmq.POLLIN)

    def _subscribed(self, frames: list[bytes]) -> None:
        """A client subscribed (1 and the topic) or left (0): one that came is told that it will hear from now on."""
        for frame in frames:
            if frame[:1] != b"\x01":
                continue
            topic = frame[1:]
            try:
                content = {"subscription": topic.decode("utf-8")}
            except UnicodeDecodeError:
                continue
            message = self._session.serialize(self._session.msg("iopub_welcome", content))
            self._send([topic, *message] if topic else message)
