"""A configuration of TACIT becomes a policy that is not wider, and says what it lost."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from capkernel.cli import main
from capkernel.commands.import_tacit import NotTacit, imported
from capkernel.policy import load_policy

FULL = {
    "recordPath": "./log",
    "quiet": True,
    "sessionEnabled": False,
    "safeMode": False,
    "executionTimeoutMs": 2500,
    "libraryJarPath": "tacit-library.jar",
    "libraryConfig": {
        "strictMode": True,
        "commandPermissions": ["git status"],
        "networkPermissions": ["*.example.org"],
        "allowedRoots": [".", "data"],
        "classifiedPaths": ["private", ".conf.{prod,test}", "config/*/keys", "!odd", "", "/"],
        "secureOutput": "./log/secure.log",
        "classifiedWrite": False,
        "llm": {"baseUrl": "http://localhost", "apiKey": "hunter2", "model": "m"},
        "clasifiedPaths": ["typo"],
    },
}


def command(tmp_path: Path, said: Any, *options: str) -> int:
    (tmp_path / "tacit.json").write_text(said if isinstance(said, str) else json.dumps(said))
    return main(["policy", "import-tacit", str(tmp_path / "tacit.json"), *options])


def test_a_full_configuration(tmp_path, capsys):
    assert command(tmp_path, FULL) == 0
    read = capsys.readouterr()
    assert tomllib.loads(read.out) == {
        "records": {"keep": True},
        "output": {"secure_file": "./log/secure.log"},
        "limits": {"cell_seconds": 2.5},
        "files": {
            "roots": [".", "data"],
            "classified": ["private", ".conf.prod", ".conf.test", "config/*/keys", "\\!odd"],
            "classified_write": False,
        },
    }
    lost = [line.split(": ")[1] for line in read.err.splitlines()]
    assert sorted(set(lost)) == [
        "libraryConfig.clasifiedPaths", "libraryConfig.classifiedPaths", "libraryConfig.commandPermissions",
        "libraryConfig.llm", "libraryConfig.networkPermissions", "libraryConfig.secureOutput",
        "libraryConfig.strictMode", "libraryJarPath", "quiet", "recordPath", "safeMode", "sessionEnabled",
    ]  # fmt: skip
    assert "hunter2" not in read.out + read.err
    for key in lost:
        assert f"#   {key}: " in read.out


def test_it_is_a_policy_that_can_be_used_and_never_overwrites(tmp_path, capsys):
    out = tmp_path / "capkernel.toml"
    assert command(tmp_path, FULL, "--out", str(out)) == 0
    policy = load_policy(out)
    assert policy.files.classified_write is False
    assert policy.records.keep
    assert policy.limits.cell_seconds == 2.5
    before = out.read_text()
    assert command(tmp_path, {}, "--out", str(out)) == 1
    assert out.read_text() == before


@pytest.mark.parametrize("said", ["", " ", "{}", '{"libraryConfig": {}}', '{"libraryConfig": null, "quiet": null}'])
def test_nothing_said_is_the_defaults(said):
    found = imported(said)
    assert (found.sections, found.lost) == ({}, [])


@pytest.mark.parametrize(
    "said",
    ["[1]", "{", "[" * 100_000, {"executionTimeoutMs": 0}, {"executionTimeoutMs": -1}, {"executionTimeoutMs": True},
     {"executionTimeoutMs": "5"}, {"libraryConfig": 1}, {"libraryConfig": {"allowedRoots": "."}},
     {"libraryConfig": {"classifiedPaths": [1]}}, {"libraryConfig": {"classifiedWrite": "yes"}}, {"safeMode": 1}],
)  # fmt: skip
def test_what_is_wrong_is_an_error_without_values(said, tmp_path, capsys):
    with pytest.raises(NotTacit):
        imported(said if isinstance(said, str) else json.dumps(said))
    assert command(tmp_path, said) == 2
    assert capsys.readouterr().out == ""


def test_the_whole_machine_is_no_root():
    found = imported(json.dumps({"libraryConfig": {"allowedRoots": ["/", "//", "", "a"]}}))
    assert found.sections["files"]["roots"] == ["a"]
    assert "no roots" in found.lost[0][1]


def test_a_long_timeout_is_cut_and_said():
    found = imported(json.dumps({"executionTimeoutMs": 10**12}))
    assert found.sections["limits"]["cell_seconds"] == 86_400
    assert found.lost


def test_many_braces_become_a_star():
    found = imported(json.dumps({"libraryConfig": {"classifiedPaths": ["x" + "{a,b}" * 12 + "y"]}}))
    assert found.sections["files"]["classified"] == ["x*y"]


def test_text_of_the_file_does_not_control_the_terminal(tmp_path, capsys):
    assert command(tmp_path, {"\x1b[2J\nrecords": 1, "libraryConfig": {"\nroots = 1\n": 2}}) == 0
    read = capsys.readouterr()
    assert "\x1b" not in read.out + read.err
    assert tomllib.loads(read.out) == {}
