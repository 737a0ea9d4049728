"""The kernel process after its clean start. The processes of the session are started first; while they get ready, the
Jupyter side is imported, which takes longer than anything else here."""

# mypy: disable-error-code="no-untyped-call"
# (ipykernel and IPython leave their methods without annotations)
from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Callable

from capkernel.kernel import named_secrets, runtime_dir
from capkernel.kernel.settings import Settings
from capkernel.kernel.supervisor import Parts, Supervisor
from capkernel.sandbox import SandboxError, libc


def serve(connection_file: str, runtime: str, make_parts: Callable[[], Parts], settings: Settings) -> None:
    """Run the kernel in this process until it is shut down, then remove `runtime`. Tests give parts of their own."""
    try:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        supervisor = Supervisor(make_parts())
        loop.run_until_complete(supervisor.begin())
        from capkernel.kernel.jupyter_app import CapKernelApp

        app = CapKernelApp.instance()
        try:
            app.run(connection_file, supervisor, settings)
        finally:
            with contextlib.suppress(Exception):
                loop.run_until_complete(supervisor.close())
            with contextlib.suppress(Exception):
                app.close()
            if settings.recorder is not None:
                settings.recorder.close()
    finally:
        os.chdir("/")
        runtime_dir.remove(runtime)


def main() -> None:
    arguments = _arguments()
    os.set_inheritable(arguments.lock, False)
    os.set_inheritable(arguments.environment, False)
    _close_to_others()
    from capkernel.kernel.assemble import Assembly
    from capkernel.kernel.launcher import Launcher

    launcher = Launcher.received(arguments.viewer_secret)
    try:
        assembly = Assembly.read(
            base=arguments.base, runtime=arguments.runtime, policy=arguments.policy, profile=arguments.profile,
            excluded=[
                *((place, "Jupyter's or IPython's own configuration") for place in arguments.exclude),
                (arguments.connection_file, "the connection file of the session"),
            ],
            launcher=launcher,
        )  # fmt: skip
        wanted = {name: secret.env for name, secret in assembly.policy.secrets.items()}
        assembly.given |= named_secrets.take(arguments.environment, wanted)
        settings = assembly.settings()
    except Exception as problem:
        runtime_dir.remove(arguments.runtime)
        sys.exit(f"capkernel: {problem}")
    serve(arguments.connection_file, arguments.runtime, assembly.parts, settings)


def _close_to_others() -> None:
    """No core file, and no look into this process by others of the same user: cleartext passes through it."""
    with contextlib.suppress(SandboxError, OSError):
        libc.required_prctl("forbidding dumps", libc.PR_SET_DUMPABLE, 0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="capkernel.kernel.app", allow_abbrev=False)
    parser.add_argument("-f", dest="connection_file", required=True)
    parser.add_argument("--base", required=True, help="the notebook's directory")
    parser.add_argument("--runtime", required=True, help="the session's own directory")
    parser.add_argument("--lock", type=int, required=True, help="the descriptor that holds its lock")
    parser.add_argument("--environment", type=int, required=True, help="the descriptor of the user's environment")
    parser.add_argument("--policy")
    parser.add_argument("--viewer-secret", type=int, help="the pipe that the launcher's viewer secret is in")
    parser.add_argument("--exclude", action="append", default=[], help="a directory that no grant reaches")
    parser.add_argument("--profile", choices=("strict", "standard", "relaxed"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
