"""The untrusted process: lock down first, then be a stock IPython kernel behind three sockets.

Rule 1: nothing of a third party is imported before `lock_down` has returned.
Rule 2: this process is not trusted with anything. What it reports is looked up, bounded and filtered by the kernel.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys

from capkernel.sandbox import Profile, Report, SandboxError, lock_down


def main() -> None:
    arguments = _arguments()
    try:
        report = lock_down(Profile.from_json(arguments.profile), inside_bwrap=arguments.inside == "bwrap")
    except (SandboxError, ValueError) as problem:
        sys.stderr.write(f"capkernel worker: {problem}\n")
        sys.exit(3)
    sys.argv[:] = ["capkernel"]  # a cell that looks at the arguments learns nothing of this machine
    link, requests, quick = (
        socket.socket(fileno=fd) for fd in (arguments.fd, arguments.request_fd, arguments.quick_fd)
    )
    serve(link, requests, quick, report, active_outputs=arguments.active_outputs)


def serve(
    link: socket.socket, requests: socket.socket, quick: socket.socket, report: Report, *, active_outputs: bool = False
) -> None:
    """Be the worker behind these three links until the kernel goes. Never returns."""
    # debugpy would open sockets and threads; absent, ipykernel does without.
    sys.modules["debugpy"] = None  # type: ignore[assignment]
    from capkernel.worker.loop import run

    run(link, requests, quick, report.to_json(), active_outputs=active_outputs)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="capkernel.worker", allow_abbrev=False)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--request-fd", type=int, required=True)
    parser.add_argument("--quick-fd", type=int, required=True)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--inside", choices=("plain", "bwrap"), default="plain")
    parser.add_argument("--active-outputs", action="store_true", help="widgets work, so bars may be widgets")
    return parser.parse_args()


if __name__ == "__main__":
    os.umask(0o077)
    main()
