"""What the capture checker keeps, and what it must not: check changes nothing, commit keeps what was bound."""

from __future__ import annotations

import time

import msgspec
import pytest

from capkernel.checker.protocol import Accepted, Rejected
from capkernel.wire.frames import encode

from .conftest import Notebook


def test_check_alone_changes_nothing(notebook: Notebook) -> None:
    notebook.accepted("secret = classify('a')\ndef clean(x: str) -> str:\n    return x")
    impure = notebook.session.check(50, "def clean(x: str) -> str:\n    print(x)\n    return x")
    assert isinstance(impure, Accepted)
    notebook.session.discard(50)
    notebook.accepted("secret.map(clean)")


@pytest.mark.parametrize(
    "text",
    [
        "with request_file_system('\\ud800') as fs:\n    fs.access('a').read()",
        "with request_file_system('.') as fs:\n    fs.access('a').read()\n    fs.access('\\udcff').read()",
        "request_secret('\\ud800')",
        "from typing import TypedDict\nT = TypedDict('T', {'\\ud800': int})\nt: T = {'\\ud800': 'x'}",
        "from collections import namedtuple\nN = namedtuple('N', 'a \\ud800')\nN(1).b",
        "'%(\\ud800)s' % {'a': 1}",
        "'{0.\\ud800}'.format(1)",
        "classify('\\ud800', label='\\ud800').map(lambda t: t + '\\ud800')",
        "print('\\ud800')",
    ],
)
def test_half_a_surrogate_pair_in_a_literal_does_not_stop_the_checker(notebook: Notebook, text: str) -> None:
    verdict = notebook.session.check(50, text)
    assert isinstance(verdict, Accepted)
    assert encode(verdict), "what is said of it can be sent"
    for site in verdict.plan.scopes:
        assert site.argument is None or site.uses[0].paths is None, "what cannot be named may be anywhere"


def test_a_name_the_cell_did_not_bind_keeps_its_meaning(notebook: Notebook) -> None:
    notebook.accepted("secret = classify('a')\ndef clean(x: str) -> str:\n    return x")
    verdict = notebook.session.check(50, "raise ValueError\ndef clean(x: str) -> str:\n    print(x)\n    return x")
    if isinstance(verdict, Rejected):  # mypy holds the definition for unreachable, and that is refused as well
        assert "untyped-code" in {found.code for found in verdict.diagnostics}
    else:
        notebook.session.commit(50, frozenset(), frozenset())
    notebook.accepted("secret.map(clean)")


def test_a_name_that_was_bound_before_the_cell_stopped_is_dead(notebook: Notebook) -> None:
    text = "with request_file_system('d') as fs:\n    entry = fs.access('a')\nother = len('x')\n1 / 0"
    assert isinstance(notebook.session.check(50, text), Accepted)
    notebook.session.commit(50, frozenset({"fs", "entry"}), frozenset())
    assert notebook.refused("entry.read()") == ["capability-escape"]


def test_a_deleted_name_is_forgotten(notebook: Notebook) -> None:
    notebook.accepted("with request_file_system('d') as fs:\n    entry = fs.access('a')")
    notebook.accepted("del entry, fs")
    notebook.accepted("entry = 3\nfs = 4")
    notebook.accepted("entry + fs")


def test_a_refusal_names_what_is_held_and_from_where(notebook: Notebook) -> None:
    notebook.accepted("x = 1\nwith request_file_system('d') as fs:\n    entry = fs.access('a')")
    verdict = notebook.cell("entry.read()")
    assert isinstance(verdict, Rejected)
    (found,) = verdict.diagnostics
    assert [(one.name, one.type) for one in found.captured] == [("entry", "FileEntry"), ("fs", "FileSystem")]
    assert found.captured[0].origin == "cell 1, line 3"
    assert found.captured[1].origin == "cell 1, line 2: with request_file_system(...)"
    assert found.help
    assert found.fix is not None


def test_no_value_is_in_a_diagnostic(notebook: Notebook) -> None:
    verdict = notebook.cell("s = classify('sk-canary')\nif s == 'sk-canary' or f'{s} sk-canary':\n    s['sk-canary']")
    assert isinstance(verdict, Rejected)
    assert len(verdict.diagnostics) >= 3
    # An edit is made of the cell's own text, which stands beside the diagnostic anyway.
    said = [msgspec.structs.replace(found, fix=None) for found in verdict.diagnostics]
    assert "canary" not in repr(said)


def test_an_edit_holds_no_text_but_the_cells_own(notebook: Notebook) -> None:
    assert isinstance(notebook.cell("s = classify('sk-canary')\nkey = 'sk-canary'"), Accepted)
    verdict = notebook.cell("if s == key:\n    print(1)")
    assert isinstance(verdict, Rejected)
    assert verdict.diagnostics[0].fix is not None
    assert "canary" not in repr(verdict)


@pytest.mark.parametrize("depth", [5, 60])
def test_deep_calls_end(notebook: Notebook, depth: int) -> None:
    functions = [f"def f{n}(x):\n    f{n + 1}(x)\n    return f{n + 1}(x)" for n in range(depth)]
    text = "\n".join(
        [*functions, f"def f{depth}(x):\n    return x.root", "with request_file_system('d') as fs:\n    r = f0(fs)"]
    )
    started = time.perf_counter()
    verdict = notebook.cell(text)
    assert time.perf_counter() - started < 5
    if isinstance(verdict, Rejected):
        assert {found.code for found in verdict.diagnostics} == {"too-much-work"}
    else:
        assert depth == 5


def test_recursion_with_new_objects_ends(notebook: Notebook) -> None:
    notebook.accepted(
        "def grow(x, n):\n    return grow([x, lambda: x], n - 1) if n else x\n"
        "with request_file_system('d') as fs:\n    y = grow(fs, 3)"
    )
    assert notebook.refused("y") == ["capability-escape"]


def test_an_ordinary_cell_is_cheap(notebook: Notebook) -> None:
    notebook.accepted("import pandas as pd\ndf = pd.DataFrame({'a': [1, 2], 'b': [3, 4]})")
    text = "df['c'] = df['a'] * 2\nby = df.groupby('a').sum()\nxs = [x for x in range(10) if x % 2]\nprint(by, len(xs))"
    assert isinstance(notebook.session.check(50, text), Accepted)
    checked, _ = notebook.session._accepted[50]
    times = []
    for _ in range(20):
        started = time.thread_time()
        notebook.captures.check(checked.typed)
        times.append(time.thread_time() - started)
    assert min(times) < 0.005  # about 0.5 ms; the bound only catches what is no longer linear
