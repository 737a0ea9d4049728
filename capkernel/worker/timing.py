"""Timing parts of a cell as `%time` and `%timeit` do, and saying so in their words.

The statements stay those that were checked. A part that is timed once gets a call before and after it; one that is
timed often becomes the body of a function, as `timeit` makes it, so what it binds is not kept.
"""

# mypy: disable-error-code="no-untyped-call"
# (IPython leaves these functions without annotations)
from __future__ import annotations

import ast
import sys
import time
import timeit
from collections.abc import Callable, Sequence
from typing import Any

from IPython.core.magics.execution import TimeitResult, _format_time
from IPython.utils.timing import clock2

from capkernel.wire.worker import Timed

_ENOUGH_SECONDS = 0.2
_REPEATS = 7
_FUNCTION = "__timed__"  # a name that no cell can bind


def with_timing(tree: ast.Module, timed: Sequence[Timed]) -> ast.Module:
    """The same tree with the parts on these lines timed."""
    for part in reversed(timed):  # what is inside another comes behind it: done first, its calls are inside, too
        _apply(tree, part)
    return ast.fix_missing_locations(tree)


def _apply(node: ast.AST, part: Timed) -> bool:
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        block = getattr(node, field, None)
        if not isinstance(block, list):
            continue
        inside = [
            index
            for index, statement in enumerate(block)
            if isinstance(statement, ast.stmt) and part.line <= statement.lineno <= part.end_line
        ]
        if inside:
            first, last = inside[0], inside[-1] + 1
            block[first:last] = (_many if part.many else _once)(block[first:last], part)
            return True
        if any(_apply(statement, part) for statement in block):
            return True
    return False


def _once(body: list[ast.stmt], _part: Timed) -> list[ast.stmt]:
    last = body[-1]
    begin = ast.copy_location(ast.Expr(_call("begin_timing")), body[0])
    if not isinstance(last, ast.Expr):
        return [begin, *body, ast.copy_location(ast.Expr(_call("end_timing")), last)]
    # The value of the last expression is shown behind the times.
    both = ast.Tuple([last.value, _call("end_timing")], ast.Load())
    last.value = ast.copy_location(ast.Subscript(both, ast.Constant(0), ast.Load()), last.value)
    return [begin, *body]


def _many(body: list[ast.stmt], part: Timed) -> list[ast.stmt]:
    none = ast.arguments([], [], None, [], [], None, [])
    function = ast.FunctionDef(_FUNCTION, none, body, [], None, None, type_params=[])  # type: ignore[call-arg,unused-ignore]
    numbers: list[ast.expr] = [ast.Constant(part.loops), ast.Constant(part.repeat)]
    call = _call("time_often", ast.Name(_FUNCTION, ast.Load()), *numbers)
    gone = ast.Delete([ast.Name(_FUNCTION, ast.Del())])
    made: list[ast.stmt] = [function, ast.Expr(call), gone]
    return [ast.copy_location(statement, body[0]) for statement in made]


def _call(method: str, *arguments: ast.expr) -> ast.Call:
    shell = ast.Call(ast.Name("get_ipython", ast.Load()), [], [])
    return ast.Call(ast.Attribute(shell, method, ast.Load()), list(arguments), [])


class Stopwatch:
    """What a timed part calls on the shell."""

    _began: list[tuple[tuple[float, float], float]]

    def begin_timing(self) -> None:
        self._began = [*getattr(self, "_began", [])[-9:], (clock2(), time.time())]

    def end_timing(self) -> None:
        wall, cpu = time.time(), clock2()
        (user, system), began = self._began.pop()
        user, system = cpu[0] - user, cpu[1] - system
        cpu_times = (_format_time(user), _format_time(system), _format_time(user + system))
        sys.stdout.write("CPU times: user {}, sys: {}, total: {}\n".format(*cpu_times))
        sys.stdout.write(f"Wall time: {_format_time(wall - began)}\n")

    def time_often(self, body: Callable[[], Any], loops: int, repeat: int) -> None:
        timer, repeat = timeit.Timer(body), repeat or _REPEATS
        if not loops:
            loops = next(
                number
                for number in (10**power for power in range(10))
                if timer.timeit(number) >= _ENOUGH_SECONDS or number == 10**9
            )
        runs = timer.repeat(repeat, loops)
        best, worst = min(runs) / loops, max(runs) / loops
        if worst > 4 * best > 0 and worst > 1e-6:
            sys.stdout.write(
                f"The slowest run took {worst / best:0.2f} times longer than the fastest. "
                "This could mean that an intermediate result is being cached.\n"
            )
        sys.stdout.write(f"{TimeitResult(loops, repeat, best, worst, runs, 0.0, 3)}\n")
