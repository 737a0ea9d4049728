"""What an assembly takes from the policy and from its launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from capkernel.kernel.assemble import Assembly


@pytest.mark.parametrize(
    ("asked", "holds", "told"),
    [
        ("strict", "strict", False),
        ("standard", "standard", False),
        ("relaxed", "standard", True),
        (None, "standard", False),
    ],
)
def test_a_launchers_profile_is_stricter_or_said_not_to_count(
    tmp_path: Path, asked: str | None, holds: str, told: bool
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('profile = "standard"\n')
    made = Assembly.read(base=str(tmp_path), runtime=str(tmp_path / "run"), policy=str(policy), profile=asked)
    assert made.policy.profile == holds
    said = [line for line in made.settings().notices if "--profile relaxed is wider" in line]
    assert bool(said) is told
