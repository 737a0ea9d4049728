"""Messages to clients read as those that jupyter_client packs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from jupyter_client.session import json_packer, msg_header

from capkernel.kernel.packing import pack

DATE = datetime(2020, 1, 2, 3, 4, 5, 600, tzinfo=UTC)


@pytest.mark.parametrize(
    "message",
    [
        {},
        msg_header("1", "execute_request", "person", "s") | {"date": DATE},
        {"date": DATE.replace(microsecond=0), "there": DATE.astimezone(timezone(timedelta(hours=-3.5)))},
        {"subshell_id": None, "code": "print(None)\n", "text": "null"},
        {
            "data": {"text/plain": 'é "\\\n\t\r\b\f\0\x1b\x7f\u2028\U0001f600</script>'},
            "list": [1, -2.5, 1e300, True, ()],
        },
        {"big": 2**100, 1: "an int", 2.5: "a float"},
        {True: "a bool", None: "none"},
        {"bytes": b"\0\xff"},
    ],
)
def test_as_jupyter_client_packs_it(message: Any) -> None:
    assert json.loads(pack(message)) == json.loads(json_packer(message))


@pytest.mark.filterwarnings("ignore:Message serialization failed:UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("message", [{"data": {"y": [float("nan"), float("-inf")]}}, {"set": {1}, "range": range(3)}])
def test_what_is_no_json(message: Any) -> None:
    assert json.loads(pack(message)) == json.loads(json_packer(message))


def test_what_cannot_be_sent() -> None:
    with pytest.raises(UnicodeEncodeError):
        json_packer({"text": "\ud800"})
    with pytest.raises(UnicodeEncodeError):
        pack({"text": "\ud800"})
