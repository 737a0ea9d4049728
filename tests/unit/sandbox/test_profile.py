"""Profiles, reports and levels: closed JSON forms, and levels that follow from properties only."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capkernel.sandbox import Level, Profile, Report, levels, missing_for

PATHS = st.sampled_from(["/usr/lib", "/opt/a b", "/data/ä", "/x"])


@settings(deadline=None)
@given(
    role=st.sampled_from(["worker", "keeper", "runner"]),
    read=st.lists(PATHS).map(tuple),
    scratch=st.none() | PATHS,
    memory=st.none() | st.integers(1, 2**50),
    fork=st.booleans(),
    size=st.none() | st.integers(0, 2**50),
)
def test_a_profile_survives_its_json(
    role: str, read: tuple[str, ...], scratch: str | None, memory: int | None, fork: bool, size: int | None
) -> None:
    profile = Profile(role, read, scratch, memory, fork, size)
    assert Profile.from_json(profile.to_json()) == profile


@pytest.mark.parametrize("path", ["/", "relative", "/a/../b", "/a//b", "/a/", "", "/a\0b", "/usr/..", "/" + "x" * 5000])
def test_a_profile_takes_absolute_normal_paths_below_the_root(path: str) -> None:
    with pytest.raises(ValueError, match="profile: "):
        Profile("worker", read=(path,))
    with pytest.raises(ValueError, match="profile: "):
        Profile("worker", scratch=path)


def test_a_profile_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="role"):
        Profile("kernel")
    with pytest.raises(ValueError, match="memory_bytes"):
        Profile("worker", memory_bytes=0)
    with pytest.raises(ValueError, match="file_bytes"):
        Profile("worker", file_bytes=-1)


def test_files_grow_only_with_a_scratch_directory_or_on_demand() -> None:
    assert Profile("keeper").file_limit == 0
    assert Profile("worker", scratch="/x").file_limit == 256 * 1024 * 1024
    assert Profile("keeper", file_bytes=1000).file_limit == 1000


def altered(**changes: object) -> str:
    return json.dumps({**json.loads(Profile("worker").to_json()), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "{" * 100000,
        altered(extra=1),
        altered(role=1),
        altered(read="x"),
        altered(read=[1]),
        altered(scratch=1),
        altered(memory_bytes="1"),
        altered(memory_bytes=True),
        altered(allow_fork=1),
        altered(allow_fork=None),
    ],
    ids=range(14),
)
def test_a_profile_is_not_read_from_anything_else(text: str) -> None:
    with pytest.raises(ValueError, match=r"profile|must be"):
        Profile.from_json(text)


def report_of(names: frozenset[str]) -> Report:
    properties = {name: name in names for name in levels.ALL_PROPERTIES}
    return Report(levels.level_of(properties), 7, properties, ("a note",))


@settings(deadline=None)
@given(st.frozensets(st.sampled_from(sorted(levels.ALL_PROPERTIES))))
def test_a_report_survives_its_json(names: frozenset[str]) -> None:
    report = report_of(names)
    assert Report.from_json(report.to_json()) == report


def test_a_report_cannot_claim_more_than_its_properties_carry() -> None:
    raw = json.loads(report_of(levels.FULL_PROPERTIES).to_json())
    for change in (
        {"level": "full", "properties": {**raw["properties"], "sockets_closed": False}},
        {"level": "better"},
        {"properties": {**raw["properties"], "everything_closed": True}},
        {"properties": {**raw["properties"], "undumpable": 1}},
        {"notes": ["x" * 1000]},
        {"notes": ["x"] * 100},
        {"notes": [1]},
        {"landlock_abi": -1},
        {"landlock_abi": None},
        {"properties": []},
        {"level": 3},
    ):
        with pytest.raises(ValueError, match=r"report|level"):
            Report.from_json(json.dumps({**raw, **change}))


def test_each_property_of_a_level_is_needed() -> None:
    assert report_of(levels.FULL_PROPERTIES).level is Level.FULL
    assert report_of(levels.STANDARD_PROPERTIES).level is Level.STANDARD
    for name in levels.STANDARD_PROPERTIES:
        report = report_of(levels.FULL_PROPERTIES - {name})
        assert report.level < Level.STANDARD, name
        assert missing_for(Level.STANDARD, report.properties) == (name,)
    for name in levels.FULL_PROPERTIES - levels.STANDARD_PROPERTIES:
        assert report_of(levels.FULL_PROPERTIES - {name}).level is Level.STANDARD


def test_half_a_sandbox_is_partial_and_less_is_none() -> None:
    assert report_of(levels.PROCESS_PROPERTIES | levels.SECCOMP_PROPERTIES).level is Level.PARTIAL
    assert report_of(levels.PROCESS_PROPERTIES | levels.FILE_PROPERTIES).level is Level.PARTIAL
    assert report_of(levels.PROCESS_PROPERTIES).level is Level.NONE
    assert report_of(frozenset()).level is Level.NONE
    assert levels.level_of({"unknown": True}) is Level.NONE


def test_levels_are_ordered_and_named() -> None:
    assert Level.NONE < Level.PARTIAL < Level.STANDARD < Level.FULL
    assert [Level.parse(level.label) for level in Level] == list(Level)
    for text in ("Standard", "", "none "):
        with pytest.raises(ValueError, match="use one of none, partial, standard, full"):
            Level.parse(text)
