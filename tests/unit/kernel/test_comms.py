"""Which comm messages pass, in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from capkernel.kernel.comms import MOST_BUFFERS, MOST_BYTES, MOST_COMMS, Comms
from capkernel.kernel.firewall import CellOutput
from capkernel.wire.worker import Comm


def opened(comm: str = "a", target: str = "t") -> Comms:
    comms = Comms()
    output = comms.from_worker(Comm(1, "comm_open", comm, {}, target), b"")
    assert output is not None
    comms.sent(output)
    return comms


def header(kind: str) -> dict[str, Any]:
    return {"msg_type": kind, "msg_id": "client-1"}


def test_a_widget_opens_talks_and_closes() -> None:
    comms = Comms()
    metadata = {"version": "2.1.0", "capkernel": {"authority": "may: all"}}
    made = Comm(1, "comm_open", "a", {"state": {"_esm": "act()"}}, "jupyter.widget", None, metadata, (2, 0, 1))
    output = comms.from_worker(made, b"xyz")
    assert output is not None
    assert output.content == {
        "comm_id": "a", "data": {"state": {"_esm": "act()"}}, "target_name": "jupyter.widget", "target_module": None,
    }  # fmt: skip
    assert output.metadata == {"version": "2.1.0"}
    assert output.buffers == (b"xy", b"", b"z")
    assert comms.info(None) == {}
    comms.sent(output)
    assert comms.info(None) == comms.info("jupyter.widget") == {"a": {"target_name": "jupyter.widget"}}
    assert comms.info("other") == {}
    told = comms.from_client(9, header("comm_msg"), {"comm_id": "a", "data": {"x": 1}}, {"m": 1}, [memoryview(b"12")])
    assert told == (Comm(9, "comm_msg", "a", {"x": 1}, metadata={"m": 1}, buffers=(2,), parent="client-1"), b"12")
    closed = comms.from_worker(Comm(1, "comm_close", "a", {}), b"")
    assert closed is not None
    comms.sent(closed)
    assert comms.info(None) == {}
    assert comms.from_worker(Comm(1, "comm_msg", "a", {}), b"") is None


@pytest.mark.parametrize(
    "message",
    [
        Comm(1, "comm_msg", "other", {}),
        Comm(1, "comm_close", "other", {}),
        Comm(1, "comm_open", "a", {}, "t"),  # it is open
        Comm(1, "comm_open", "", {}, "t"),
        Comm(1, "comm_open", "x y", {}, "t"),
        Comm(1, "comm_open", "x" * 129, {}, "t"),
        Comm(1, "comm_open", "b", {}, ""),
        Comm(1, "comm_open", "b", {}, "t" * 201),
        Comm(1, "comm_open", "b", None, "t"),
        Comm(1, "comm_open", "b", {}, "t", buffers=(5,)),
        Comm(1, "comm_open", "b", {}, "t", buffers=(-1, 4)),
        Comm(1, "comm_open", "b", {}, "t", buffers=(0,) * (MOST_BUFFERS + 1)),
    ],
)
def test_what_a_worker_says_and_does_not_pass(message: Comm) -> None:
    assert opened().from_worker(message, b"123") is None


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("comm_msg", {"comm_id": "other", "data": {}}),
        ("comm_msg", {"comm_id": "a", "data": []}),
        ("comm_msg", {"comm_id": 5, "data": {}}),
        ("comm_msg", {"data": {}}),
        ("comm_msg", []),
        ("comm_open", {"comm_id": "a", "target_name": "t", "data": {}}),
        ("comm_open", {"comm_id": "../x", "target_name": "t", "data": {}}),
        ("comm_open", {"comm_id": "b", "data": {}}),
        ("comm_open", {"comm_id": "b", "target_name": 1, "data": {}}),
        ("comm_made_up", {"comm_id": "a", "data": {}}),
        ("comm_msg", {"comm_id": "a", "data": {"x": "\ud800"}}),
        ("comm_msg", {"comm_id": "a", "data": {"x": "y" * (MOST_BYTES + 1)}}),
    ],
)
def test_what_a_client_says_and_does_not_pass(kind: str, content: Any) -> None:
    comms = opened()
    assert comms.from_client(9, header(kind), content, {}, []) is None
    assert comms.info(None) == {"a": {"target_name": "t"}}


def test_buffers_of_a_client_are_bounded() -> None:
    comms, content = opened(), {"comm_id": "a", "data": {}}
    assert comms.from_client(9, header("comm_msg"), content, None, [b""] * (MOST_BUFFERS + 1)) is None
    assert comms.from_client(9, header("comm_msg"), content, None, [b"x" * (MOST_BYTES + 1)]) is None
    assert comms.from_client(9, header("comm_msg"), content, None, [b"x" * 1000]) is not None


def test_there_are_only_so_many() -> None:
    comms = Comms()
    for number in range(MOST_COMMS):
        assert (
            comms.from_client(1, header("comm_open"), {"comm_id": str(number), "target_name": "t"}, {}, []) is not None
        )
    assert comms.from_client(1, header("comm_open"), {"comm_id": "more", "target_name": "t"}, {}, []) is None
    assert comms.from_worker(Comm(1, "comm_open", "more", {}, "t"), b"") is None
    assert comms.from_client(1, header("comm_close"), {"comm_id": "0"}, {}, []) is not None
    assert comms.from_worker(Comm(1, "comm_open", "more", {}, "t"), b"") is not None
    assert len(comms.clear()) == MOST_COMMS - 1
    assert comms.info(None) == {}


def test_what_a_comm_sends_counts_against_the_output_limit() -> None:
    comms, cell = opened(), CellOutput(1, 5000, active=True)
    output = comms.from_worker(Comm(1, "comm_msg", "a", {}, buffers=(4000,)), b"x" * 4000)
    assert output is not None
    assert cell.counted(output) == [output]
    [note] = cell.counted(output)
    assert "output cut" in note.content["text"]
