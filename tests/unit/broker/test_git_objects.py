"""A secret that was committed is in `.git/objects`, compressed: cells read it there, unless that is classified too."""

from __future__ import annotations

import os
import subprocess
import zlib
from pathlib import Path

import pytest

from capkernel.api.errors import CapabilityDenied
from capkernel.policy import paths
from capkernel.policy.defaults import CLASSIFIED

SECRET = b"TOKEN=what-was-committed-once"


def git(place: Path, *arguments: str) -> None:
    settings = ("user.name=x", "user.email=x@example.com", "commit.gpgsign=false", "gc.auto=0", "core.fsmonitor=false")
    command = ["git", *[part for one in settings for part in ("-c", one)], "-C", str(place), *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": str(place), "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(command, check=True, capture_output=True, timeout=60, env=environment)


@pytest.fixture(params=["loose", "packed", "untracked again"])
def repository(request: pytest.FixtureRequest, project: Path) -> Path:
    git(project, "init", "-q")
    (project / ".env").write_bytes(SECRET)
    git(project, "add", "-f", ".env")
    git(project, "commit", "-q", "-m", "x")
    if request.param == "packed":
        git(project, "repack", "-a", "-d", "-q")
        assert list((project / ".git/objects/pack").glob("*.pack"))
    if request.param == "untracked again":
        git(project, "rm", "-q", "--cached", ".env")
    return project


def unpacked(content: bytes) -> bytes:
    """All that can be decompressed out of a file of git, from whatever place in it."""
    found = b""
    for start in range(len(content)):
        try:
            found += zlib.decompressobj().decompress(content[start:])
        except zlib.error:
            continue
    return found


def objects(project: Path) -> list[str]:
    found = (project / ".git" / "objects").rglob("*")
    return sorted(str(path.relative_to(project)) for path in found if path.is_file())


def test_it_is_read_there_where_only_the_file_is_classified(start, repository, monkeypatch):
    files = objects(repository)
    assert SECRET in b"".join(unpacked((repository / name).read_bytes()) for name in files)  # plainly
    monkeypatch.setattr(paths, "CLASSIFIED", tuple(one for one in CLASSIFIED if "objects" not in one))
    session = start()
    session.cell()
    with pytest.raises(CapabilityDenied):
        session.read(".env")
    assert SECRET in b"".join(unpacked(session.read(name)) for name in files)  # and through a capability


def test_what_git_keeps_is_classified(session, repository):
    files = objects(repository)
    assert files
    for name in files:
        with pytest.raises(CapabilityDenied):
            session.read(name)
    with pytest.raises(CapabilityDenied):
        session.do(session.open(".git"), "objects", "children")
    names = [name for _handle, name in session.do(session.open("."), ".", "walk")]
    assert ".git/objects" in names
    assert not [name for name in names if name.startswith(".git/objects/")]
    assert session.read(".git/HEAD").startswith(b"ref: ")


@pytest.mark.parametrize(
    "path",
    [".git/objects/ab/cd", "deep/er/.git/objects/pack/x.pack", ".git/modules/sub/objects/ab/cd", ".git/lfs/objects/a",
     "mirror.git/objects/ab/cd", ".GIT/Objects/x", ".hg/store/data/x.i", ".svn/pristine/00/x"],
)  # fmt: skip
def test_wherever_it_is_kept(project, path):
    from capkernel.policy import PathRules, default_policy

    rules = PathRules(default_policy(project))
    assert rules.is_classified(f"{project}/{path}")
    for plain in (".git/HEAD", ".git/config", "objects/a", "git/objects/a"):
        assert not rules.is_classified(f"{project}/{plain}")
