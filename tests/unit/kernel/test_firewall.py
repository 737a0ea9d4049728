"""The firewall, message by message."""

from __future__ import annotations

import base64
from typing import Any, get_args, get_type_hints

import pytest

from capkernel.kernel.firewall import _PASS, CellOutput, Output, clean_bundle, clean_error, stream
from capkernel.kernel.html import clean_html
from capkernel.kernel.text import clean_text, size_of
from capkernel.wire.worker import Published

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 20).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff" + b"\0" * 20).decode()


def passed(kind: Any, content: dict[str, Any], limit: int = 10_000) -> list[Output]:
    return CellOutput(7, limit).passed(Published(1, kind, content))


def test_every_kind_of_the_wire_is_decided() -> None:
    kinds = set(get_args(get_type_hints(Published)["kind"]))
    assert kinds - _PASS.keys() == {"comm_open", "comm_msg", "comm_close"}


@pytest.mark.parametrize("kind", ["comm_open", "comm_msg", "comm_close"])
def test_comms_do_not_pass(kind: str) -> None:
    assert passed(kind, {"comm_id": "x", "data": {}}) == []


@pytest.mark.parametrize(
    "content", [{}, {"name": "stdout"}, {"name": "html", "text": "x"}, {"name": "stdout", "text": 5}, {"text": "x"}]
)
def test_malformed_streams_do_not_pass(content: dict[str, Any]) -> None:
    assert passed("stream", content) == []


def test_a_worker_cannot_say_what_a_cell_may_do() -> None:
    metadata = {"capkernel": {"authority": "may: nothing"}, "image/png": {"capkernel": 1}}
    for kind in ("display_data", "update_display_data", "execute_result"):
        (output,) = passed(kind, {"data": {"text/plain": "x", "image/png": PNG}, "metadata": metadata})
        assert output.content["metadata"] == {}


def test_extra_fields_do_not_pass() -> None:
    assert passed("stream", {"name": "stdout", "text": "x", "evil": 1})[0].content == {"name": "stdout", "text": "x"}
    [error] = passed("error", {"ename": "E", "evalue": "v", "traceback": ["t", 5], "evil": 1})
    assert error.content == {"ename": "E", "evalue": "v", "traceback": ["t"]}
    [shown] = passed(
        "execute_result",
        {
            "data": {"text/plain": "x"},
            "metadata": {"isolated": True, "text/plain": {"evil": 1}},
            "execution_count": 99,
            "transient": {"display_id": "d", "evil": 1},
            "evil": 1,
        },
    )
    assert shown.content == {
        "data": {"text/plain": "x"},
        "metadata": {},
        "execution_count": 7,
        "transient": {"display_id": "worker-d"},
    }


def test_the_size_of_an_image_is_all_metadata() -> None:
    [shown] = passed(
        "display_data",
        {
            "data": {"image/png": PNG},
            "metadata": {"image/png": {"width": 5, "height": 4.5, "alt": "x"}, "other": 1},
        },
    )
    assert shown.content["metadata"] == {"image/png": {"width": 5, "height": 4.5}}
    assert clean_bundle({"image/png": PNG, "image/jpeg": JPEG}).keys() == {"image/png", "image/jpeg", "text/plain"}


@pytest.mark.parametrize(
    ("mime", "value"),
    [
        ("image/png", JPEG),
        ("image/png", "x"),
        ("image/png", 5),
        ("image/jpeg", PNG),
        ("image/svg+xml", "<svg/>"),
        ("application/javascript", "1"),
        ("text/html", 5),
        ("text/html", "<script>1</script>"),
        ("TEXT/HTML", "<b>x</b>"),
        ("application/vnd.capkernel.diagnostics+json", {}),
        ("application/pdf", "x"),
        ("image/gif", "R0lGODlh"),
    ],
)
def test_what_is_not_listed_or_not_what_it_says_is_dropped(mime: str, value: Any) -> None:
    assert clean_bundle({mime: value, "text/plain": "T"}) == {"text/plain": "T"}
    assert clean_bundle({mime: value}).keys() == {"text/plain"}


@pytest.mark.parametrize(
    "latex",
    [
        r"\href{javascript:alert(1)}{x}",
        r"\class{a}{b}",
        r"\cssId{a}{b}",
        r"\style{a}{b}",
        r"\require{html}",
        r"\unicode{65}",
        r"\includegraphics{http://h/x}",
        r"\data{a=b}{c}",
        r"\htmlClass{a}{b}",
        r"\let\x=y",
        r"\def\x#1{y}",
        r"\url{x}",
        r"\newcommand{\x}{y}",
    ],
)
def test_active_latex_is_dropped(latex: str) -> None:
    assert "text/latex" not in clean_bundle({"text/latex": f"$x {latex}$", "text/plain": "T"})


def test_plain_latex_stays() -> None:
    for latex in (r"$\displaystyle \frac{x}{2} + \hat{y}\delta\left(x\right)$", r"\begin{pmatrix}1&2\end{pmatrix}"):
        assert clean_bundle({"text/latex": latex})["text/latex"] == latex


HTML = [
    ("<b>x</b>", "<b>x</b>"),
    ("<img src=x onerror=1>", ""),
    ("<b onclick=1 id=a class=b style=c name=d data-x=1 href=1>x</b>", "<b>x</b>"),
    ("<style>b{}</style>x", "x"),
    ("<svg><script>1</script></svg>x", "x"),
    ("<math><mtext><table><mglyph><style><img src=x onerror=1></style></table></mtext></math>", ""),
    ("<!-- c -->x", "x"),
    ("<template><b>y</b></template>x", "x"),
    ("<a href='http://h'>x</a>", "x"),
    ("<form action=//h><button>x</button></form>", "x"),
    ("<meta http-equiv=refresh content=0>x", "x"),
    ("<base href=//h>x", "x"),
    ("<link rel=stylesheet href=//h>x", "x"),
    ("<video src=x></video>x", "x"),
    ("<td colspan=2 background=//h>x", "x"),
    ("<noscript><p title='</noscript><img src=x onerror=1>'></noscript>", None),
    ("<table background='//h'><tr><td style='background:url(//h)'>x</td></tr></table>", None),
]


@pytest.mark.parametrize(("html", "expected"), HTML)
def test_html(html: str, expected: str | None) -> None:
    cleaned = clean_html(html)
    if expected is not None:
        assert cleaned == expected
    for gone in ("onerror", "src", "href", "style", "//h", "<img", "script"):
        assert gone not in cleaned
    assert clean_html(cleaned) == cleaned


TEXTS = [
    ("plain\n\ttext\r\n\b\f", "plain\n\ttext\r\n\b\f"),
    ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
    ("\x1b[2J\x1b[H\x1b[5A\x1b[?25l.", "."),
    ("\x1b]0;t\x07\x1b]8;;http://h\x1b\\x\x1b]8;;\x1b\\", "x"),
    ("\x1b]52;c;aGk=\x07.", "."),
    ("\x9b2J\x9d0;t\x9c\x90q\x9c.", "."),
    ("\x1bPq\x1b\\\x1bc\x1b(B.", "."),
    ("\x00\x07\x1b", ""),
    ("a\ud800b", "a\ufffdb"),
    ("\x1b[31\x1b[32m", "31\x1b[32m"),
    ("é日本🙂", "é日本🙂"),
]


@pytest.mark.parametrize(("text", "expected"), TEXTS)
def test_text(text: str, expected: str) -> None:
    assert clean_text(text) == expected
    assert clean_text(clean_text(text)) == clean_text(text)


def test_a_hostile_text_takes_no_time() -> None:
    import time

    for text in ("\x1b[" + "0" * 200_000, "\x1b]" * 100_000, "\x1b" * 200_000, "\x1b[0;" * 50_000, "\x9d" * 100_000):
        began = time.process_time()
        clean_text(text)
        assert time.process_time() - began < 1.0, repr(text[:4])


def test_the_limit_counts_everything_and_says_so_once() -> None:
    cell = CellOutput(1, limit=1000)
    text = Published(1, "stream", {"name": "stdout", "text": "x" * 400})
    assert [len(cell.passed(text)) for _ in range(4)] == [1, 1, 2, 0]
    assert cell.full
    assert cell.passed(Published(1, "clear_output", {"wait": False})) == []


def test_after_its_end_a_cell_has_little_left() -> None:
    cell = CellOutput(1, limit=10 * 1024 * 1024)
    cell.finish()
    text = Published(1, "stream", {"name": "stdout", "text": "x" * 600_000})
    assert [len(cell.passed(text)) for _ in range(3)] == [1, 2, 0]


def test_what_has_no_text_is_named() -> None:
    assert clean_bundle({"image/png": PNG})["text/plain"] == "[image/png]"
    assert clean_bundle({"text/html": "<b>x</b>"}) == {"text/html": "<b>x</b>", "text/plain": "[text/html]"}


def test_empty_messages_count_too() -> None:
    cell = CellOutput(1, limit=10_000)
    clear = Published(1, "clear_output", {"wait": False})
    assert sum(len(cell.passed(clear)) for _ in range(1000)) < 50


def test_bytes_are_counted_not_characters() -> None:
    assert size_of("é") == 2
    assert size_of("\ud800") == 3
    assert size_of("x" * 10) == 10


def test_an_error_of_odd_shape_is_still_an_error() -> None:
    assert clean_error({}) == {"ename": "", "evalue": "", "traceback": []}
    assert clean_error({"ename": 5, "evalue": None, "traceback": "x"})["traceback"] == []
    assert len(clean_error({"ename": "E" * 999, "traceback": ["x"] * 9999})["traceback"]) == 500


def test_a_stream_of_the_kernels_is_clean_too() -> None:
    assert stream("stdout", "\x1b[2Jx").content == {"name": "stdout", "text": "x"}
