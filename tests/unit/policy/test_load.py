"""Reading policy files: what they may say, and what is said about those that are wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from capkernel.policy import PolicyError, default_policy, load_policy


def write(directory: Path, text: str, name: str = "capkernel.toml") -> Path:
    file = directory / name
    file.write_text(text)
    return file


FULL = """\
profile = "strict"
[files]
roots = [".", "~/data", "/srv/shared"]
classified = ["salaries.csv", "!x"]
classified_write = true
unprotect = ["*.ipynb"]
[limits]
cell_seconds = 5
checker_seconds = 2.5
map_seconds = 1
output_bytes = 1000
[sandbox]
minimum = "none"
"""


def test_a_full_policy(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    policy = load_policy(write(tmp_path, FULL))
    assert policy.profile == "strict"
    assert policy.files.classified == ("salaries.csv", "!x")
    assert policy.files.classified_write is True
    assert policy.limits.cell_seconds == 5
    assert policy.limits.checker_seconds == 2.5
    assert policy.limits.output_bytes == 1000
    assert policy.sandbox.minimum == "none"
    assert policy.base_dir == tmp_path
    assert policy.source == tmp_path / "capkernel.toml"
    assert policy.root_paths() == (tmp_path, Path("/home/somebody/data"), Path("/srv/shared"))


@pytest.mark.parametrize(("text", "name"), [("", "p.toml"), ("{}", "p.json"), ('{"files": {}}', "p.json")])
def test_an_empty_policy_is_the_default(tmp_path, text, name):
    policy, default = load_policy(write(tmp_path, text, name)), default_policy(tmp_path)
    assert (policy.profile, policy.files, policy.limits, policy.sandbox, policy.records) == (
        default.profile,
        default.files,
        default.limits,
        default.sandbox,
        default.records,
    )
    assert policy.secure_file() is None
    assert policy.records.keep is False
    assert default.files.roots == (".",)
    assert default.files.classified_write == "new"
    assert default.sandbox.minimum == "standard"
    assert default.source is None


def test_json_says_the_same(tmp_path):
    import tomllib

    raw = tomllib.loads(FULL)
    toml, other = load_policy(write(tmp_path, FULL)), load_policy(write(tmp_path, json.dumps(raw), "p.json"))
    assert (other.profile, other.files, other.limits, other.sandbox) == (
        toml.profile,
        toml.files,
        toml.limits,
        toml.sandbox,
    )


def test_one_key_leaves_the_others_as_they_are(tmp_path):
    policy, default = load_policy(write(tmp_path, "[limits]\ncell_seconds = 5\n")), default_policy(tmp_path)
    assert policy.limits.cell_seconds == 5
    assert policy.limits.map_seconds == default.limits.map_seconds
    assert (policy.profile, policy.files, policy.sandbox) == (default.profile, default.files, default.sandbox)


@pytest.mark.parametrize(("said", "meant"), [("true", True), ("false", False), ('"new"', "new")])
def test_the_switch_for_classified_writes(tmp_path, said, meant):
    policy = load_policy(write(tmp_path, f"[files]\nclassified_write = {said}\n"))
    assert policy.files.classified_write == meant


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("profle = 'strict'", 1, "did you mean 'profile'"),
        ("\n[file]\nroots = ['.']", 2, "did you mean 'files'"),
        ("[files]\nroots = ['.']\nclasified = ['x']", 3, "in [files]; did you mean 'classified'"),
        ("[limits]\n\nroots = ['.']", 3, "belongs in [files]"),
        ("files.rots = ['.']", 1, "did you mean 'roots'"),
        ("[network]\nhosts = []", 1, "unknown key 'network'"),
        ("[limits]\ncell_seconds = '5'", 2, "limits.cell_seconds: expected `float`, got `str`"),
        ("[limits]\ncell_seconds = 0", 2, "limits.cell_seconds: expected"),
        ("[limits]\ncell_seconds = -5", 2, "limits.cell_seconds: expected"),
        ("[limits]\nmap_seconds = nan", 2, "limits.map_seconds: expected"),
        ("[limits]\nmap_seconds = inf", 2, "limits.map_seconds: expected"),
        ("[limits]\noutput_bytes = true", 2, "limits.output_bytes: expected `int`, got `bool`"),
        ("[files]\n# roots = 3\nroots = '.'", 3, "files.roots: expected `array`, got `str`"),
        ("[files]\nroots = [1]", 2, "files.roots: expected `str`, got `int`"),
        ("profile = 'paranoid'", 1, "strict, standard or relaxed"),
        ("[sandbox]\nminimum = 'some'", 2, "full, standard, partial or none"),
        ("[files]\nclassified_write = 'old'", 2, '"new", true or false'),
        ("files = 3", 1, "[files] is a table"),
        ("profile = 'strict'\nprofile = 'strict'", 2, "not TOML"),
        ("[files\n", 1, "not TOML"),
        ("[files]\nclassified = [\n  'a',\n  '',\n]", 4, "empty pattern"),
        ("[files]\nclassified = ['[x']", 2, "matches nothing"),
        ("[files]\nclassified = ['#x']", 2, "comment"),
        ("[files]\nclassified = ['../x']", 2, "climb"),
        ("[files]\nclassified = ['a//b']", 2, "matches nothing"),
        ("[files]\nclassified = ['!']", 2, "empty pattern"),
        ("[files]\nunprotect = ['.gti']", 2, "did you mean '.git'"),
        ("[approvals]\nask = ['files.wirte']", 2, "did you mean 'files.write'?"),
        ("[approvals]\nask = ['network.get']", 2, "known are files.open_scope"),
        ("[approvals]\nhost = true", 2, "unknown key 'host' in [approvals]"),
        ("[secrets.KEY]\nvalue = 'x'", 1, "secrets"),
        ("[secrets.KEY]", 1, "secrets"),
        ("[secrets.'a b']\nenv = 'X'", 1, "secrets"),
        ("[secrets.KEY]\nenv = 'a b'", 1, "secrets"),
        ("[files]\nroots = ['']", 2, "a root is the path of a directory"),
        ("[files]\nroots = ['/']", 2, "'/' is not a root"),
        ("[files]\nroots = ['../../../../../../../../..']", 2, "'/' is not a root"),
    ],
)
def test_mistakes_name_the_line(tmp_path, text, line, message):
    file = write(tmp_path, text)
    with pytest.raises(PolicyError) as caught:
        load_policy(file)
    assert message in caught.value.problem
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{file}:{line}: ")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{\n "profle": "strict"}', 2, "did you mean 'profile'"),
        ('{"files": {\n "roots": ["."],\n "clasified": []}}', 3, "did you mean 'classified'"),
        ('{"profile": "strict",\n}', 2, "not JSON"),
        ("[]", 1, "a policy is a JSON object"),
        ('{"files": {"roots": [], "roots": ["/etc"]}}', None, "stands twice"),
        ('{"files":\n{"roots": null}}', 2, "files.roots: expected `array`, got `null`"),
        ("[" * 100_000, None, "nested too deeply"),
    ],
)
def test_mistakes_in_json(tmp_path, text, line, message):
    with pytest.raises(PolicyError) as caught:
        load_policy(write(tmp_path, text, "p.json"))
    assert message in caught.value.problem
    assert caught.value.line == line


def test_files_that_are_no_policies(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "latin.toml").write_bytes(b"# ok\n# \xe9\n")
    (tmp_path / "big.toml").write_bytes(b"#" * 1_048_577)
    for name, message in (
        ("none.toml", "No such file"),
        ("pipe.toml", "regular file"),
        ("latin.toml", "not UTF-8"),
        ("big.toml", "at most"),
        (".", "cannot be read"),
    ):
        with pytest.raises(PolicyError) as caught:
            load_policy(tmp_path / name)
        assert message in caught.value.problem
    with pytest.raises(PolicyError, match="toml or"):
        load_policy(write(tmp_path, "", "policy.yaml"))


def test_the_home_directory_and_the_root_are_never_granted_by_default(tmp_path, monkeypatch):
    home = tmp_path / "home" / "me"
    (home / "project").mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    for base in (home, home.parent, tmp_path, Path("/"), link):
        policy = default_policy(base)
        assert policy.files.roots == ()
        assert "project directory" in policy.notice
    assert default_policy(home / "project").files.roots == (".",)
    assert load_policy(write(home, "")).files.roots == ()
    assert load_policy(write(home, "[files]\nroots=['.']")).files.roots == (".",)  # the operator's own word


def test_no_roots_at_all_says_so(tmp_path):
    assert "lists no roots" in load_policy(write(tmp_path, "[files]\nroots = []")).notice
