"""`capkernel policy`: what each command prints, writes and returns."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from capkernel.cli import main
from capkernel.policy import trust


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, the working directory; configuration and home elsewhere."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CAPKERNEL_POLICY", raising=False)
    (tmp_path / "home").mkdir()
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def call(capsys):
    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["policy", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def shown(call, *arguments: str) -> dict:
    code, out, _ = call("show", "--json", *arguments)
    assert code == 0
    return json.loads(out)


def test_init_trust_show_change_untrust(place, call):
    code, out, _ = call("init")
    assert code == 0
    assert "policy trust" in out
    assert call("lint")[0] == 0
    code, _, err = call("init")
    assert (code, "not overwritten" in err) == (2, True)

    file = place / "capkernel.toml"
    file.write_text('profile = "relaxed"\n')
    assert shown(call)["entries"]["profile"] == {"value": "standard", "from": "default"}
    code, out, _ = call("trust", "capkernel.toml")
    assert code == 0
    assert 'grants profile = "relaxed"' in out
    assert "type errors are not refused" in out
    found = shown(call)
    assert found["entries"]["profile"] == {"value": "relaxed", "from": "capkernel.toml:1 (trusted)"}
    assert found["source"] == str(file)
    assert found["notices"] == []

    file.write_text('profile = "relaxed" \n')
    found = shown(call)
    assert found["entries"]["profile"]["value"] == "standard"
    assert "has changed" in found["notices"][0]
    assert call("trust", "capkernel.toml")[0] == 0
    assert call("untrust", "capkernel.toml")[0] == 0
    assert call("untrust", "capkernel.toml")[0] == 2
    assert shown(call)["entries"]["profile"]["value"] == "standard"


@pytest.mark.parametrize("name", ["capkernel.toml", "capkernel.json"])
def test_init_writes_over_nothing_not_even_a_link(place, call, name):
    (place / name).symlink_to("elsewhere")
    assert call("init")[0] == 2
    assert os.listdir(place) == [name]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda file: file.write_text("profle = 1"), "did you mean 'profile'"),
        (lambda file: file.symlink_to("/etc/hostname"), "is a link"),
        (lambda file: os.mkfifo(file), "regular file"),
        (lambda file: file.write_text("#" * 70_000), "at most 65536"),
        (lambda file: None, "No such file"),
    ],
)
def test_what_cannot_be_found_later_cannot_be_trusted(place, call, make, words):
    make(place / "capkernel.toml")
    code, _, err = call("trust", "capkernel.toml")
    assert code == 2
    assert words in err
    assert trust.read_store(trust.directory_ambient()).entries == ()


def test_other_names_are_not_looked_for_so_they_cannot_be_trusted(place, call):
    (place / "mine.toml").write_text("")
    code, _, err = call("trust", "mine.toml")
    assert (code, "capkernel.toml" in err) == (2, True)


def test_show_a_named_policy_and_a_wrong_one(place, call, monkeypatch):
    (place / "mine.toml").write_text('[sandbox]\nminimum = "none"\n')
    (place / "wrong.toml").write_text("[files]\nrots = []\n")
    assert shown(call, "--policy", "mine.toml")["entries"]["sandbox.minimum"]["value"] == "none"
    code, _, err = call("show", "--policy", "wrong.toml")
    assert code == 1
    assert "wrong.toml:2" in err
    assert "did you mean 'roots'" in err
    monkeypatch.setenv("CAPKERNEL_POLICY", str(place / "mine.toml"))
    assert shown(call)["entries"]["sandbox.minimum"]["value"] == "none"
    monkeypatch.setenv("CAPKERNEL_POLICY", "mine.toml")
    assert call("show")[0] == 2


def test_show_of_another_directory_as_text(place, call):
    (place / "sub").mkdir()
    (place / "capkernel.toml").write_text('profile = "strict"\n[files]\nroots = ["/etc", "sub"]\n')
    code, out, _ = call("show", "sub")
    assert code == 0
    assert '"strict"  (narrowed by ../capkernel.toml:1 (not trusted))' in out
    assert "note: ../capkernel.toml is not trusted" in out
    assert call("show", "missing")[0] == 2


def test_lint_lists_all_mistakes_with_their_lines(place, call):
    text = "profle = 'x'\n[files]\nroots = 3\nclassified = ['ok', '../x']\nunprotect = ['.gti']\n"
    text += "[limits]\ncell_seconds = -1\n"
    (place / "capkernel.toml").write_text(text)
    code, out, _ = call("lint", "--json")
    assert code == 1
    errors = json.loads(out)["errors"]
    assert sorted(error["line"] for error in errors) == [1, 3, 4, 5, 7]
    assert any("did you mean 'profile'" in error["problem"] for error in errors)
    assert any("did you mean '.git'" in error["problem"] for error in errors)
    code, out, _ = call("lint")
    assert code == 1
    assert f"error: {place}/capkernel.toml:1: unknown key" in out


def test_lint_warns_of_what_is_wide(place, call):
    text = (
        'profile = "relaxed"\n[files]\nroots = ["~/", "/usr", "..", "missing", "."]\nclassified = ["!.env"]\n'
        'classified_write = true\nunprotect = [".git"]\n[sandbox]\nminimum = "none"\n'
    )
    (place / "capkernel.toml").write_text(text)
    code, out, _ = call("lint", "--json")
    assert code == 0
    said = json.loads(out)
    assert said["errors"] == []
    warnings = [(warning["line"], warning["key"], warning["problem"]) for warning in said["warnings"]]
    for line, key, words in (
        (3, "files.roots", "is the home directory"),
        (3, "files.roots", "holds the home directory"),
        (3, "files.roots", "top-level directory"),
        (3, "files.roots", "not a directory now"),
        (4, "files.classified", "takes nothing back"),
        (5, "files.classified_write", "may replace"),
        (6, "files.unprotect", "hooks"),
        (8, "sandbox.minimum", "without isolation"),
        (1, "profile", "type errors"),
    ):
        assert any(at == line and of == key and words in problem for at, of, problem in warnings), (line, key, words)
    assert len(warnings) == 9


def git(place: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(place), *arguments], check=True, capture_output=True, timeout=30)


def test_lint_tells_of_secrets_in_git(place, call, monkeypatch):
    git(place, "init", "-q")
    (place / "secrets").mkdir()
    (place / "secrets" / "old").write_text("x")
    (place / "data.csv").write_text("x")
    (place / "open.csv").write_text("x")
    git(place, "add", ".")
    (place / ".env").write_text("not tracked")
    (place / "capkernel.toml").write_text('[files]\nclassified = ["data.csv"]\n')
    out = call("lint")[1]
    assert "'secrets/old' is classified and tracked by git" in out
    assert "'data.csv' is classified and tracked by git" in out
    assert ".env" not in out
    assert "open.csv" not in out
    monkeypatch.setenv("PATH", "/nowhere")
    code, out, _ = call("lint")
    assert code == 0
    assert "git is not installed" in out


def test_lint_runs_nothing_of_the_repository(place, call):
    """A repository can come with a configuration that names programs."""
    git(place, "init", "-q")
    (place / "a.txt").write_text("x")
    git(place, "add", ".")
    mark = place / "mark"
    hook = place / "program"
    hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
    hook.chmod(0o755)
    git(place, "config", "core.fsmonitor", str(hook))
    subprocess.run(["git", "-C", str(place), "status"], capture_output=True, timeout=30, check=False)
    assert mark.exists()  # it does run
    mark.unlink()
    (place / "capkernel.toml").write_text("")
    assert call("lint")[0] == 0
    assert not mark.exists()


def test_without_git_nothing_is_said_of_it(place, call):
    (place / "capkernel.toml").write_text("")
    assert "git" not in call("lint")[1].replace(str(place), "")


def test_lint_without_a_file_and_with_one_that_is_none(place, call):
    assert call("lint")[0] == 2
    os.mkfifo(place / "capkernel.toml")
    code, out, _ = call("lint")
    assert (code, "regular file" in out) == (1, True)


def test_explain(place, call):
    code, out, _ = call("explain")
    assert code == 0
    assert "files.roots" in out
    code, out, _ = call("explain", "files.unprotect")
    assert code == 0
    assert "never an untrusted one" in out
    assert "hooks and configuration" in out
    code, _, err = call("explain", "roots")
    assert (code, "did you mean files.roots" in err) == (2, True)
    found = json.loads(call("explain", "limits.cell_seconds", "--json")[1])
    assert found["default"] == 60.0
    assert "lowers it" in found["who"]
    assert set(json.loads(call("explain", "--json")[1])) >= {"profile", "sandbox.minimum"}


def test_a_file_cannot_write_to_the_terminal(place, call):
    (place / "capkernel.toml").write_text('[files]\nclassified = ["\\u001b[2Jx", "\\u202ey"]\n"\\u001b[1m" = 1\n')
    for arguments in (("lint",), ("show",)):
        _, out, err = call(*arguments)
        assert "\x1b" not in out + err
        assert "\u202e" not in out + err
