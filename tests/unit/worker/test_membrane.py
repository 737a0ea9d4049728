"""The static type a mask shows is that of the call that made the value."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from capkernel.wire.codekey import cell_filename
from capkernel.wire.frames import MAX_BODY, encode
from capkernel.wire.plan import MaskSite, Span
from capkernel.wire.worker import Call, Classify, Invoke
from capkernel.worker.membrane import UNKNOWN, WorkerMembrane


def spans(code: str) -> list[tuple[Span, str]]:
    """Every call of `make(...)` or `.m(...)` with its source, spans in characters."""
    lines = code.split("\n")

    def column(line: int, offset: int) -> int:
        return len(lines[line - 1].encode()[:offset].decode())

    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            span = Span(
                node.lineno, column(node.lineno, node.col_offset), node.end_lineno,
                column(node.end_lineno, node.end_col_offset),
            )  # fmt: skip
            found.append((span, ast.unparse(node)))
    return found


def run(code: str, cell: int = 4, membrane: Any = None) -> tuple[list[str], Any]:
    membrane = membrane or WorkerMembrane(None, None)  # type: ignore[arg-type]
    seen: list[str] = []

    class Value:
        def m(self, *_: Any) -> Value:
            seen.append(membrane.mask_type())
            return self

    def make(*_: Any) -> Value:
        seen.append(membrane.mask_type())
        return Value()

    membrane.know_cell(cell, tuple(MaskSite(span, source) for span, source in spans(code)), code)
    exec(compile(code, cell_filename(cell), "exec"), {"make": make, "v": Value(), "__name__": "__main__"})
    return seen, membrane


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("make(1)", ["make(1)"]),
        ("x = [make(1), make(2)]", ["make(1)", "make(2)"]),
        ("é = 'ü'; x = make('日本'); y = make(2)", ["make('日本')", "make(2)"]),
        ("def f():\n    return make(3)\nf()", ["make(3)"]),
        ("v.m(1).m(2)", ["v.m(1)", "v.m(1).m(2)"]),
        ("(v\n .m(1)\n .m(2)\n)", ["v.m(1)", "v.m(1).m(2)"]),
        ("[make(i) for i in range(2)]", ["make(i)", "make(i)"]),
        ("x = make(\n    1,\n)", ["make(1)"]),
    ],
)
def test_the_type_of_the_call(code: str, expected: list[str]) -> None:
    assert run(code)[0] == expected


def test_a_function_of_an_earlier_cell() -> None:
    _, membrane = run("make(1)", cell=4)
    assert run("make(2)", cell=5, membrane=membrane)[0] == ["make(2)"]


def test_unknown() -> None:
    membrane = WorkerMembrane(None, None)  # type: ignore[arg-type]
    assert membrane.mask_type() == UNKNOWN
    names: dict[str, Any] = {"ask": membrane.mask_type, "seen": []}
    exec(compile("seen.append(ask())", cell_filename(9), "exec"), names)
    assert names["seen"] == [UNKNOWN]


class Sends:
    """A link of which only the encoding is real."""

    def call(self, effect: Any, blob: bytes = b"") -> tuple[Any, bytes]:
        return None, encode(Call(1, effect), blob)

    def send(self, message: Any, blob: bytes = b"") -> None:
        encode(message, blob)


def test_what_no_message_can_hold_is_an_error_that_says_what() -> None:
    membrane = WorkerMembrane(Sends(), None)  # type: ignore[arg-type]
    handle = "0" * 32
    assert membrane.call(Invoke(handle, "access", "a"))
    with pytest.raises(ValueError, match="half a surrogate pair") as found:
        membrane.call(Invoke(handle, "access", "a\udcff"))
    assert found.value.__suppress_context__
    with pytest.raises(ValueError, match="half a surrogate pair"):
        membrane.post(Classify(handle, "label \ud800"))
    with pytest.raises(ValueError, match="exceeds the frame bound"):
        membrane.call(Invoke(handle, "access", "a" * (MAX_BODY + 1)))
