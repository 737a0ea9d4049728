"""Excluded, classified and protected paths against every operation a cell has, by every name they can be reached under.

Each attack is first done with plain Python on the same tree, where it works; then through a broker, where it must not,
and where nothing may have changed afterwards.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from capkernel.api.errors import CapabilityDenied
from capkernel.policy import Exclusions

CONTENT = b"content that is there"
NEW = b"content of the attack"

Tree = dict[str, tuple[int, bytes]]


def tree(root: Path) -> Tree:
    """Every path below root with its kind and its content or target. Links are not followed."""
    found: Tree = {}
    for directory, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(directory, name)
            kind = stat.S_IFMT(os.lstat(path).st_mode)
            if stat.S_ISLNK(kind):
                content = os.fsencode(os.readlink(path))
            else:
                content = Path(path).read_bytes() if stat.S_ISREG(kind) else b""
            found[os.path.relpath(path, root)] = (kind, content)
    return found


# ── what is attacked ─────────────────────────────────────────────────────────────────────────────────────────────────

EXCLUDED = (
    "own/state.json",
    "venv/lib/x.txt",
    "venv/pyvenv.cfg",
    "capkernel.toml",
    "deep/Capkernel.JSON",
    "single.bin",
)
CLASSIFIED = (
    ".env",
    "secrets/key",
    "deep/.ENV.local",
    "id_rsa",
    "deep/server.PEM",
    "secrets/a/b",
    ".env.bak",
    "a/.ssh/x",
)
PROTECTED = (
    ".git/config", ".hg/hgrc", ".envrc", ".mcp.json", ".claude/settings.json", ".codex/config", ".vscode/tasks.json",
    ".idea/x.xml", ".github/workflows/x.yml", "sitecustomize.py", "usercustomize.py", "conftest.py", "x.pth",
    "book.ipynb", "deep/.GIT/hooks/pre-commit", "deep/ConfTest.py", "deep/Book.IPYNB",
)  # fmt: skip

TARGETS = [
    *(pytest.param("excluded", path, id=f"excluded-{path}") for path in EXCLUDED),
    *(pytest.param("classified", path, id=f"classified-{path}") for path in CLASSIFIED),
    *(pytest.param("protected", path, id=f"protected-{path}") for path in PROTECTED),
]


def build(project: Path, targets: tuple[str, ...] = (*EXCLUDED, *CLASSIFIED, *PROTECTED)) -> None:
    for path in targets:
        file = project / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(CONTENT)


# ── under which name ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Name:
    """make: prepares another name outside of the session, gives (root to ask for, path in it) for the target."""

    make: Callable[[Path, str], tuple[str, str]]


def _direct(project: Path, target: str) -> tuple[str, str]:
    return ".", target


def _around(project: Path, target: str) -> tuple[str, str]:
    return ".", f"data/../data/../{target}"


def _narrow_root(project: Path, target: str) -> tuple[str, str]:
    folder, _, name = target.rpartition("/")
    return folder or ".", name


def _link(project: Path, target: str) -> tuple[str, str]:
    (project / "data" / "innocent.txt").symlink_to(os.path.join("..", target))
    return "data/..", "data/innocent.txt"


def _link_to_folder(project: Path, target: str) -> tuple[str, str]:
    folder, _, name = target.rpartition("/")
    (project / "data" / "folder").symlink_to(os.path.join("..", folder))
    return ".", f"data/folder/{name}"


def _hard_link(project: Path, target: str) -> tuple[str, str]:
    os.link(project / target, project / "data" / "innocent.txt")
    return ".", "data/innocent.txt"


NAMES = {
    "direct": Name(_direct),
    "around": Name(_around),
    "narrow root": Name(_narrow_root),
    "link": Name(_link),
    "link to its folder": Name(_link_to_folder),
    "hard link": Name(_hard_link),
}


# ── with which operation ─────────────────────────────────────────────────────────────────────────────────────────────


def _read(path: Path) -> None:
    assert path.read_bytes() == CONTENT


def _size(path: Path) -> None:
    assert path.stat().st_size == len(CONTENT)


def _write(path: Path) -> None:
    path.write_bytes(NEW)
    assert path.read_bytes() == NEW


def _append(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(NEW)
    assert path.read_bytes() == CONTENT + NEW


def _rename_over(path: Path) -> None:
    (path.parent / "temporary").write_bytes(NEW)
    os.replace(path.parent / "temporary", path)
    assert path.read_bytes() == NEW


PLAINLY: dict[str, Callable[[Path], None]] = {
    "read_bytes": _read,
    "size": _size,
    "read_classified": _read,
    "read_classified_bytes": _read,
    "write": _write,
    "append": _append,
    "write_classified": _rename_over,
}
REFUSED = {
    "excluded": tuple(PLAINLY),
    "classified": ("read_bytes", "size", "write", "append", "write_classified"),
    "protected": ("write", "append", "write_classified"),
}
# Excluded because of what they are and not because they are private: nothing in them is secret.
BY_RULE = ("venv/lib/x.txt", "venv/pyvenv.cfg", "capkernel.toml", "deep/Capkernel.JSON")
READING = ("read_bytes", "size", "read_classified", "read_classified_bytes")


def outcome(kind: str, target: str, name: str, method: str) -> str:
    """refused, done, or "replaced": through a hard link the name is replaced, and the attacked file stays as it is."""
    if name == "hard link" and method in ("write", *READING) and (kind == "protected" or target in BY_RULE):
        return "replaced" if method == "write" else "done"
    return "refused" if method in REFUSED[kind] else "done"


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _fd: None)


@pytest.fixture
def attacked(project, start):
    """Begins a session that may ask for any root in the project and write secrets."""
    own = [(str(project / "own"), "a directory of capkernel itself"), (str(project / "single.bin"), "a single file")]

    def begin():
        session = start(exclusions=Exclusions(own))
        session.cell()
        return session

    return begin


def secret(session):
    scope = session.open(".")
    session.do(scope, "data/plain.txt", "write", b"1")
    handle = session.do(scope, "data/plain.txt", "read_classified")
    session.vault.content[handle] = NEW
    return handle


def do(session, root: str, path: str, method: str, handle: str) -> object:
    scope = session.open(root)
    if method == "write_classified":
        return session.do(scope, path, method, secret=handle)
    return session.do(scope, path, method, NEW if method in ("write", "append") else b"")


@pytest.fixture
def copy(project, tmp_path_factory):
    """A fresh copy of the project, hard links of the target included, for the attack with plain Python."""
    place = tmp_path_factory.mktemp("copy") / "project"

    def fresh(target: str = "", other: str = "") -> Path:
        if place.exists():
            shutil.rmtree(place)
        shutil.copytree(project, place, symlinks=True)
        if other:
            (place / other).unlink()
            os.link(place / target, place / other)
        return place

    return fresh


@pytest.mark.parametrize(
    ("name", "opener"),
    [*((name, "openat2") for name in NAMES), *((name, "walk") for name in ("direct", "link", "hard link"))],
    indirect=["opener"],
)
@pytest.mark.parametrize(("kind", "target"), TARGETS)
def test_every_operation_on_a_file(attacked, project, copy, kind, target, name, opener):
    if name == "link to its folder" and "/" not in target:
        name = "link"
    build(project, (target, *(["venv/pyvenv.cfg"] if target.startswith("venv") else [])))
    root, path = NAMES[name].make(project, target)
    session = attacked()
    handle = secret(session)
    before = tree(project)
    assert before[target] == (stat.S_IFREG, CONTENT)
    for method, plainly in PLAINLY.items():
        plainly(copy(target, path if name == "hard link" else "") / root / path)  # the attack works
        follows = opener == "openat2" or not name.startswith("link")
        expected = outcome(kind, target, name, method) if follows else "refused"
        if expected == "done":
            do(session, root, path, method, handle)
        elif expected == "refused":
            with pytest.raises(CapabilityDenied):
                do(session, root, path, method, handle)
    session.settle()
    assert tree(project) == before
    assert session.vault.writes == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("kind", "target"), TARGETS)
def test_deleting_takes_at_most_another_name(attacked, project, copy, kind, target, name):
    if name == "link to its folder" and "/" not in target:
        name = "link"
    build(project, (target, *(["venv/pyvenv.cfg"] if target.startswith("venv") else [])))
    root, path = NAMES[name].make(project, target)
    other = os.path.normpath(os.path.join(root, path)) if name in ("link", "hard link") else ""
    spare = copy(target, path if name == "hard link" else "")
    (spare / ((other and target) or os.path.join(root, path))).unlink()  # the attack works
    assert not (spare / target).exists()

    session = attacked()
    before = tree(project)
    if other:
        with contextlib.suppress(CapabilityDenied):
            do(session, root, path, "delete", "")
    else:
        with pytest.raises(CapabilityDenied):
            do(session, root, path, "delete", "")
    after = tree(project)
    assert after[target] == (stat.S_IFREG, CONTENT)
    assert set(before.items()) - set(after.items()) <= {(other, before.get(other))}


@pytest.mark.parametrize("target", [*BY_RULE, ".git/config", "conftest.py", "book.ipynb"])
def test_writing_another_hard_link_leaves_the_attacked_file(attacked, project, target):
    build(project)
    root, path = _hard_link(project, target)
    with open(project / path, "r+b") as file:  # written in place, both names change
        file.write(NEW)
    assert (project / target).read_bytes() == NEW
    (project / target).write_bytes(CONTENT)
    session = attacked()
    session.do(session.open(root), path, "write", NEW)
    assert (project / path).read_bytes() == NEW
    assert (project / target).read_bytes() == CONTENT


# ── directories: listing, and making something in them ───────────────────────────────────────────────────────────────

FOLDERS = [
    pytest.param("excluded", "own", id="excluded"),
    pytest.param("excluded", "venv", id="environment"),
    pytest.param("excluded", "venv/lib", id="in an environment"),
    pytest.param("classified", "secrets", id="classified"),
    pytest.param("classified", "secrets/a", id="in a classified one"),
    pytest.param("protected", ".git", id="protected"),
    pytest.param("protected", "deep/.GIT/hooks", id="in a protected one"),
]


@pytest.mark.parametrize("way", ["direct", "link", "root"])
@pytest.mark.parametrize(("kind", "folder"), FOLDERS)
def test_directories_are_not_listed_and_nothing_is_made_in_them(attacked, project, copy, kind, folder, way):
    build(project)
    root, path = ".", folder
    if way == "link":
        (project / "data" / "way").symlink_to(os.path.join("..", folder))
        path = "data/way"
    elif way == "root":
        root, path = folder, "."
    spare = copy()
    assert os.listdir(spare / root / path)  # the attacks work
    (spare / root / path / "new").mkdir()
    (spare / root / path / "new" / "x").write_bytes(NEW)

    session = attacked()
    handle = secret(session)
    before = tree(project)

    def attempt(below: str, method: str) -> None:
        do(session, root, f"{path}/{below}" if below else path, method, handle)

    if kind == "protected":
        attempt("", "children")
    else:
        with pytest.raises(CapabilityDenied):
            attempt("", "children")
    for below, method in (("new", "mkdir"), ("new/deeper", "mkdir"), ("new", "write"), ("new/x", "append")):
        with pytest.raises(CapabilityDenied):
            attempt(below, method)
    if kind != "classified":
        with pytest.raises(CapabilityDenied):
            attempt("new", "write_classified")
    session.settle()
    assert tree(project) == before


@pytest.mark.parametrize(
    "target", [*EXCLUDED, ".env", "secrets/new", ".git/hooks/new", "new.ipynb", ".vscode", "new.pth"]
)
def test_names_that_are_not_there_yet(attacked, project, target):
    """The name alone counts: what does not exist has no inode."""
    build(project)
    for path in (*EXCLUDED, ".env"):
        if path == target and path != "single.bin" and not path.startswith(("own", "venv")):
            (project / path).unlink()
    session = attacked()
    before = tree(project)
    for method in ("write", "append", "mkdir"):
        with pytest.raises(CapabilityDenied):
            session.do(session.open("."), target, method, NEW)
    assert tree(project) == before


def test_excluded_names_are_not_listed(attacked, project):
    build(project)
    assert {"own", "venv", "capkernel.toml", "single.bin"} <= set(os.listdir(project))
    session = attacked()
    listed = {name for _handle, name in session.do(session.open("."), ".", "children")}
    assert listed.isdisjoint({"own", "venv", "capkernel.toml", "single.bin"})
    assert {".git", "data", "deep", "secrets"} <= listed


def test_a_hard_link_made_after_the_first_look(attacked, project):
    build(project)
    session = attacked()
    os.link(project / "data" / "a.txt", project / "data" / "b.txt")
    assert session.read("data/b.txt") == b"hello\n"  # the index is built, before the attack
    os.link(project / "own" / "state.json", project / "data" / "late.txt")
    assert (project / "data" / "late.txt").read_bytes() == CONTENT
    with pytest.raises(CapabilityDenied, match="excluded directory"):
        session.read("data/late.txt")


def test_an_index_that_could_not_see_everything_excludes_all_with_several_names(project):
    from capkernel.policy.linked import LinkedFiles

    (project / "own").mkdir()
    for number in range(5):
        (project / "own" / str(number)).write_bytes(b"x")
    os.link(project / "data" / "a.txt", project / "data" / "b.txt")
    status = os.stat(project / "data" / "b.txt")
    assert not LinkedFiles([str(project / "own")]).has(status)
    assert LinkedFiles([str(project / "own")], max_entries=4).has(status)
    assert not LinkedFiles([str(project / "own")], max_entries=4).has(os.stat(project / "own" / "1"))  # one name only


def test_a_root_that_was_put_elsewhere_after_the_start_grants_nothing(start, project, tmp_path_factory):
    from capkernel.policy import load_policy

    other = tmp_path_factory.mktemp("other")
    (other / "x.txt").write_bytes(CONTENT)
    (project / "p.toml").write_text('[files]\nroots = ["data"]\n')
    session = start(load_policy(project / "p.toml"))
    session.cell()
    assert session.read("a.txt", "data") == b"hello\n"
    shutil.move(project / "data", project / "old")
    (project / "data").symlink_to(other)
    assert (project / "data" / "x.txt").read_bytes() == CONTENT
    with pytest.raises(CapabilityDenied, match="outside of what the policy allows"):
        session.open("data")
