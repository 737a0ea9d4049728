"""What the plan says a cell can ask the person for, as the line a person reads. What is not understood widens it."""

# ruff: noqa: E501  (cells, as they are written)
from __future__ import annotations

import pytest

from capkernel.wire.authority import authority_line

from .conftest import Notebook

ANY = "ask you for secrets"
RELEASE = "ask you to release a secret"


def may(notebook: Notebook, text: str) -> str:
    line = authority_line(notebook.accepted(text).plan)
    return line.removeprefix("may: ").removesuffix(" · nothing else")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('k = request_secret("KEY")', "ask you for the secret KEY"),
        ('k = request_secret("KEY", label="mine")', "ask you for the secret KEY"),
        ('k = [request_secret("A"), request_secret("B"), request_secret("A")]', "ask you for the secret A, B"),
        ('k = [request_secret(name) for name in ("A", "B")]', ANY),
        ('k = list(map(request_secret, ("A", "B")))', ANY),
        ('f = request_secret\nk = f("A")', ANY),
        ('n = request_declassify(classify("a"), "why")', RELEASE),
        ('n = request_declassify(request_secret("KEY").map(len), "why")', f"ask you for the secret KEY · {RELEASE}"),
        ('def f() -> str:\n    return request_declassify(classify("a"), "why")', RELEASE),
        ('text = "request_secret"', ""),
        (
            'with request_file_system("data") as fs:\n    fs.access("a").write(request_declassify(classify("x"), "why"))',
            f"write data/a · {RELEASE}",
        ),
    ],
)
def test_the_line(notebook: Notebook, text: str, said: str) -> None:
    assert may(notebook, text) == said


def test_a_function_of_an_earlier_cell_counts_where_it_is_reached(notebook: Notebook) -> None:
    notebook.accepted(
        'def ask():\n    return request_secret("KEY")\ndef out(x: Classified[str]) -> str:\n    return request_declassify(x, "w")'
    )
    assert may(notebook, "k = ask()") == "ask you for the secret KEY"
    assert may(notebook, "t = out(k)") == RELEASE
    assert may(notebook, "n = 1") == ""


def test_a_secret_does_not_ask_for_itself(notebook: Notebook) -> None:
    notebook.accepted('key = request_secret("KEY")')
    assert may(notebook, "n = key.map(len)") == ""


def test_a_class_of_an_earlier_cell_as_well(notebook: Notebook) -> None:
    notebook.accepted('class Client:\n    def key(self):\n        return request_secret("KEY")\nc = Client()')
    assert may(notebook, "k = c.key()") == "ask you for the secret KEY"


def test_a_function_in_a_value_of_an_earlier_cell_as_well(notebook: Notebook) -> None:
    notebook.accepted("fs = [request_secret]")
    assert may(notebook, 'k = fs[0]("KEY")') == ANY
