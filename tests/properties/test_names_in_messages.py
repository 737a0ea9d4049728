"""No text that reaches the person names the modules that cells are for mypy, whatever went wrong in whatever order."""

from __future__ import annotations

import json
import re
from functools import cache

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mypy import build as _first  # noqa: F401  (must be the first mypy module: the others import each other in a circle)

from capkernel.checker.cache import build_cache
from capkernel.checker.captures import CaptureSession
from capkernel.checker.engine import Engine
from capkernel.checker.profiles import PROFILES
from capkernel.checker.protocol import Accepted
from capkernel.checker.session import CheckerSession
from capkernel.checker.subset import check_subset
from capkernel.diagnostics import render_text, to_json

DEFINITIONS = """
class A:
    x: int = 1
    def m(self, a: int) -> str: return ""
    class N:
        y: int = 1
v = A()
---
import enum
class E(enum.Enum):
    P = 1
    Q = 2
w = E.P
---
from dataclasses import dataclass
@dataclass
class D:
    a: int
d = D(1)
---
from typing import Protocol
class P(Protocol):
    def go(self) -> int: ...
---
from typing import TypedDict, NamedTuple, NewType
class T(TypedDict):
    k: int
class NT(NamedTuple):
    a: int
UserId = NewType("UserId", int)
t: T = {"k": 1}
nt = NT(1)
---
from typing import Callable, TypeVar, overload, final
class A:
    z: int = 2
U = TypeVar("U", bound=A)
def gen(x: U) -> U: return x
def f(a: A, b: int) -> A: return a
@overload
def ov(a: A) -> int: ...
@overload
def ov(a: str) -> str: ...
def ov(a): return 1
Alias = dict[str, A]
@final
class F: ...
cb: Callable[[A], int] = lambda a: 1
---
import abc
class Abs(abc.ABC):
    @abc.abstractmethod
    def go(self) -> int: ...
""".strip().split("\n---\n")

MISTAKES = """
f(1, 2, 3)
f(v)
v.nope
A.nope
A.N.nope
E.nope
E("x").nope
d.a.nope
D()
D(a="x")
P()
Abs()
ov(b"x")
ov()
t["z"]
t["k"] = "x"
NT("x")
nt.b
nt[3]
class B(A):
    def m(self, a: str) -> int: return 1
class B(A):
    x: str = ""
class B(F): ...
class B(E): ...
class B(A, int, str): ...
class Q(P):
    def go(self) -> str: return ""
p: P = v
gen("x")
a: Alias = {1: v}
a: A = w
a: A.N = v
a: UserId = v
a: list[A] = [w]
UserId("x")
v + v
v[0]
v()
for i in v: pass
with v: pass
await v
v < v
not_there(v)
match w:
    case A(q=1): pass
def g(a: A) -> E: return a
lambda: v.nope
cb(w)
cb = f
reveal_type(v)
v.m = 1
A.m(1)
A().m(v)
isinstance(v, A.N) and v.nope
f(*[1], **{"a": 2})
async def h(a: A) -> E: return await a
b = v if w else d
b.nope
type(v).nope
f"{v.zip}"
raise v
try: pass
except A: pass
E.P = 3
a: v = 1
def z(a: v) -> f: ...
class B(v): ...
sorted([v, v])
sum([v])
len(v)
"".join([v])
def early(): return never_bound(v)
early()
with request_file_system("x") as fs: kept = fs
classify(v).map(lambda x: print(x))
if classify(1): pass
""".strip()

_START = re.compile(r"\n(?=\S)(?!    )(?!case|except)")
CELLS = [*DEFINITIONS, *_START.split(MISTAKES)]
LEAK = re.compile(r"cell_\d|·|capkernel\.checker|_prelude")


@cache
def engine(profile: str) -> Engine:
    return Engine(build_cache(lambda _: None), PROFILES[profile], libraries=())


def test_the_pattern_would_find_one() -> None:
    assert LEAK.search("expected `cell_9.A`")
    assert len(CELLS) > 70


@given(
    st.sampled_from(sorted(PROFILES)),
    st.lists(st.sampled_from(DEFINITIONS), min_size=2, max_size=8),
    st.lists(st.sampled_from(CELLS), min_size=8, max_size=24),
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_module_of_a_cell_is_named(profile: str, first: list[str], then: list[str]) -> None:
    engine(profile).reset()
    session = CheckerSession(engine(profile), PROFILES[profile], check_subset, CaptureSession())
    sources: dict[int, str] = {}
    for number, text in enumerate([*first, *then], 1):
        sources[number] = text + "\n"
        for turn in range(2):  # the second time the cell's module has another name
            verdict = session.check(number, text + "\n")
            said = verdict.warnings if isinstance(verdict, Accepted) else verdict.diagnostics
            shown = render_text(said, sources) + json.dumps(to_json(said))
            if isinstance(verdict, Accepted):
                shown += json.dumps(verdict.names) + verdict.last_type + repr(verdict.plan)
                if turn:
                    session.commit(number, frozenset(verdict.names), frozenset())
            assert LEAK.search(shown) is None, shown
