"""What Jupyter starts, in the notebook's directory and with the user's environment: note what is needed, start clean.

Rule 1: standard library only, and nothing is read from the working directory.
Rule 2: the real kernel (`capkernel.kernel.app`) is executed in this process's place, so its id, its parent and its
signals are what Jupyter expects; it gets an allow-listed environment, an empty working directory, and no descriptors
but the lock of that directory, the user's environment, of which it takes what the policy names (`named_secrets`), and
the pipe with the viewer secret.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys

from capkernel.kernel import named_secrets, runtime_dir, secret_pipe

_KEPT = frozenset({"HOME", "LANG", "LANGUAGE", "TZ", "JPY_PARENT_PID", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
                   "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "TMPDIR"})  # fmt: skip
_LOCALE = re.compile(r"LC_[A-Z]{1,20}")
_LOCALE_VALUE = re.compile(r"[A-Za-z0-9_.@:/+-]{0,64}")
# Where these lead, a server's or an interpreter's configuration is; the clean environment has no place for them.
_CONFIGURATION = (
    "JUPYTER_CONFIG_DIR", "JUPYTER_CONFIG_PATH", "JUPYTER_DATA_DIR", "JUPYTER_PATH", "JUPYTER_RUNTIME_DIR",
    "JUPYTERLAB_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR", "IPYTHON_DIR",
)  # fmt: skip
_MOST_PLACES = 64
_PATH = "/usr/local/bin:/usr/bin:/bin"
_MOST_DESCRIPTORS = 65536


def main() -> None:
    arguments = _arguments()
    policy = arguments.policy or os.environ.get("CAPKERNEL_POLICY") or ""
    if not arguments.policy and policy and not os.path.isabs(policy):
        # Relative to the notebook's directory it would be a file that came with the notebook.
        sys.exit("capkernel: CAPKERNEL_POLICY must be an absolute path")
    # A pipe with the viewer secret of the server that launches us; it is read by the real kernel, and stays open to it.
    # Looked at before anything is opened here, which could get its number where the launcher's pipe was lost.
    secret = secret_pipe.checked(arguments.viewer_secret)
    base = os.getcwd()
    if not os.path.isabs(sys.executable):
        sys.exit("capkernel: the path of the Python interpreter is not known")
    # A front end may interrupt before the kernel listens; that must not end it. Kept across exec.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        directory, lock = runtime_dir.make()
        environment = named_secrets.hold(os.environb)
    except OSError as problem:
        sys.exit(f"capkernel: no private runtime directory: {problem}")
    os.set_inheritable(lock, True)
    os.set_inheritable(environment, True)
    argv = [
        sys.executable, "-P", "-s", "-E", "-m", "capkernel.kernel.app",
        "-f", os.path.join(base, arguments.connection_file), "--base", base, "--runtime", directory,
        "--lock", str(lock), "--environment", str(environment),
    ]  # fmt: skip
    if secret is not None:
        os.set_inheritable(secret, True)
        argv += ["--viewer-secret", str(secret)]
    if policy:
        argv += ["--policy", os.path.join(base, policy)]
    if arguments.profile:
        argv += ["--profile", arguments.profile]
    for place in configured_places(os.environ, base):
        argv += ["--exclude", place]
    os.chdir(directory)
    _close_others(lock, environment, *([] if secret is None else [secret]))
    os.execve(sys.executable, argv, clean_environment(os.environ))  # noqa: S606


def clean_environment(environment: os._Environ[str] | dict[str, str]) -> dict[str, str]:
    """Of the user's environment, what a kernel needs; never a key, a `PYTHON*` or a loader variable."""
    kept = {
        name: value
        for name, value in environment.items()
        if name in _KEPT or (_LOCALE.fullmatch(name) and _LOCALE_VALUE.fullmatch(value))
    }
    return kept | {"PATH": _PATH}


def configured_places(environment: os._Environ[str] | dict[str, str], base: str) -> list[str]:
    """Absolute paths of the directories that the user's environment makes Jupyter's and IPython's own."""
    named = [part for name in _CONFIGURATION for part in environment.get(name, "").split(os.pathsep) if part]
    places = dict.fromkeys(os.path.join(base, os.path.expanduser(part)) for part in named)
    if len(places) > _MOST_PLACES:
        sys.exit(f"capkernel: more than {_MOST_PLACES} directories in JUPYTER_PATH and the like")
    return list(places)


def _close_others(*keep: int) -> None:
    first = 3
    for fd in sorted(keep):
        os.closerange(first, fd)
        first = fd + 1
    os.closerange(first, _MOST_DESCRIPTORS)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m capkernel.kernel", allow_abbrev=False)
    parser.add_argument("-f", dest="connection_file", required=True, help="the connection file Jupyter made")
    parser.add_argument("--policy", help="the policy file (default: $CAPKERNEL_POLICY)")
    parser.add_argument(
        "--profile", choices=("strict", "standard", "relaxed"), help="a checker profile, not wider than the policy's"
    )
    parser.add_argument("--viewer-secret", type=int, help="a descriptor, given by capkernel's provisioner")
    return parser.parse_args()


if __name__ == "__main__":
    main()
