"""A program that only applies what refusals offer repairs the golden refusals."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field

import golden
import pytest
from fixer import apply_offered, repair

from capkernel.checker.protocol import Accepted, Rejected
from capkernel.checker.repairs.source import unparsed
from capkernel.diagnostics import CODES, Diagnostic, Edit, Fix, Span, apply_edits, for_client

pytestmark = pytest.mark.timeout(600)  # a thousand sessions, on a busy machine

LEAST_OFFERED, LEAST_REPAIRED = 0.70, 0.95


@dataclass
class Score:
    refusals: int = 0
    offered: int = 0
    left_out: int = 0  # of these: the cell without what was refused
    cells: int = 0
    attempted: int = 0  # cells of which every refusal offers something
    repaired: int = 0
    at_once: int = 0  # of these: after one round
    safe: int = 0
    unoffered: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)


class Asked:
    """A session, asked without leaving anything behind."""

    def __init__(self, run: golden.Run, number: int) -> None:
        self._run, self._number = run, number

    def __call__(self, text: str) -> tuple[Diagnostic, ...]:
        verdict = self._run.session.check(self._number, text)
        if isinstance(verdict, Accepted):
            self._run.session.discard(self._number)
            return ()
        assert isinstance(verdict, Rejected)
        return verdict.diagnostics


@pytest.fixture(scope="module")
def score() -> Score:
    found = Score()
    for path, section in golden.all_sections():
        run = golden.Run(golden.new_session(section.profile))
        for block in section.cells:
            run.cell(block)
            errors = [one for one in run.last if one.severity == "error"]
            if errors:
                count(found, f"{path.name}: {section.name}", run, block.text + "\n", errors)
    return found


def count(found: Score, where: str, run: golden.Run, text: str, errors: list[Diagnostic]) -> None:
    offers = [one.fix for one in errors if one.fix is not None and one.fix.edits]
    found.refusals += len(errors)
    found.offered += len(offers)
    found.left_out += sum(fix.text.startswith("leave") for fix in offers)
    found.safe += sum(fix.applicability == "safe" for fix in offers)
    found.unoffered.update(one.code for one in errors if one.fix is None or not one.fix.edits)
    found.cells += 1
    if len(offers) < len(errors):
        return
    found.attempted += 1
    after, accepted, rounds = repair(text, Asked(run, run.number))
    found.repaired += accepted
    found.at_once += accepted and rounds == 1
    if not accepted:
        found.failed.append(f"{where}\n{after}")


def test_refusals_offer_repairs_and_the_repairs_work(score: Score, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(
            f"\nrepairs: {score.offered} of {score.refusals} golden refusals offer one "
            f"({score.offered / score.refusals:.0%}; {score.safe} safe, {score.left_out} leave the refused thing out); "
            f"of {score.attempted} cells whose refusals all offer one, {score.repaired} are accepted after it "
            f"({score.repaired / score.attempted:.1%}; {score.at_once} at once)"
        )
    assert score.offered >= LEAST_OFFERED * score.refusals, score.unoffered
    assert score.repaired >= LEAST_REPAIRED * score.attempted, score.failed
    assert score.attempted >= LEAST_OFFERED * score.cells


def test_what_is_offered_as_safe_was_checked() -> None:
    """Applied alone, each safe repair leaves strictly less to refuse."""
    checked = 0
    for _, section in golden.all_sections():
        run = golden.Run(golden.new_session(section.profile))
        for block in section.cells:
            run.cell(block)
            errors = [one for one in run.last if one.severity == "error"]
            for one in errors:
                if one.fix is not None and one.fix.applicability == "safe" and len(errors) == 1:
                    left = Asked(run, run.number)(apply_offered(block.text + "\n", [one]))
                    assert not left, (section.name, one.fix)
                    checked += 1
    assert checked >= 60


def test_a_repair_is_not_offered_when_the_check_says_no() -> None:
    session = golden.new_session("standard")
    verdict = session.check(1, "import pickle\npickle.dump({}, nowhere)\n")
    assert isinstance(verdict, Rejected)
    fix = verdict.diagnostics[0].fix
    assert fix is None or not fix.edits  # `json.dump({}, nowhere)` would be refused as well


def test_offering_leaves_nothing_behind() -> None:
    session = golden.new_session("standard")
    assert isinstance(session.check(1, "kept = 1\nopen('a')\n"), Rejected)
    verdict = session.check(2, "kept\n")
    assert isinstance(verdict, Rejected)
    assert verdict.diagnostics[0].code == "unbound-name"
    assert "cell 1 would bind it and was refused" in verdict.diagnostics[0].help


def test_a_failure_of_the_type_checker_at_a_repair_is_not_one_of_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    session = golden.new_session("standard")
    (before,) = session.check(1, "open('a')\n").diagnostics  # type: ignore[union-attr]

    def fails(*_: object) -> None:
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(session, "_against", fails)
    verdict = session.check(1, "open('a')\n")
    assert isinstance(verdict, Rejected)
    assert verdict.parting  # the process ends: what mypy left behind is not to be trusted
    assert [(one.code, one.message) for one in verdict.diagnostics] == [(before.code, before.message)]


def test_edits_are_applied_from_any_order_and_never_overlap() -> None:
    first, second = Edit(Span(1, 0, 1, 1), "x"), Edit(Span(2, 0, 2, 0), "new\n")
    assert apply_edits("a = 1\nb = 2\n", [second, first]) == "x = 1\nnew\nb = 2\n"
    with pytest.raises(ValueError, match="overlap"):
        apply_edits("abc", [Edit(Span(1, 0, 1, 2), ""), Edit(Span(1, 1, 1, 3), "")])


def test_an_edit_of_a_line_that_was_transformed_is_one_of_the_clients_line() -> None:
    checked = "x = 1\nget_ipython().run_line_magic('matplotlib', 'qt')\n"
    raw = "x = 1\n%matplotlib qt\n"
    whole = Edit(Span(2, 0, 2, len(checked.splitlines()[1])), "%matplotlib inline")
    inside = Edit(Span(2, 14, 2, 20), "y")
    (kept,) = for_client([_with(whole)], raw, checked)
    assert kept.fix is not None
    assert apply_edits(raw, kept.fix.edits) == "x = 1\n%matplotlib inline\n"
    (dropped,) = for_client([_with(inside)], raw, checked)
    assert dropped.fix is not None
    assert (dropped.fix.applicability, dropped.fix.edits) == ("display", ())


def _with(edit: Edit) -> Diagnostic:
    return Diagnostic("unsafe-magic", "m", 1, Span(2, 0, 2, 1), fix=Fix("f", "safe", (edit,), "code"))


def test_every_code_that_can_be_repaired_offers_something() -> None:
    offering: set[str] = set()
    for _, section in golden.all_sections():
        run = golden.Run(golden.new_session(section.profile))
        for block in section.cells:
            run.cell(block)
            offering |= {one.code for one in run.last if one.fix is not None and one.fix.edits}
    assert set(CODES) - offering == {"unstable-text", "too-much-work", "checker-unavailable"}


def test_a_repair_quotes_as_people_do() -> None:
    written = "f('a', b'x', f'{n}', \"it's\", 'say \"no\"', '\\n')"
    assert unparsed(ast.parse(written)) == 'f("a", b"x", f"{n}", "it\'s", \'say "no"\', \'\\n\')'
