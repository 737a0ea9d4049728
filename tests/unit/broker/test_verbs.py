"""Open files, deleting, walks, searches and narrower views, as a worker asks the broker for them; of files on the disk
and of files in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from capkernel.api.errors import CapabilityDenied, CapabilityRevoked
from capkernel.broker.opened import PIECE
from capkernel.kernel.memory_root import MemoryRoot
from capkernel.wire.worker import Invoke

from .conftest import Session, Start, start_in_memory

pytestmark = pytest.mark.usefixtures("opener")  # with the system call, and without it


@pytest.fixture(params=["disk", "memory"])
def in_memory(request: pytest.FixtureRequest) -> MemoryRoot | None:
    found: MemoryRoot | None = request.getfixturevalue("memory_root") if request.param == "memory" else None
    return found


@pytest.fixture
def project(in_memory: MemoryRoot | None, tmp_path: Path) -> Path:
    base = tmp_path if in_memory is None else in_memory.path
    (base / "data").mkdir()
    (base / "data" / "a.txt").write_text("hello\n")
    return base


@pytest.fixture
def session(start: Start, in_memory: MemoryRoot | None, project: Path) -> Session:
    made = start() if in_memory is None else start_in_memory(start, in_memory)
    made.cell()
    return made


@pytest.fixture
def tree(project: Path) -> Path:
    """A directory `t` with files, a classified directory, and links that stay, leave, dangle and loop."""
    top = project / "t"
    (top / "sub" / "deep").mkdir(parents=True)
    (top / "secrets").mkdir()
    (top / "a.txt").write_text("alpha\nbeta\n")
    (top / "sub" / "b.py").write_text("alpha = 1\n")
    (top / "sub" / "deep" / "c.py").write_text("no\n")
    (top / "secrets" / "key").write_text("alpha secret\n")
    (top / ".env").write_text("alpha secret\n")
    (top / "inside").symlink_to("sub/b.py")
    (top / "folder").symlink_to("sub")
    (top / "outside").symlink_to("/etc/passwd")
    (top / "dangling").symlink_to("nothing")
    (top / "loop").symlink_to("loop")
    os.mkfifo(top / "pipe")
    return top


def names(session: Session, path: str, method: str = "walk") -> list[str]:
    found = session.do(session.open(), path, method)
    return [entry if method == "files" else entry[1] for entry in found]


def test_a_walk_lists_in_order_and_enters_no_link_and_no_classified_directory(
    session: Session, tree: Path, opener: str
) -> None:
    found = names(session, "t")
    assert {"t/a.txt", "t/sub", "t/sub/b.py", "t/sub/deep/c.py", "t/secrets", "t/.env", "t/pipe"} <= set(found)
    assert not {"t/outside", "t/dangling", "t/loop", "t/secrets/key", "t/folder/b.py"} & set(found)
    assert found.index("t/sub") < found.index("t/sub/b.py")
    assert ("t/inside" in found) == (opener == "openat2")  # without the call no link is followed, so none is known
    files = names(session, "t", "files")
    assert {"t/a.txt", "t/sub/b.py", "t/sub/deep/c.py"} <= set(files)
    assert not {"t/.env", "t/sub", "t/secrets", "t/pipe", "t/outside"} & set(files)


def test_children_leave_out_links_that_lead_nowhere_or_out(
    session: Session, tree: Path, opener: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (tree / "outdir").symlink_to(tmp_path_factory.mktemp("outside"))
    (tree / "up").symlink_to("..")
    assert {"outside", "outdir", "dangling", "loop"} <= set(os.listdir(tree))  # which plain Python lists
    found = [path.removeprefix("t/") for path in names(session, "t", "children")]
    assert not {"outside", "outdir", "dangling", "loop"} & set(found)
    assert {"a.txt", "sub", "secrets", ".env", "pipe"} <= set(found)
    assert ({"inside", "folder", "up"} <= set(found)) == (opener == "openat2")
    narrow = session.result(Invoke(session.open(), "subtree", "t"))[0]
    assert "up" not in [path for _handle, path in session.do(narrow, ".", "children")]  # for this view it leads out


def test_names_that_are_no_text_are_left_out(session: Session, tree: Path) -> None:
    with open(os.path.join(os.fsencode(tree), b"b\xff.txt"), "wb") as file:
        file.write(b"x")
    os.mkdir(os.path.join(os.fsencode(tree), b"d\xff"))
    assert {"b\udcff.txt", "d\udcff"} <= set(os.listdir(tree))
    for method in ("walk", "children", "files"):
        found = names(session, "t", method)
        assert "t/a.txt" in found
        assert not [name for name in found if not name.isascii()]


def test_a_classified_directory_is_not_walked(session: Session, tree: Path) -> None:
    with pytest.raises(CapabilityDenied, match="classified"):
        names(session, "t/secrets")


def test_many_files_are_read_but_none_that_is_not_given(session: Session, tree: Path) -> None:
    top = session.access(session.open(), "t")
    asked = ("t/a.txt", "t/.env", "t/secrets/key", "t/outside", "t/missing", "t/pipe", "t/loop", "t/sub/b.py")
    sizes, content = session.result(Invoke(top, "read_many", paths=asked))
    assert sizes == [11, -1, -1, -1, -1, -1, -1, 10]
    assert content == b"alpha\nbeta\nalpha = 1\n"


@pytest.mark.parametrize("path", ["data/x", "t/../data/x", "/etc/passwd", "t2/x"])
def test_a_search_stays_below_what_is_searched(session: Session, tree: Path, path: str) -> None:
    top = session.access(session.open(), "t")
    with pytest.raises(ValueError, match="below the directory"):
        session.result(Invoke(top, "read_many", paths=(path,)))


def test_deleting_a_link_deletes_the_link(session: Session, tree: Path, opener: str) -> None:
    for link, target in (("inside", tree / "sub" / "b.py"), ("folder", tree / "sub")):
        if opener == "walk":  # where no link is followed, none is an entry
            with pytest.raises(CapabilityDenied, match="leaves"):
                session.do(session.open(), f"t/{link}", "delete")
            assert (tree / link).is_symlink()
            continue
        session.do(session.open(), f"t/{link}", "delete")
        assert not (tree / link).is_symlink()
        assert target.exists()
    with pytest.raises(CapabilityDenied, match="leaves"):  # `access` gives no handle for it
        session.do(session.open(), "t/outside", "delete")


def test_what_is_classified_protected_or_full_is_not_deleted(session: Session, tree: Path) -> None:
    (tree / ".git").mkdir()
    (tree / "sub" / "conftest.py").write_text("")
    scope = session.open()
    for path in ("t/.env", "t/secrets/key", "t/secrets", "t/.git", "t/sub/conftest.py"):
        with pytest.raises(CapabilityDenied):
            session.do(scope, path, "delete")
        assert (tree.parent / path).exists()
    with pytest.raises(OSError, match="not empty"):
        session.do(scope, "t/sub", "delete")
    with pytest.raises(FileNotFoundError):
        session.do(scope, "t/missing", "delete")
    with pytest.raises(IsADirectoryError):
        session.do(scope, ".", "delete")
    (tree / "empty").mkdir()
    session.do(scope, "t/empty", "delete")
    assert not (tree / "empty").exists()


def test_a_hard_link_of_a_classified_file_is_neither_opened_nor_deleted(session: Session, tree: Path) -> None:
    os.link(tree / ".env", tree / "innocent")
    assert (tree / "innocent").read_text() == "alpha secret\n"  # without us it is the same content
    for method in ("open_read", "delete", "may_write"):
        with pytest.raises(CapabilityDenied, match="classified"):
            session.do(session.open(), "t/innocent", method)
    assert session.result(Invoke(session.access(session.open(), "t"), "read_many", paths=("t/innocent",)))[0] == [-1]


def test_an_open_file_is_the_one_that_was_opened(session: Session, tree: Path) -> None:
    (tree / "big").write_bytes(b"a" * PIECE + b"b")
    (tree / "other").write_bytes(b"x" * 10)
    scope = session.open()
    (handle, size), first = session.result(Invoke(session.access(scope, "t/big"), "open_read"))
    os.replace(tree / "other", tree / "big")
    assert (first, size) == (b"a" * PIECE, PIECE + 1)
    assert session.result(Invoke(handle, "piece", offset=PIECE))[1] == b"b"
    assert session.result(Invoke(handle, "piece", offset=PIECE - 1))[1] == b"ab"
    for behind in (PIECE + 1, 2**62 - 1):
        assert session.result(Invoke(handle, "piece", offset=behind))[1] == b""
    for no_place in (-1, 2**62):
        with pytest.raises(ValueError, match="a place in a file"):
            session.result(Invoke(handle, "piece", offset=no_place))
    session.result(Invoke(handle, "close"))
    with pytest.raises(CapabilityRevoked):
        session.result(Invoke(handle, "piece"))


def test_an_open_file_ends_with_its_block(session: Session, tree: Path) -> None:
    (tree / "big").write_bytes(b"a" * (PIECE + 1))
    scope = session.open()
    (handle, _size), _ = session.result(Invoke(session.access(scope, "t/big"), "open_read"))
    before = len(os.listdir("/proc/self/fd"))
    session.close_scope(scope)
    assert len(os.listdir("/proc/self/fd")) == before - 2  # the root and the file
    with pytest.raises(CapabilityRevoked):
        session.result(Invoke(handle, "piece"))


def test_open_files_are_bounded(session: Session, tree: Path) -> None:
    (tree / "big").write_bytes(b"a" * (PIECE + 1))
    entry = session.access(session.open(), "t/big")
    handles = [session.result(Invoke(entry, "open_read"))[0][0] for _ in range(64)]
    with pytest.raises(CapabilityDenied, match="64 files open"):
        session.result(Invoke(entry, "open_read"))
    session.result(Invoke(handles[0], "close"))
    session.result(Invoke(entry, "open_read"))


@pytest.mark.parametrize("path", ["t/pipe", "t/sub", "t/secrets/key", "t/missing"])
def test_only_plain_regular_files_are_opened(session: Session, tree: Path, path: str) -> None:
    with pytest.raises((CapabilityDenied, IsADirectoryError, FileNotFoundError)):
        session.do(session.open(), path, "open_read")


def test_create_takes_no_name_that_is_taken(session: Session, tree: Path) -> None:
    scope = session.open()
    session.do(scope, "t/new/x", "create", b"one")
    assert (tree / "new" / "x").read_bytes() == b"one"
    for path in ("t/new/x", "t/sub"):
        with pytest.raises(FileExistsError):
            session.do(scope, path, "create", b"two")
    with pytest.raises(CapabilityDenied):
        session.do(scope, "t/dangling", "create", b"two")
    assert (tree / "new" / "x").read_bytes() == b"one"
    assert not [name for name in os.listdir(tree / "new") if name.startswith(".capkernel-")]


def test_a_read_only_view_changes_nothing(session: Session, tree: Path) -> None:
    scope = session.open()
    view = session.result(Invoke(scope, "read_only"))[0]
    narrower = session.result(Invoke(view, "subtree", "t"))[0]
    assert session.do(narrower, "a.txt", "read_bytes") == b"alpha\nbeta\n"
    for which, prefix in ((view, "t/"), (narrower, "")):
        for method in ("write", "append", "mkdir", "create", "delete", "may_write", "may_create"):
            with pytest.raises(CapabilityDenied, match="reading alone"):
                session.do(which, prefix + "a.txt", method)
        secret = session.do(scope, "t/.env", "read_classified")
        with pytest.raises(CapabilityDenied, match="reading alone"):
            session.do(which, prefix + "secrets/new", "write_classified", secret=secret)
    assert (tree / "a.txt").read_text() == "alpha\nbeta\n"


def test_a_subtree_is_a_root_of_its_own_that_declassifies_nothing(session: Session, tree: Path) -> None:
    scope = session.open()
    view = session.result(Invoke(scope, "subtree", "t/sub"))[0]
    assert session.do(view, "b.py", "read_bytes") == b"alpha = 1\n"
    with pytest.raises(CapabilityDenied, match="leaves"):
        session.do(view, "../a.txt", "read_bytes")
    inner = session.result(Invoke(scope, "subtree", "t/secrets"))[0]
    with pytest.raises(CapabilityDenied, match="classified"):
        session.do(inner, "key", "read_bytes")
    with pytest.raises(NotADirectoryError):
        session.result(Invoke(scope, "subtree", "t/a.txt"))
    session.close_scope(scope)
    with pytest.raises(CapabilityRevoked):
        session.do(view, "b.py", "read_bytes")
