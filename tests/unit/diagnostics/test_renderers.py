"""The three renderers say the same: code, place, what was captured and from where, why, and what to write."""

from __future__ import annotations

import html
import json
import re

from capkernel.diagnostics import (
    CODES,
    Captured,
    Diagnostic,
    Fix,
    Note,
    Span,
    render_concise,
    render_html,
    render_text,
    to_json,
)

SOURCES = {4: "x = 1\nsecret.map(lambda s: print(s))\n", 1: "import sys\n"}

IMPURE = Diagnostic(
    code="impure-map",
    message="function given to `Classified.map` must be pure",
    cell=4,
    span=Span(2, 21, 2, 29),
    label="captures `stdout`",
    captured=(Captured("print", "stdout effect", "builtins"),),
    notes=(Note("the session starts here", 1, Span(1, 0, 1, 6)),),
    help="return a value from the function",
    fix=Fix("map first, show the mask", "display", code="print(secret.map(str.strip))"),
)

RENDERED = """\
error[impure-map]: function given to `Classified.map` must be pure
  --> cell[4]:2:22
   |
 2 | secret.map(lambda s: print(s))
   |                      ^^^^^^^^ captures `stdout`
   = captures: `print: stdout effect` from builtins
note: the session starts here
  --> cell[1]:1:1
   |
 1 | import sys
   | ------
   = why: the function sees the secret; whatever it could touch could carry the secret out
   = help: return a value from the function
   = fix: map first, show the mask
       print(secret.map(str.strip))"""


def test_text_in_full() -> None:
    assert render_text([IMPURE], SOURCES) == RENDERED


def test_the_concise_form_makes_sense_alone() -> None:
    assert render_concise(IMPURE) == (
        "cell[4]:2:22: error[impure-map]: function given to `Classified.map` must be pure"
    )


def test_json_has_named_places_and_the_reason() -> None:
    (entry,) = to_json([IMPURE])["diagnostics"]
    assert entry["span"] == {"line": 2, "column": 21, "end_line": 2, "end_column": 29}
    assert entry["notes"][0]["span"]["line"] == 1
    assert entry["why"] == CODES["impure-map"].why
    assert json.loads(json.dumps(entry)) == entry


def test_html_is_escaped() -> None:
    hostile = Diagnostic(code="syntax", message="<script>alert(1)</script>", cell=9, span=Span(1, 0, 1, 1))
    page = render_html([hostile], {9: "<img src=x onerror=alert(1)>"})
    assert "<script" not in page
    assert "<img" not in page
    assert html.escape("<script>alert(1)</script>") in page


def test_html_says_what_text_says() -> None:
    page = render_html([IMPURE], SOURCES)
    assert "<p>Refused: nothing ran, nothing changed</p>" in page
    assert (
        "<p><strong>function given to <code>Classified.map</code> must be pure</strong> <code>impure-map</code></p>"
        in page
    )
    assert (
        '<td style="text-align: left"><code>print</code></td>'
        '<td style="text-align: left"><code>stdout effect</code></td>'
        '<td style="text-align: left">builtins</td>' in page
    )
    words = html.unescape(re.sub("<[^>]*>", "", page))
    lines = [line.removeprefix("   = ").partition(": ")[2] or line for line in RENDERED.splitlines()]
    for line in lines[1:]:
        if "captures: `" not in line and "`print" not in line:
            assert line.strip().replace("`", "") in words.replace("`", ""), line


def test_html_of_warnings_alone_says_accepted() -> None:
    warning = Diagnostic(code="syntax", message="m", cell=4, span=Span(1, 0, 1, 1), severity="warning")
    assert "Accepted with warnings" in render_html([warning], SOURCES)


def test_html_has_no_style_that_a_theme_breaks() -> None:
    styles = set(re.findall('style="([^"]*)"', render_html([IMPURE], SOURCES)))
    assert styles == {
        "border-left: 4px solid var(--jp-error-color1, #c33); padding-left: 12px",
        "white-space: pre; overflow-x: auto",
        "text-align: left",
    }


def test_no_formula_and_no_hidden_character_of_a_cell_gets_into_the_page() -> None:
    hostile = Diagnostic(
        code="syntax", message=r"type is \"$\href{http://h}{x}$\" `$\href{u}{x}$`", cell=9, span=Span(1, 0, 1, 1),
        why="a\u202eb", help=r"\(x\)", fix=Fix("f", "display", code="a\n\n\n   \nb\u2066"),
    )  # fmt: skip
    page = render_html([hostile], {9: "x = 1  # \u202e\U000e0041"})
    outside = re.sub(r"<(code|pre)\b[^>]*>.*?</\1>", "", page, flags=re.DOTALL)
    assert "<span>$</span><span>\\</span>href" in outside
    # MathJax looks for formulas in texts that no element interrupts, and never in code.
    assert not [text for text in re.split("<[^>]*>", outside) if re.search(r"[$\\]", text) and len(text) > 1]
    assert page.isascii()
    assert page.count("\\u202e") == 1
    assert "\n\n" not in page


def test_at_most_ten_are_shown_and_the_rest_is_counted() -> None:
    text = render_text([IMPURE] * 13, SOURCES)
    assert text.count("error[impure-map]") == 10
    assert text.endswith("... and 3 more")


def test_what_is_not_listed_is_counted() -> None:
    assert "<p>... and 7 more</p>" in render_html([IMPURE], SOURCES, 7)
    assert "<p>... and 10 more</p>" in render_html([IMPURE] * 13, SOURCES, 7)
    assert "more</p>" not in render_html([IMPURE], SOURCES)
    assert to_json([IMPURE], 7)["more"] == 7
    assert "more" not in to_json([IMPURE])


def test_a_place_outside_the_source_is_named_without_an_excerpt() -> None:
    lost = Diagnostic(code="syntax", message="m", cell=7, span=Span(99, 0, 99, 1))
    assert render_text([lost], SOURCES).splitlines()[1] == "  --> cell[7]:99:1"


def test_a_span_over_several_lines_underlines_the_first() -> None:
    wide = Diagnostic(code="syntax", message="m", cell=4, span=Span(1, 2, 2, 5))
    assert "   |   ^^^" in render_text([wide], SOURCES)


def test_codes_are_kebab_case_and_explained() -> None:
    for code in CODES.values():
        assert code.name == code.name.lower().replace("_", "-")
        assert code.title
        assert code.why
        assert not code.title.endswith(".")


def test_a_long_line_is_shown_around_its_fault() -> None:
    line = "x = [" + "1, " * 5000 + "open, " + "2, " * 5000 + "]"
    at = line.index("open")
    long = Diagnostic(code="ambient-authority", message="m", cell=1, span=Span(1, at, 1, at + 4))
    _, _, _, source, underline = render_text([long], {1: line}).splitlines()[:5]
    assert len(source) < 180
    assert source[underline.index("^") :].startswith("open")
    assert underline.count("^") == 4
