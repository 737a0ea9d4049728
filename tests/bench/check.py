"""How long the checker takes for the next cell of a notebook, at 10, 100 and 1000 cells; peer: mypy on the whole text.

Times are CPU time of this process. The checker has rehearsed, as it does in a kernel while nobody waits, but for
`p50_10_cold_ms`: the first cells of a process of its own that had no moment for that. The last line is one JSON object
with the keys of the table in docs/performance.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from notebook_cells import REFUSED, Notebook

from capkernel.checker import cache
from capkernel.checker.engine import Engine
from capkernel.checker.profiles import STANDARD
from capkernel.checker.protocol import Accepted
from capkernel.checker.rehearsal import LIBRARIES, Rehearsal
from capkernel.checker.session import CheckerSession


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--no-peer", action="store_true", help="leave out mypy on the whole text (half a minute)")
    parser.add_argument("--cold", action="store_true", help="only the first ten cells, at once")
    parser.add_argument("--engine-only", action="store_true", help="without the safe subset and the capture checker")
    arguments = parser.parse_args()
    place = cache.build_cache(print)

    cells = Notebook().grow(arguments.cells)
    ready, session = timed(lambda: new_session(place, arguments.engine_only))
    if arguments.cold:
        print(p50([check(session, number, text) for number, text in enumerate(cells[:10])][2:]))
        return
    rehearsed, _none = timed(lambda: rehearse(session))
    print(f"ready in {ready:.2f} s, rehearsed in {rehearsed:.2f} s")
    before = resident_kb()
    times = [check(session, number, text) for number, text in enumerate(cells)]
    gc.collect()
    growth_kb = (resident_kb() - before) / len(cells)
    refused = refusals(session, len(cells))
    last = times[-100:]
    early = times[2:10] * 2
    result: dict[str, float] = {
        "p50_10_ms": p50(early),
        "p50_10_cold_ms": float(subprocess.check_output([sys.executable, __file__, "--cold"], text=True).split()[-1]),
        "p50_100_ms": p50(times[2:100]),
        "p50_ms": p50(last),
        "p95_ms": percentile(last, 0.95),
        "growth": p50(last) / p50(early),
        "refuse_p50_ms": p50(refused),
        "kb_per_cell": growth_kb,
        "ready_s": ready,
        "replay500_s": replay(place, cells[:500], arguments.engine_only),
    }
    if not arguments.no_peer:
        result["nbmypy_p50_ms"] = peer(cells[:500])
    for name, value in result.items():
        print(f"{name:16} {value:10.3f}")
    print(f"slowest {max(times):.1f} ms, all {sum(times) / 1000:.2f} s for {len(cells)} cells")
    print(json.dumps({name: round(value, 3) for name, value in result.items()}))


def new_session(place: Path, engine_only: bool) -> CheckerSession:
    engine = Engine(place, STANDARD)
    if engine_only:
        return CheckerSession(engine, STANDARD, lambda _module, _cell, _text: [], NoCaptures())
    from capkernel.checker.captures import CaptureSession
    from capkernel.checker.subset import check_subset

    return CheckerSession(engine, STANDARD, check_subset, CaptureSession())


def rehearse(session: CheckerSession) -> None:
    libraries = iter([*LIBRARIES, ""])
    rehearsal = Rehearsal(session, lambda: next(libraries))  # they are loaded
    while rehearsal.patience is not None:
        rehearsal.step()


def check(session: CheckerSession, number: int, text: str) -> float:
    """Milliseconds to judge and keep one cell that must be accepted."""
    gc.disable()
    start = time.thread_time()
    verdict = session.check(number, text)
    spent = (time.thread_time() - start) * 1000
    gc.enable()
    if not isinstance(verdict, Accepted):
        raise SystemExit(f"cell {number} was refused:\n{text}\n{verdict.diagnostics}")
    session.commit(number, frozenset(verdict.names), frozenset())
    return spent


def refusals(session: CheckerSession, first: int) -> list[float]:
    spent = []
    for turn in range(5):
        for index, text in enumerate(REFUSED):
            start = time.thread_time()
            verdict = session.check(first + turn * len(REFUSED) + index, text)
            spent.append((time.thread_time() - start) * 1000)
            if isinstance(verdict, Accepted):
                raise SystemExit(f"accepted, and should not be: {text}")
    return spent


def replay(place: Path, cells: Sequence[str], engine_only: bool) -> float:
    """Seconds until a new checker knows a session of this length again."""

    def run() -> None:
        session = new_session(place, engine_only)
        for number, text in enumerate(cells):
            check(session, number, text)

    return timed(run)[0]


def peer(cells: Sequence[str]) -> float:
    """Milliseconds of mypy.api for the whole text at 500 cells, with a warm cache: what nb-mypy does per cell."""
    from mypy import api

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "notebook.py"
        source.write_text("".join(cells), "utf-8")
        arguments = ["--cache-dir", str(Path(folder) / "cache"), "--allow-redefinition", str(source)]
        api.run(arguments)
        spent = []
        for turn in range(3):
            source.write_text("".join([*cells, f"turn_{turn} = 1\n"]), "utf-8")
            start = time.process_time()
            api.run(arguments)
            spent.append((time.process_time() - start) * 1000)
    return statistics.median(spent)


class NoCaptures:
    """Stands for the capture checker in `--engine-only`."""

    def check(self, _cell: object, /) -> NoVerdict:
        return NoVerdict()

    def commit(
        self, _facts: object, _bound: frozenset[str], _deleted: frozenset[str], /, *, raised: bool = False
    ) -> None:
        pass


class NoVerdict:
    def __init__(self) -> None:
        from capkernel.wire.plan import NOTHING

        self.diagnostics: list[object] = []
        self.plan = NOTHING
        self.facts = None


def timed(run: Callable[[], object]) -> tuple[float, object]:
    start = time.process_time()
    made = run()
    return time.process_time() - start, made


def resident_kb() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024


def p50(times: Sequence[float]) -> float:
    return statistics.median(times)


def percentile(times: Sequence[float], part: float) -> float:
    ordered = sorted(times)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


if __name__ == "__main__":
    main()
