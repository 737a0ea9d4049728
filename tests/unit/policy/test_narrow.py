"""An untrusted file makes a policy narrower or leaves it as it is."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from capkernel.policy import PathRules, Policy, default_policy, load_policy
from capkernel.policy.load import Parsed, Source, parse
from capkernel.policy.narrow import MAX_PATTERNS, narrow


def asks(directory: Path, text: str, name: str = "capkernel.toml") -> Parsed:
    return parse(Source(directory / name, text.encode()))


def policy(directory: Path, text: str) -> Policy:
    file = directory / "own.toml"
    file.write_text(text)
    return load_policy(file)


@pytest.mark.parametrize(
    ("text", "key", "narrower"),
    [
        ('profile = "strict"', "profile", lambda p: p.profile == "strict"),
        ('[sandbox]\nminimum = "full"', "sandbox.minimum", lambda p: p.sandbox.minimum == "full"),
        ("[files]\nclassified_write = false", "files.classified_write", lambda p: p.files.classified_write is False),
        (
            "[files]\nhide_classified_names = true",
            "files.hide_classified_names",
            lambda p: p.files.hide_classified_names,
        ),
        ('[files]\nroots = ["data"]', "files.roots", lambda p: p.files.roots == ("./data",)),
        ("[files]\nroots = []", "files.roots", lambda p: p.files.roots == ()),
        (
            '[files]\nclassified = ["*.csv"]',
            "files.classified",
            lambda p: [one.patterns for one in p.added] == [("*.csv",)],
        ),
        ("[limits]\ncell_seconds = 5", "limits.cell_seconds", lambda p: p.limits.cell_seconds == 5),
        ("[limits]\nchecker_seconds = 5", "limits.checker_seconds", lambda p: p.limits.checker_seconds == 5),
        ("[limits]\nmap_seconds = 5", "limits.map_seconds", lambda p: p.limits.map_seconds == 5),
        ("[limits]\noutput_bytes = 5", "limits.output_bytes", lambda p: p.limits.output_bytes == 5),
        ("[limits]\napproval_seconds = 5", "limits.approval_seconds", lambda p: p.limits.approval_seconds == 5),
        ('[approvals]\nask = ["files.write"]', "approvals.ask", lambda p: p.approvals.ask == ("files.write",)),
        ("[approvals]\ndeclassify = false", "approvals.declassify", lambda p: not p.approvals.declassify),
        ("[viewer]\npairing = true", "viewer.pairing", lambda p: p.viewer.pairing),
        ('[viewer]\nhigh = ["prod/"]', "viewer.high", lambda p: p.viewer.pairing and not p.viewer.high),
    ],
)
def test_what_narrows_applies(tmp_path, text, key, narrower):
    before = default_policy(tmp_path)
    assert not narrower(before)
    after = narrow(before, asks(tmp_path, text))
    assert narrower(after.policy)
    assert (after.applied, after.refused) == ((key,), ())


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('profile = "relaxed"', "profile"),
        ('[sandbox]\nminimum = "none"', "sandbox.minimum"),
        ('[sandbox]\nminimum = "partial"', "sandbox.minimum"),
        ("[files]\nclassified_write = true", "files.classified_write"),
        ("[files]\nmemory = true", "files.memory"),
        ('[files]\nroots = ["/etc"]', "files.roots"),
        ('[files]\nroots = [".."]', "files.roots"),
        ('[files]\nroots = [".", "~/"]', "files.roots"),
        ('[files]\nunprotect = [".git"]', "files.unprotect"),
        ('[files]\nclassified = ["!.env"]', "files.classified"),
        ("[limits]\ncell_seconds = 6000", "limits.cell_seconds"),
        ("[limits]\nchecker_seconds = 6000", "limits.checker_seconds"),
        ("[limits]\nmap_seconds = 6000", "limits.map_seconds"),
        ("[limits]\noutput_bytes = 100000000", "limits.output_bytes"),
        ("[limits]\napproval_seconds = 6000", "limits.approval_seconds"),
        ('[approvals]\nask = ["files.overwrite_classified"]', "approvals.ask"),
        ('[secrets.KEY]\nenv = "KEY"', "secrets"),
        ("[output]\nactive = true", "output.active"),
    ],
)
def test_what_widens_does_not(tmp_path, text, key):
    before = default_policy(tmp_path)
    file = tmp_path / "own.toml"
    file.write_text(text)
    assert load_policy(file) != replace(before, source=file)  # named by the operator it would have an effect
    after = narrow(before, asks(tmp_path, text))
    if key == "files.roots" and '"/etc"' in text:
        assert after.policy.files.roots == ()  # nothing in common: narrower still, never wider
        return
    assert after.policy == before
    assert (after.applied, after.refused) == ((), (key,))


def test_what_asks_goes_on_asking_and_no_release_stays_none(tmp_path):
    before = policy(tmp_path, '[approvals]\nask = ["files.delete"]\ndeclassify = false\n')
    after = narrow(before, asks(tmp_path, '[approvals]\nask = ["files.write"]\ndeclassify = true\n'))
    assert after.policy.approvals.ask == ("files.delete", "files.write")
    assert not after.policy.approvals.declassify
    assert (after.applied, after.refused) == (("approvals.ask",), ("approvals.declassify",))


def test_hidden_names_stay_hidden(tmp_path):
    before = policy(tmp_path, "[files]\nhide_classified_names = true\nmemory = true\n")
    after = narrow(before, asks(tmp_path, "[files]\nhide_classified_names = false\nmemory = false\n"))
    assert after.policy == before
    assert after.refused == ("files.hide_classified_names", "files.memory")


def test_pairing_stays(tmp_path):
    before = policy(tmp_path, '[viewer]\npairing = true\nhigh = ["prod/"]\n')
    after = narrow(before, asks(tmp_path, "[viewer]\npairing = false\nhigh = []\n"))
    assert (after.policy, after.applied, after.refused) == (before, (), ("viewer.pairing",))
    after = narrow(before, asks(tmp_path, '[viewer]\npairing = true\nhigh = ["x"]\n'))
    assert (after.policy, after.applied, after.refused) == (before, (), ())


def test_active_outputs_can_only_be_switched_off(tmp_path):
    before = policy(tmp_path, "[output]\nactive = true\n")
    assert before.output.active
    off = narrow(before, asks(tmp_path, "[output]\nactive = false\n"))
    assert (off.policy.output.active, off.applied) == (False, ("output.active",))
    same = narrow(before, asks(tmp_path, "[output]\nactive = true\n"))
    assert (same.policy, same.applied, same.refused) == (before, (), ())


def test_what_says_the_same_is_neither(tmp_path):
    before = default_policy(tmp_path)
    text = 'profile = "standard"\n[files]\nroots = ["."]\nclassified = []\nclassified_write = "new"\nunprotect = []\n'
    text += "hide_classified_names = false\nmemory = false\n"
    text += "[viewer]\npairing = false\nhigh = []\n[output]\nactive = false\n"
    text += '[limits]\ncell_seconds = 60\n[sandbox]\nminimum = "standard"\n'
    text += "[approvals]\nask = []\ndeclassify = true\n"
    after = narrow(before, asks(tmp_path, text))
    assert (after.policy, after.applied, after.refused) == (before, (), ())


def test_patterns_start_at_their_own_file_and_take_nothing_back(tmp_path):
    inner = tmp_path / "project" / "sub"
    inner.mkdir(parents=True)
    before = policy(inner, '[files]\nclassified = ["own.csv"]\n')
    asked = asks(inner.parent, '[files]\nclassified = ["sub/x.csv", "*.dat", "!own.csv", "!.env", "!open.dat"]\n')
    rules, old = PathRules(narrow(before, asked).policy), PathRules(before)
    assert rules.is_classified(f"{inner}/x.csv")
    assert not old.is_classified(f"{inner}/x.csv")
    assert rules.is_classified(f"{inner}/y.dat")
    assert not rules.is_classified(f"{inner}/open.dat")  # a negation inside its own list
    assert rules.is_classified(f"{inner}/own.csv")
    assert rules.is_classified(f"{inner}/.env")
    assert not rules.is_classified(f"{inner}/other.txt")


def test_roots_are_the_intersection(tmp_path):
    for name in ("a/deep", "b", "c"):
        (tmp_path / name).mkdir(parents=True)
    before = policy(tmp_path, '[files]\nroots = ["a", "b/"]\n')
    after = narrow(before, asks(tmp_path, '[files]\nroots = ["a/deep", ".", "c", "/etc"]\n')).policy
    assert {os.path.realpath(root) for root in after.root_paths()} == {str(tmp_path / "a"), str(tmp_path / "b")}
    after = narrow(before, asks(tmp_path, '[files]\nroots = ["a/deep", "c"]\n')).policy
    assert [os.path.realpath(root) for root in after.root_paths()] == [str(tmp_path / "a" / "deep")]


def test_a_link_or_a_directory_named_like_the_home_is_no_way_out(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    (project / "~" / "x").mkdir(parents=True)
    (tmp_path / "home" / "x").mkdir(parents=True)
    (project / "link").symlink_to(tmp_path / "home")
    before = default_policy(project)
    assert policy(project, '[files]\nroots = ["link"]\n').root_paths()[0].resolve() == tmp_path / "home"
    for text in ('roots = ["link"]', 'roots = ["./~/x"]', 'roots = ["~/x"]', 'roots = ["link/x", "./~"]'):
        after = narrow(before, asks(project, f"[files]\n{text}\n")).policy
        for root in after.root_paths():
            assert root.resolve().is_relative_to(project / "~"), text


def test_many_or_costly_patterns_are_dropped(tmp_path):
    patterns = ["a*b*c*d*e*f", "x" * 300, *[f"p{number}" for number in range(MAX_PATTERNS)]]
    asked = asks(tmp_path, json.dumps({"files": {"classified": patterns}}), "capkernel.json")
    after = narrow(default_policy(tmp_path), asked)
    assert len(after.policy.added[0].patterns) == MAX_PATTERNS - 2
    assert after.dropped == 4
    kept = narrow(default_policy(tmp_path), asked, bounded=False)  # the person's own
    assert kept.policy.added[0].patterns == tuple(patterns)
    assert kept.dropped == 0


# ── for every policy and every file ──────────────────────────────────────────────────────────────────────────────────

ROOTS = ["a", "a/b", "b", ".", "c/../a", "/etc", "..", "link", "~/", "./~"]
PATTERNS = ["*.csv", "a/", "!*.csv", "!.env", "/b/x", "~/x", "**/y"]
entries = st.fixed_dictionaries(
    {},
    optional={
        "profile": st.sampled_from(["strict", "standard", "relaxed"]),
        "files": st.fixed_dictionaries(
            {},
            optional={
                "roots": st.lists(st.sampled_from(ROOTS), max_size=3),
                "classified": st.lists(st.sampled_from(PATTERNS), max_size=3),
                "classified_write": st.sampled_from(["new", True, False]),
                "unprotect": st.lists(st.sampled_from([".git", "*.ipynb"]), max_size=2),
            },
        ),
        "limits": st.fixed_dictionaries(
            {},
            optional={
                name: st.integers(1, 100_000)
                for name in ("cell_seconds", "checker_seconds", "map_seconds", "output_bytes")
            },
        ),
        "approvals": st.fixed_dictionaries(
            {},
            optional={
                "ask": st.lists(st.sampled_from(["files.write", "files.overwrite_classified"]), max_size=2),
                "declassify": st.booleans(),
            },
        ),
        "sandbox": st.fixed_dictionaries({}, optional={"minimum": st.sampled_from(["full", "standard", "none"])}),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(own=entries, asked=entries)
def test_narrowing_never_allows_more(tmp_path_factory, own, asked):
    project = tmp_path_factory.mktemp("p")
    for name in ("a/b", "b", "~"):
        (project / name).mkdir(parents=True)
    (project / "link").symlink_to("/usr")
    parsed = parse(Source(project / "own.json", json.dumps(own).encode()))
    from capkernel.policy.load import policy_from

    if parsed.problems:  # a limit of too many seconds
        return
    before = policy_from(parsed)
    after = narrow(before, asks(project, json.dumps(asked), "capkernel.json")).policy
    order = ["relaxed", "standard", "strict"]
    assert order.index(after.profile) >= order.index(before.profile)
    levels = ["none", "partial", "standard", "full"]
    assert levels.index(after.sandbox.minimum) >= levels.index(before.sandbox.minimum)
    modes = [True, "new", False]
    assert modes.index(after.files.classified_write) >= modes.index(before.files.classified_write)
    for name in before.limits.__struct_fields__:
        assert getattr(after.limits, name) <= getattr(before.limits, name)
    assert set(after.files.unprotect) <= set(before.files.unprotect)
    assert set(before.approvals.ask) <= set(after.approvals.ask) <= set(before.approvals.ask) | {"files.write"}
    assert before.approvals.declassify or not after.approvals.declassify
    tops = [os.path.realpath(root) for root in before.root_paths()]
    for root in after.root_paths():
        here = os.path.realpath(root)
        assert any(here == top or here.startswith(top.rstrip("/") + "/") for top in tops)
    old, new = PathRules(before), PathRules(after)
    for path in ("a/x.csv", "x.csv", "b/x", ".env", "y", "a/b/y", "~/x"):
        full = str(project / path)
        if old.is_classified(full):
            assert new.is_classified(full), path
    assert msgspec.structs.asdict(before.files)["classified"] == after.files.classified
