"""The closed list of requests: every type of the protocol, unknown ones and malformed ones, on both channels.

The kernel is the real one. What none of them may do: hang, reach the worker, or harm the session.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from queue import Empty
from typing import Any

import pytest
from live_kernel import LiveKernel, live_kernel

from capkernel.kernel.requests import ON_CONTROL

GOOD: dict[str, dict[str, Any]] = {
    "execute_request": {"code": "1 + 1", "silent": False, "store_history": True, "user_expressions": {}},
    "complete_request": {"code": "zi", "cursor_pos": 2},
    "inspect_request": {"code": "zip", "cursor_pos": 2, "detail_level": 0},
    "is_complete_request": {"code": "1"},
    "history_request": {"hist_access_type": "tail", "n": 1, "output": False, "raw": True},
    "comm_info_request": {},
    "kernel_info_request": {},
    "connect_request": {},
    "interrupt_request": {},
    "capkernel_check_request": {"code": "1 + 1"},
    "capkernel_state_request": {},
}
REFUSED = [
    "debug_request", "usage_request", "create_subshell_request", "delete_subshell_request", "list_subshell_request",
    "apply_request", "abort_request", "clear_request", "made_up_request", "a" * 90 + "_request",
]  # fmt: skip
SILENT = [
    "comm_open", "comm_msg", "comm_close", "input_reply", "execute_reply", "status", "stream", "", "x" * 5000, "_request " * 3,  # noqa: E501
]  # fmt: skip
ODD: list[Any] = [None, 5, -1, 10**30, 1.5, True, [], ["x"], {}, {"a": 1}, "x"]
FIELDS = {
    "execute_request": ["code", "user_expressions", "silent", "store_history", "allow_stdin"],
    "complete_request": ["code", "cursor_pos"],
    "inspect_request": ["code", "cursor_pos", "detail_level", "omit_sections"],
    "is_complete_request": ["code"],
    "capkernel_check_request": ["code"],
    "capkernel_state_request": ["zz"],
    "history_request": [
        "hist_access_type",
        "output",
        "raw",
        "session",
        "start",
        "stop",
        "n",
        "pattern",
        "unique",
        "zz",
    ],
    "comm_info_request": ["target_name"],
    "shutdown_request": ["restart"],
}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    with live_kernel(tmp_path_factory.mktemp("requests")) as started:
        started.run("kept = 41")
        yield started


def ask(
    kernel: LiveKernel, channel: str, kind: str, content: Any, header: dict[str, Any] | None = None, seconds: float = 20
) -> dict[str, Any] | None:
    """The reply to one message, None when the kernel is done with it without one."""
    message = kernel.client.session.msg(kind, {})
    message["content"] = kernel.client.session.pack(content)  # as bytes: a client of ours would refuse to send it
    message["header"] |= header or {}
    (kernel.client.shell_channel if channel == "shell" else kernel.client.control_channel).send(message)
    end = time.monotonic() + seconds
    reply, idle = None, False
    while not idle and time.monotonic() < end:
        try:
            seen = kernel.client.get_iopub_msg(timeout=0.5)
        except Empty:
            continue
        idle = (
            seen["parent_header"].get("msg_id") == message["msg_id"]
            and seen["msg_type"] == "status"
            and seen["content"]["execution_state"] == "idle"
        )
    assert idle, f"{kind} on {channel} was not done within {seconds} s"
    receive = kernel.client.get_shell_msg if channel == "shell" else kernel.client.get_control_msg
    while True:
        try:
            found: dict[str, Any] = receive(timeout=1.0 if reply is None and kind.endswith("_request") else 0.05)
        except Empty:
            return reply
        if found["parent_header"].get("msg_id") == message["msg_id"]:
            return found


def usable(kernel: LiveKernel, worker: int) -> None:
    assert kernel.process("capkernel.worker.main").pid == worker, "it cost the session its worker"
    ran = kernel.run("kept + 1")
    assert ran.text == "42", ran.everything


def worker_of(kernel: LiveKernel) -> int:
    return int(kernel.process("capkernel.worker.main").pid)


@pytest.mark.parametrize("channel", ["shell", "control"])
def test_every_request_is_answered(kernel: LiveKernel, channel: str) -> None:
    worker = worker_of(kernel)
    for kind, content in GOOD.items():
        reply = ask(kernel, channel, kind, content)
        assert reply is not None, kind
        assert reply["msg_type"] == kind.replace("request", "reply")
        if channel == "shell" or kind in ON_CONTROL:
            assert reply["content"]["status"] in ("ok", "complete"), (kind, reply["content"])
        else:
            assert reply["content"]["ename"] == "NotSupported", (kind, reply["content"])
    usable(kernel, worker)


@pytest.mark.parametrize("channel", ["shell", "control"])
def test_every_other_request_is_refused(kernel: LiveKernel, channel: str) -> None:
    worker = worker_of(kernel)
    for kind in REFUSED:
        reply = ask(kernel, channel, kind, {"command": "attach", "arguments": {}})
        assert reply is not None, kind
        assert reply["msg_type"] == kind.replace("_request", "_reply")
        assert (reply["content"]["status"], reply["content"]["ename"]) == ("error", "NotSupported"), kind
    usable(kernel, worker)


@pytest.mark.parametrize("channel", ["shell", "control"])
def test_what_is_no_request_is_dropped(kernel: LiveKernel, channel: str) -> None:
    worker = worker_of(kernel)
    for kind in SILENT:
        assert ask(kernel, channel, kind, {"comm_id": "x", "target_name": "t", "data": {}}) is None, kind
    usable(kernel, worker)


@pytest.mark.parametrize("channel", ["shell", "control"])
@pytest.mark.parametrize("kind", [*FIELDS, "kernel_info_request", "connect_request", "interrupt_request"])
def test_malformed_content_is_an_error_and_reaches_nobody(kernel: LiveKernel, kind: str, channel: str) -> None:
    worker = worker_of(kernel)
    good = GOOD.get(kind, {"restart": False})
    contents: list[Any] = [[], "text", 5, None]
    for field in FIELDS.get(kind, []):
        without = {name: value for name, value in good.items() if name != field}
        if field in ("code", "cursor_pos", "hist_access_type", "output", "raw", "restart"):
            contents.append(without)
        contents += [good | {field: odd} for odd in ODD]
    if kind == "shutdown_request":  # well-formed, it would do what it says
        contents = [
            content for content in contents if not (isinstance(content, dict) and content.get("restart") is True)
        ]
    for content in contents:
        reply = ask(kernel, channel, kind, content)
        assert reply is not None, content
        assert reply["msg_type"] == kind.replace("request", "reply")
        bad = not isinstance(content, dict) or any(
            name in FIELDS.get(kind, []) and name not in content
            for name in good
            if name in ("code", "cursor_pos", "restart")
        )
        if channel == "control" and kind not in ON_CONTROL:
            assert reply["content"]["ename"] == "NotSupported", content
        elif bad:
            assert reply["content"]["ename"] == "MalformedRequest", content
        assert reply["content"]["status"] in ("ok", "error", "complete", "incomplete", "invalid")
    usable(kernel, worker)


@pytest.mark.parametrize("header", [{"subshell_id": "x"}, {"subshell_id": 5}, {"session": None}, {"username": "Zoë"}])
def test_odd_headers(kernel: LiveKernel, header: dict[str, Any]) -> None:
    worker = worker_of(kernel)
    ask(kernel, "shell", "execute_request", GOOD["execute_request"], header)
    ask(kernel, "control", "kernel_info_request", {}, header)
    usable(kernel, worker)


@pytest.mark.parametrize("header", [{"version": 5}, {"msg_type": 5}, {"msg_type": None}])
def test_headers_that_cannot_be_read_are_dropped(kernel: LiveKernel, header: dict[str, Any]) -> None:
    worker = worker_of(kernel)
    for channel in (kernel.client.shell_channel, kernel.client.control_channel):
        message = kernel.client.session.msg("kernel_info_request", {})
        message["header"] |= header
        channel.send(message)
    usable(kernel, worker)
    assert ask(kernel, "control", "kernel_info_request", {}) is not None


# ── expressions beside a cell ────────────────────────────────────────────────────────────────────────────────────────


def expressions(kernel: LiveKernel, code: str, **asked: Any) -> dict[str, Any]:
    reply = kernel.run(code, user_expressions=asked).reply
    assert reply["status"] == "ok", reply
    found: dict[str, Any] = reply["user_expressions"]
    assert found.keys() == asked.keys()
    return found


def test_expressions_are_evaluated_when_accepted(kernel: LiveKernel) -> None:
    found = expressions(
        kernel, "a = [1, 2]\ns = classify('canary')", n="len(a) + 1", secret="s", mapped="s.map(len)", raised="a[9]",
        frame="__import__", printed="print('seen')",
    )  # fmt: skip
    assert found["n"] == {"status": "ok", "data": {"text/plain": "3"}, "metadata": {}}
    assert "Classified[str](***)" in found["secret"]["data"]["text/plain"]
    assert "Classified[int](***)" in found["mapped"]["data"]["text/plain"]
    assert (found["raised"]["status"], found["raised"]["ename"]) == ("error", "IndexError")
    assert found["frame"]["ename"] == "CellRefused"
    assert found["printed"]["status"] == "ok"
    assert "canary" not in str(found)


@pytest.mark.parametrize(
    ("text", "name", "part"),
    [
        ("open('x')", "CellRefused", "ambient-authority"),
        ("__import__('os').system('id')", "CellRefused", ""),
        ("no_such_name", "CellRefused", "unbound-name"),
        ("s.map(print)", "CellRefused", "impure-map"),
        ("str(s) + 'x'", "CellRefused", ""),
        ("s == 'a'", "CellRefused", ""),
        ("(b := 5)", "NotEvaluated", "binds no names"),
        ("b = 5", "NotEvaluated", "not one Python expression"),
        ("1; 2", "NotEvaluated", "not one Python expression"),
        ("%who", "NotEvaluated", "not one Python expression"),
        ("await x", "NotEvaluated", ""),
        ("", "NotEvaluated", "not one Python expression"),
        (5, "NotEvaluated", "text"),
        (["a"], "NotEvaluated", "text"),
        ("'" + "x" * 30_000 + "'", "NotEvaluated", "characters"),
        ("(" * 3000, "NotEvaluated", "not one Python expression"),
    ],
)
def test_expressions_are_checked_like_cells(kernel: LiveKernel, text: Any, name: str, part: str) -> None:
    worker = worker_of(kernel)
    content = {"code": "s = classify('canary')", "user_expressions": {"x": text}}
    reply = ask(kernel, "shell", "execute_request", content)
    assert reply is not None
    found = reply["content"]["user_expressions"]["x"]
    assert found["status"] == "error"
    assert found["ename"] == name, found
    assert part in found["evalue"]
    usable(kernel, worker)


def test_an_expression_has_the_time_of_a_cell_and_can_be_interrupted(kernel: LiveKernel) -> None:
    request = kernel.client.execute("import time", user_expressions={"x": "[print('begun'), time.sleep(50)]"})
    while True:
        message = kernel.client.get_iopub_msg(timeout=20)
        if message["msg_type"] == "stream" and message["parent_header"].get("msg_id") == request:
            break
    kernel.manager.interrupt_kernel()
    while True:
        reply = kernel.client.get_shell_msg(timeout=10)
        if reply["parent_header"]["msg_id"] == request:
            break
    assert reply["content"]["user_expressions"]["x"]["ename"] == "KeyboardInterrupt"
    assert kernel.run("kept + 1").text == "42"


def test_after_an_error_there_are_none(kernel: LiveKernel) -> None:
    assert kernel.run("raise ValueError", user_expressions={"x": "1"}).reply["user_expressions"] == {}
