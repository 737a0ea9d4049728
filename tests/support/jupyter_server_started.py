"""Jupyter servers started for a test, and the browser that looks at them."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.request
from contextlib import closing

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
TOKEN = "only-for-this-test"


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_it_answers(server: subprocess.Popen[bytes], port: int) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert server.poll() is None, server.stderr.read().decode()  # type: ignore[union-attr]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api?token={TOKEN}", timeout=2):
                return
        except OSError:
            time.sleep(0.3)
    raise AssertionError("the Jupyter server did not come up")
