"""What the checker and the worker know, as one answer to a client."""

from __future__ import annotations

from typing import Any

import pytest

from capkernel.checker.looking.cursor import Text, target_at
from capkernel.checker.protocol import Completed, Match
from capkernel.kernel import looking
from capkernel.kernel.looking import in_text


def worker(start: int, end: int, *matches: tuple[str, str], keys: Any = ()) -> dict[str, Any]:
    types = [{"start": start, "end": end, "text": text, "type": kind} for text, kind in matches]
    return {
        "matches": [text for text, _ in matches], "cursor_start": start, "cursor_end": end,
        "metadata": {"_jupyter_types_experimental": types}, "keys": list(keys),
    }  # fmt: skip


def merged(code: str, cursor: int, static: Completed | None, dynamic: dict[str, Any] | None) -> dict[str, Any]:
    return looking.merged(code, cursor, target_at(code, cursor), static, dynamic)


def test_keys_come_first_where_a_value_is_looked_up() -> None:
    static = Completed(1, (Match("abs", "", ""),), 2, 2)
    found = merged("d[", 2, static, worker(2, 2, ("'key'", "dict key"), ("setattr", "variable")))
    assert found["matches"] == ["'key'", "abs"]
    assert (found["cursor_start"], found["cursor_end"]) == (2, 2)


def test_of_bare_names_the_worker_adds_none() -> None:
    theirs = worker(0, 2, ("setattr", "variable"), ("second=", "param"), ("%%se", "magic"))
    assert merged("se", 2, Completed(1, (Match("set", "", ""),), 0, 2), theirs)["matches"] == ["second=", "set"]
    assert merged("se", 2, None, worker(0, 2, ("setattr", "variable"), ("set", "variable")))["matches"] == ["set"]


def test_members_that_only_the_object_has_follow_the_types() -> None:
    static = Completed(1, (Match("columns", "property", ""),), 3, 5)
    found = merged("df.co", 5, static, worker(2, 5, (".count", "attribute"), (".__co", "attribute")))
    assert found["matches"] == ["columns", "count"]


@pytest.mark.parametrize(("code", "expected"), [("%mat", ["%matplotlib"]), ("!mat", []), ("mat", [])])
def test_magics_stand_behind_their_sign(code: str, expected: list[str]) -> None:
    start = 1 if code[0] == "!" else 0
    theirs = worker(start, len(code), ("%matplotlib", "magic"), ("%load_ext", "magic"))
    assert merged(code, len(code), None, theirs)["matches"] == expected


def test_parameters_that_the_object_has_come_before_names() -> None:
    static = Completed(1, (Match("minimum", "", ""), Match("max=", "param", "")), 2, 3)
    found = merged("f(m", 3, static, worker(2, 3, ("min=", "param"), ("memoryview", "class")))
    assert found["matches"] == ["min=", "minimum", "max="]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("%matplotlib ", ["inline"]),
        ("x = 1\n%matplotlib in", ["inline"]),
        ("%matplotlib no", []),
        ("%config Inl", ["InlineBackend"]),
    ],
)
def test_what_stands_behind_a_magic(code: str, expected: list[str]) -> None:
    begin = code.rfind(" ") + 1
    static = None if "config" in code else Completed(1, (Match("input", "", ""),), begin, len(code))
    assert merged(code, len(code), static, worker(begin, len(code), ("InlineBackend", "magic")))["matches"] == expected


def test_in_a_text_there_are_keys_and_nothing_else() -> None:
    names = (("compile", "variable"), ("%colors", "magic"), ("count.csv", "path"))
    found = in_text(Text("co", ("df",)), "df[['co", 7, worker(5, 7, *names, keys=["count", "colour", "x", "co'", 5]))
    assert found["matches"] == ["count", "colour"]
    assert (found["cursor_start"], found["cursor_end"]) == (5, 7)
    found = in_text(Text("co", ("df",)), "df['co", 6, worker(4, 6, *names, ("count", "dict key"), keys=["other"]))
    assert found["matches"] == ["count"]
    assert in_text(Text("co", ()), "x = 'co", 7, None)["matches"] == []


@pytest.mark.parametrize("keys", [None, 5, "text", {"a": 1}, [None, 5, ["a"]]])
def test_what_is_no_list_of_keys_offers_nothing(keys: Any) -> None:
    assert in_text(Text("", ("d",)), "d['", 3, {**worker(3, 3), "keys": keys})["matches"] == []
