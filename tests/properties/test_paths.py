"""Path confinement against the file system's own answer, over random trees with links and random paths."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capkernel.broker import confine
from capkernel.broker.failures import EffectError
from capkernel.policy import PathRules, default_policy
from capkernel.policy.patterns import PatternSet, fold, problem_with

NAMES = ["a", "b", "c", "in", "out", "up", "abs", "deep", "loop", "dangling", "escape"]


@pytest.fixture(scope="module")
def tree() -> Iterator[Path]:
    """A root with links that stay, leave, loop and dangle, next to a directory that must stay out of reach."""
    base = Path(tempfile.mkdtemp()).resolve()
    root = base / "root"
    (root / "a" / "b" / "c").mkdir(parents=True)
    (base / "root-private").mkdir()
    for file in ("root/a/c", "root/b", "root/a/b/c/a", "root-private/a", "a", "b"):
        (base / file).write_text(file)
    for link, target in (
        ("root/in", "a/b"),
        ("root/out", "../root-private"),
        ("root/up", ".."),
        ("root/abs", str(base / "root-private" / "a")),
        ("root/deep", "a/b/c/a"),
        ("root/loop", "loop"),
        ("root/dangling", "nowhere"),
        ("root/a/escape", "../../a"),
        ("root/a/b/up", ".."),
        ("root/a/b/out", "../../../root-private/a"),
        ("root/a/b/in", "../../in"),
    ):
        (base / link).symlink_to(target)
    yield root
    shutil.rmtree(base)


parts = st.lists(st.sampled_from([*NAMES, "..", "..", ".", ""]), min_size=1, max_size=8)
paths = parts.map("/".join).filter(lambda path: path and not path.startswith("/"))


def inside(root: Path, path: str) -> bool:
    """The oracle: where the path really leads is the root or below it."""
    real = os.path.realpath(root / path)
    return real == str(root) or real.startswith(f"{root}/")


@pytest.mark.parametrize("way", ["openat2", "walk"])
@settings(max_examples=1500, deadline=None)
@given(path=paths)
def test_what_is_opened_is_inside_and_is_what_the_path_means(tree: Path, way: str, path: str) -> None:
    root = os.open(tree, os.O_PATH | os.O_DIRECTORY)
    open_beneath = confine._openat2 if way == "openat2" else confine.walk_beneath
    try:
        fd = open_beneath(root, confine.checked_path(path), os.O_PATH, 0)
    except OSError as problem:
        # Refusing is safe; refusing what is plainly there and inside would be useless.
        if not isinstance(problem, confine.Escape) and os.path.exists(tree / path):
            assert way == "walk" or not inside(tree, path)
        return
    finally:
        os.close(root)
    try:
        opened = confine.canonical_path(fd)
    finally:
        os.close(fd)
    assert opened == str(tree) or opened.startswith(f"{tree}/")
    if way == "openat2":
        assert opened == os.path.realpath(tree / path)


@settings(max_examples=1500, deadline=None)
@given(path=paths)
def test_the_system_call_refuses_nothing_that_never_leaves_and_meets_no_link(tree: Path, path: str) -> None:
    tidy = confine.checked_path(path)
    parts, depth = tidy.split("/"), 0
    for end, part in enumerate(parts, 1):
        depth += -1 if part == ".." else 1
        if depth < 0 or os.path.islink(tree / "/".join(parts[:end])):
            return
    if not os.path.exists(tree / tidy):
        return
    root = os.open(tree, os.O_PATH | os.O_DIRECTORY)
    try:
        os.close(confine._openat2(root, tidy, os.O_PATH, 0))
    finally:
        os.close(root)


@settings(max_examples=500, deadline=None)
@given(text=st.text(max_size=60))
def test_any_text_is_a_tidy_path_or_refused(text: str) -> None:
    try:
        path = confine.checked_path(text)
    except EffectError:
        return
    assert not path.startswith("/")
    assert "\0" not in path
    assert path == "." or all(part not in ("", ".") for part in path.split("/"))
    assert confine.checked_path(path) == path


components = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=8)


@settings(max_examples=400, deadline=None)
@given(
    above=st.lists(components, max_size=3),
    secret=st.sampled_from([".env", "secrets", "x.pem", "id_rsa", "credentials.json", ".ssh"]),
    inner=st.lists(components, max_size=3),
    change=st.sampled_from([str, str.upper, str.title, fold]),
    copy=st.sampled_from(["{}", "{}~", "{}.bak", ".{}.swp", "#{}#", "{}.orig"]),
)
def test_a_secret_name_is_classified_wherever_it_is_and_whatever_is_below(above, secret, inner, change, copy) -> None:
    rules = PathRules(default_policy("/nowhere/project"))
    path = "/".join(["/nowhere/project", *above, copy.format(change(secret)), *inner])
    assert rules.is_classified(path)


@settings(max_examples=400, deadline=None)
@given(names=st.lists(components, min_size=1, max_size=5))
def test_classification_only_grows_downwards(names) -> None:
    rules = PathRules(default_policy("/nowhere/project"))
    answers = [rules.is_classified("/".join(["/nowhere/project", *names[:end]])) for end in range(1, len(names) + 1)]
    assert answers == sorted(answers)


_RUNS = ("key", "a", ".b", "se", "cret", "K", "\u00e9", "e\u0301", "\u0130", "-checkpoint", "~", ".bak", " ", "\n", "x")
_MARKS = ("*", "?", "/", "**/", "[k]", "\\*", "!", ".")
name_parts = st.lists(st.sampled_from(_RUNS), min_size=1, max_size=3).map("".join)
pattern_texts = st.lists(st.sampled_from([*_RUNS, *_MARKS]), min_size=1, max_size=4).map("".join)


@pytest.mark.timeout(
    600
)  # fourteen milliseconds an example where nothing else runs, and a minute in all where much does
@settings(max_examples=1500, deadline=None)
@given(
    patterns=st.lists(pattern_texts.filter(lambda text: problem_with(text) is None), max_size=4),
    folder=st.lists(name_parts, max_size=2),
    names=st.lists(name_parts, min_size=1, max_size=6, unique=True),
)
def test_looking_for_the_texts_of_patterns_first_changes_no_answer(
    patterns: list[str], folder: list[str], names: list[str]
) -> None:
    directory = "/".join(["/nowhere/project", *folder])
    policy = default_policy("/nowhere/project")
    policy = replace(policy, files=msgspec.structs.replace(policy.files, classified=tuple(patterns)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PatternSet, "may_match", lambda *_: True)
        slow = PathRules(policy)
        expected = {name for name in names if slow.is_classified(f"{directory}/{name}")}
        inherited = slow.is_classified(directory)
    rules = PathRules(policy)
    assert {name for name in names if rules.is_classified(f"{directory}/{name}")} == expected
    if not inherited:
        assert PathRules(policy).classified_among(directory, names) == expected
