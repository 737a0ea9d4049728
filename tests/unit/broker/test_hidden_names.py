"""`files.hide_classified_names`: what lies under classified names shows in nothing that a cell is told.

The oracle: two projects that differ only under classified names, asked the same, answer the same byte for byte. Without
the key they do not, which is the attack.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from capkernel.api.errors import CapabilityDenied
from capkernel.policy import Policy, default_policy
from capkernel.wire.worker import Call, CallResult, CloseScope, Invoke, OpenScope

from .conftest import Session, Start

LOOKS = ("exists", "is_directory", "is_classified", "size", "read_bytes", "children", "walk", "files", "open_read")
SECRETS = ("read_classified", "read_classified_bytes", "write_classified")
CHANGES = ("may_write", "may_create", "write", "create", "append", "mkdir", "delete")
PATHS = (
    ".", "data", "data/a.txt", "data/new.txt", "data/.env", ".env", "secrets", "secrets/key", "secrets/other",
    "secrets/key/below", "secrets/pipe", "secrets/deep/down", "secrets/deep/../../data/a.txt", "secrets/none/../key",
    "secrets/../../out", "x/y/id_rsa", "x/y", "to_key", "to_deep", "to_deep/../data", "around", "around/a.txt",
    "data/../secrets/key", "tokens.json", "SECRETS/key", "outside", "dangling",
)  # fmt: skip
SEARCHED = ("data/a.txt", "data/.env", "to_key", "secrets/key", "around/a.txt", "to_deep/x", "x/y/id_rsa")
ROOTS = (".", "data", "secrets", "secrets/deep", "secrets/none", "secrets/deep/../../data", "around", "to_deep", "x")


def hidden(project: Path, **more: Any) -> Policy:
    return with_files(default_policy(project), hide_classified_names=True, **more)


def with_files(policy: Policy, **changed: Any) -> Policy:
    import dataclasses

    return dataclasses.replace(policy, files=msgspec.structs.replace(policy.files, **changed))


def common(root: Path) -> None:
    """What both projects have: plain files, and links over classified names."""
    for folder in ("data", "x/y"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "data" / "a.txt").write_text("hello\n")
    (root / "to_key").symlink_to("secrets/key")
    (root / "to_deep").symlink_to("secrets/deep")
    (root / "around").symlink_to("secrets/deep/../../data")
    (root / "outside").symlink_to("/etc/passwd")
    (root / "dangling").symlink_to("nowhere")


def full(root: Path) -> None:
    (root / ".env").write_text("KEY=1\n")
    (root / "data" / ".env").write_text("KEY=2\n")
    (root / "secrets" / "deep" / "down").mkdir(parents=True)
    (root / "secrets" / "deep" / "x").write_text("x")
    (root / "secrets" / "key").write_text("secret")
    os.mkfifo(root / "secrets" / "pipe")
    (root / "x" / "y" / "id_rsa").write_text("key")
    (root / "tokens.json").symlink_to("secrets/key")
    for number in range(30):
        (root / f"secret.{number}").touch()


def bare(root: Path) -> None:
    """Nothing under any classified name."""


def other(root: Path) -> None:
    (root / "secrets").write_text("a file, no folder")
    (root / ".env").mkdir()
    (root / "x" / "y" / "id_rsa").symlink_to("nothing")
    (root / "tokens.json").mkdir()


def trace(session: Session, base: Path) -> list[bytes]:
    """Everything that a cell is told, encoded as it is sent; handles by the order in which they come."""
    numbers: dict[str, str] = {}
    told: list[bytes] = []

    def renamed(value: Any) -> Any:
        if isinstance(value, list):
            return [renamed(one) for one in value]
        if isinstance(value, str) and len(value) == 32:
            return numbers.setdefault(value, f"handle {len(numbers)}")
        return value

    def ask(effect: OpenScope | CloseScope | Invoke, blob: bytes = b"") -> Any:
        answer, out = session.loop.run_until_complete(session.broker.call(Call(1, effect), blob))
        value = answer.value
        told.append(msgspec.msgpack.encode(CallResult(1, renamed(value), answer.error)) + out)
        assert os.fsencode(base) not in told[-1]
        return value

    def steps() -> Iterator[tuple[str, str, str]]:
        for root in ROOTS:
            for methods in (LOOKS, SECRETS, ("read_many", "subtree"), CHANGES, LOOKS) if root == "." else (LOOKS,):
                for path in PATHS if root == "." else PATHS[:8]:
                    for method in methods:
                        yield root, path, method

    scopes: dict[str, Any] = {}
    value = None
    for root, path, method in steps():
        if root not in scopes:
            session.cell()
            scopes = {root: ask(OpenScope("file_system", root))}
        scope = scopes[root]
        if scope is None:
            continue
        if method == "subtree":
            ask(Invoke(scope, "subtree", path))
            continue
        entry = ask(Invoke(scope, "access", path))
        if entry is None:
            continue
        if value is None:
            value = ask(Invoke(entry[0], "read_classified"))
        blob = b"new\n" if method in ("write", "create", "append") else b""
        if method == "read_many":
            prefix = "" if path == "." else path + "/"
            ask(Invoke(entry[0], method, paths=tuple(prefix + one for one in SEARCHED)))
        elif method == "write_classified":
            ask(Invoke(entry[0], method, secret=value or "0" * 32))
        else:
            ask(Invoke(entry[0], method), blob)
    return told


Make = Callable[[Path], None]


def run(start: Start, where: Path, make: Make, policy: Callable[[Path], Policy]) -> list[bytes]:
    where.mkdir()
    common(where)
    make(where)
    return trace(start(policy(where), base=where), where)


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _fd: None)


@pytest.mark.parametrize(
    ("make", "mode", "opener"),
    [(full, "new", "openat2"), (full, True, "walk"), (other, "new", "walk"), (other, False, "openat2")],
    indirect=["opener"],
)
def test_two_projects_that_differ_under_classified_names_tell_the_same(
    start: Start, tmp_path: Path, make: Make, mode: Any, opener: str
) -> None:
    ours = run(start, tmp_path / "p", make, lambda where: hidden(where, classified_write=mode))
    os.rename(tmp_path / "p", tmp_path / "q")  # both in a place of one name
    theirs = run(start, tmp_path / "p", bare, lambda where: hidden(where, classified_write=mode))
    assert len(ours) > 1000
    assert ours == theirs


@pytest.mark.parametrize("make", [full, other])
def test_without_the_key_they_do_not(start: Start, tmp_path: Path, make: Make) -> None:
    ours = run(start, tmp_path / "p", make, default_policy)
    os.rename(tmp_path / "p", tmp_path / "q")
    theirs = run(start, tmp_path / "p", bare, default_policy)
    assert ours != theirs


@pytest.fixture
def secretive(start: Start, project: Path) -> Session:
    session = start(hidden(project))
    session.cell()
    return session


def test_listings_leave_the_names_out(start: Start, secretive: Session, project: Path) -> None:
    (project / "link").symlink_to("secrets")
    open_ = start()
    open_.cell()
    shown = [name for _handle, name in open_.do(open_.open(), ".", "walk")]
    assert {".env", "secrets", "link"} <= set(shown)
    for method in ("children", "walk"):
        found = [name for _handle, name in secretive.do(secretive.open(), ".", method)]
        assert found == (["data"] if method == "children" else ["data", "data/a.txt"])
    assert secretive.do(secretive.open(), ".", "files") == ["data/a.txt"]


def test_reading_what_is_missing_is_poison_with_the_lineage_of_a_read(secretive: Session, project: Path) -> None:
    scope = secretive.open()
    handle = secretive.do(scope, "secrets/none", "read_classified")
    assert secretive.vault.spoils == [(handle, "there is no such file")]
    assert secretive.vault.spoiled_origins == ["file:secrets/none"]
    there = secretive.do(scope, ".env", "read_classified")
    assert [fill[0] for fill in secretive.vault.fills] == [there]
    with pytest.raises(FileNotFoundError):
        secretive.do(scope, "data/none", "read_classified")  # a plain name is not hidden


def test_a_write_takes_the_name_at_the_call_or_says_nothing(secretive: Session, project: Path) -> None:
    scope = secretive.open()
    value = secretive.do(scope, "data/a.txt", "read_classified")
    secretive.vault.content[value] = b"content"
    secretive.do(scope, "secrets/new", "write_classified", secret=value)
    assert (project / "secrets" / "new").read_bytes() == b""
    before = (project / ".env").read_bytes()
    secretive.do(scope, ".env", "write_classified", secret=value)  # "new": this one stays, and nobody says so
    secretive.settle()
    assert (project / "secrets" / "new").read_bytes() == b"content"
    assert (project / ".env").read_bytes() == before
    assert b"nothing is written" in secretive.audit_file.read_bytes()


@pytest.mark.parametrize("method", ["exists", "is_directory", "delete", "size", "read_bytes", "mkdir"])
@pytest.mark.parametrize("path", [".env", "secrets", "secrets/none", "secrets/../data/a.txt"])
def test_what_would_tell_is_refused(secretive: Session, path: str, method: str) -> None:
    with pytest.raises(CapabilityDenied, match="classified"):
        secretive.do(secretive.open(), path, method)


def test_a_folder_is_not_deleted_since_that_would_tell_whether_it_is_empty(secretive: Session, project: Path) -> None:
    (project / "empty").mkdir()
    (project / "not").mkdir()
    (project / "not" / ".env").touch()
    with pytest.raises(OSError, match="not empty"):
        (project / "not").rmdir()  # which is how it tells
    for path in ("empty", "not"):
        with pytest.raises(CapabilityDenied, match="whether a folder is empty"):
            secretive.do(secretive.open(), path, "delete")
    secretive.do(secretive.open(), "data/a.txt", "delete")
    assert not (project / "data" / "a.txt").exists()


def test_a_second_name_of_a_secret_file_does_not_say_whether_it_is_there(secretive: Session, project: Path) -> None:
    os.link(project / ".env", project / "innocent")
    with pytest.raises(CapabilityDenied, match="whether it exists is not told"):
        secretive.do(secretive.open(), "innocent", "exists")


def test_how_many_hidden_names_there_are_sets_no_limit_off(
    secretive: Session, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from capkernel.broker import trees

    monkeypatch.setattr(trees, "MAX_ENTRIES", 3)
    for number in range(20):
        (project / f"secret.{number}").touch()
    assert len(os.listdir(project)) > 20
    for method in ("children", "walk", "files"):
        assert secretive.do(secretive.open(), ".", method)
