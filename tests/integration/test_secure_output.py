"""The person's secure output in real sessions: what cells show of secrets is there in clear, and nowhere else."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from live_kernel import live_kernel

from capkernel.cli import main

CANARY = "canary-6b1f0a77"


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the secure output goes: outside of the project."""
    folder = tmp_path_factory.mktemp("person")
    folder.chmod(0o700)
    return folder / "secrets.txt"


@pytest.fixture
def policy(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("policy") / "policy.toml"
    file.write_text(f"[output]\nsecure_file = {json.dumps(str(place))}\n")
    return file


@pytest.fixture
def roots(project: Path, policy: Path) -> Path:
    """The policy, with the project as its root."""
    (project / ".env").write_text(f"TOKEN={CANARY}")
    policy.write_text(policy.read_text() + f"[files]\nroots = [{json.dumps(str(project))}]\n")
    return policy


READ = "with request_file_system('.') as fs:\n    s = fs.read_classified('.env')\n"


def entries(place: Path, count: int, seconds: float = 60) -> list[str]:
    """The entries of the file, once there are so many."""
    end = time.monotonic() + seconds
    while True:
        found = place.read_text().split("\n== ")[1:] if place.exists() else []
        if len(found) >= count and found[-1].endswith("\n"):
            assert len(found) == count, found
            return found
        assert time.monotonic() < end, found
        time.sleep(0.05)


def audit_lines() -> list[dict[str, Any]]:
    audits = Path(os.environ["XDG_STATE_HOME"]) / "capkernel" / "audit"
    return [json.loads(line) for file in audits.glob("*.jsonl") for line in file.read_text().splitlines()]


def test_what_is_shown_is_there_in_clear(project: Path, place: Path, roots: Path) -> None:
    with live_kernel(project, policy=roots) as kernel:
        ran = [
            kernel.run(READ + "print(s)"),
            kernel.run("display(s)"),
            kernel.run("s"),
            kernel.run("print('a', [s.map(len)], f'{s.map(str.upper)}')"),
            kernel.run("bad = s.map(lambda t: t[999])\nprint(bad)\nprint(classify(b'\\x1b[2J', label='mine'))"),
            kernel.run("t = s.map(str.title)"),  # not shown, so not there
        ]
        assert all(one.ok for one in ran)
        found = entries(place, 7)
    everything = "".join(one.everything for one in ran)
    assert CANARY not in everything
    assert str(place) not in everything
    assert ran[0].stdout == "Classified[str](***)\n"
    assert [CANARY in one for one in found] == [True, True, True, False, False, False, False]
    assert found[0].splitlines()[1] == f"| TOKEN={CANARY}"
    for number, one in zip((1, 2, 3, 4, 4, 5, 5), found, strict=True):
        assert f" | cell {number} | from " in one.splitlines()[0]
    assert CANARY.upper() in found[3]  # an f-string is made before `print` is called
    assert f"| {len('TOKEN=' + CANARY)}\n" in found[4]
    assert "| IndexError in cell 5, line 1" in found[5]
    assert "label (the cell's own word) 'mine'" in found[6]
    assert "1b 5b 32 4a" in found[6]
    assert "\x1b" not in place.read_text()
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    mirrors = [line for line in audit_lines() if line["what"] == "classified.mirror"]
    assert [(line["decision"], line["cell"]) for line in mirrors] == [("allowed", n) for n in (1, 2, 3, 4, 4, 5, 5)]
    assert CANARY not in json.dumps(audit_lines())


def test_the_last_cell_of_a_session_is_not_cut_off(project: Path, place: Path, roots: Path) -> None:
    with live_kernel(project, policy=roots) as kernel:
        assert kernel.run(READ + "for n in range(30):\n    print(s)").ok
    assert len(entries(place, 30, 0)) == 30  # all there when the session is over


def test_a_cell_shows_at_most_so_many(project: Path, place: Path, roots: Path) -> None:
    with live_kernel(project, policy=roots) as kernel:
        assert kernel.run(READ + "print([s] * 300)").ok
        entries(place, 200)
        assert kernel.run("print(s)").ok
        entries(place, 201)
    said = [line for line in audit_lines() if line["what"] == "classified.mirror" and line["decision"] == "denied"]
    assert len(said) == 1


def as_link(place: Path) -> None:
    place.with_name("target").touch(0o600)
    place.symlink_to("target")


def as_pipe(place: Path) -> None:
    os.mkfifo(place, 0o600)


def as_directory(place: Path) -> None:
    place.mkdir()


def as_readable(place: Path) -> None:
    place.touch()
    place.chmod(0o644)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (as_link, "it is a symbolic link"), (as_pipe, "not a regular file"), (as_directory, "not a regular file"),
        (as_readable, "its mode is 0644"),
    ],
)  # fmt: skip
def test_a_file_that_must_not_be_used(
    project: Path, place: Path, roots: Path, make: Callable[[Path], None], why: str
) -> None:
    make(place)
    with live_kernel(project, policy=roots) as kernel:
        first = kernel.run(READ + "print(s)")
        assert first.ok
        assert why in first.everything
        second = kernel.run("print(s)")
        assert second.ok
        assert "secure output" not in second.everything  # told once
    if place.is_file():
        assert place.read_text() == ""


def test_a_file_that_changes_meanwhile_takes_nothing_more(project: Path, place: Path, roots: Path) -> None:
    with live_kernel(project, policy=roots) as kernel:
        assert kernel.run(READ + "print(s)").ok
        entries(place, 1)
        place.chmod(0o644)
        told = [kernel.run("print(s)").everything for _ in range(3)]
        kernel.run("1")
        assert sum("the secure output (output.secure_file) takes nothing: its mode is 0644" in one for one in told) == 1
        place.chmod(0o600)
        assert kernel.run("print(s)").ok
        entries(place, 2)
        place.unlink()
        told = [kernel.run("print(s)").everything for _ in range(3)]
        assert sum("it was removed" in one for one in told) == 1
        assert not place.exists()


def test_a_repository_names_no_secure_output(
    project: Path, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:  # fmt: skip
    """The same text, first trusted (it does what it says), then not."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    monkeypatch.delenv("CAPKERNEL_POLICY", raising=False)
    (project / ".env").write_text(f"TOKEN={CANARY}")
    file = project / "capkernel.toml"
    file.write_text(f"[output]\nsecure_file = {json.dumps(str(place))}\n")
    assert main(["policy", "trust", str(file)]) == 0
    assert "grants output.secure_file" in capsys.readouterr().out
    with live_kernel(project) as kernel:
        assert kernel.run(READ + "print(s)").ok
        entries(place, 1)
    assert main(["policy", "untrust", str(file)]) == 0
    with live_kernel(project) as kernel:
        ran = kernel.run(READ + "print(s)")
        assert ran.ok
        assert "output.secure_file ignored" in ran.everything
        assert str(place) not in ran.everything
    assert len(entries(place, 1)) == 1
    # One inside of the repository: nothing even for a trusted file.
    file.write_text('[output]\nsecure_file = "data/out.txt"\n')
    assert main(["policy", "trust", str(file)]) == 0
    assert "nothing will go there" in capsys.readouterr().out
    with live_kernel(project) as kernel:
        ran = kernel.run(READ + "print(s)")
        assert ran.ok
        assert "it lies where cells may ask for files" in ran.everything
    assert not (project / "data" / "out.txt").exists()


def test_no_grant_reaches_it(project: Path, place: Path, roots: Path) -> None:
    """A hard link in the project, made while the session runs, is the file under a name that cells may ask for."""
    actions = [
        "print(fs.access({0!r}).read())", "fs.access({0!r}).write('x')", "fs.access({0!r}).append('x')",
        "fs.write_classified({0!r}, classify('x'))", "print(fs.read_classified({0!r}))",
    ]  # fmt: skip
    with live_kernel(project, policy=roots) as kernel:
        assert kernel.run(READ + "print(s)").ok
        entries(place, 1)
        before = place.read_text()
        names = ["data/second.txt", "secrets/second.txt"]
        for name in names:
            os.link(place, project / name)
            assert CANARY in (project / name).read_text()  # anybody else can
        for name in names:
            for action in actions:
                ran = kernel.run(f"with request_file_system('.') as fs:\n    {action.format(name)}")
                assert ran.reply.get("ename") == "CapabilityDenied", (name, action, ran.everything)
                assert CANARY not in ran.everything
        refused = kernel.run(f"with request_file_system({str(place.parent)!r}) as fs:\n    pass")
        assert refused.reply.get("ename") == "CapabilityDenied"
    assert before == place.read_text()


def test_the_vault_dies_and_comes_back(project: Path, place: Path, roots: Path) -> None:
    with live_kernel(project, policy=roots) as kernel:
        assert kernel.run(READ + "print(s)").ok
        entries(place, 1)
        kernel.process("capkernel.vault.keeper_main").kill()
        end = time.monotonic() + 60
        while "the vault ended" not in kernel.run("print(s)").everything:  # it takes a moment to die
            assert time.monotonic() < end
        again = kernel.run(READ + "print(s)")
        assert again.ok, again.everything
        end = time.monotonic() + 60
        while place.read_text().count(CANARY) < 2:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_a_captured_value_of_another_type_says_so_to_the_person_only(project: Path, place: Path, roots: Path) -> None:
    """`json.loads` gives `Any`, so the checker believes that `n` is an int; the value is compared at the call."""
    cell = (
        READ + "import json\ndef number(text: str) -> int:\n    return json.loads(text)\n"
        "n = number({0!r})\nprint(s.map(lambda t: t * n))"
    )  # fmt: skip
    with live_kernel(project, policy=roots) as kernel:
        fine = kernel.run(cell.format("2"))
        wrong = kernel.run(cell.format('"two"'))
        assert fine.ok, fine.everything
        assert wrong.ok
        assert fine.stdout == wrong.stdout == "Classified[str](***)\n"
        one, two = entries(place, 2)
    assert one.count(CANARY) == 2
    assert "| a captured value: `n` is not int\n" in two
    assert "failed: there is no value" in two
