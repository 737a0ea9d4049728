"""Which policy a session gets: named, trusted, narrowed or the defaults; and what is told about it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from capkernel.policy import PathRules, PolicyError, default_policy, resolve, trust
from capkernel.policy.load import Source
from capkernel.policy.resolve import MAX_TOLD, all_keys
from capkernel.policy.trust import TrustStore, read_store

WIDE = """\
profile = "relaxed"
[files]
roots = [".", "{outside}"]
classified_write = true
unprotect = [".git"]
[limits]
cell_seconds = 600
[sandbox]
minimum = "none"
"""


class Place:
    """A project with a directory for the notebook below it, a directory outside, and a trust store."""

    def __init__(self, tmp_path: Path) -> None:
        self.project, self.outside, self.config = tmp_path / "project", tmp_path / "outside", tmp_path / "config"
        self.notebook = self.project / "sub"
        for directory in (self.notebook, self.outside, self.config):
            directory.mkdir(parents=True)

    def write(self, text: str, directory: Path | None = None, name: str = "capkernel.toml") -> Path:
        file = (directory or self.notebook) / name
        file.write_text(text.replace("{outside}", str(self.outside)))
        return file

    def trust(self, file: Path) -> None:
        trust.trust(self.config / "capkernel", Source(file, file.read_bytes()))

    def found(self, named: Path | None = None):
        return resolve(self.notebook, named, lambda: read_store(self.config / "capkernel"))

    @property
    def default(self):
        return default_policy(self.notebook)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    return Place(tmp_path)


def test_without_a_file_the_defaults_hold_and_nothing_is_told(place):
    found = place.found()
    assert (found.policy, found.notices, found.files) == (place.default, (), ())
    assert set(found.origin.values()) == {"default"}
    assert set(found.origin) == set(all_keys())


def test_a_wide_file_grants_when_named_and_when_trusted_and_never_before(place):
    file = place.write(WIDE)
    named = place.found(file).policy
    assert named.sandbox.minimum == "none"
    assert str(place.outside) in named.files.roots
    assert (named.profile, named.files.unprotect, named.files.classified_write) == ("relaxed", (".git",), True)

    untrusted = place.found()
    assert untrusted.policy == place.default
    assert untrusted.files == (file,)
    [line] = untrusted.notices
    assert "is not trusted, so it grants nothing" in line
    assert "capkernel policy trust capkernel.toml" in line
    for key in ("profile", "files.roots", "files.unprotect", "files.classified_write", "limits.cell_seconds"):
        assert key in line
    assert "\n" not in line
    assert str(place.project) not in line
    assert "outside" not in line

    place.trust(file)
    trusted = place.found()
    assert (trusted.policy.files, trusted.policy.sandbox) == (named.files, named.sandbox)
    assert trusted.notices == ()
    assert trusted.origin["profile"] == "capkernel.toml:1 (trusted)"
    assert trusted.origin["limits.map_seconds"] == "default"

    file.write_bytes(file.read_bytes() + b"\n")  # one byte
    changed = place.found()
    assert changed.policy == place.default
    assert "has changed since it was trusted" in changed.notices[0]


def test_a_narrowing_file_holds_at_once(place):
    place.write('profile = "strict"\n[files]\nclassified = ["x.csv"]\n[sandbox]\nminimum = "full"\n')
    found = place.found()
    assert (found.policy.profile, found.policy.sandbox.minimum) == ("strict", "full")
    assert PathRules(found.policy).is_classified(str(place.notebook / "x.csv"))
    assert found.origin["profile"] == "narrowed by capkernel.toml:1 (not trusted)"
    assert "it narrows files.classified, profile, sandbox.minimum" in found.notices[0]


def test_an_untrusted_file_neither_hides_nor_replaces_a_trusted_one_above(place):
    above = place.write('profile = "strict"\n[files]\nclassified = ["x.csv"]\n', place.project)
    place.trust(above)
    assert place.found().policy.profile == "strict"
    place.write('[limits]\ncell_seconds = 5\n[files]\nclassified = ["!x.csv"]\n')
    found = place.found()
    assert found.policy.source == above
    assert found.policy.profile == "strict"
    assert found.policy.limits.cell_seconds == 5
    assert PathRules(found.policy).is_classified(str(place.project / "x.csv"))
    assert found.origin["profile"] == "../capkernel.toml:1 (trusted)"


def test_the_nearest_trusted_file_is_the_policy_and_ends_the_search(place):
    place.trust(place.write('profile = "strict"\n', place.project))
    place.trust(place.write("[limits]\ncell_seconds = 5\n"))
    found = place.found()
    assert found.policy.source == place.notebook / "capkernel.toml"
    assert found.policy.profile == "standard"
    assert found.notices == ()


def test_two_trusted_files_of_one_directory(place):
    place.trust(place.write("[limits]\ncell_seconds = 500\n"))
    place.trust(place.write('{"profile": "strict", "sandbox": {"minimum": "none"}}', name="capkernel.json"))
    found = place.found()
    assert (found.policy.limits.cell_seconds, found.policy.profile) == (500, "strict")
    assert found.policy.sandbox.minimum == "standard"
    assert "second trusted policy" in found.notices[0]


@pytest.mark.parametrize("then", ["changed", "broken", "gone", "a link"])
def test_what_a_trusted_file_narrowed_survives_a_change_of_it(place, then):
    """A pulled commit must not take the person's own patterns away."""
    text = 'profile = "strict"\n[files]\nroots = [".", "{outside}"]\nclassified = ["a*b*c*d*e*f.csv", "salaries.csv"]\n'
    file = place.write(text)
    place.trust(file)
    secret = str(place.notebook / "salaries.csv")
    assert PathRules(place.found().policy).is_classified(secret)
    if then == "changed":
        file.write_text("")
    elif then == "broken":
        file.write_text("[files")
    else:
        file.unlink()
        if then == "a link":
            file.symlink_to("/etc/hostname")
    assert not PathRules(default_policy(place.notebook)).is_classified(secret)
    found = place.found()
    assert PathRules(found.policy).is_classified(secret)
    assert PathRules(found.policy).is_classified(str(place.notebook / "abcdef.csv"))  # not bounded: it was trusted
    assert found.policy.profile == "strict"
    assert [os.path.realpath(root) for root in found.policy.root_paths()] == [str(place.notebook)]
    assert len(found.notices) == 1
    trust.untrust(place.config / "capkernel", file)
    assert not PathRules(place.found().policy).is_classified(secret)


BROKEN = {
    "no TOML": "[files",
    "unknown keys": "[network]\nhosts = ['*']\n[files]\nrots = ['/']\nroots = ['/']\n",
    "wrong types": "profile = 3\nfiles = 4\nlimits = []\n[sandbox]\nminimum = ['none']\n",
    "no UTF-8": "\udcff",
    "a number of many digits": f"[limits]\ncell_seconds = {'9' * 5000}\n",
    "deep": "x = " + "[" * 20_000,
    "large": "# " + "x" * 70_000,
    "no roots that are roots": "[files]\nroots = ['', '/', '\\u0000', '../../../../../../../..']\n",
    "an infinity": "[limits]\ncell_seconds = inf\noutput_bytes = -1\nmap_seconds = nan\n",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_a_broken_file_is_a_line_and_an_error_when_named(place, text):
    file = place.notebook / "capkernel.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    found = place.found()
    assert found.policy == place.default
    [line] = found.notices
    assert "not trusted" in line
    assert "hosts" not in line
    if len(text) < 70_000:  # a large one may be named
        with pytest.raises(PolicyError):
            place.found(file)


JSON_BROKEN = {
    "a number of many digits": '{"limits": {"cell_seconds": %s}}' % ("9" * 5000),
    "a long number": '{"limits": {"cell_seconds": %s}}' % ("9" * 400),
    "no text": '{"files": {"roots": ["\\ud800"], "classified": ["\\ud800"], "unprotect": ["\\ud800"]}}',
    "a key that is no text": '{"\\ud800": 1, "files": {"\\udfff": 2}}',
    "deep": '{"files": ' + '{"a":' * 5000,
    "twice": '{"profile": "strict", "profile": "relaxed"}',
    "a list": "[1]",
    "nothing": "",
}


@pytest.mark.parametrize("text", JSON_BROKEN.values(), ids=JSON_BROKEN.keys())
def test_broken_json_likewise(place, text):
    file = place.write(text, name="capkernel.json")
    found = place.found()
    assert found.policy == place.default
    found.notices[0].encode()
    with pytest.raises(PolicyError):
        place.found(file)


@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"k{number} = 1" for number in range(6000)),
        "[files]\nclassified = [" + "".join("\n''," for _ in range(15_000)) + "]",
        "[files]\nclassified = [" + "".join("\n'a*'," for _ in range(10_000)) + "]",
        "[files]\nclassified = [" + ",".join(["'" + "*a" * 120 + "'"] * 200) + "]",
        "[files]\nunprotect = [" + "".join(f"\n'{number}'," for number in range(6000)) + "]",
        "[files]\nroots = [" + "".join(f"\n'{number}'," for number in range(6000)) + "]",
        "[files]\nroots = [" + "".join("\n''," for _ in range(15_000)) + "]",
    ],
    ids=["keys", "no patterns", "patterns", "costly patterns", "unprotect", "roots", "no roots"],
)
@pytest.mark.timeout(30)  # without bounds each takes minutes
def test_a_file_made_to_be_slow_does_not_keep_a_session_from_starting(place, text):
    assert len(text) < 65_536
    place.write(text)
    found = place.found()
    PathRules(found.policy).is_classified(str(place.notebook / ("a" * 255)))
    assert len(found.notices) <= 2


def test_the_sound_entries_of_a_broken_file_still_narrow(place):
    place.write('profile = "strict"\nunknown = 1\n[files]\nclassified = ["x.csv", "[", "../y"]\nroots = 3\n')
    found = place.found()
    assert found.policy.profile == "strict"
    assert PathRules(found.policy).is_classified(str(place.notebook / "x.csv"))
    assert "it has 4 mistakes" in found.notices[0]


def test_a_trusted_file_that_is_wrong_is_an_error(place):
    place.trust(place.write("profile = 3\n"))
    with pytest.raises(PolicyError, match="profile: expected"):
        place.found()


def test_a_broken_store_trusts_nothing_and_says_so(place):
    file = place.write(WIDE)
    place.trust(file)
    (place.config / "capkernel" / "trust.json").chmod(0o644)
    found = place.found()
    assert found.policy == place.default
    assert "not yours alone" in found.notices[0]


def test_a_store_in_the_notebooks_reach_does_not_count(place):
    file = place.write(WIDE, place.project)
    place.trust(file)
    assert place.found().policy.sandbox.minimum == "none"
    inside = place.project / "config" / "capkernel"
    inside.parent.mkdir()
    (place.config / "capkernel").rename(inside)
    found = resolve(place.notebook, None, lambda: read_store(inside))
    assert found.policy == place.default


def test_something_unforeseen_is_a_line_too(place, monkeypatch):
    def broken(_source: object) -> object:
        raise ZeroDivisionError("text of the file")

    place.write(WIDE)
    monkeypatch.setattr(sys.modules["capkernel.policy.resolve"], "parse", broken)
    found = place.found()
    assert found.policy == place.default
    assert "ZeroDivisionError" in found.notices[0]
    assert "text of the file" not in found.notices[0]


def test_not_too_many_lines(place):
    deep = place.notebook
    for _ in range(MAX_TOLD + 3):
        place.write(WIDE, deep)
        deep = deep / "d"
        deep.mkdir()
    found = resolve(deep, None, lambda: TrustStore(place.config))
    assert len(found.notices) == MAX_TOLD + 1
    assert found.notices[-1].startswith("and 3 more")
    assert len(found.files) == MAX_TOLD + 3


def test_named_by_the_operator_nothing_else_is_looked_for(place):
    place.write('profile = "strict"\n')
    file = place.write("", place.outside, "mine.toml")
    found = place.found(file)
    assert (found.policy.profile, found.notices, found.files) == ("standard", (), (file,))
