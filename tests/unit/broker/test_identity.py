"""The index of second names."""

from __future__ import annotations

import os

import pytest

from capkernel.broker.identity import ClassifiedIndex
from capkernel.policy import PathRules, default_policy


@pytest.fixture
def index(project):
    return ClassifiedIndex(PathRules(default_policy(project)), lambda: [str(project)])


def answer(index: ClassifiedIndex, path) -> bool:
    return index.is_classified(os.path.realpath(path), os.stat(path))


def test_plain_files_are_not_classified(index, project):
    assert answer(index, project / "data" / "a.txt") is False


def test_a_walk_that_could_not_see_everything_makes_files_of_many_names_classified(project):
    small = ClassifiedIndex(PathRules(default_policy(project)), lambda: [str(project)], max_entries=1)
    os.link(project / "data" / "a.txt", project / "data" / "b.txt")
    assert answer(small, project / "data" / "b.txt") is True
    large = ClassifiedIndex(PathRules(default_policy(project)), lambda: [str(project)])
    assert answer(large, project / "data" / "b.txt") is False


def test_a_second_root_counts_too(project, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    os.link(project / ".env", other / "copy.txt")
    both = ClassifiedIndex(PathRules(default_policy(project)), lambda: [str(other), str(project)])
    assert answer(both, other / "copy.txt") is True


def test_environments_are_not_walked(index, project):
    (project / "venv").mkdir()
    (project / "venv" / "pyvenv.cfg").touch()
    (project / "venv" / "x.pem").write_text("x")
    os.link(project / "venv" / "x.pem", project / "data" / "cert")
    assert answer(index, project / "data" / "cert") is False
