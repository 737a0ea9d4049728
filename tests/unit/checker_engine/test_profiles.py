"""What refuses and what warns, by profile."""

from __future__ import annotations

import pytest

# cell, code, refused in: strict, standard, relaxed
TABLE = [
    ("x: int = 'hello'", "assignment", (True, True, False)),
    ("def f() -> None:\n    y: int = 1\n    y = 'a'\n", "assignment", (True, True, False)),
    ("class A:\n    v: int = 'a'\n", "assignment", (True, True, False)),
    ("x: int = None", "assignment", (True, False, False)),
    ("def f(a: int = 'x') -> None: ...", "assignment", (True, False, False)),
    ("def f(a: int) -> None: ...\nf()", "call-arg", (True, True, False)),
    ("def f(a: int) -> None: ...\nf(1, 2)", "call-arg", (True, True, False)),
    ("def f(a: int) -> None: ...\nf(1, b=2)", "call-arg", (True, True, False)),
    ("def f(a: int, b: int) -> None: ...\nf(*[1], 2, 3)", "call-arg", (True, False, False)),
    ("def f(a: int) -> None: ...\nf('x')", "arg-type", (True, False, False)),
    ("1 + 'a'", "operator", (True, False, False)),
    ("'a'.nothing", "attr-defined", (True, False, False)),
    ("def f(x):\n    return x", "no-untyped-def", (True, None, None)),
    ("results = []", "var-annotated", (True, None, None)),
    ("def f() -> int:\n    return later", "name-defined", (True, False, False)),
    ("def f() -> int:\n    return 'a'", "return-value", (True, False, False)),
    ("print(nope)", "unbound-name", (True, True, True)),
    ("Classified(1)", "capability-forge", (True, True, True)),
    ("class X(Capability): ...", "capability-forge", (True, True, True)),
    ("class X(FileSystem): ...", "capability-forge", (True, True, True)),
    ("F = FileEntry\nF('a')", "capability-forge", (True, True, True)),
    ("# mypy: ignore-errors\n1", "unsafe-feature", (True, True, True)),
    ("def f(:", "syntax", (True, True, True)),
]


@pytest.mark.parametrize(("text", "code", "refused"), TABLE)
def test_table(strict, cells, relaxed, text: str, code: str, refused: tuple[bool | None, ...]) -> None:
    for profile, expected in zip((strict, cells, relaxed), refused, strict=True):
        codes = profile.codes(text)
        if expected:
            assert code in codes
        else:
            assert codes == []
            assert (code in profile.warnings(text)) is (expected is False)


def test_a_named_tuple_with_computed_defaults_is_not_certain(cells) -> None:
    cells.run("from collections import namedtuple\nnone = (None,) * 2\nP = namedtuple('P', 'a b', defaults=none)")
    assert cells.codes("P(1)") == []


class TestIgnores:
    def test_plain_codes(self, strict, cells, relaxed) -> None:
        text = "1 + 'a'  # type: ignore[operator]"
        assert cells.warnings(text) == []
        assert relaxed.warnings(text) == []
        assert strict.codes(text) == ["operator"]

    def test_another_code_does_not_count(self, cells) -> None:
        assert cells.warnings("1 + 'a'  # type: ignore[attr-defined]") == ["operator"]

    def test_call_arg(self, cells) -> None:
        text = "def f(a: int) -> None: ...\nf()  # type: ignore"
        assert cells.codes(text) == []

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ("x: int = 'a'  # type: ignore", "assignment"),
            ("x: int = 'a'  # type: ignore[assignment]", "assignment"),
            ("print(nope)  # type: ignore", "unbound-name"),
            ("Classified(1)  # type: ignore", "capability-forge"),
            ("# type: ignore\nx: int = 'a'", "assignment"),
            ("# type: ignore\nprint(nope)", "unbound-name"),
        ],
    )
    def test_ours_stay(self, cells, text: str, code: str) -> None:
        assert cells.codes(text) == [code]

    def test_a_file_wide_ignore_leaves_everything_typed(self, cells) -> None:
        typed = cells.typed("# type: ignore\nlen('a')")
        assert str(typed.resolve(typed.module.body[0].value).type) == "int"

    def test_words_in_a_string_mean_nothing(self, cells) -> None:
        text = "'''\n# mypy: ignore-errors\n# type: ignore\n'''\n1 + 'a'"
        assert cells.warnings(text) == ["operator"]

    def test_a_type_comment_is_only_a_comment(self, cells) -> None:
        cells.run("x = 1  # type: str")
        assert cells.type("x") == "int"
