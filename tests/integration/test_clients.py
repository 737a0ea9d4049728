"""Clients that people use, each as it is started by hand, on the real kernel.

nbclient and nbconvert: `test_authority.py`; jupyter_client, blocking: everywhere, async: `test_session_api.py`;
JupyterLab and Notebook: `browser/`.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import nbformat
import pexpect
import psutil
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

from capkernel.bridge.launch import kernel_argv
from capkernel.viewer import sessions
from capkernel.viewer.link import Link
from capkernel.viewer.terminal import opened
from capkernel.wire.shown import Text

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SECONDS = 90
TOKEN = "only-for-this-test"


@pytest.fixture
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Jupyter directories of this test alone, with our kernel in them."""
    place = tmp_path_factory.mktemp("jupyter")
    spec = place / "data" / "kernels" / "capkernel"
    spec.mkdir(parents=True)
    (spec / "kernel.json").write_text(
        json.dumps({"argv": kernel_argv(), "display_name": "capkernel", "language": "python"})
    )
    return {
        **os.environ,
        "JUPYTER_DATA_DIR": str(place / "data"),
        "JUPYTER_CONFIG_DIR": str(place / "config"),
        "JUPYTER_RUNTIME_DIR": str(place / "run"),
        "IPYTHONDIR": str(place / "ipython"),
        "NO_COLOR": "1",
    }


def seen(project: Path) -> set[str]:
    """What `capkernel view` shows the person of this project's sessions, by the cells' labels."""
    found = set()
    for session in sessions.chosen(sessions.running("test"), str(project)):
        with Link.open(session.runtime, "test") as link:
            for value in link.values().values:
                shown = opened(link, value.handle)
                assert isinstance(shown, Text)
                found.add(f"{value.label}: {shown.text}")
    return found


# ── nbclient ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_viewer_sees_a_session_that_nbclient_started(
    project: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    notebook = new_notebook(cells=[new_code_cell("classify('from-nbclient', label='n')"), new_code_cell("1")])
    notebook.metadata["kernelspec"] = {"name": "capkernel", "display_name": "capkernel", "language": "python"}
    client = NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(project)}})
    found: list[set[str]] = []
    client.on_cell_executed = lambda **_: found.append(seen(project))
    client.execute()
    assert found[0] == {"n: from-nbclient"}


# ── papermill ────────────────────────────────────────────────────────────────────────────────────────────────────────


def papermill(project: Path, environment: dict[str, str], *cells: str) -> tuple[int, Any]:
    """Its exit code, and the notebook it wrote."""
    notebook = new_notebook(cells=[new_code_cell(source) for source in cells])
    notebook.metadata = {
        "kernelspec": {"name": "capkernel", "display_name": "capkernel", "language": "python"},
        "language_info": {"name": "python"},
    }
    notebook.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(notebook, project / "in.ipynb")
    ran = subprocess.run(
        [sys.executable, "-m", "papermill", "in.ipynb", "out.ipynb", "-k", "capkernel", "-p", "count", "5"],
        cwd=project, env=environment, capture_output=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    return ran.returncode, nbformat.read(str(project / "out.ipynb"), as_version=4)


def test_papermill_runs_a_notebook_with_its_parameters(project: Path, environment: dict[str, str]) -> None:
    code, written = papermill(
        project, environment, "count = 1",
        "with request_file_system('data') as fs:\n    text = fs.access('a.txt').read()\nprint(text * count)",
    )  # fmt: skip
    assert code == 0
    assert written.cells[-1].outputs[-1].text == "hello\n" * 5 + "\n"
    assert any(
        "may: read data/a.txt" in output.get("data", {}).get("text/plain", "") for output in written.cells[-1].outputs
    )


def test_papermill_stops_at_a_refusal(project: Path, environment: dict[str, str]) -> None:
    code, written = papermill(project, environment, "count = 1", "open('data/a.txt')", "print('never')")
    assert code != 0
    everything = json.dumps(written)
    assert "ambient-authority" in everything
    assert "CellRefused" in everything
    assert written.cells[-1].outputs == []


# ── jupyter console ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_jupyter_console(project: Path, environment: dict[str, str]) -> None:
    console = pexpect.spawn(
        sys.executable, ["-m", "jupyter_console", "--kernel", "capkernel", "--simple-prompt"],
        cwd=str(project), env=environment, timeout=SECONDS, encoding="utf-8", dimensions=(50, 200),
    )  # fmt: skip
    try:
        console.expect_exact("In [1]: ")
        console.sendline("6 * 7")
        console.expect_exact("42")
        console.expect_exact("In [2]: ")
        console.sendline("open('data/a.txt')")
        console.expect_exact("ambient-authority")
        console.expect_exact("In [3]: ")
        console.sendline("name = input('who? ')")
        console.expect_exact("the cell asks: who? ")
        console.sendline("Ada")
        console.expect_exact("In [4]: ")
        console.sendline("name + name")
        console.expect_exact("'AdaAda'")
        console.expect_exact("In [5]: ")
        console.sendline("x = classify('from-the-console', label='c')")
        console.expect_exact("In [6]: ")
        assert seen(project) == {"c: from-the-console"}
        console.sendeof()
        console.expect_exact("Do you really want to exit")
        console.sendline("y")
        console.expect(pexpect.EOF)
    finally:
        console.close(force=True)


# ── a gateway ────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def gateway(project: Path, environment: dict[str, str]) -> Iterator[tuple[int, int]]:
    """Its port and process id."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    started = subprocess.Popen(
        [sys.executable, "-m", "kernel_gateway", "--KernelGatewayApp.ip=127.0.0.1", f"--KernelGatewayApp.port={port}",
         f"--KernelGatewayApp.auth_token={TOKEN}", "--KernelGatewayApp.default_kernel_name=capkernel"],
        cwd=project, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        end = time.monotonic() + SECONDS
        while True:
            assert started.poll() is None, started.stderr.read().decode()  # type: ignore[union-attr]
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except OSError:
                assert time.monotonic() < end, "the gateway did not come up"
                time.sleep(0.2)
        yield port, started.pid
    finally:
        started.terminate()
        started.communicate(timeout=60)


async def _asked(port: int, method: str, path: str, body: str | None = None) -> Any:
    request = HTTPRequest(
        f"http://127.0.0.1:{port}{path}", method=method, body=body, headers={"Authorization": f"token {TOKEN}"},
        request_timeout=SECONDS,
    )  # fmt: skip
    answer = await AsyncHTTPClient().fetch(request)
    return json.loads(answer.body) if answer.body else None


async def _run(port: int, kernel: str, code: str) -> tuple[str, str]:
    """The status of a cell, and its text."""
    address = f"ws://127.0.0.1:{port}/api/kernels/{kernel}/channels"
    link = await websocket_connect(HTTPRequest(address, headers={"Authorization": f"token {TOKEN}"}))
    header = {
        "msg_id": os.urandom(8).hex(),
        "msg_type": "execute_request",
        "username": "",
        "session": "s",
        "version": "5.3",
    }
    content = {
        "code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False,
        "stop_on_error": False,
    }  # fmt: skip
    await link.write_message(
        json.dumps({
            "header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell",
            "buffers": [],
        })
    )  # fmt: skip
    status, text, idle = "", "", False
    while not (status and idle):
        received = await asyncio.wait_for(link.read_message(), SECONDS)
        assert received is not None, "the gateway closed the link"
        message = json.loads(received)
        if message["parent_header"].get("msg_id") != header["msg_id"]:
            continue
        if message["msg_type"] == "execute_reply":
            status = message["content"]["status"]
        elif message["msg_type"] == "stream":
            text += message["content"]["text"]
        elif message["msg_type"] == "status":
            idle = message["content"]["execution_state"] == "idle"
    link.close()
    return status, text


def test_a_gateway_places_two_sessions(project: Path, environment: dict[str, str]) -> None:
    async def both(port: int) -> None:
        first, second = [(await _asked(port, "POST", "/api/kernels", '{"name": "capkernel"}'))["id"] for _ in range(2)]
        ran = await asyncio.gather(_run(port, first, "x = 'one'"), _run(port, second, "x = 'two'"))
        assert [status for status, _ in ran] == ["ok", "ok"]
        shown = await asyncio.gather(_run(port, first, "print(x)"), _run(port, second, "print(x)"))
        assert shown == [("ok", "one\n"), ("ok", "two\n")]
        assert (await _run(port, first, "open('data/a.txt')"))[0] == "error"
        assert await _run(port, first, "print(x)") == ("ok", "one\n")
        await asyncio.gather(*(_run(port, kernel, "secret = classify(x, label='g')") for kernel in (first, second)))
        assert await asyncio.to_thread(seen, project) == {"g: one", "g: two"}
        await _asked(port, "DELETE", f"/api/kernels/{first}")
        assert await _run(port, second, "print(x)") == ("ok", "two\n")  # the other one goes on

    with gateway(project, environment) as (port, process):
        asyncio.run(both(port))
        children = psutil.Process(process).children(recursive=True)
        assert children
    _, alive = psutil.wait_procs(children, timeout=60)
    assert all(left.status() == psutil.STATUS_ZOMBIE for left in alive)
