"""A server on loopback that keeps all it is sent, and counts who connects."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Listener:
    def __init__(self, patience: float = 1.0) -> None:
        """patience: seconds for what one who connects has to say."""
        self._patience = patience
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]
        self.heard = b""
        self.knocks = 0
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            self.knocks += 1
            with connection:
                connection.settimeout(self._patience)
                try:
                    self.heard += connection.recv(65536)
                    connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
                except OSError:
                    pass


@contextmanager
def listening(patience: float = 1.0) -> Iterator[Listener]:
    made = Listener(patience)
    try:
        yield made
    finally:
        made.server.close()
