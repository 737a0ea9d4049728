"""Random sessions, judged and then run: what is accepted never uses a capability after its block.

The capabilities are stand-ins that raise `Used` once their block has ended. Other errors are the session's own.
The generator is shown to produce sessions that do use dead capabilities when nobody checks them.
"""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Iterator
from typing import Any

import pytest

from capkernel.checker.engine import Engine
from capkernel.checker.protocol import Accepted

from .conftest import Notebook

PRELUDE = """
import functools
out = []
table = {}
class Box:
    kind = None
    def __init__(self, x=None):
        self.x = x
    def put(self, x):
        self.x = x
        return self
    def get(self):
        return self.x
    def __iter__(self):
        return iter([self.x])
    def __add__(self, other):
        return Box(other)
box = Box()
def keep(x):
    out.append(x)
def ident(x):
    return x
def wrap(x):
    return lambda: x
def each(x):
    yield x
def apply(f, x):
    return f(x)
class Pair:
    shared = []
    last = None
    def __init__(self, x, y):
        self.x = x
        self.y = y
        self.n = 1
    def swap(self):
        self.x, self.y = self.y, self.x
        return self
    @property
    def first(self):
        return self.x
    @property
    def number(self):
        return self.n
    @classmethod
    def make(cls, x):
        return cls(x, None)
    @classmethod
    def remember(cls, x):
        cls.last = x
        return x
class Loud(Pair):
    def __repr__(self):
        out.append(self.x)
        return "Loud"
    def __lt__(self, other):
        Pair.last = other
        return True
class Slot:
    owners = []
    def __set_name__(self, owner, name):
        Slot.owners.append(owner)
class Base:
    kinds = []
    def __init_subclass__(cls, kept=None):
        Base.kinds.append(kept)
pair = Pair(None, None)
def outer():
    kept = []
    def inner(x):
        kept.append(x)
        return kept
    return inner
collect = outer()
a = b = c = None
"""


class Used(BaseException):
    """A capability was used after its block."""


class Entry:
    def __init__(self, state: dict[str, bool]) -> None:
        self._state = state

    def _use(self) -> str:
        if not self._state["open"]:
            raise Used
        return "text"

    def read(self) -> str:
        return self._use()

    @property
    def children(self) -> list[Entry]:
        self._use()
        return [Entry(self._state)]

    def access(self, _path: str) -> Entry:
        self._use()
        return Entry(self._state)


@contextlib.contextmanager
def request_file_system(_root: str = ".") -> Iterator[Entry]:
    state = {"open": True}
    try:
        yield Entry(state)
    finally:
        state["open"] = False


class Generator:
    """Writes cells that move capabilities around in every way the small language has."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.opened = 0

    def cell(self) -> str:
        return "\n".join(self.statements(2, [], ""))

    def pick(self, names: list[str]) -> str:
        return self.random.choice(["a", "b", "c", *names, *names, *names])

    def expression(self, depth: int, names: list[str]) -> str:
        one = functools.partial(self.expression, depth - 1, names)
        if depth <= 0:
            return self.pick(names)
        forms = [
            lambda: self.pick(names),
            lambda: f"[{one()}]",
            lambda: f"({one()}, 1)",
            lambda: f'{{"k": {one()}}}',
            lambda: f"(lambda: {one()})",
            lambda: f"(lambda q: q)({one()})",
            lambda: f"ident({one()})",
            lambda: f"wrap({one()})",
            lambda: f"Box({one()})",
            lambda: f"Box().put({one()})",
            lambda: f"box.put({one()})",
            lambda: f"each({one()})",
            lambda: f"apply({self.random.choice(['ident', 'wrap', 'Box', 'keep', 'collect', 'out.append'])}, {one()})",
            lambda: f"collect({one()})",
            lambda: f"[q for q in [{one()}]]",
            lambda: f"list(q for q in [{one()}])",
            lambda: f"list(map(ident, [{one()}]))",
            lambda: f"functools.partial(ident, {one()})",
            lambda: f"({self.random.choice('abc')} := {one()})",
            lambda: f"({one()} if a else {one()})",
            lambda: f"(Box() + {one()})",
            lambda: f"Pair({one()}, {one()})",
            lambda: f"Pair.make({one()})",
            lambda: f"pair.remember({one()})",
            lambda: f"Pair(None, {one()}).n",
            lambda: f"Pair(None, {one()}).swap().x",
            lambda: f"Pair(None, {one()}).number",
            lambda: f"Pair({one()}, None).first",
            lambda: "pair.shared",
            lambda: "Pair(1, 2).shared",
            lambda: "type(pair)",
            lambda: f"repr(Loud({one()}, None))",
            lambda: f"sorted([Loud({one()}, 1), Loud({one()}, 2)])[0].n",
            lambda: f"sorted([1], key=lambda q: {one()})",
            lambda: f"{self.pick(names)}.y",
            lambda: f"{self.pick(names)}.first",
            lambda: f"{self.pick(names)}.access('n')",
            lambda: f"{self.pick(names)}.read()",
            lambda: f"{self.pick(names)}.x",
            lambda: f"{self.pick(names)}[0]",
            lambda: f"{self.pick(names)}()",
        ]
        return self.random.choice(forms)()

    def statements(self, depth: int, names: list[str], indent: str) -> list[str]:
        lines: list[str] = []
        for _ in range(self.random.randint(1, 3)):
            lines += self.statement(depth, names, indent)
        return lines

    def statement(self, depth: int, names: list[str], indent: str) -> list[str]:
        value = self.expression(2, names)
        target = self.random.choice("abc")
        simple = [
            f"{target} = {value}",
            f"{target} = {value}",
            f"{target} = {value}",
            f"a, b = {value}, {self.pick(names)}",
            f"out.append({value})",
            f'table["k"] = {value}',
            f"box.x = {value}",
            f"keep({value})",
            f"{self.pick(names)}.y = {value}",
            f"{self.pick(names)}.n = {value}",
            f"pair.shared.append({value})",
            f"Pair({value}, 2).shared.append({value})",
            f"type(pair).last = {value}",
            f"{self.pick(names)}.x.y = {value}",
            f"class {target}(Base, kept={value}): w = Slot(); v = {self.pick(names)}",
            f"{self.pick(names)}.n",
            f"def {target}(x=None): return {value}",
            f"{self.pick(names)}.read()",
            f"{self.pick(names)}().read()",
            f"[q.read() for q in list({self.pick(names)})]",
            f"{self.pick(names)}.x.read()",
            f"{self.pick(names)}[0].read()",
            f"next({self.pick(names)}).read()",
        ]
        if depth and self.random.random() < 0.6:
            self.opened += 1
            name = f"fs{self.opened}"
            inner = self.statements(depth - 1, [*names, name], indent + "    ")
            head = self.random.choice(
                [
                    [f"{indent}with request_file_system('d') as {name}:"],
                    [f"{indent}with request_file_system('d') as {name}:"],
                    [f"{indent}with request_file_system('d') as {target}:"],
                    [f"{indent}for i in [1, 2]:"],
                    [f"{indent}if a:"],
                    [f"{indent}try:"],
                ]
            )
            tail = [f"{indent}finally:", f"{indent}    {target} = {self.pick(names)}"] if "try:" in head[0] else []
            if f"as {name}:" not in head[0]:
                inner = [line.replace(name, target) for line in inner]
            return [*head, *inner, *tail]
        chosen = self.random.choice(simple)
        if self.random.random() < 0.7:
            # Most mistakes of the session itself should not end it.
            return [f"{indent}try:", f"{indent}    {chosen}", f"{indent}except Exception:", f"{indent}    pass"]
        return [indent + chosen]


# Each a cell of its own: the ways in which a value that lived through a block is used.
_PROBES = [
    f"try:\n    {use}\nexcept Exception:\n    pass"
    for name in (
        "a",
        "b",
        "c",
        "out",
        "box.x",
        "table['k']",
        "collect(None)",
        "box",
        "pair",
        "Pair.shared",
        "Pair.last",
        "Base.kinds",
        "Slot.owners[0].v",
        "pair.last",
        "Pair(1, 2).shared",
    )
    for use in (
        f"{name}.read()",
        f"{name}().read()",
        f"{name}[0].read()",
        f"{name}[-1].read()",
        f"{name}['k'].read()",
        f"next({name}).read()",
        f"[q.read() for q in list({name})]",
        f"[q().read() for q in list({name})]",
        f"{name}.x.read()",
        f"{name}.get().read()",
        f"{name}.x[0].read()",
        f"{name}.x().read()",
        f"{name}[0][0].read()",
        f"{name}()().read()",
        f"{name}.y.read()",
        f"{name}.first.read()",
        f"{name}.v.read()",
        f"{name}.n.read()",
    )
]


def _run(texts: list[str], notebook: Notebook | None) -> tuple[int, bool]:
    """How many cells ran, and whether a dead capability was used."""
    space: dict[str, Any] = {"request_file_system": request_file_system}
    ran = 0
    for number, text in enumerate(texts, 1):
        if notebook is not None and not isinstance(notebook.session.check(number, text), Accepted):
            continue
        before = dict(space)
        try:
            exec(compile(text, "<cell>", "exec"), space)
            ran += 1
        except Used:
            return ran, True
        except Exception:
            pass
        if notebook is not None:
            missing = object()
            bound = {name for name, value in space.items() if before.get(name, missing) is not value}
            notebook.session.commit(
                number, frozenset(bound - {"__builtins__"}), frozenset(before.keys() - space.keys())
            )
    return ran, False


def _session(seed: int) -> list[str]:
    generator = Generator(seed)
    cells = [PRELUDE]
    for _ in range(3):
        cells.append(generator.cell())
        cells += generator.random.sample(_PROBES, 8)
    return cells


def test_the_sessions_do_use_dead_capabilities_unchecked() -> None:
    assert sum(_run(_session(seed), None)[1] for seed in range(100)) > 15


@pytest.mark.parametrize("block", range(4))
def test_accepted_cells_never_use_a_dead_capability(engine: Engine, block: int) -> None:
    ran = 0
    for seed in range(block * 40, block * 40 + 40):
        texts = _session(seed)
        cells, used = _run(texts, Notebook(engine))
        assert not used, f"seed {seed}\n" + "\n# ---\n".join(texts[1:])
        ran += cells
    assert ran > 40 * 5  # the checker does not just refuse everything
