"""Messages speak of types and names, never of values or of the modules cells are to mypy."""

from __future__ import annotations

import pytest

from capkernel.checker.messages import plain, widen

SECRET = "sk-9f8e7d"


@pytest.mark.parametrize(
    ("text", "wide"),
    [
        ("Literal['a']", "str"),
        ("Literal['a']?", "str"),
        ("list[Literal[1]]", "list[int]"),
        ("Literal[1, 2, -3]", "int"),
        ("Literal['a', 1, None]", "str | int | None"),
        ("Literal[b'x']", "bytes"),
        ("Literal[True]", "bool"),
        ("Literal[Colour.RED]", "Colour"),
        ("Literal[cell_3.Colour.RED]", "cell_3.Colour"),
        (r"Literal['a]\'b']", "str"),
        ("Literal[\"it's\"] | Literal['[x]']", "str | str"),
        ("Literal['a", "str"),
        ("no literal", "no literal"),
    ],
)
def test_widen(text: str, wide: str) -> None:
    assert widen(text) == wide


def test_plain() -> None:
    said = 'Argument 1 to "take" has incompatible type "cell_9.A"; expected "dict[str, cell_10_2.A]".'
    assert plain(said) == "Argument 1 to `take` has incompatible type `A (cell 9)`; expected `dict[str, A (cell 10)]`"


@pytest.mark.parametrize("value", [f"'{SECRET}'", f'"{SECRET}]\'"', f"b'{SECRET}'", f"'''{SECRET}\n'''"])
@pytest.mark.parametrize(
    "use",
    [
        "def h(x: int) -> None: ...\nh(key)",
        "from typing import Literal\nm: Literal['other'] = key",
        "key + 1",
        "key.nothing",
        "{key: 1}['x'].nothing",
        "from typing import assert_type\nassert_type(key, int)",
        "x: int = key",
        "[key].append(1)",
    ],
)
def test_a_value_of_an_earlier_cell_is_never_printed(cells, value: str, use: str) -> None:
    cells.run(f"from typing import Final\nkey: Final = {value}\nother = {value}")
    verdict = cells.check(use)
    said = [*getattr(verdict, "diagnostics", ()), *getattr(verdict, "warnings", ())]
    assert said
    assert SECRET not in repr(verdict)
    again = cells.check(f"q = {use.splitlines()[-1]!r}; w: int = other; other.nothing; reveal_type = 1")
    assert SECRET not in repr(again)


def test_the_names_of_an_accepted_cell_are_types(cells) -> None:
    verdict = cells.run(f"from typing import Final\nkey: Final = '{SECRET}'\nkey")
    assert verdict.names["key"] == "str"
    assert verdict.last_type == "str"


def test_one_line_without_a_period(cells) -> None:
    refused = cells.check("def f(a: int, *, b: int) -> None: ...\nf('x', c=1)\nsorted(1, 2, 3)")
    warned = cells.check("'a'.nothing\n[1][''].x\ndef g() -> int:\n    return later")
    said = [*refused.diagnostics, *warned.warnings]
    assert len(said) >= 4
    for diagnostic in said:
        assert "\n" not in diagnostic.message
        assert not diagnostic.message.endswith(".")
        assert '"' not in diagnostic.message
        assert "·" not in diagnostic.message


def test_the_hidden_name_is_never_shown(cells) -> None:
    cells.run("def f(x: int) -> int:\n    return x\ny = 1")
    verdict = cells.check("f = f('a')\ny = y + 'b'\ny += 'c'")
    said = [*getattr(verdict, "diagnostics", ()), *getattr(verdict, "warnings", ())]
    assert said
    assert "·" not in repr(verdict)


def test_places_are_in_characters(cells) -> None:
    diagnostic = cells.check("é = 1; print(nöpe)").diagnostics[0]
    assert (diagnostic.span.column, diagnostic.span.end_column) == (13, 17)
