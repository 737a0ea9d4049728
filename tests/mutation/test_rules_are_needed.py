"""A pair counts only if removing its rule makes it fail. A sample; `make mutate` does all of it."""

from __future__ import annotations

import mutants
import pytest

pytestmark = pytest.mark.timeout(600)  # a thousand sessions, on a busy machine

SECTIONS_OF_A_RULE = 4


@pytest.fixture(scope="module")
def everything() -> list[tuple[str, mutants.golden.Section]]:
    return mutants.sections()


def test_every_rule_has_a_pair_that_fails_without_it(everything: list[tuple[str, mutants.golden.Section]]) -> None:
    with mutants.harness() as trace:
        found = mutants.rules(trace, everything)
        results = [mutants.kill(trace, rule, where[:SECTIONS_OF_A_RULE], everything) for rule, where in found.items()]
    assert len(results) >= 70
    # Where two rules say the same of the same place, a pair passes without either; another pair must need it.
    assert [one.rule for one in results if not one.killed] == []
    assert sum(one.killed for one in results) >= 0.97 * sum(one.pairs for one in results)


def test_the_harness_puts_everything_back(everything: list[tuple[str, mutants.golden.Section]]) -> None:
    with mutants.harness() as trace:
        found = mutants.rules(trace, everything[:20])
        mutants.kill(trace, next(iter(found)), next(iter(found.values())), everything)
    assert not mutants.golden.run_section(everything[0][1])
