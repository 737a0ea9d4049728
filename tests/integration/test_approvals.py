"""Questions to the person through a real kernel: who can answer, what is seen meanwhile, and what stands afterwards."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_kernel import LiveKernel, live_kernel
from person import allow, answering, release, types

POLICY = """
[approvals]
ask = ["files.write", "files.overwrite_classified"]
[secrets.FROM_ENV]
env = "TEST_FROM_ENV"
[secrets.NOT_SET]
env = "TEST_NOT_SET"
"""
WAITS = "capkernel: waiting for your decision in `capkernel view` or `capkernel approve`: "


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LiveKernel, Path, str]]:
    """One kernel for all tests here, its project, and what the environment's secret is."""
    project = tmp_path_factory.mktemp("project")
    (project / "secrets").mkdir()
    policy = tmp_path_factory.mktemp("policy") / "policy.toml"
    policy.write_text(POLICY + f'[files]\nroots = ["{project}"]\n')
    canary = "canary" + uuid.uuid4().hex
    (project / "secrets" / "old.txt").write_text(canary)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("run")))
        patched.setenv("TEST_FROM_ENV", canary)
        with live_kernel(project, policy=policy) as kernel:
            yield kernel, project, canary


def test_a_write_waits_for_the_person(world: tuple[LiveKernel, Path, str]) -> None:
    kernel, project, _ = world
    with answering(allow) as asked:
        ran = kernel.run('with request_file_system(".") as fs:\n    fs.access("x.csv").write("a,b")')
    assert ran.ok
    assert (project / "x.csv").read_text() == "a,b"
    assert dict(asked[0].facts)["path"] == "x.csv"
    streams = [m["content"]["text"] for m in ran.messages if m["msg_type"] == "stream"]
    assert streams == [f"{WAITS}files.write x.csv\n"]


def test_secrets(world: tuple[LiveKernel, Path, str]) -> None:
    kernel, _, canary = world
    with answering(types("päss")):
        ran = kernel.run('key = request_secret("TYPED")\nkey')
    assert ran.ok, ran.reply
    print(ran.everything)
    ran = kernel.run('env = request_secret("FROM_ENV")\nenv')
    assert ran.ok, ran.reply
    with answering(release, release) as asked:
        ran = kernel.run('print(request_declassify(env.map(len), "a"), request_declassify(key, "b"))')
    assert f"{len(canary)} päss" in ran.stdout
    print(asked)
