"""Where classified values came from, as the person is told."""

from __future__ import annotations

import secrets

from capkernel.broker import ledger
from capkernel.broker.ledger import Ledger
from capkernel.wire.plan import CodeKey, MaskSite, Plan, PureFunction, Span
from capkernel.wire.values import encode
from capkernel.wire.vault import FunctionBundle
from capkernel.wire.worker import Classify, FunctionRef, MapClassified, ZipClassified


def _bundle(span: tuple[int, int, int, int], source: str = "lambda t: t + 1", cell: int = 1) -> FunctionBundle:
    key = CodeKey(cell, span[0], "<lambda>", span)
    return FunctionBundle(key, "", (PureFunction(key, "lambda", "<lambda>", source),))


NOTHING = encode({})
CHAIN = Plan(
    masks=(
        MaskSite(Span(1, 4, 1, 30), "int"),  # n = s.map(lambda t: t + 1)
        MaskSite(Span(2, 4, 2, 20), "bytes"),  # c = s.map(lambda …)
        MaskSite(Span(2, 4, 2, 40), "float"),  #     .map(lambda …)
    )
)


def test_the_static_type_is_that_of_the_call_the_function_stands_in() -> None:
    book = Ledger()
    for handle, span in (("a", (1, 14, 1, 28)), ("b", (2, 12, 2, 19)), ("c", (2, 28, 2, 39)), ("d", (5, 0, 5, 4))):
        book.mapped(handle, 1, CHAIN, _bundle(span), "s", NOTHING, flat=False)
    assert [book.get(handle).type for handle in "abcd"] == ["int", "bytes", "float", ""]  # type: ignore[union-attr]


def test_a_function_of_another_cell_gets_a_type_only_when_there_is_one() -> None:
    book = Ledger()
    book.mapped("a", 2, CHAIN, _bundle((1, 14, 1, 28)), "s", NOTHING, flat=False)
    book.mapped("b", 2, Plan(masks=CHAIN.masks[:1]), FunctionBundle(table="builtins.len"), "s", NOTHING, flat=True)
    found = book.get("b")
    assert book.get("a").type == ""  # type: ignore[union-attr]
    assert found is not None
    assert (found.type, found.how, found.code, found.parents) == ("int", "flat_map", "builtins.len", ("s",))


def test_bytes_that_are_no_values_are_written_down_without_a_word() -> None:
    book = Ledger()
    book.classified("a", 1, "x", b"nonsense")
    book.mapped("b", 1, CHAIN, _bundle((1, 14, 1, 28)), "a", b"nonsense", flat=False)
    assert [(entry.type, entry.parents) for entry in book.newest(2)] == [("int", ("a",)), ("", ())]


def test_pairs_of_pairs_do_not_grow_without_end() -> None:
    book = Ledger()
    book.classified("p0", 1, "", encode(1))
    for number in range(1, 200):
        book.zipped(f"p{number}", 1, f"p{number - 1}", f"p{number - 1}")
    assert max(len(entry.type) for entry in book.newest(200)) <= ledger.MAX_TEXT


def test_the_newest_are_kept_and_texts_are_cut(monkeypatch) -> None:
    monkeypatch.setattr(ledger, "MAX_ENTRIES", 3)
    book = Ledger()
    for number in range(5):
        book.classified(f"h{number}", 1, "x" * 10_000, encode(1))
    assert [entry.handle for entry in book.newest(2)] == ["h4", "h3"]
    assert len(book) == 3
    assert book.get("h0") is None
    assert len(book.get("h4").label) == ledger.MAX_TEXT  # type: ignore[union-attr]


def test_the_broker_writes_down_what_it_hands_over(session) -> None:
    scope = session.open()
    read = session.do(scope, "secrets/key.txt", "read_classified")
    made, pair = secrets.token_hex(16), secrets.token_hex(16)
    session.broker.post(Classify(made, "mine"), encode("v"))
    session.broker.post(ZipClassified(pair, read, made), b"")
    refused = secrets.token_hex(16)
    session.broker.post(MapClassified(refused, read, FunctionRef(table="os.system")), encode({}))
    book = session.broker.ledger
    assert [(entry.how, entry.type, entry.label) for entry in book.newest(9)] == [
        ("map", "", ""),  # refused, and in the list: the person sees why
        ("zip", "tuple[str, str]", ""),
        ("classify", "str", "mine"),
        ("read", "str", ""),
    ]
    assert book.get(read).origin == "file:secrets/key.txt"
    assert book.get(pair).parents == (read, made)
    assert book.get(refused).parents == (read,)


def test_live_authority_is_that_of_the_running_cell(session) -> None:
    session.open()
    cell, may, handles = session.broker.live()
    assert cell is not None
    assert may == ("file_system (any)", "write_classified")
    assert handles == 1
    session.broker.close_cell()
    assert session.broker.live() == (None, (), 0)


def test_a_value_has_the_name_that_the_text_gives_it() -> None:
    sites = (
        MaskSite(Span(1, 4, 1, 30), "str", "read_classified", "key"),
        MaskSite(Span(2, 4, 2, 30), "str", "read_classified", "other"),
        MaskSite(Span(3, 4, 3, 40), "int", "map", "size"),
        MaskSite(Span(4, 4, 4, 40), "tuple[str, int]", "zip", "pair"),
        MaskSite(Span(5, 4, 5, 20), "int", "classify", ""),
    )
    plan = Plan(masks=sites)
    book = Ledger()
    for handle in "abc":
        book.read(handle, 1, "file:.env", text=True, plan=plan)
    book.mapped("m", 1, plan, _bundle((3, 14, 3, 28)), "a", NOTHING, flat=False)
    for handle in "zy":
        book.zipped(handle, 1, "a", "m", plan=plan)
    book.classified("s", 1, "", encode(1), plan=plan)
    book.read("d", 2, "file:.env", text=True, plan=Plan())
    names = {handle: book.get(handle).name for handle in "abcmzysd"}  # type: ignore[union-attr]
    assert names == {"a": "key", "b": "other", "c": "", "m": "size", "z": "pair", "y": "pair", "s": "", "d": ""}


def test_the_lineage_is_all_it_was_made_from_and_what_was_made_of_it() -> None:
    book = Ledger()
    for handle in "ab":
        book.classified(handle, 1, "", encode(1))
    book.zipped("c", 1, "a", "b")
    book.zipped("d", 1, "c", "a")
    book.zipped("e", 2, "d", "d")
    assert [entry.handle for entry in book.ancestors("d", 10)] == ["d", "c", "a", "b"]
    assert [entry.handle for entry in book.ancestors("d", 2)] == ["d", "c"]
    assert [entry.handle for entry in book.children("a", 10)] == ["d", "c"]
    assert book.ancestors("nothing", 10) == []


def test_a_value_that_names_itself_as_its_source_ends_the_walk() -> None:
    book = Ledger()
    book.zipped("a", 1, "a", "b")
    book.zipped("b", 1, "a", "a")
    assert [entry.handle for entry in book.ancestors("a", 10)] == ["a", "b"]


def test_the_functions_are_the_one_that_was_given_then_what_it_calls() -> None:
    entry, helper = CodeKey(3, 5, "shorten", (5, 0, 6, 9)), CodeKey(2, 1, "cut", (1, 0, 2, 9))
    sources = (PureFunction(helper, "def", "cut", "def cut(t): ..."), PureFunction(entry, "def", "shorten", "x" * 5000))
    book = Ledger()
    book.mapped("a", 3, Plan(), FunctionBundle(entry, "", sources), "s", NOTHING, flat=False)
    book.mapped("b", 3, Plan(), FunctionBundle(table="builtins.len"), "s", NOTHING, flat=False)
    first, second = book.get("a").functions  # type: ignore[union-attr]
    assert (first.name, first.cell, second.name, second.cell) == ("shorten", 3, "cut", 2)
    assert len(first.source + second.source) <= ledger.MAX_SOURCE + 10
    assert book.get("a").code == "x" * ledger.MAX_TEXT  # type: ignore[union-attr]
    assert [(used.name, used.cell) for used in book.get("b").functions] == [("builtins.len", None)]  # type: ignore[union-attr]


def test_words_are_looked_for_in_everything_that_is_known() -> None:
    book = Ledger()
    plan = Plan(masks=(MaskSite(Span(1, 4, 1, 30), "int", "map", "size"),))
    book.classified("a", 1, "Mail Password", encode("v"))
    book.mapped("b", 4, plan, _bundle((1, 14, 1, 28), "lambda t: t + 1", 4), "a", NOTHING, flat=False)
    for words, handles in (
        ("password mail", "a"),
        ("classify", "a"),
        ("str", "a"),
        ("t + 1", "b"),
        ("SIZE", "b"),
        ("file:x", "ab"),
        ("map password", ""),
    ):
        found = [entry.handle for entry in book.newest(9) if entry.holds(words.lower().split(), ("file:x",))]
        assert sorted(found) == list(handles), words
