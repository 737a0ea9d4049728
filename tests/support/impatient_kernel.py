"""The real kernel, with short waits, so that a test of a stuck process does not take minutes. Nothing else differs.

`--slow SECONDS` makes every read of a plain file take that long (a slow file system, in the place where it would be).
`--asked FILE` gets one byte for each check that the checker is asked for, so that a test can wait for that.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import capkernel.checker.client as checker_client
import capkernel.kernel.pipeline as pipeline
import capkernel.kernel.supervisor as supervisor
import capkernel.kernel.worker_process as worker_process
import capkernel.vault.processes as vault_processes
from capkernel.broker.files import FileEffects
from capkernel.checker.protocol import Check, ToChecker
from capkernel.checker.turns import Turns
from capkernel.kernel import runtime_dir
from capkernel.kernel.app import serve
from capkernel.kernel.assemble import Assembly


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("-f", required=True)
    parser.add_argument("--base", required=True)
    parser.add_argument("--policy", required=True)
    parser.add_argument("--slow", type=float, default=0.0)
    parser.add_argument("--asked", type=Path, default=None)
    arguments = parser.parse_args()
    worker_process._START_SECONDS = 5.0
    vault_processes._START_SECONDS = 5.0
    vault_processes._WATCH_SECONDS = 0.5
    vault_processes._PATIENCE_SECONDS = 2.0
    pipeline._GRACE_SECONDS = 1.0
    checker_client.START_SECONDS = 10.0
    assert supervisor._CLOSE_SECONDS > 0
    if arguments.slow:
        read = FileEffects.read

        def slow(self: FileEffects, handle: object, cell: int) -> bytes:
            time.sleep(arguments.slow)
            return read(self, handle, cell)  # type: ignore[arg-type]

        FileEffects.read = slow  # type: ignore[method-assign]
    if arguments.asked is not None:
        sending = Turns.sending

        def noted(self: Turns, message: ToChecker) -> None:
            sending(self, message)
            if isinstance(message, Check):
                with arguments.asked.open("ab") as file:
                    file.write(b".")

        Turns.sending = noted  # type: ignore[method-assign]
    directory, _lock = runtime_dir.make()
    os.chdir(directory)
    assembly = Assembly.read(base=arguments.base, runtime=directory, policy=arguments.policy, profile=None)
    serve(arguments.f, directory, assembly.parts, assembly.settings())


if __name__ == "__main__":
    main()
