"""A cell reaches for the audit and the records: to read, to forge, to cut them off. And no secret is ever in them.

Each way first works on a plain file, or outside of the worker.
"""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from live_kernel import live_kernel
from unchecked import checker_off_kernel

from capkernel.broker.audit import verify

ACTIONS = ("read()", "read_bytes()", "write('')", "append('{}')", "exists")


@pytest.fixture
def state(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory inside of a root of the policy: the worst place for it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    return project / "state" / "capkernel"


def policy_of(project: Path, *, keep: bool) -> Path:
    policy = project / "policy.toml"
    policy.write_text(f'[files]\nroots = ["."]\n[records]\nkeep = {"true" if keep else "false"}\n')
    return policy


def test_no_grant_reaches_them(project: Path, state: Path) -> None:
    with live_kernel(project, policy=policy_of(project, keep=True)) as kernel:
        assert kernel.run("x = 1").ok
        assert kernel.run("x").ok  # the record of the first is on the disk, or will be: wait for it
        audit = next((state / "audit").glob("*.jsonl"))
        record = _first(state / "records")
        (project / "plain.txt").write_text("plain")
        for action in ACTIONS:
            done = kernel.run(f"with request_file_system('.') as fs:\n    print(fs.access('plain.txt').{action})")
            assert done.ok, done.everything
            for place in (audit, record, state / "records" / "new.py"):
                name = str(place.relative_to(project))
                ran = kernel.run(f"with request_file_system('.') as fs:\n    print(fs.access({name!r}).{action})")
                assert ran.reply.get("ename") == "CapabilityDenied", (action, name, ran.everything)
        for place in (state / "audit", state / "records", record.parent):
            name = str(place.relative_to(project))
            ran = kernel.run(f"with request_file_system('.') as fs:\n    print(fs.access({name!r}).children)")
            assert ran.reply.get("ename") == "CapabilityDenied", ran.everything
            assert kernel.run(f"with request_file_system({name!r}) as fs:\n    print(1)").reply["status"] == "error"
    assert not (state / "records" / "new.py").exists()
    found = verify(audit)
    assert (found.broken, found.end) == (None, "ended")


REACH = """
import os
for name in {places!r}:
    for way, flags in (("read", os.O_RDONLY), ("cut", os.O_WRONLY | os.O_TRUNC), ("append", os.O_WRONLY | os.O_APPEND)):
        try:
            os.close(os.open(name, flags))
            print(way, "REACHED")
        except Exception as problem:
            print(way, "stopped", type(problem).__name__)
"""


def test_the_worker_reaches_none_of_them_with_the_checker_off(
    project: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with checker_off_kernel(project) as kernel:
        assert kernel.run("x = 1").ok
        audit = next((state / "audit").glob("*.jsonl"))
        copy = project / "copy.jsonl"
        copy.write_text("copy")
        program = REACH.format(places=[str(copy)])
        outside = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30).stdout
        assert outside.count("REACHED") == 3
        inside = kernel.run(REACH.format(places=[str(audit), str(copy)]))
        assert "REACHED" not in inside.stdout
        assert inside.stdout.count("stopped") == 6, inside.everything
    assert verify(audit).broken is None


def test_no_secret_is_in_them(project: Path, state: Path) -> None:
    canary = "canary" + secrets.token_hex(16)
    (project / "secrets" / "canary.txt").write_text(canary)
    key = "ghp_" + secrets.token_urlsafe(24).replace("-", "a").replace("_", "b")
    with live_kernel(project, policy=policy_of(project, keep=True)) as kernel:
        for code in (
            "with request_file_system('.') as fs:\n    s = fs.read_classified('secrets/canary.txt')",
            "n = s.map(lambda t: t.upper()).map(lambda t: int(t[:3]))",  # fails, with the secret in its message
            "with request_file_system('.') as fs:\n    fs.write_classified('secrets/copy.txt', s)",
            "print(s, n)\ns",
            "print('visible words')",
            f"print({key!r})\npassword = 'hunter2hunter2'",
            "{'password': password}['no']",
        ):
            kernel.run(code)
        assert kernel.run("open('.env')").codes == ["ambient-authority"]
    kept = b"".join(path.read_bytes() for path in sorted(state.rglob("*.*")))
    for spelled in (canary, canary.upper(), canary[::-1], base64.b64encode(canary.encode()).decode(), key, "hunter2"):
        assert spelled.encode() not in kept
    # The search would have found it, and the cells are there:
    assert b"print('visible words')" in kept
    assert b"Classified[str](***)" in kept
    results = sorted((state / "records").rglob("*.result"))
    assert len(results) == 8
    assert [path.read_text().split("\n")[0] for path in results] == ["status: success"] * 6 + ["status: failure"] * 2
    assert "ambient-authority" in results[-1].read_text()
    (audit,) = (state / "audit").glob("*.jsonl")
    said = [json.loads(line) for line in audit.read_text().splitlines()]
    assert {entry["session"] for entry in said} == {audit.stem} == {results[0].parent.name}
    assert [entry["reason"] for entry in said if entry["what"] == "cell" and entry["decision"] == "denied"] == [
        "ambient-authority"
    ]


def test_without_a_word_of_the_policy_nothing_is_recorded(project: Path, state: Path) -> None:
    (project / "capkernel.toml").write_text("[records]\nkeep = true\n")  # found, not trusted
    with live_kernel(project) as kernel:
        assert kernel.run("x = 1").ok
    assert not (state / "records").exists()


def test_records_that_cannot_be_written_keep_the_session_from_starting(project: Path, state: Path) -> None:
    state.mkdir(parents=True)
    (state / "records").write_text("in the way")
    with pytest.raises(RuntimeError), live_kernel(project, policy=policy_of(project, keep=True)):
        pass


def _first(records: Path) -> Path:
    import time

    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = sorted(records.rglob("*.py"))
        if found:
            return found[0]
        time.sleep(0.05)
    raise TimeoutError("no record was written")
