"""An interrupt ends whatever a cell waits for, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from queue import Empty

import pytest
from unchecked import UncheckedKernel, unchecked_kernel


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UncheckedKernel]:
    with unchecked_kernel(tmp_path_factory.mktemp("interrupt")) as started:
        started.run("import asyncio, time")
        yield started


WAITS = [
    ("time.sleep(60)", "KeyboardInterrupt"),
    ("while True: pass", "KeyboardInterrupt"),
    ("await asyncio.sleep(60)", "CancelledError"),
    ("await asyncio.sleep(0)\nwhile True: pass", "KeyboardInterrupt"),
    ("await asyncio.sleep(0)\ntime.sleep(60)", "KeyboardInterrupt"),
    ("import threading; threading.Event().wait()", "KeyboardInterrupt"),
    ("with request_file_system('.') as fs: fs.access('slow').read_bytes()", "KeyboardInterrupt"),
    ("input('? ')", "KeyboardInterrupt"),
    ("sum(x * x for x in range(10**10))", "KeyboardInterrupt"),
    ("while True: print('flood')", "KeyboardInterrupt"),
]


@pytest.mark.parametrize("by", ["signal", "message"])
@pytest.mark.parametrize(("code", "name"), WAITS)
def test_interrupt(kernel: UncheckedKernel, code: str, name: str, by: str) -> None:
    request = kernel.client.execute("print('begun')\n" + code, allow_stdin=True)
    _await_begun(kernel, request)
    time.sleep(0.3)
    if by == "signal":
        kernel.manager.interrupt_kernel()
    else:
        kernel.client.control_channel.send(kernel.client.session.msg("interrupt_request", {}))
        assert kernel.client.get_control_msg(timeout=5)["content"]["status"] == "ok"
    reply = kernel.client.get_shell_msg(timeout=20)["content"]  # by itself none would end so soon
    assert reply["status"] == "error"
    assert reply["ename"] == name
    _drain(kernel)
    assert kernel.run("6 * 7").text == "42"


def test_an_interrupt_between_cells_hits_no_cell(kernel: UncheckedKernel) -> None:
    for _ in range(3):
        kernel.manager.interrupt_kernel()
    time.sleep(0.2)
    assert kernel.run("6 * 7").text == "42"


def test_a_late_answer_does_not_reach_the_next_question(kernel: UncheckedKernel) -> None:
    kernel.client.execute("input('first? ')", allow_stdin=True)
    first = kernel.client.get_stdin_msg(timeout=10)
    kernel.manager.interrupt_kernel()
    assert kernel.client.get_shell_msg(timeout=10)["content"]["ename"] == "KeyboardInterrupt"
    _drain(kernel)
    request = kernel.client.execute("value = input('second? ')\nprint('got', value)", allow_stdin=True)
    second = kernel.client.get_stdin_msg(timeout=10)
    assert first["content"]["prompt"] == "the cell asks: first? "
    assert second["content"]["prompt"] == "the cell asks: second? "
    session = kernel.client.session
    kernel.client.stdin_channel.send(session.msg("input_reply", {"value": "old"}, parent=first))
    kernel.client.stdin_channel.send(session.msg("input_reply", {"value": "new"}, parent=second))
    assert kernel.client.get_shell_msg(timeout=10)["content"]["status"] == "ok"
    assert _printed(kernel, request) == "got new\n"


def test_nobody_is_asked_for_a_password(kernel: UncheckedKernel) -> None:
    ran = kernel.run("import getpass\ngetpass.getpass('q> ')", allow_stdin=True)
    assert ran.reply["ename"] == "PermissionError"
    assert "read_classified" in ran.reply["evalue"]
    # The same question, asked past the library: the kernel does not pass it on.
    kernel.run("k = get_ipython().kernel")
    ran = kernel.run("k._input_request('q> ', None, k.get_parent('shell'), password=True)", allow_stdin=True)
    assert ran.reply["ename"] == "EOFError"
    with pytest.raises(Empty):
        kernel.client.get_stdin_msg(timeout=0)


def test_input(kernel: UncheckedKernel) -> None:
    request = kernel.client.execute("v = input('p> '); w = input('q> '); print(v, w)")
    asked = kernel.client.get_stdin_msg(timeout=10)
    assert asked["content"] == {"prompt": "the cell asks: p> ", "password": False}
    kernel.client.input("abc")
    asked = kernel.client.get_stdin_msg(timeout=10)
    assert asked["content"] == {"prompt": "the cell asks: q> ", "password": False}
    kernel.client.input("def")
    assert kernel.client.get_shell_msg(timeout=10)["content"]["status"] == "ok"
    assert _printed(kernel, request) == "abc def\n"


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("", "the cell asks: "),
        ("\rJupyter password: ", "the cell asks:  Jupyter password: "),
        ("\b" * 30 + "Jupyter password: ", "the cell asks: Jupyter password: "),
        ("a\nJupyter password: ", "the cell asks: a\nthe cell asks: Jupyter password: "),
        ("\x1b[2J\x1b[1A\u202ePassword: ", "the cell asks: "),
    ],
)
def test_a_prompt_says_whose_it_is(kernel: UncheckedKernel, prompt: str, shown: str) -> None:
    kernel.client.execute(f"input({prompt!r})", allow_stdin=True)
    asked = kernel.client.get_stdin_msg(timeout=10)["content"]["prompt"]
    kernel.client.input("")
    assert kernel.client.get_shell_msg(timeout=10)["content"]["status"] == "ok"
    _drain(kernel)
    assert asked.startswith(shown) if "\x1b" in prompt else asked == shown
    assert "\x1b" not in asked
    assert "\u202e" not in asked


def test_end_of_file_is_an_exception(kernel: UncheckedKernel) -> None:
    kernel.client.execute("input('p> ')", allow_stdin=True)
    kernel.client.get_stdin_msg(timeout=10)
    kernel.client.input("\x04")
    assert kernel.client.get_shell_msg(timeout=10)["content"]["ename"] == "EOFError"
    _drain(kernel)
    ran = kernel.run("input('nobody')", allow_stdin=False)
    assert ran.reply["ename"] == "StdinNotImplementedError"


def test_the_kernel_answers_while_a_cell_computes(kernel: UncheckedKernel) -> None:
    request = kernel.client.execute("x = 0\nprint('begun')\nwhile True: x += 1")
    _await_begun(kernel, request)
    for _ in range(5):
        kernel.client.control_channel.send(kernel.client.session.msg("kernel_info_request", {}))
        assert kernel.client.get_control_msg(timeout=10)["content"]["status"] == "ok"
    kernel.manager.interrupt_kernel()  # it would not have ended
    assert kernel.client.get_shell_msg(timeout=20)["content"]["ename"] == "KeyboardInterrupt"
    _drain(kernel)


def _await_begun(kernel: UncheckedKernel, request: str) -> None:
    while True:
        message = kernel.client.get_iopub_msg(timeout=10)
        if message["msg_type"] == "stream" and message["parent_header"].get("msg_id") == request:
            return


def _printed(kernel: UncheckedKernel, request: str) -> str:
    text = ""
    while True:
        message = kernel.client.get_iopub_msg(timeout=5)
        if message["parent_header"].get("msg_id") != request:
            continue
        if message["msg_type"] == "stream":
            text += message["content"]["text"]
        if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            return text


def _drain(kernel: UncheckedKernel) -> None:
    for channel in (kernel.client.iopub_channel, kernel.client.stdin_channel, kernel.client.control_channel):
        try:
            while True:
                channel.get_msg(timeout=0.1)
        except Empty:
            continue


def test_a_storm_of_interrupts_cuts_no_frame(kernel: UncheckedKernel) -> None:
    """An interrupt in the middle of a send would leave half a frame, and cost the session its names."""
    kernel.run("kept = 7")
    storm = (
        "n = 0\nwhile n < 40:\n    try:\n        while True: print('y' * 20_000)\n"
        "    except KeyboardInterrupt:\n        n += 1"
    )
    kernel.client.execute(storm)
    end = time.monotonic() + 30
    while time.monotonic() < end:
        kernel.manager.interrupt_kernel()
        try:
            reply = kernel.client.get_shell_msg(timeout=0.02)["content"]
            break
        except Empty:
            continue
    else:
        pytest.fail("the cell did not end")
    assert reply.get("ename", "KeyboardInterrupt") == "KeyboardInterrupt"  # one may hit the handler itself
    _drain(kernel)
    assert kernel.run("kept").text == "7"


def test_an_interrupt_right_after_the_start(kernel: UncheckedKernel) -> None:
    for _ in range(10):
        request = kernel.client.execute("time.sleep(30)")
        while True:
            message = kernel.client.get_iopub_msg(timeout=10)
            if message["msg_type"] == "execute_input" and message["parent_header"].get("msg_id") == request:
                break
        time.sleep(0.01)
        kernel.manager.interrupt_kernel()
        assert kernel.client.get_shell_msg(timeout=5)["content"]["ename"] == "KeyboardInterrupt"
        _drain(kernel)
