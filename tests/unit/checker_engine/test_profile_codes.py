"""docs/profiles.md says what every error code of the pinned mypy does in each profile; a cell per code shows it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import build as _first  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.errorcodes import error_codes
from mypy_codes import EXAMPLES, HEAD, NO_EXAMPLE

from capkernel.checker.mypy_plugin import CAPABILITY_FORGE
from capkernel.checker.protocol import Accepted

DOCUMENT = Path(__file__).parents[3] / "docs" / "profiles.md"
_ROW = re.compile(r"\| `([a-z-]+)` \| (\w+)(?: \\\*)? \| (\w+)(?: \\\*)? \| (\w+)(?: \\\*)? \| .+ \|")

DOCUMENTED = {
    found[1]: (found[2], found[3], found[4])
    for found in map(_ROW.fullmatch, DOCUMENT.read_text("utf-8").splitlines())
    if found is not None
}
CODES = sorted(set(error_codes) - {CAPABILITY_FORGE.code})


def test_every_code_is_listed() -> None:
    assert sorted(DOCUMENTED) == CODES
    assert {word for row in DOCUMENTED.values() for word in row} == {"refuses", "warns", "silent", "off"}


def test_every_code_has_an_example_or_a_reason() -> None:
    assert sorted([*EXAMPLES, *NO_EXAMPLE]) == CODES
    for code, reason in NO_EXAMPLE.items():
        assert (reason == "off") is (DOCUMENTED[code] == ("off", "off", "off")), code


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_documented_behaviour_is_the_real_one(strict, cells, relaxed, code: str) -> None:
    for profile, documented in zip((strict, cells, relaxed), DOCUMENTED[code], strict=True):
        verdict = profile.check(HEAD + EXAMPLES[code] + "\n")
        profile.session.discard(profile.number)
        if isinstance(verdict, Accepted):
            said = "warns" if code in [found.code for found in verdict.warnings] else "nothing"
        else:
            assert code in [found.code for found in verdict.diagnostics], verdict.diagnostics
            said = "refuses"
        assert said == ("nothing" if documented in ("silent", "off") else documented), (profile, code)
