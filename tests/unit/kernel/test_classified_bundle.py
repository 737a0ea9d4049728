"""What clients get of a displayed Classified: the kernel's bundle, whatever the worker says beside the handle."""

from __future__ import annotations

import json
from typing import Any

import pytest

from capkernel.broker.ledger import Ledger
from capkernel.kernel.classified_bundle import MIME_TYPE, ClassifiedBundles
from capkernel.kernel.firewall import CellOutput
from capkernel.kernel.html import clean_html
from capkernel.wire.plan import MaskSite, Plan, Span
from capkernel.wire.values import encode
from capkernel.wire.vault import FunctionBundle
from capkernel.wire.worker import HANDLE_MIME, Published

READ, MADE, MAPPED, UNTYPED = "a" * 32, "b" * 32, "c" * 32, "d" * 32
DISPLAYS = ("display_data", "update_display_data", "execute_result")


@pytest.fixture
def bundles() -> ClassifiedBundles:
    book = Ledger()
    book.read(READ, 1, "file:.env", text=True)
    book.classified(MADE, 1, "<b>\x1b[2J\u202eme", encode({"k": 1}), "dict[str, int]")
    book.mapped(MAPPED, 2, Plan(masks=(MaskSite(Span(1, 0, 1, 9), "int"),)), FunctionBundle(table="builtins.len"),
                READ, encode({}), flat=False)  # fmt: skip
    book.mapped(UNTYPED, 2, Plan(), FunctionBundle(table="builtins.len"), READ, encode({}), flat=False)
    origins = {READ: {"file:.env"}, MADE: {"cell:1"}, MAPPED: {f"file:{n}.txt" for n in range(9)}}
    return ClassifiedBundles(book, lambda handle: frozenset(origins.get(handle, ())))


def shown(bundles: ClassifiedBundles, kind: Any, data: dict[str, Any], **content: Any) -> dict[str, Any]:
    (output,) = CellOutput(1, 100_000, classified=bundles).passed(Published(1, kind, {"data": data, **content}))
    return output.content


@pytest.mark.parametrize("kind", DISPLAYS)
def test_a_handle_becomes_the_bundle_of_the_records(bundles: ClassifiedBundles, kind: str) -> None:
    worker = {"text/plain": "Classified[lies](***)", "text/html": "<b>lies</b>", HANDLE_MIME: READ, "image/png": "x"}
    content = shown(bundles, kind, worker, metadata={"image/png": {"width": 5}})
    assert content["data"][MIME_TYPE] == {"v": 1, "handle": READ, "type": "str", "origin": "file:.env"}
    assert content["data"].keys() == {"text/plain", "text/html", MIME_TYPE}
    assert content["data"]["text/plain"] == "Classified[str](***)"
    assert content["metadata"] == {}
    assert "lies" not in json.dumps(content)


def test_a_display_id_stays(bundles: ClassifiedBundles) -> None:
    content = shown(bundles, "display_data", {HANDLE_MIME: READ}, transient={"display_id": "q"})
    assert content["transient"] == {"display_id": "worker-q"}


@pytest.mark.parametrize(
    "handle", ["e" * 32, "", "nonsense", 5, None, [READ], {"handle": READ}, READ.upper(), READ + " "]
)
def test_a_handle_of_no_value_gets_the_workers_text_alone(bundles: ClassifiedBundles, handle: Any) -> None:
    content = shown(bundles, "display_data", {"text/plain": "mine", HANDLE_MIME: handle})
    assert content["data"] == {"text/plain": "mine"}


@pytest.mark.parametrize("data", [None, 5, [HANDLE_MIME], HANDLE_MIME])
def test_data_that_is_no_bundle(bundles: ClassifiedBundles, data: Any) -> None:
    assert MIME_TYPE not in shown(bundles, "display_data", data)["data"]


def test_the_worker_cannot_send_the_bundle_itself(bundles: ClassifiedBundles) -> None:
    own = bundles(READ)
    assert own is not None
    for kind in DISPLAYS:
        assert shown(bundles, kind, own)["data"].keys() == {"text/plain", "text/html"}
        beside = {**own, MIME_TYPE: {"v": 1, "handle": READ, "type": "int"}, HANDLE_MIME: MADE}
        assert shown(bundles, kind, beside)["data"] == bundles(MADE)


def test_a_stream_or_an_error_carries_none(bundles: ClassifiedBundles) -> None:
    for kind in ("stream", "error"):
        message = Published(1, kind, {"name": "stdout", "text": "x", "data": {HANDLE_MIME: READ}})  # type: ignore[arg-type]
        (output,) = CellOutput(1, 100_000, classified=bundles).passed(message)
        assert READ not in json.dumps(output.content)


def test_claims_are_text_and_the_html_passes_our_own_firewall(bundles: ClassifiedBundles) -> None:
    made = bundles(MADE)
    assert made is not None
    assert made[MIME_TYPE]["label"] == "<b>\\x1b[2J\\u202eme"
    assert "label" not in bundles(READ)[MIME_TYPE]  # type: ignore[index]
    for handle in (READ, MADE, MAPPED, UNTYPED):
        markup = bundles(handle)["text/html"]  # type: ignore[index]
        assert clean_html(markup) == markup


def test_many_origins_are_counted_and_an_unknown_type_is_left_out(bundles: ClassifiedBundles) -> None:
    mapped, untyped = bundles(MAPPED), bundles(UNTYPED)
    assert mapped is not None
    assert untyped is not None
    assert mapped[MIME_TYPE]["origin"] == "file:0.txt, file:1.txt, file:2.txt, file:3.txt, file:4.txt, and 4 more"
    assert untyped["text/plain"] == "Classified(***)"
    assert untyped[MIME_TYPE] == {"v": 1, "handle": UNTYPED, "type": ""}


@pytest.mark.parametrize("active", [False, True])
def test_with_active_outputs_the_card_is_the_kernels_as_well(bundles: ClassifiedBundles, active: bool) -> None:
    output = CellOutput(1, 100_000, active=active, classified=bundles)
    lies = {"text/plain": "lies", MIME_TYPE: {"handle": READ}}
    (real,) = output.passed(Published(1, "display_data", {"data": {**lies, HANDLE_MIME: READ}}))
    assert real.content["data"] == bundles(READ)
    (forged,) = output.passed(Published(1, "display_data", {"data": {**lies, HANDLE_MIME: "e" * 32}}))
    assert forged.content["data"] == {"text/plain": "lies"}
