"""Jupyter servers started for a test, and the browser that looks at them."""

from __future__ import annotations

import importlib.resources
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from capkernel.bridge.launch import kernel_argv

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync"]  # fmt: skip
TOKEN = "only-for-this-test"
REPOSITORY = Path(__file__).resolve().parents[2]
ENTRY_POINTS = "jupyter_client.kernel_provisioners"


@dataclass(frozen=True)
class Started:
    port: int
    pid: int


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_it_answers(server: subprocess.Popen[bytes], port: int, log: Path | None = None, base: str = "/") -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        assert server.poll() is None, log.read_text() if log else server.stderr.read().decode()  # type: ignore[union-attr]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{base}api?token={TOKEN}", timeout=2):
                return
        except OSError:
            time.sleep(0.3)
    raise AssertionError("the Jupyter server did not come up")


def jupyter_environment(place: Path, *, argv: list[str] | None = None, provisioner: bool = True) -> dict[str, str]:
    """Jupyter's directories for one test, below `place`, with what an installation puts into an environment: the
    kernelspec, the server extension and the card, made from the files of the repository. argv: of the kernelspec."""
    spec = json.loads((REPOSITORY / "kernelspec" / "kernel.json").read_text())
    spec["argv"] = argv or kernel_argv()
    if not provisioner:
        del spec["metadata"]["kernel_provisioner"]
    kernels = place / "data" / "kernels" / "capkernel"
    kernels.mkdir(parents=True)
    (kernels / "kernel.json").write_text(json.dumps(spec))
    enabled = place / "config" / "jupyter_server_config.d"
    enabled.mkdir(parents=True)
    shutil.copy(REPOSITORY / "capkernel/viewer/jupyter/config/capkernel.json", enabled)
    card = importlib.resources.files("capkernel.viewer") / "labextension"
    shutil.copytree(str(card), place / "data" / "labextensions" / "@capkernel" / "card")
    (place / "run").mkdir(mode=0o700)
    environment = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(place / "config"),
        "JUPYTER_DATA_DIR": str(place / "data"),
        "JUPYTER_RUNTIME_DIR": str(place / "jupyter-run"),
        "XDG_RUNTIME_DIR": str(place / "run"),
        "IPYTHONDIR": str(place / "ipython"),
        "JUPYTER_PREFER_ENV_PATH": "0",
    }
    # The programs of this directory can be servers as well.
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    if not entry_points(group=ENTRY_POINTS, name="capkernel-provisioner"):
        # Not installed, but imported from the repository: the entry point alone, as pip would write it.
        names = place / "names" / "capkernel-0.dist-info"
        names.mkdir(parents=True)
        (names / "METADATA").write_text("Metadata-Version: 2.1\nName: capkernel\nVersion: 0\n")
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        lines = [f"{name} = {value}" for name, value in project["entry-points"][ENTRY_POINTS].items()]
        (names / "entry_points.txt").write_text("\n".join([f"[{ENTRY_POINTS}]", *lines, ""]))
        environment["PYTHONPATH"] = os.pathsep.join([str(names.parent), environment["PYTHONPATH"]])
    return environment


@contextmanager
def jupyter_server(
    directory: Path,
    environment: dict[str, str],
    log: Path,
    *options: str,
    base: str = "/",
    program: str = "jupyter_server",
    token: str = TOKEN,
) -> Iterator[Started]:
    """A Jupyter server on a free port; all it prints is in `log`, at level DEBUG."""
    port = free_port()
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-P", "-m", program, "--no-browser", "--debug", "--allow-root", "--ServerApp.ip=127.0.0.1",
             f"--ServerApp.port={port}", f"--ServerApp.base_url={base}", "--ServerApp.port_retries=0",
             f"--IdentityProvider.token={token}", *options],
            cwd=directory, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
        )  # fmt: skip
        try:
            wait_until_it_answers(server, port, log, base)
            yield Started(port, server.pid)
        finally:
            server.terminate()
            server.wait(timeout=60)


@contextmanager
def capkernel_lab(directory: Path, notebook: str, **environment: str) -> Iterator[int]:
    """`capkernel lab` on a notebook, as a person starts it in `directory`; its port. environment: beside our own."""
    port = free_port()
    variables = {
        **os.environ,
        "JUPYTER_CONFIG_DIR": str(directory / "config"),
        "JUPYTER_RUNTIME_DIR": str(directory / "run"),
        **environment,
    }
    server = subprocess.Popen(
        [sys.executable, "-P", "-m", "capkernel.cli", "lab", notebook, "--", "--no-browser",
         f"--ServerApp.port={port}", "--ServerApp.ip=127.0.0.1", f"--IdentityProvider.token={TOKEN}"],
        cwd=directory, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        wait_until_it_answers(server, port)
        yield port
    finally:
        server.terminate()
        server.communicate(timeout=30)
