"""A worker that is not locked down: the real one but for its first step. What holds here, Python's objects hold."""

from __future__ import annotations

import argparse
import os
import socket

from capkernel.sandbox import Level, Report
from capkernel.worker.main import serve


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--request-fd", type=int, required=True)
    parser.add_argument("--quick-fd", type=int, required=True)
    arguments = parser.parse_args()
    link, requests, quick = (
        socket.socket(fileno=fd) for fd in (arguments.fd, arguments.request_fd, arguments.quick_fd)
    )
    serve(link, requests, quick, Report(Level.NONE, 0))


if __name__ == "__main__":
    os.umask(0o077)
    main()
