"""Completion and help by static type: what an unfinished text offers, and that nothing of it is kept."""

from __future__ import annotations

import sys

import pytest

from capkernel.checker.looking.cursor import Text, target_at, text_at
from capkernel.checker.looking.looker import Looker
from capkernel.checker.protocol import Complete, Completed, Describe, Described, KnownNames, ListNames
from capkernel.wire.local_names import LocalNames

SESSION = """\
import json
number = 5
word = "a"
key = classify("a")
class Point:
    'A point.'
    across: int = 1
    def moved(self, by: int, *, down: int = 0) -> "Point":
        'Another point.'
        return self
point = Point()
def total(first: int, second: int = 2) -> int:
    return first + second
"""


@pytest.fixture
def looker(cells) -> Looker:
    cells.run(SESSION)
    cells.run("with request_file_system('data') as fs:\n    entry = fs.access('a.txt')")
    return Looker(cells.engine)


def complete(looker: Looker, text: str, names: LocalNames | None = None) -> Completed:
    """`text` has `|` where the cursor is."""
    answer = looker.answer(Complete(1, text.replace("|", "", 1), text.index("|"), names or LocalNames()))
    assert isinstance(answer, Completed)
    return answer


def offered(looker: Looker, text: str) -> list[str]:
    return [match.text for match in complete(looker, text).matches]


def describe(looker: Looker, text: str) -> Described:
    answer = looker.answer(Describe(1, text.replace("|", "", 1), text.index("|")))
    assert isinstance(answer, Described)
    return answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("word.spl|", ["split", "splitlines"]),
        ("point.|", ["across", "moved"]),
        ("point.moved(1).ac|", ["across"]),
        ("Point.mo|", ["moved"]),
        ("[1].app|", ["append"]),
        ("'a b'.split()[0].upp|", ["upper"]),
        ("{'a': 1}.ite|", ["items"]),
        ("(number).bit_l|", ["bit_length"]),
        ("print(word.upp|", ["upper"]),
        ("print(\n    word.upp|", ["upper"]),
        ("x = word.upp| + 1", ["upper"]),
        ("not word.upp|", ["upper"]),
        ("for each in ['a']:\n    each.upp|", ["upper"]),
        ("if True:\n    inner = 'a'\n    inner.upp|", ["upper"]),
        ("try:\n    inner = 'a'\n    inner.upp|", ["upper"]),
        ("def f(given: str) -> str:\n    return given.upp|\n\nf('a')", ["upper"]),
        ("[each.upp| for each in ['a']]", ["upper"]),
        ("%time 1\nword.upp|", ["upper"]),
        ("!ls\nword.upp|", ["upper"]),
        ("broken = = 1\nword.upp|", ["upper"]),
        ("maybe: str | None = None\nmaybe.upp|", ["upper"]),
        ("json.load|", ["load", "loads"]),
        ("from json import load|", ["load", "loads"]),
        ("key.|", ["flat_map", "map", "zip"]),
        ("with request_file_system() as here:\n    here.acc|", ["access"]),
        ("point.__cl|", []),
        ("(word\n    .strip()\n    .upp|", ["upper"]),
        ("(word\n    .strip()\n    .upp|\n)", ["upper"]),
        ("found = (\n    word.strip()\n    .spl|", ["split", "splitlines"]),
        ("word \\\n    .strip() \\\n    .upp|", ["upper"]),
        ("word\n.upp|", []),
        ("f'{word.upp|", ["upper"]),
        ("f'{word.upp|}'", ["upper"]),
        ('print(f"a {number} {word.upp|}")', ["upper"]),
        ('print(rf"""a\n{word.upp|', ["upper"]),
        ("f'{number:>{point.ac|}}'", ["across"]),
        ('f"{[each.upp| for each in [word]]}"', ["upper"]),
        ("for each in ['a']:\n    print(f'{each.upp|}')", ["upper"]),
        ("f'{number!r} {word.upp|}'", ["upper"]),
        ("f'{word.lower()} {point.moved(1).ac|}'", ["across"]),
        ("f'{number == 5 != word.upp|", ["upper"]),
        ("f'{{word.upp|", []),
        ("f'{number:word.upp|", []),
        ("f'{number!word.upp|", []),
        ("f'{number} word.upp|", []),
        ("f'{word.upper\nword.spl|", ["split", "splitlines"]),
        ("f'{number}' + word.upp|", ["upper"]),
        ("'{word.upp|", []),
        ("'word.upp|", []),
        ("# word.upp|", []),
        ("'''\nword.upp|", []),
        ("1.|", []),
        ("unknown_name.|", []),
    ],
)
def test_members_of_what_stands_before_the_dot(looker: Looker, text: str, expected: list[str]) -> None:
    if "maybe: str" in text:  # the mark is the second bar
        text = text.replace(" | ", " ¦ ")
    cursor = text.index("|")
    text = text.replace("|", "", 1).replace("¦", "|")
    answer = looker.answer(Complete(1, text, cursor))
    assert isinstance(answer, Completed)
    assert [match.text for match in answer.matches] == expected
    for match in expected:
        assert match.startswith(text[answer.start : answer.end])


def test_names_parameters_and_keywords(looker: Looker) -> None:
    assert {"number", "next", "not", "nonlocal"} <= set(offered(looker, "n|"))
    assert offered(looker, "tot|") == ["total"]
    assert offered(looker, "total(fir|") == ["first="]
    assert offered(looker, "point.moved(1, do|") == ["down="]
    assert offered(looker, "f'{tot|") == ["total"]
    assert offered(looker, "f'{total(fir|)}'") == ["first="]
    assert offered(looker, "print(f'{total(1, sec|") == ["second="]
    assert "mine" in offered(looker, "mine = 1\nmi|")
    assert "given" in offered(looker, "def f(given: int) -> int:\n    return gi|")
    assert "evaluated" not in offered(looker, "ev|")
    assert not {"eval", "exec", "open", "globals"} & set(offered(looker, "|"))  # a cell cannot say them
    assert "request_file_system" in offered(looker, "requ|")


def test_places_are_characters(looker: Looker) -> None:
    answer = complete(looker, "é = '𝒳'; word.upp|")
    assert [match.text for match in answer.matches] == ["upper"]
    assert (answer.start, answer.end) == (14, 17)


def test_matches_say_kind_and_signature(looker: Looker) -> None:
    (match,) = complete(looker, "point.mo|").matches
    assert (match.kind, match.signature) == ("function", "(by: int, *, down: int = ...) -> Point")
    (match,) = complete(looker, "Poi|").matches
    assert match.kind == "class"


def test_names_of_local_modules(looker: Looker) -> None:
    names = LocalNames("", False, {"utils": {"area": "utils:area"}}, {"utils": "utils"})
    assert [match.text for match in complete(looker, "utils.|", names).matches] == ["area"]


@pytest.mark.parametrize(
    ("text", "static_type", "signature", "documentation"),
    [
        ("numb|er", "int", "", ""),
        ("point.mov|ed", None, "moved(by: int, *, down: int = ...) -> Point", ""),
        ("total(|", None, "total(first: int, second: int = ...) -> int", ""),
        ("total(1, |", None, "total(first: int, second: int = ...) -> int", ""),
        ("def f(a: int) -> int:\n    'Mine.'\n    return a\n\nf|(1)", None, "f(a: int) -> int", "Mine."),
        ("lat|er = 'x'", "str", "", ""),
        ("json|", "module", "", ""),
        ("word.upper()|", "", "", ""),
    ],
)
def test_help(looker: Looker, text: str, static_type: str | None, signature: str, documentation: str) -> None:
    found = describe(looker, text)
    if static_type is not None:
        assert found.static_type == static_type
    assert found.signatures == ((signature,) if signature else ())
    assert found.documentation == documentation


def test_where_the_docstring_of_a_library_is(looker: Looker) -> None:
    assert describe(looker, "word.upper|").fullname == "builtins.str.upper"
    assert describe(looker, "json.loads|").fullname == "json.loads"
    assert describe(looker, "point.moved|").fullname == ""  # a cell's own: the worker knows it by its name


@pytest.mark.parametrize(
    ("text", "standing"),
    [
        ("f|s", "dead: the block of cell {cell} that granted it has ended"),
        ("entr|y", "dead: the block of cell {cell} that granted it has ended"),
        ("with request_file_system() as fs:\n    f|s", "live: granted by the block that begins on line 1"),
        ("with request_file_system() as new|:\n    pass", "live: granted by the block that begins on line 1"),
        ("with request_file_system() as fs:\n    pass\nf|s", "dead here"),
        ("with request_file_system() as fs:\n    e = fs.access('a')\n    |e", "live at most until the block"),
        ("def f(fs: FileSystem) -> None:\n    f|s", "live as long as what the caller hands in"),
        ("numb|er", ""),
        ("request_file_system|", ""),
    ],
)
def test_help_says_whether_a_capability_is_live(looker: Looker, cells, text: str, standing: str) -> None:
    assert describe(looker, text).standing.startswith(standing.format(cell=cells.number))
    assert bool(describe(looker, text).standing) == bool(standing)


def test_the_names_of_the_session(looker: Looker, cells) -> None:
    answer = looker.answer(ListNames(3))
    assert isinstance(answer, KnownNames)
    found = {known.name: known for known in answer.names}
    assert answer.count == len(found)
    assert (found["number"].type, found["number"].label, found["number"].cell) == ("int", "plain", cells.number - 1)
    assert (found["key"].type, found["key"].label) == ("Classified[str]", "classified")
    assert found["fs"].label == "capability"
    assert found["fs"].standing.startswith("dead")
    assert found["number"].standing == ""


def test_a_label_is_of_what_a_value_holds(looker: Looker, cells) -> None:
    cells.run("many = [key, key]\nlooked_up = {'a': (1, key)}")
    answer = looker.answer(ListNames(3))
    assert isinstance(answer, KnownNames)
    labels = {known.name: known.label for known in answer.names}
    assert (labels["many"], labels["looked_up"], labels["word"]) == ("classified", "classified", "plain")


def test_no_value_is_said(looker: Looker, cells) -> None:
    cells.run("from typing import Final\nsecret: Final = 'xyzzy'\nother = 'xyzzy'")
    for question in (ListNames(1), Describe(1, "secret", 3), Describe(1, "other", 3), Complete(1, "secr", 4)):
        assert "xyzzy" not in repr(looker.answer(question))


def test_nothing_is_kept(looker: Looker, cells) -> None:
    before = set(cells.engine.modules), dict(cells.engine.table)
    complete(looker, "fresh = 1\nfresh.bit_|")
    describe(looker, "fresh = 1\nfresh|")
    complete(looker, "broken = = 1\nnumber.|")
    assert (set(cells.engine.modules), dict(cells.engine.table)) == before
    assert cells.codes("fresh") == ["unbound-name"]


@pytest.mark.parametrize("text", ["(" * 2000, "a." * 2000, "x" + "()" * 2000 + ".", "\\", "f'{", "'" * 7, "é." * 50])
def test_odd_texts(looker: Looker, text: str) -> None:
    for cursor in (0, len(text) // 2, len(text)):
        looker.answer(Complete(1, text, cursor))
        looker.answer(Describe(1, text, cursor))
    assert complete(looker, "word.upp|").matches


def test_a_text_that_is_too_long_or_a_place_outside_it_has_no_answer(looker: Looker) -> None:
    assert looker.answer(Complete(1, "x." + " " * 70_000, 2)) == Completed(1, (), 2, 2)
    assert looker.answer(Describe(1, "number", 60)) == Described(1)
    assert target_at("", 0) is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("df['co|", Text("co", ("df",))),
        ("df[['count', 'co|", Text("co", ("df",))),
        ("df.groupby(by='co|", Text("co", ("df", "by"))),
        ("df.groupby('a')['co|", Text("co", ("df",))),
        ("px.line(frame, x='co|", Text("co", ("px", "frame", "x"))),
        ("f(g(df['|", Text("", ("df", "g", "f"))),
        ("print(f'{df[\"co|", Text("co", ("df",))),
        ("x = 'co|", Text("co", ())),
        ('"""a\nco|', Text("a\nco", ())),
        ("df[co|", None),
        ("# df['co|", None),
        ("f'{df.co|", None),
        ("df['co'].me|", None),
    ],
)
def test_a_text_at_the_cursor(text: str, expected: Text | None) -> None:
    assert text_at(text.replace("|", ""), text.index("|")) == expected


def test_a_long_signature_is_told_without_types(looker: Looker) -> None:
    kinds = f"tuple[{', '.join(f'dict[{kind}, list[{kind}]]' for kind in ('int', 'str', 'bytes', 'float', 'bool'))}]"
    found = describe(
        looker, f"def wide(a: {kinds}, /, b: {kinds}, *rest: int, c: int = 1, **more: int) -> int: ...\nwide|(1)"
    )
    assert found.signatures == ("wide(_, b, *rest, c=..., **more)",)


def test_fields_in_fields_are_read_to_a_depth() -> None:
    for deep in ("f'{" * 20_000, "f\"{f'{" * 10_000, "f'{x:{" * 10_000):
        assert target_at(deep + "word.upp", len(deep) + 8) is None or sys.version_info < (3, 12)
        assert text_at(deep, len(deep)) is None
