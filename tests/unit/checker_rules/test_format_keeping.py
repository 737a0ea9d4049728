"""Which functions the plan marks as leaving a text whole, and how the mark goes on along a lineage."""

from __future__ import annotations

import pytest

from capkernel.checker.protocol import Accepted
from capkernel.vault.client import VaultClient
from capkernel.vault.keeper import Keeper
from capkernel.vault.launch import ChildProcess
from capkernel.wire.plan import CodeKey, PureFunction
from capkernel.wire.values import encode
from capkernel.wire.vault import Begin, Describe, FunctionBundle, Limits, Map, Put, Zip, keeps_format

from .conftest import Notebook

KEEPING = [
    "lambda x: x",
    "lambda x: x.strip()",
    "lambda x: x.strip().strip()",
    "lambda x: 'Bearer ' + x",
    "lambda x: x + '\\n'",
    "lambda x: ('Basic ' + x.strip()) + ':'",
    "lambda x: f'Bearer {x}'",
    "lambda x: f'<{x.strip()}>'",
    "lambda x: 'a' f'b{x}' 'c' + 'd'",
    "lambda x: f'{f\"{x}\"}'",
    "lambda x, /: 'k=' + x",
]
# Each with the nearest one that keeps it.
NOT = [
    "lambda x: 'fixed'",  # says nothing of x, but is not it either
    "lambda x: x + x",
    "lambda x: f'{x}{x}'",
    "lambda x: x.strip('a')",
    "lambda x: x.lstrip()",
    "lambda x: x.upper()",
    "lambda x: x[0]",
    "lambda x: x[:-1] + 'b'",
    "lambda x: 'a' * 2 + x",
    "lambda x: x if x else 'none'",
    "lambda x: x or 'none'",
    "lambda x: 'a' + str(len(x))",
    "lambda x: f'{x!r}'",
    "lambda x: f'{x:>40}'",
    "lambda x: f'{x=}'",
    "lambda x: f'{len(x)}'",
    "lambda x: 'Bearer %s' % x",
    "lambda x: 'Bearer {}'.format(x)",
    "lambda x: ''.join(['Bearer ', x])",
    "lambda x: prefix + x",
    "lambda x: known(x)",
    "lambda x: (lambda y: y)(x)",
    "lambda x, y='': x + y",
    "lambda x, *, y='': x",
    "lambda *x: 'a'",
    "lambda x: (x, 'a')",
    "lambda x: ('Bearer ' + x).strip()",
    "lambda x: x.strip",
]


def marks(notebook: Notebook, cell: str) -> list[bool]:
    verdict = notebook.cell(cell)
    assert isinstance(verdict, Accepted), verdict
    return [function.keeps_format for function in verdict.plan.pure]


@pytest.fixture
def started(notebook: Notebook) -> Notebook:
    notebook.accepted("s = classify('abc')\nprefix = 'Bearer '\ndef known(x: str) -> str:\n    return x")
    return notebook


@pytest.mark.parametrize("function", KEEPING)
def test_it_keeps_the_format(started: Notebook, function: str) -> None:
    assert marks(started, f"s.map({function})") == [True]


@pytest.mark.parametrize("function", NOT)
def test_it_does_not(started: Notebook, function: str) -> None:
    verdict = started.cell(f"s.map({function})")
    assert isinstance(verdict, Accepted), verdict
    entry = next(one for one in verdict.plan.pure if one.source.startswith("lambda x") or "*x" in one.source)
    assert not entry.keeps_format


def test_definitions(started: Notebook) -> None:
    def marked(body: str, head: str = "def f(x: str) -> object:") -> bool:
        started.accepted(f"{head}\n    {body}")
        return marks(started, "s.map(f)")[0]

    assert marked("return 'Bearer ' + x")
    assert marked("'a docstring'\n    return x")
    assert marked("return x", "def f(x):")
    assert not marked("y = x\n    return y")
    assert not marked("'a docstring'")
    assert not marked("return None")
    assert not marked("if x:\n        return x\n    return 'none'")
    assert not marked("yield x")
    started.accepted("import functools\n@functools.cache\ndef f(x: str) -> str:\n    return x")
    verdict = started.cell("s.map(f)")
    assert not isinstance(verdict, Accepted) or not verdict.plan.pure[0].keeps_format


def test_a_name_that_shadows_nothing_but_looks_fixed(started: Notebook) -> None:
    """The mark is that of the function as it is now."""
    started.accepted("def f(x: str) -> str:\n    return 'a' + x")
    assert marks(started, "s.map(f)") == [True]
    started.accepted("def f(x: str) -> str:\n    return 'a' + x[0]")
    assert marks(started, "s.map(f)") == [False]


# ── lineage ──────────────────────────────────────────────────────────────────────────────────────────────────────────

KEY = CodeKey(1, 1, "<lambda>", (1, 0, 1, 9))
KEEPS = FunctionBundle(KEY, "", (PureFunction(KEY, "lambda", "<lambda>", "lambda x: x", (), True),))
OTHER = FunctionBundle(KEY, "", (PureFunction(KEY, "lambda", "<lambda>", "lambda x: x[0]"),))
HELPED = FunctionBundle(
    KEY, "", (*OTHER.functions, PureFunction(CodeKey(1, 2, "f", (2, 0, 2, 9)), "def", "f", "", (), True))
)


def test_only_the_entry_of_a_bundle_counts() -> None:
    assert keeps_format(KEEPS)
    assert keeps_format(FunctionBundle(table="builtins.str.strip"))
    for bundle in (OTHER, HELPED, FunctionBundle(), FunctionBundle(table="builtins.str.upper")):
        assert not keeps_format(bundle)


class _Handle:
    name = "a"


def test_the_lineage_holds_it_and_no_value_changes_it() -> None:
    told: list[object] = []
    keeper = Keeper(tell=told.append, start=lambda *_: True)
    keeper.accept(Begin(Limits()), b"", None)

    def put(handle: str, value: object) -> None:
        keeper.accept(Put(handle, "cell:1"), encode(value), None)

    def mapped(
        new: str, source: str, bundle: FunctionBundle, result: object = "v", *, flat: bool = False, with_a: bool = False
    ) -> None:
        data = {"globals": {"a": _Handle()}} if with_a else {}
        keeper.accept(
            Map(new, source, bundle, flat), encode(data, handle_of=lambda it: getattr(it, "name", None)), None
        )
        if keeper._running is not None:
            keeper.job_done(None if result is None else encode(result), "ValueError")

    put("a", "text")
    put("n", 12)
    mapped("kept", "a", KEEPS)
    mapped("again", "kept", FunctionBundle(table="builtins.str.strip"))
    mapped("poison", "a", KEEPS, None)
    mapped("of_poison", "poison", KEEPS)
    mapped("cut", "a", OTHER)
    mapped("late", "cut", KEEPS)
    mapped("number", "n", KEEPS)
    mapped("flat", "a", KEEPS, flat=True)
    mapped("with_another", "a", KEEPS, with_a=True)
    mapped("lost", "nowhere", KEEPS)
    keeper.accept(Zip("pair", "a", "kept"), b"", None)
    found = {}
    for name in list(keeper._entries._known):
        keeper.accept(Describe(1, name), b"", None)
        found[name] = told[-1].format_kept  # type: ignore[attr-defined]
    assert {name for name, kept in found.items() if kept} == {"a", "kept", "again", "poison", "of_poison"}
    assert len(found) == 13


def test_the_kernel_knows_it_from_the_posts_alone() -> None:
    def nobody(_descriptor: int) -> ChildProcess:
        raise AssertionError("no process is needed")

    client = VaultClient(spawn_keeper=nobody, spawn_runner=nobody)
    captured = encode({"globals": {"a": _Handle()}}, handle_of=lambda it: getattr(it, "name", None))
    client.put("a", encode("text"), "cell:1")
    client.put("n", encode(12), "cell:1")
    client.put("broken", b"no value", "cell:1")
    client.map("kept", "a", KEEPS, encode({}))
    client.map("again", "kept", KEEPS, encode({}))
    client.map("cut", "a", OTHER, encode({}))
    client.map("late", "cut", KEEPS, encode({}))
    client.map("number", "n", KEEPS, encode({}))
    client.map("flat", "a", KEEPS, encode({}), flat=True)
    client.map("withanother", "a", KEEPS, captured)
    client.zip("pair", "a", "kept")
    names = ["a", "n", "broken", "kept", "again", "cut", "late", "number", "flat", "withanother", "pair", "unknown"]
    assert [name for name in names if client.format_kept(name)] == ["a", "kept", "again"]
