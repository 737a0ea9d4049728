"""The firewall, message by message."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest

from capkernel.kernel.firewall import (
    _DISPLAYS,
    _PASS,
    HINT,
    KERNEL_ERRORS,
    CellOutput,
    Output,
    clean_bundle,
    clean_error,
    stream,
)
from capkernel.kernel.text import clean_text, size_of
from capkernel.wire.worker import Published

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
JPEG = (
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLDAxNDQ0Hyc5PT"
    "gyPC4zNDL/wAALCAABAAEBAREA/8QAHwAAAQUBAQEBAQEAAAAAAAAAAAECAwQFBgcICQoL/8QAtRAAAgEDAwIEAwUFBAQAAAF9AQIDAAQRBRIh"
    "MUEGE1FhByJxFDKBkaEII0KxwRVS0fAkM2JyggkKFhcYGRolJicoKSo0NTY3ODk6Q0RFRkdISUpTVFVWV1hZWmNkZWZnaGlqc3R1dnd4eXqDhI"
    "WGh4iJipKTlJWWl5iZmqKjpKWmp6ipqrKztLW2t7i5usLDxMXGx8jJytLT1NXW19jZ2uHi4+Tl5ufo6erx8vP09fb3+Pn6/9oACAEBAAA/APn+"
    "v//Z"
)


def passed(kind: Any, content: dict[str, Any], limit: int = 10_000) -> list[Output]:
    return CellOutput(7, limit).passed(Published(1, kind, content))


def test_every_kind_of_the_wire_is_decided() -> None:
    kinds = set(get_args(get_type_hints(Published)["kind"]))
    assert kinds == _PASS.keys() | _DISPLAYS


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


@pytest.mark.parametrize("length", [0, -5, float("nan"), float("inf"), 10**30, "5", True, 10_001])
def test_a_size_that_is_none_is_dropped(length: Any) -> None:
    [shown] = passed("display_data", {"data": {"image/png": PNG}, "metadata": {"image/png": {"width": length}}})
    assert shown.content["metadata"] == {}


def test_keys_of_metadata_that_mean_something_to_a_page_are_dropped() -> None:
    own = {"isolated": True, "trusted": True, "needs_background": "dark", "expanded": True, "width": 5}
    [shown] = passed("display_data", {"data": {"text/html": "<b>x</b>"}, "metadata": {**own, "text/html": own}})
    assert shown.content["metadata"] == {"text/html": {"width": 5}}


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


@pytest.mark.parametrize("latex", [r"$\href{javascript:alert(1)}{x}$", r"$\def\x#1{y}$", "x" * 200_000])
def test_active_or_endless_latex_is_dropped(latex: str) -> None:
    assert clean_bundle({"text/latex": latex, "text/plain": "T"}) == {"text/plain": "T"}


def test_plain_latex_stays() -> None:
    for latex in (r"$\displaystyle \frac{x}{2} + \hat{y}\delta\left(x\right)$", r"\begin{pmatrix}1&2\end{pmatrix}"):
        assert clean_bundle({"text/latex": latex})["text/latex"] == latex


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
    ("שלום \u200f👨\u200d👩", "שלום \u200f👨\u200d👩"),
    ("a\u202egnp.exe\u2066", "a\\u202egnp.exe\\u2066"),
    ("x\U000e0041y", "x\\U000e0041y"),
    ("\x1b[?2004h\x1b[200~x\x1b[201~\x1b[1A\x1b[s\x1b[u", "x"),
    ("10%\r20%\b\b\b30%\n", "10%\r20%\b\b\b30%\n"),
    ("\x1b[38:2::1:2:3mx", "x"),
    ("\x1b_Gf=100;x\x1b\\y\x1b^z\x1b\\", "y"),
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


@pytest.mark.parametrize("name", sorted(KERNEL_ERRORS))
def test_an_exception_cannot_be_taken_for_an_answer_of_the_kernels(name: str) -> None:
    assert clean_error({"ename": name})["ename"] == f"cell.{name}"
    assert clean_error({"ename": f"\x1b[2J{name}\x00 "})["ename"].startswith("cell.")


def test_an_endless_exception_is_cut() -> None:
    error = clean_error({"evalue": "x" * 1_000_000, "traceback": ["y" * 1_000_000]})
    assert error["evalue"].endswith(" [cut: 1,000,000 characters]")
    assert len(error["evalue"]) + len(error["traceback"][0]) < 210_000


def test_a_traceback_with_html_is_text() -> None:
    assert clean_error({"traceback": ["<img src=x>"]})["traceback"] == ["<img src=x>"]


def test_display_ids_have_a_side() -> None:
    for kind in ("display_data", "update_display_data"):
        [shown] = passed(kind, {"data": {"text/plain": "x"}, "transient": {"display_id": "kernel-1"}})
        assert shown.content["transient"] == {"display_id": "worker-kernel-1"}
    for identity in (5, "", "x" * 201, None, ["x"]):
        [shown] = passed("display_data", {"data": {"text/plain": "x"}, "transient": {"display_id": identity}})
        assert shown.content["transient"] == {}


def test_json_passes_as_data_with_its_text_made_visible() -> None:
    data = {"a": ["<img src=x onerror=1>", "\u202ex", "\\", float("nan")]}
    shown = clean_bundle({"application/json": data})["application/json"]
    assert shown == {"a": ["<img src=x onerror=1>", "\\u202ex", "\\", None]}


def test_every_own_type_of_the_kernels_is_dropped() -> None:
    for mime in ("application/vnd.capkernel.diagnostics+json", "application/vnd.capkernel.classified+json"):
        assert clean_bundle({mime: {}, "text/plain": "T"}) == {"text/plain": "T"}


def test_ten_megabytes_in_a_line_take_no_time() -> None:
    import time

    for text in ("x" * 10_000_000, "x\x1b[31m" * 1_000_000, "\u202e" * 1_000_000):
        began = time.process_time()
        CellOutput(1, 10**9).passed(Published(1, "stream", {"name": "stdout", "text": text}))
        assert time.process_time() - began < 5.0


# ── active outputs ───────────────────────────────────────────────────────────────────────────────────────────────────

ACTS = {
    "application/javascript": "act()",
    "text/html": "<div onclick='act()'><script>act()</script></div>",
    "image/svg+xml": "<svg onload='act()'/>",
    "text/markdown": "![](http://127.0.0.1/)",
    "application/vnd.jupyter.widget-view+json": {"model_id": "a", "version_major": 2},
    "application/vnd.plotly.v1+json": {"data": [{"y": [1, 2.5, None]}]},
    "image/png": "not one",
}


@pytest.mark.parametrize("kind", ["display_data", "update_display_data", "execute_result"])
def test_active_outputs_pass_as_they_are(kind: Any) -> None:
    metadata = {"isolated": True, "capkernel": {"authority": "may: all"}, "text/html": {"a": [1]}}
    message = Published(1, kind, {"data": {**ACTS, "text/plain": "t\x1b]0;x\x07"}, "metadata": metadata})
    [output] = CellOutput(7, 10_000, active=True).passed(message)
    assert output.content["data"] == {**ACTS, "text/plain": "t"}
    assert output.content["metadata"] == {"isolated": True, "text/html": {"a": [1]}}
    [quiet, hint] = CellOutput(7, 10_000).passed(message)
    assert "act()" not in str(quiet.content)
    assert quiet.content["data"].keys() == {"text/plain"}
    assert hint.content["text"] == HINT


@pytest.mark.parametrize(
    "mime", ["application/vnd.capkernel.diagnostics+json", "Application/vnd.CapKernel.x", 5, "x" * 300]
)
def test_the_kernels_own_types_do_not_pass_with_active_outputs_either(mime: Any) -> None:
    assert clean_bundle({mime: {"a": 1}, "text/plain": "x"}, active=True) == {"text/plain": "x"}


def test_active_outputs_are_json_and_have_a_text() -> None:
    found = clean_bundle({"application/x": {"a": float("nan"), "b": b"x"}, "y": "z"}, active=True)
    assert found == {"application/x": {"a": None, "b": "eA=="}, "y": "z", "text/plain": "[application/x, y]"}


def test_errors_and_streams_are_no_more_active_than_ever() -> None:
    cell = CellOutput(7, 10_000, active=True)
    [error] = cell.passed(Published(1, "error", {"ename": "CellRefused", "evalue": "\x1b]0;x\x07v", "traceback": []}))
    assert error.content == {"ename": "cell.CellRefused", "evalue": "v", "traceback": []}
    [printed] = cell.passed(Published(1, "stream", {"name": "stdout", "text": "\x1b]0;x\x07v"}))
    assert printed.content["text"] == "v"


def test_the_hint_comes_once_per_cell_and_only_when_something_is_missing() -> None:
    cell = CellOutput(7, 10_000)
    widget = {"data": {"text/plain": "IntSlider()", "application/vnd.jupyter.widget-view+json": {"model_id": "a"}}}
    first = cell.passed(Published(1, "display_data", widget))
    assert [one.kind for one in first] == ["display_data", "stream"]
    assert first[0].content["data"] == {"text/plain": "IntSlider()"}
    assert "[output] active = true" in first[1].content["text"]
    assert [one.kind for one in cell.passed(Published(1, "display_data", widget))] == ["display_data"]
    shown = {"data": {"text/html": "<script>act()</script><p>a table</p>", "text/plain": "x"}}
    [alone] = CellOutput(7, 10_000).passed(Published(1, "display_data", shown))
    assert alone.content["data"]["text/html"] == "<p>a table</p>"


def test_active_outputs_count_against_the_limit() -> None:
    cell = CellOutput(7, 1000, active=True)
    [note] = cell.passed(Published(1, "display_data", {"data": {"application/x": {"a": "x" * 2000}}}))
    assert "output cut" in note.content["text"]
