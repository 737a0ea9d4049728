"""How much of other people's code is accepted: notebooks and problems from the folder `CAPKERNEL_CORPUS`.

A cell counts when it runs on stock ipykernel and needs no ambient authority or reflection (the rule: corpus.py). Every
such cell is judged in process, in each profile, with the names of all earlier cells bound ("by itself"); then the
notebooks run through real kernels, in which a refused cell costs those that read its names ("cascade"), and their
outputs are compared with stock's. The last line is one JSON object with the keys of docs/performance.md.

Options: `--check-only` judges and runs no kernel of ours; `--sample N` takes N notebooks; `--notebooks PATH...` reads
others; `--no-stock` counts all cells that need nothing, run or not.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from cell_runs import CELL_SECONDS, Kernel, Outcome, same_outputs, stock_outcomes
from corpus import HOW_TO_FILL, Notebook, bound_names, needs, notebooks, problems, read_names, read_notebook
from mypy import build as _first  # noqa: F401  (must be the first mypy module: the others import each other in a circle)

from capkernel.bridge.launch import kernel_argv
from capkernel.checker.cache import build_cache
from capkernel.checker.captures import CaptureSession
from capkernel.checker.engine import CellBlocked, Engine
from capkernel.checker.profiles import PROFILES
from capkernel.checker.protocol import Accepted
from capkernel.checker.scan import GONE, NEW, scan
from capkernel.checker.session import CheckerSession, parse
from capkernel.checker.subset import check_subset
from capkernel.diagnostics import Diagnostic
from capkernel.kernel.cell_text import CellRefused, CellTexts, help_wanted

Place = tuple[str, int]


@dataclass
class Judged:
    """The verdicts of one profile: what was refused, by cell, and the diagnostics."""

    refused: dict[Place, tuple[Diagnostic, ...]] = field(default_factory=dict)


class Judge:
    """One profile's checker. A cell that it refuses leaves its names all the same."""

    def __init__(self, profile: str) -> None:
        self._profile = PROFILES[profile]
        self._engine = Engine(build_cache(print), self._profile)
        self._texts = CellTexts()

    def notebook(self, notebook: Notebook, judged: Judged, count: int) -> None:
        engine = self._engine
        engine.table.clear()
        engine.globals_set.clear()
        engine._imports = frozenset()
        captures = CaptureSession()
        session = CheckerSession(engine, self._profile, check_subset, captures)
        for number, raw in enumerate(notebook.cells[:count], 1):
            try:
                text = self._texts.checked_text(raw, number)
            except CellRefused as refused:
                judged.refused[notebook.name, number] = (refused.diagnostic,)
                continue
            if help_wanted(text) is not None:
                continue
            verdict = session.check(number, text)
            if isinstance(verdict, Accepted):
                bound, deleted = _effects(text)
                session.commit(number, bound | verdict.names.keys() - deleted, deleted)
                continue
            judged.refused[notebook.name, number] = verdict.diagnostics
            self._bind_all_the_same(captures, number, text)

    def _bind_all_the_same(self, captures: CaptureSession, number: int, text: str) -> None:
        module = parse(number, text)
        if isinstance(module, Diagnostic):
            return
        try:
            checked = self._engine.check(number, text, module)
        except (CellBlocked, RecursionError):
            return
        verdict = captures.check(checked.typed)
        bound, deleted = _effects(text)
        bound |= checked.names.keys() - deleted
        self._engine.commit(checked, sorted(bound), sorted(deleted))
        captures.commit(verdict.facts, bound, deleted)


def _effects(text: str) -> tuple[frozenset[str], frozenset[str]]:
    names = scan(ast.parse(text))
    bound = frozenset(name for name, states in names.end.items() if states & NEW)
    return bound, frozenset(name for name, states in names.end.items() if states == GONE)


def eligible(notebook: Notebook, stock: Sequence[Outcome] | None) -> tuple[list[int], Counter[str]]:
    """The numbers of the cells that count, and why others do not."""
    tainted: set[str] = set()
    found, why = [], Counter[str]()
    for number, text in enumerate(notebook.cells, 1):
        need = needs(text)
        outcome = stock[number - 1] if stock is not None and number <= len(stock) else None
        if stock is not None and outcome is None:
            why["not reached"] += 1
        elif outcome is not None and not outcome.ok:
            why["fails on stock"] += 1
        elif need:
            why["needs authority or reflection"] += 1
            tainted |= bound_names(text)
        elif read_names(text) & tainted:
            why["reads a name of such a cell"] += 1
            tainted |= bound_names(text)
        else:
            found.append(number)
            tainted -= bound_names(text)
    return found, why


def run_all(
    books: Iterable[Notebook], counted: dict[str, list[int]], endless: dict[str, set[int]], profile: str
) -> dict[Place, Outcome]:
    """Every cell through real kernels of ours, one per notebook, without healing anything."""
    found: dict[Place, Outcome] = {}
    for book in books:
        last = max(counted[book.name], default=0)
        with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as elsewhere:
            policy = Path(elsewhere) / "policy.toml"
            policy.write_text(f'profile = "{profile}"\n[files]\nroots = ["{directory}"]\n', "utf-8")
            kernel = Kernel(kernel_argv(policy=policy), directory)
            try:
                for number, text in enumerate(book.cells[:last], 1):
                    if number in endless[book.name]:
                        found[book.name, number] = Outcome(ok=False, error="not tried: too slow on stock")
                    else:
                        found[book.name, number] = kernel.outcome(kernel.send(text), 2 * CELL_SECONDS)
            finally:
                kernel.close()
        print(f"  {book.name}: {sum(found[book.name, n].ok for n in range(1, last + 1))} of {last} ran", flush=True)
    return found


def show_refusals(profile: str, judged: Judged, places: set[Place], texts: dict[Place, str]) -> None:
    by_code: dict[str, list[tuple[Place, Diagnostic]]] = defaultdict(list)
    for place, diagnostics in judged.refused.items():
        if place in places:
            for diagnostic in {d.code: d for d in reversed(diagnostics)}.values():
                by_code[diagnostic.code].append((place, diagnostic))
    print(f"\nrefused in {profile}, by code:")
    for code, found in sorted(by_code.items(), key=lambda entry: -len(entry[1])):
        print(f"  {code}: {len(found)} cells")
        for (name, number), diagnostic in found[: 400 if profile != "strict" else 3]:
            lines = texts[name, number].splitlines()
            line = lines[diagnostic.span.line - 1] if diagnostic.span.line <= len(lines) else ""
            print(f"    {name} [{number}] {diagnostic.message}   | {line.strip()[:90]}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int)
    parser.add_argument("--check-only", action="store_true")
    parser.add_argument("--no-stock", action="store_true")
    parser.add_argument("--notebooks", nargs="+", type=Path)
    parser.add_argument("--profiles", nargs="+", default=["standard", "relaxed", "strict"])
    arguments = parser.parse_args()
    folder = os.environ.get("CAPKERNEL_CORPUS", "")
    if not folder and not arguments.notebooks:
        raise SystemExit(HOW_TO_FILL)
    root = Path(folder or ".").resolve()
    books = [read_notebook(path) for path in arguments.notebooks] if arguments.notebooks else notebooks(root)
    if arguments.sample:
        books = random.Random(4).sample(books, min(arguments.sample, len(books)))
    cache = root / ".cache" if folder else Path(tempfile.mkdtemp())

    stock: dict[str, list[Outcome] | None] = {}
    for book in books:
        stock[book.name] = None if arguments.no_stock else stock_outcomes(book, cache)
    counted: dict[str, list[int]] = {}
    left_out: Counter[str] = Counter()
    for book in books:
        counted[book.name], why = eligible(book, stock[book.name])
        left_out += why
    places = {(name, number) for name, numbers in counted.items() for number in numbers}
    print(f"{len(books)} notebooks, {len(places)} cells count; left out: {dict(left_out)}")
    texts = {(book.name, number): text for book in books for number, text in enumerate(book.cells, 1)}

    result: dict[str, float] = {"cells": len(places)}
    tasks = [] if arguments.notebooks else problems(root)
    for profile in arguments.profiles:
        judge, judged, solved = Judge(profile), Judged(), 0
        for book in books:
            judge.notebook(book, judged, max(counted[book.name], default=0))
        lost = places & judged.refused.keys()
        result[profile] = 1 - len(lost) / max(len(places), 1)
        show_refusals(profile, judged, places, texts)
        for task in tasks:
            before = len(judged.refused)
            judge.notebook(task, judged, len(task.cells))
            solved += len(judged.refused) == before
        if profile == "strict":
            continue
        if tasks:
            known = result.get("humaneval", float(len(tasks)))
            result["humaneval"] = min(known, solved)
        if not arguments.check_only:
            measure_runs(profile, books, stock, counted, judged, result)
    for name, value in result.items():
        print(f"{name:22} {value:10.4f}")
    print(json.dumps({name: round(value, 4) for name, value in result.items()}))


def measure_runs(
    profile: str,
    books: Sequence[Notebook],
    stock: dict[str, list[Outcome] | None],
    counted: dict[str, list[int]],
    judged: Judged,
    result: dict[str, float],
) -> None:
    """`cascade_PROFILE`: cells accepted by themselves that did not run; `same_output`: of those that did."""
    print(f"\nreal kernels, {profile}:")
    endless = {
        name: {number for number, outcome in enumerate(outcomes or [], 1) if outcome.error == "Timeout"}
        for name, outcomes in stock.items()
    }
    ran = run_all(books, counted, endless, profile)
    lost, same, compared = [], 0, 0
    for name, numbers in counted.items():
        outcomes = stock[name]
        for number in numbers:
            place, outcome = (name, number), ran[name, number]
            if place in judged.refused:
                continue
            if not outcome.ok:
                lost.append(place)
                print(f"    lost: {name} [{number}] {outcome.error} {outcome.codes} {outcome.message[:160]!r}")
            elif outcomes is not None and outcomes[number - 1].stable:
                compared += 1
                if same_outputs(outcome.outputs, outcomes[number - 1].outputs):
                    same += 1
                else:
                    print(
                        f"    other output: {name} [{number}] {outcome.outputs} / {outcomes[number - 1].outputs}"[:400]
                    )
    total = sum(len(numbers) for numbers in counted.values())
    result[f"cascade_{profile}"] = len(lost) / max(total, 1)
    share = same / max(compared, 1)
    result["same_output"] = min(result.get("same_output", 1.0), share)


if __name__ == "__main__":
    main()
