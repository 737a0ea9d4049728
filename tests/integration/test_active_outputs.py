"""Widgets through a real kernel, as a Jupyter client sees them: with `[output] active = true`, and without.

What runs in the page is shown first to arrive where the operator allows it, then not to where nobody did.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from live_kernel import LiveKernel, Ran, live_kernel

SECONDS = 60
COUNTER = """\
import anywidget
import traitlets
class Counter(anywidget.AnyWidget):
    _esm = "export default {render() { act() }}"
    value = traitlets.Int(0).tag(sync=True)
counter = Counter()
counter
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("active")
    (folder / "a.txt").write_text("plain\n")
    return folder


@pytest.fixture(scope="module")
def active(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text(f"[files]\nroots = ['{folder}']\n[output]\nactive = true\n")
    with live_kernel(folder, policy=policy) as kernel:
        yield kernel


@pytest.fixture(scope="module")
def quiet(folder: Path) -> Iterator[LiveKernel]:
    (folder / "capkernel.toml").write_text("[output]\nactive = true\n")  # found, and trusted by nobody
    with live_kernel(folder) as kernel:
        yield kernel


def tell(kernel: LiveKernel, kind: str, content: dict[str, Any], *buffers: bytes) -> str:
    message = kernel.client.session.send(kernel.client.shell_channel.socket, kind, content, buffers=list(buffers))
    return str(message["header"]["msg_id"])


def answers(kernel: LiveKernel, request: str) -> list[dict[str, Any]]:
    """What comes on iopub for this request, until it is done."""
    found = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        try:
            message = kernel.client.get_iopub_msg(timeout=1)
        except Empty:
            continue
        if message["parent_header"].get("msg_id") != request:
            continue
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            return found
        found.append(message)
    raise TimeoutError("no end of the request")


def ask(kernel: LiveKernel, kind: str, content: dict[str, Any]) -> dict[str, Any]:
    request = tell(kernel, kind, content)
    while True:
        reply = kernel.client.get_shell_msg(timeout=SECONDS)
        if reply["parent_header"].get("msg_id") == request:
            return dict(reply["content"])


def comms(ran: Ran) -> list[dict[str, Any]]:
    return [message for message in ran.messages if message["msg_type"].startswith("comm_")]


def model_of(ran: Ran) -> str:
    """The comm of the widget that a cell displayed."""
    views = [
        m["content"]["data"].get("application/vnd.jupyter.widget-view+json")
        for m in ran.messages
        if "data" in m["content"]
    ]
    return str(next(view["model_id"] for view in views if view))


def printed(messages: list[dict[str, Any]]) -> str:
    return "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")


def test_the_operator_lets_a_widgets_script_into_the_page(active: LiveKernel) -> None:
    ran = active.run(COUNTER)
    assert ran.ok, ran.everything
    assert any("act()" in str(message["content"]) for message in comms(ran))
    assert model_of(ran) in ask(active, "comm_info_request", {"target_name": "jupyter.widget"})["comms"]
    ran = active.run("from IPython.display import Javascript, HTML\nHTML('<script>act()</script>')")
    assert ran.messages[-1]["content"]["data"]["text/html"] == "<script>act()</script>"


def test_nobody_did_so_nothing_of_it_arrives(quiet: LiveKernel) -> None:
    ran = quiet.run(COUNTER)
    assert ran.ok, ran.everything
    assert not comms(ran)
    assert "act()" not in str([m["content"] for m in ran.messages if m["msg_type"] != "execute_input"])
    assert "Counter object" in ran.text
    assert ran.everything.count("[output] active = true") == 1
    assert ask(quiet, "comm_info_request", {}) == {"status": "ok", "comms": {}}
    ran = quiet.run("from IPython.display import Javascript, HTML\nHTML('<script>act()</script>')")
    assert "act()" not in str([m["content"] for m in ran.messages if m["msg_type"] != "execute_input"])
    known = quiet.run("print(counter.comm.comm_id)").stdout.strip()
    update = {"comm_id": known, "data": {"method": "update", "state": {"value": 7}, "buffer_paths": []}}
    assert answers(quiet, tell(quiet, "comm_msg", update)) != []  # busy, and nothing else
    assert quiet.run("counter.value").text == "0"


def test_the_session_says_so(active: LiveKernel, quiet: LiveKernel) -> None:
    for kernel, on in ((active, True), (quiet, False)):
        assert ("active outputs are ON" in ask(kernel, "kernel_info_request", {})["banner"]) is on
        assert ask(kernel, "capkernel_state_request", {})["active_outputs"] is on


def test_the_first_cell_says_so_too(folder: Path, tmp_path: Path) -> None:
    from capkernel.kernel.assemble import Assembly

    policy = tmp_path / "policy.toml"
    for said, on in (("true", True), ("false", False)):
        policy.write_text(f"[output]\nactive = {said}\n")
        settings = Assembly.read(base=str(folder), runtime=str(tmp_path), policy=str(policy), profile=None).settings()
        assert any("active outputs are ON" in notice for notice in settings.notices) is on
        assert settings.active_outputs is on


def test_a_slider_is_moved_and_a_callback_runs(active: LiveKernel) -> None:
    slider = model_of(
        active.run(
            "import ipywidgets as widgets\n"
            "slider = widgets.IntSlider(value=3)\n"
            "slider.observe(lambda change: print('moved to', change['new']), names='value')\n"
            "slider\n"
        )
    )
    moved = {"comm_id": slider, "data": {"method": "update", "state": {"value": 8}, "buffer_paths": []}}
    assert "moved to 8\n" in printed(answers(active, tell(active, "comm_msg", moved)))
    assert active.run("slider.value").text == "8"
    ran = active.run("slider.value = 5")
    assert any(message["content"]["data"].get("state") == {"value": 5} for message in comms(ran))


def test_what_a_callback_draws_goes_into_its_output_widget(active: LiveKernel) -> None:
    ran = active.run(
        "out, button = widgets.Output(), widgets.Button()\n"
        "@button.on_click\n"
        "def _(clicked):\n"
        "    with out:\n"
        "        print('inside')\n"
        "button\n"
    )
    request = tell(
        active, "comm_msg", {"comm_id": model_of(ran), "data": {"method": "custom", "content": {"event": "click"}}}
    )
    said = answers(active, request)
    states = [m["content"]["data"].get("state") for m in said if m["msg_type"] == "comm_msg"]
    assert {"msg_id": request} in states, "by this id the page knows which outputs are the widget's"
    assert "inside\n" in printed(said)


def test_what_a_thread_prints_after_a_callback_belongs_to_the_latest_cell(active: LiveKernel) -> None:
    ran = active.run(
        "import threading\n"
        "go, done = threading.Event(), threading.Event()\n"
        "def late():\n"
        "    go.wait()\n"
        "    print('late')\n"
        "    done.set()\n"
        "def start(clicked):\n"
        "    threading.Thread(target=late).start()\n"
        "starter = widgets.Button()\n"
        "starter.on_click(start)\n"
        "starter\n"
    )
    click = {"comm_id": model_of(ran), "data": {"method": "custom", "content": {"event": "click"}}}
    answers(active, tell(active, "comm_msg", click))
    assert active.run("go.set()\nif not done.wait(30): raise TimeoutError").stdout == "late\n"


def test_a_callback_has_no_authority(active: LiveKernel) -> None:
    code = (
        "def read(clicked):\n"
        "    with request_file_system('.') as fs:\n"
        "        print('read', fs.access('a.txt').read())\n"
        "reader = widgets.Button()\n"
        "reader.on_click(read)\n"
        "reader\n"
    )
    ran = active.run(code)
    click = {"comm_id": model_of(ran), "data": {"method": "custom", "content": {"event": "click"}}}
    said = answers(active, tell(active, "comm_msg", click))
    assert "read plain" not in printed(said)
    [error] = [m["content"] for m in said if m["msg_type"] == "error"]
    assert error["ename"] == "CapabilityDenied"
    assert "callback" in error["evalue"]
    assert "read plain" in active.run("read(None)").stdout, "in a cell it has the cell's"


def test_binary_buffers_pass_in_both_directions(active: LiveKernel) -> None:
    ran = active.run(
        "from comm import create_comm\n"
        "echo = create_comm(target_name='echo', data={'a': 1}, buffers=[b'first', b''])\n"
        "def answer(message):\n"
        "    echo.send({'back': 1}, buffers=[bytes(part)[::-1] for part in message['buffers']])\n"
        "echo.on_msg(answer)\n"
    )
    [opened] = comms(ran)
    assert opened["content"]["target_name"] == "echo"
    assert [bytes(part) for part in opened["buffers"]] == [b"first", b""]
    comm = opened["content"]["comm_id"]
    said = answers(active, tell(active, "comm_msg", {"comm_id": comm, "data": {}}, b"abc", b"\x00\xff"))
    [back] = [m for m in said if m["msg_type"] == "comm_msg"]
    assert [bytes(part) for part in back["buffers"]] == [b"cba", b"\xff\x00"]
    answers(active, tell(active, "comm_close", {"comm_id": comm, "data": {}}))
    assert comm not in ask(active, "comm_info_request", {})["comms"]


def test_a_message_waits_for_the_cell_that_runs(active: LiveKernel) -> None:
    slider = active.run("slider").messages[-1]["content"]["data"]["application/vnd.jupyter.widget-view+json"][
        "model_id"
    ]
    cell = active.client.execute("import time\nbegun = slider.value\ntime.sleep(0.3)\nslider.value == begun")
    moved = {"comm_id": slider, "data": {"method": "update", "state": {"value": 77}, "buffer_paths": []}}
    request = tell(active, "comm_msg", moved)
    during = answers(active, cell)
    assert during[-1]["content"]["data"]["text/plain"] == "True"
    assert "moved to 77" in printed(answers(active, request))


def test_a_callback_is_interrupted_and_cannot_ask(active: LiveKernel) -> None:
    ran = active.run(
        "def endless(clicked):\n"
        "    try:\n"
        "        input('who?')\n"
        "    except EOFError:\n"
        "        print('nobody answers', flush=True)\n"
        "    while True: pass\n"
        "stuck = widgets.Button()\n"
        "stuck.on_click(endless)\n"
        "stuck\n"
    )
    request = tell(
        active, "comm_msg", {"comm_id": model_of(ran), "data": {"method": "custom", "content": {"event": "click"}}}
    )
    while True:
        message = active.client.get_iopub_msg(timeout=SECONDS)
        if message["msg_type"] == "stream" and "nobody answers" in message["content"]["text"]:
            break
    active.manager.interrupt_kernel()
    said = answers(active, request)
    assert [m["content"]["ename"] for m in said if m["msg_type"] == "error"] == ["KeyboardInterrupt"]
    assert active.run("slider.value").ok


def test_what_the_kernel_alone_says_cannot_be_said_with_widgets_on(active: LiveKernel) -> None:
    ran = active.run(
        "from IPython.display import display\n"
        "display({'application/vnd.capkernel.diagnostics+json': {'diagnostics': []}, 'text/plain': 'x'},\n"
        "        raw=True, metadata={'capkernel': {'authority': 'may: all'}})\n"
    )
    shown = ran.messages[-1]["content"]
    assert shown["data"] == {"text/plain": "x"}
    assert shown["metadata"] == {}


def test_a_progress_bar_is_a_widget(active: LiveKernel) -> None:
    ran = active.run("from tqdm.auto import tqdm\nfor each in tqdm(range(3)):\n    pass")
    states = [message["content"]["data"].get("state", {}) for message in comms(ran)]
    assert any(state.get("value") == 3.0 for state in states)


def test_when_the_worker_ends_its_comms_are_closed(active: LiveKernel) -> None:
    open_now = set(ask(active, "comm_info_request", {})["comms"])
    assert open_now
    active.process("capkernel.worker.main").kill()
    closed: set[str] = set()
    while closed != open_now:
        message = active.client.get_iopub_msg(timeout=SECONDS)
        if message["msg_type"] == "comm_close":
            closed.add(message["content"]["comm_id"])
    assert ask(active, "comm_info_request", {})["comms"] == {}
    assert active.run("1 + 1").text == "2"
