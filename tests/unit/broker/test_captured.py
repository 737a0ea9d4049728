"""Captured values of another type than the plan says make poison, and the function never sees them."""

from __future__ import annotations

import json
import secrets

import pytest

from capkernel.wire import values
from capkernel.wire.plan import CodeKey, FreeName, Plan, PureFunction
from capkernel.wire.types import TypeNode
from capkernel.wire.vault import function_id
from capkernel.wire.worker import Classify, FunctionRef, MapClassified

ENTRY = CodeKey(1, 1, "<lambda>", (1, 0, 1, 9))
HELPER = CodeKey(1, 2, "helper", (2, 0, 3, 9))
STR, INT = TypeNode("str"), TypeNode("int")
FUNCTION = PureFunction(
    ENTRY, "lambda", "<lambda>", "lambda s: helper(s) + suffix",
    (FreeName("helper", "function", "", HELPER), FreeName("suffix", "data", type=STR)),
)  # fmt: skip
HELP = PureFunction(
    HELPER, "def", "helper", "def helper(s):\n    return s * n + extra",
    (FreeName("n", "data", type=INT), FreeName("extra", "data")),
)  # fmt: skip


def posted(start, captured):
    """What the vault is told for a map with this captured data, as a job and as a reason; the audit's last word."""
    session = start()
    session.cell(Plan(pure=(FUNCTION, HELP)))
    source, new = secrets.token_hex(16), secrets.token_hex(16)
    session.broker.post(Classify(source), values.encode("canary"))
    session.broker.post(MapClassified(new, source, FunctionRef(ENTRY)), values.encode(captured))
    said = [json.loads(line) for line in session.audit_file.read_text().splitlines()]
    [known] = [entry for entry in session.broker.ledger.newest(5) if entry.handle == new]  # the person's list has it
    assert known.how == "map"
    told = [(bundle, blob) for handle, _source, bundle, blob, _flat in session.vault.maps if handle == new]
    return told, dict(session.vault.spoils).get(new), said[-1]


@pytest.mark.parametrize(
    "captured",
    [
        {"globals": {"suffix": "x", "n": 2, "extra": object.__name__}, "closure": {}},
        {"globals": {"suffix": "x", "extra": [1]}, "closure": {}, "closures": {function_id(HELPER): {"n": 2}}},
        {"globals": {"n": True, "extra": None}, "closure": {"suffix": "x"}},
    ],
)
def test_what_agrees_is_handed_over_as_it_is(start, captured):
    [(bundle, blob)], reason, _said = posted(start, captured)
    assert reason is None
    assert bundle.entry == ENTRY
    assert blob == values.encode(captured)


@pytest.mark.parametrize(
    ("captured", "name"),
    [
        ({"globals": {"suffix": b"canary-in-bytes", "n": 2, "extra": ""}, "closure": {}}, "suffix"),
        ({"globals": {"suffix": "x", "n": "canary-in-text", "extra": ""}, "closure": {}}, "n"),
        ({"globals": {"suffix": "x", "extra": ""}, "closure": {}, "closures": {function_id(HELPER): {"n": 2.5}}}, "n"),
        ({"globals": {"n": 2, "extra": ""}, "closure": {"suffix": ["canary"]}}, "suffix"),
    ],
)
def test_another_type_is_poison(start, captured, name):
    told, reason, said = posted(start, captured)
    assert told == []
    assert reason == said["reason"]  # the person's viewer says it
    assert said["decision"] == "denied"
    assert f"`{name}` is not" in said["reason"]
    assert "canary" not in json.dumps(said)


def test_no_captured_data_is_poison(start):
    told, reason, said = posted(start, ["globals"])
    assert told == []
    assert reason == said["reason"] == "BadValue"
