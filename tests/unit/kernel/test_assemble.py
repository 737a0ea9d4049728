"""What an assembly takes from the policy and from its launcher."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from capkernel.kernel.assemble import Assembly
from capkernel.kernel.memory_root import MemoryRoot
from capkernel.wire.plan import Plan, ScopeSite, Span
from capkernel.wire.worker import Call, Invoke, OpenScope


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


def test_files_in_memory_are_the_only_ones_and_gone_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, runtime, policy = tmp_path / "project", tmp_path / "run", tmp_path / "policy.toml"
    project.mkdir()
    runtime.mkdir()
    (project / "x.txt").write_text("on the disk")
    policy.write_text("[files]\nmemory = true\n")
    assembly = Assembly.read(base=str(project), runtime=str(runtime), policy=str(policy), profile=None)
    root = MemoryRoot.make()
    monkeypatch.setattr(MemoryRoot, "make", lambda: root)

    async def use() -> None:
        broker = assembly.parts().broker
        broker.open_cell(1, Plan(scopes=(ScopeSite("file_system", None, 1, Span(1, 0, 1, 1)),)))

        async def ask(effect: OpenScope | Invoke, blob: bytes = b"") -> Any:
            answer, content = await broker.call(Call(1, effect), blob)
            assert answer.error is None, answer.error
            return answer.value, content

        (scope, _) = await ask(OpenScope("file_system", "."))
        ((entry, _), _) = await ask(Invoke(scope, "access", "x.txt"))
        assert await ask(Invoke(entry, "exists")) == (False, b"")
        await ask(Invoke(entry, "write"), b"in memory")
        assert (await ask(Invoke(entry, "read_bytes")))[1] == b"in memory"
        assert (root.path / "x.txt").read_bytes() == b"in memory"
        refused, _ = await broker.call(Call(1, OpenScope("file_system", str(project))), b"")
        assert refused.error is not None
        await broker.close()
        assert not root.path.parent.exists()

    asyncio.run(use())
    assert (project / "x.txt").read_text() == "on the disk"
    assert {path.name for path in project.iterdir()} == {"x.txt"}
