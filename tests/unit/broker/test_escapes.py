"""Ways out of a granted root and into secrets. Each is first shown to work with plain open()."""

from __future__ import annotations

import os
import shutil
import threading
import time
import unicodedata
from pathlib import Path

import pytest

from capkernel.api.errors import CapabilityDenied
from capkernel.policy import load_policy

OUTSIDE = b"outside-content"
SECRET = b"classified-content"

pytestmark = pytest.mark.usefixtures("opener")  # with the system call, and without it


@pytest.fixture
def outside(project: Path) -> Path:
    """A file next to the project, not in it, and one in a directory whose name merely begins like the project's."""
    (project.parent / "outside.txt").write_bytes(OUTSIDE)
    sibling = Path(str(project) + "-private")
    sibling.mkdir()
    (sibling / "x.txt").write_bytes(OUTSIDE)
    return project.parent


def plainly(path: Path | str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def test_dot_dot_does_not_leave_the_root(session, project, outside, opener):
    for path in ("../outside.txt", "data/../../outside.txt", f"../{project.name}-private/x.txt"):
        assert plainly(project / path) == OUTSIDE
        with pytest.raises(CapabilityDenied, match="leaves its granted root"):
            session.read(path)


def test_dot_dot_that_stays_inside_is_fine(session, project, opener):
    assert session.read("data/../data/a.txt") == b"hello\n"


def test_an_absolute_path_is_refused(session, project, outside, opener):
    path = str(outside / "outside.txt")
    assert plainly(path) == OUTSIDE
    with pytest.raises(CapabilityDenied, match="relative to the granted root"):
        session.read(path)


def test_a_root_outside_of_the_policy_is_refused(session, project, outside, opener):
    for root in ("..", str(outside), f"../{project.name}-private", str(project) + "-private", "/", "/proc/self"):
        assert os.listdir(project / root)
        with pytest.raises(CapabilityDenied, match="outside of what the policy allows"):
            session.open(root)


def test_a_link_out_of_the_root_is_refused(session, project, outside, opener):
    (project / "link.txt").symlink_to("../outside.txt")
    (project / "absolute.txt").symlink_to(outside / "outside.txt")
    (project / "up").symlink_to("..")
    for path in ("link.txt", "absolute.txt", "up/outside.txt", f"up/{project.name}-private/x.txt"):
        assert plainly(project / path) == OUTSIDE
        with pytest.raises(CapabilityDenied):
            session.read(path)


def test_a_link_out_of_the_root_is_not_written_through(session, project, outside, opener):
    (project / "link.txt").symlink_to("../outside.txt")
    (project / "up").symlink_to("..")
    scope = session.open()
    for path in ("link.txt", "up/outside.txt", "up/new.txt", "up/new/new.txt"):
        for method in ("write", "append"):
            with pytest.raises(CapabilityDenied):
                session.do(scope, path, method, b"changed")
    with pytest.raises(CapabilityDenied):
        session.do(scope, "up/made", "mkdir")
    assert plainly(outside / "outside.txt") == OUTSIDE
    assert not (outside / "new.txt").exists()
    assert not (outside / "new").exists()
    assert not (outside / "made").exists()


def test_a_dangling_link_out_of_the_root_is_not_written_through(session, project, outside, opener):
    (project / "dangling.txt").symlink_to("../not-there.txt")
    with open(project / "dangling.txt", "w") as file:  # the attack works with a plain open
        file.write("created outside")
    (outside / "not-there.txt").unlink()
    scope = session.open()
    for method in ("write", "append"):
        with pytest.raises(CapabilityDenied):
            session.do(scope, "dangling.txt", method, b"created")
    assert not (outside / "not-there.txt").exists()


def test_a_link_inside_the_root_works_where_the_system_can_follow_it_safely(session, project, opener):
    (project / "inside.txt").symlink_to("data/a.txt")
    if opener == "openat2":
        assert session.read("inside.txt") == b"hello\n"
    else:
        with pytest.raises(CapabilityDenied):
            session.read("inside.txt")


def test_a_link_to_a_classified_file_is_classified(session, project, opener):
    (project / "secrets" / "key.txt").write_bytes(SECRET)
    (project / "innocent.txt").symlink_to("secrets/key.txt")
    (project / "folder").symlink_to("secrets")
    for path in ("innocent.txt", "folder/key.txt"):
        assert plainly(project / path) == SECRET
        with pytest.raises(CapabilityDenied):
            session.read(path)


def test_the_target_of_a_classified_link_is_classified_under_its_own_name(session, project):
    (project / "config").mkdir()
    (project / "config" / "prod").write_bytes(SECRET)
    (project / ".env").unlink()
    (project / ".env").symlink_to("config/prod")
    (project / "real").mkdir()
    (project / "real" / "deep").mkdir()
    (project / "real" / "deep" / "x").write_bytes(SECRET)
    (project / ".aws").symlink_to("real")
    for path in ("config/prod", "real/deep/x"):
        assert plainly(project / path) == SECRET
        with pytest.raises(CapabilityDenied, match="classified"):
            session.read(path)


def test_a_hard_link_to_a_classified_file_is_classified(session, project, opener):
    (project / "secrets" / "key.txt").write_bytes(SECRET)
    os.link(project / "secrets" / "key.txt", project / "data" / "harmless.txt")
    assert plainly(project / "data" / "harmless.txt") == SECRET
    scope = session.open("data")  # the narrower root does not see the classified name
    for method in ("read_bytes", "size"):
        with pytest.raises(CapabilityDenied, match="classified"):
            session.do(scope, "harmless.txt", method)
    for method in ("write", "append"):
        with pytest.raises(CapabilityDenied):
            session.do(scope, "harmless.txt", method, b"x")


def test_a_hard_link_made_while_the_cell_runs_is_classified(session, project):
    (project / "secrets" / "key.txt").write_bytes(SECRET)
    assert session.read("data/a.txt") == b"hello\n"  # the index is built before the link is there
    os.link(project / "secrets" / "key.txt", project / "later.txt")
    assert plainly(project / "later.txt") == SECRET
    with pytest.raises(CapabilityDenied, match="classified"):
        session.read("later.txt")


def test_hard_links_between_plain_files_stay_readable(session, project):
    os.link(project / "data" / "a.txt", project / "data" / "b.txt")
    assert session.read("data/b.txt") == b"hello\n"


def between_judging_and_acting(session, monkeypatch, change) -> None:
    """Call `change` once, at the last moment before an effect: when it has been judged and is written down."""
    record = session.audit.record

    def and_change(what: str, decision: str, **more: object) -> None:
        record(what, decision, **more)
        if what in ("files.read", "files.write", "files.append", "files.mkdir", "files.size"):
            monkeypatch.setattr(session.audit, "record", record)
            change()

    monkeypatch.setattr(session.audit, "record", and_change)


@pytest.mark.parametrize("target", ["secrets/key.txt", "../outside.txt"])
def test_a_file_exchanged_between_check_and_use_is_still_the_checked_one(
    session, project, outside, opener, monkeypatch, target
):
    (project / "secrets" / "key.txt").write_bytes(SECRET)
    spot = project / "data" / "a.txt"

    def exchange() -> None:
        spot.rename(project / "data" / "moved.txt")
        spot.symlink_to(os.path.relpath(project / target, spot.parent))

    scope = session.open()
    between_judging_and_acting(session, monkeypatch, exchange)
    assert session.do(scope, "data/a.txt", "read_bytes") == b"hello\n"
    assert plainly(spot) in (SECRET, OUTSIDE)  # what a check by name, then an open by name would have read


@pytest.mark.parametrize("method", ["write", "append"])
def test_a_directory_exchanged_between_check_and_use_does_not_redirect_a_write(
    session, project, outside, opener, monkeypatch, method
):
    target = Path(str(project) + "-private")

    def exchange() -> None:
        (project / "data").rename(project / "moved")
        (project / "data").symlink_to(target)

    scope = session.open()
    between_judging_and_acting(session, monkeypatch, exchange)
    session.do(scope, "data/new.txt", method, b"content")
    assert (project / "moved" / "new.txt").read_bytes() == b"content"
    assert os.listdir(target) == ["x.txt"]
    (project / "data" / "plain.txt").write_text("x")  # by name it does go there
    assert sorted(os.listdir(target)) == ["plain.txt", "x.txt"]


def test_a_link_put_where_a_file_is_about_to_be_made_is_not_followed(session, project, outside, monkeypatch):
    from capkernel.broker import atomic

    scope = session.open()
    make_directories = atomic.make_directories
    for method in ("write", "append"):
        spot = project / f"new-{method}.txt"

        def and_put_link(base: int, parts: tuple[str, ...], mode: int = 0o777, spot: Path = spot) -> int:
            spot.symlink_to("../created.txt")  # after the last look at the name
            return make_directories(base, parts, mode)

        monkeypatch.setattr(atomic, "make_directories", and_put_link)
        try:
            session.do(scope, spot.name, method, b"content")
        except OSError:
            pass
        monkeypatch.undo()
        assert not (outside / "created.txt").exists()
    with open(project / "new-append.txt", "a") as file:  # a plain open follows it
        file.write("x")
    assert (outside / "created.txt").exists()
    (outside / "created.txt").unlink()


def test_a_link_that_becomes_classified_is_refused_by_its_name(session, project, opener):
    assert session.read("data/a.txt") == b"hello\n"  # the index of other names is built, without the link
    (project / "secrets" / "link").symlink_to("../data/a.txt")
    with pytest.raises(CapabilityDenied, match="classified" if opener == "openat2" else "leaves"):
        session.read("secrets/link")


def test_a_dangling_link_is_not_replaced(session, project):
    (project / "dangling").symlink_to("not-there")
    for method in ("write", "append", "mkdir"):
        with pytest.raises(CapabilityDenied):
            session.do(session.open(), "dangling", method, b"x")
    assert (project / "dangling").is_symlink()
    assert not (project / "not-there").exists()


def test_swapping_a_file_for_a_link_meanwhile_gains_nothing(session, project, outside, opener):
    """Somebody exchanges an innocent file and links as fast as they can; the broker never reads across."""
    (project / "secrets" / "key.txt").write_bytes(SECRET)
    spot = project / "spot.txt"
    spot.write_bytes(b"innocent")
    stop = threading.Event()

    def swap() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            fresh = project / f"swap{turn % 2}"
            fresh.unlink(missing_ok=True)
            if turn % 3 == 0:
                fresh.write_bytes(b"innocent")
            else:
                fresh.symlink_to("../outside.txt" if turn % 3 == 1 else "secrets/key.txt")
            fresh.replace(spot)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = {"plain": set(), "broker": set()}
    refused = 0
    try:
        limit = time.monotonic() + 20
        while not {OUTSIDE, SECRET} <= seen["plain"] and time.monotonic() < limit:
            seen["plain"].add(plainly(spot))
        limit = time.monotonic() + 2
        while time.monotonic() < limit:
            try:
                seen["broker"].add(session.read("spot.txt"))
            except (CapabilityDenied, FileNotFoundError):
                refused += 1
    finally:
        stop.set()
        swapper.join()
    assert {OUTSIDE, SECRET} <= seen["plain"], "the race does not happen here, so this shows nothing"
    assert seen["broker"] <= {b"innocent", b""}  # "" while the swapper has just created the file
    assert refused


def test_swapping_a_directory_meanwhile_does_not_redirect_a_write(session, project, outside):
    (project / "work").mkdir()
    (project / "work2").symlink_to(outside)
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for source, target in (("work", "work3"), ("work2", "work"), ("work", "work2"), ("work3", "work")):
                try:
                    os.rename(project / source, project / target)
                except OSError:
                    pass

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        escaped = False
        limit = time.monotonic() + 20
        while time.monotonic() < limit:
            try:
                with open(project / "work" / "escaped.txt", "w") as file:
                    file.write("x")
            except OSError:
                pass
            if (outside / "escaped.txt").exists():
                escaped = True
                break
        scope = session.open()
        limit = time.monotonic() + 2
        while time.monotonic() < limit:
            try:
                session.do(scope, "work/mine.txt", "write", b"x")
            except (CapabilityDenied, OSError):
                pass
    finally:
        stop.set()
        swapper.join()
    assert escaped, "the race does not happen here, so this shows nothing"
    assert not (outside / "mine.txt").exists()


@pytest.mark.timeout(20)
def test_a_fifo_neither_blocks_nor_is_read(session, project):
    os.mkfifo(project / "pipe")
    read_end = os.open(project / "pipe", os.O_RDONLY | os.O_NONBLOCK)  # a plain blocking open would hang here for ever
    os.close(read_end)
    scope = session.open()
    for method in ("read_bytes", "size", "read_classified", "write", "append"):
        with pytest.raises(CapabilityDenied, match="regular"):
            session.do(scope, "pipe", method)
    assert session.do(scope, "pipe", "exists") is True


def test_devices_and_sockets_are_not_opened(start, session, project):
    import socket

    listener = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(project)  # the path of a socket is short
    try:
        listener.bind("sock")
    finally:
        os.chdir(here)
        listener.close()
    scope = session.open()
    with pytest.raises(CapabilityDenied, match="regular"):
        session.do(scope, "sock", "read_bytes")
    (project / "policy.toml").write_text("[files]\nroots = ['/dev']\n")
    with open("/dev/zero", "rb") as device:
        assert device.read(4) == b"\0\0\0\0"
    careless = start(load_policy(project / "policy.toml"))  # and without the exclusion of /dev
    careless.cell()
    for method in ("read_bytes", "read_classified", "write", "append"):
        with pytest.raises(CapabilityDenied, match="regular"):
            careless.do(careless.open("/dev"), "zero", method)


def test_magic_links_are_not_followed(start, project):
    from capkernel.broker import confine

    with open(project / "data" / "a.txt", "rb") as file:
        beneath = os.open("/proc/self/fd", os.O_PATH | os.O_DIRECTORY)
        try:
            assert plainly(f"/proc/self/fd/{file.fileno()}") == b"hello\n"
            with pytest.raises(OSError):
                os.close(confine.open_beneath(beneath, str(file.fileno()), os.O_RDONLY))
        finally:
            os.close(beneath)


@pytest.mark.parametrize("name", [".ENV", ".Env", "SECRETS/x", "Server.PEM", "ID_RSA", "Credentials.json"])
def test_another_case_is_the_same_secret(session, project, name):
    path = project / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(SECRET)
    assert plainly(path) == SECRET
    with pytest.raises(CapabilityDenied, match="classified"):
        session.read(name)


def test_another_unicode_form_is_the_same_secret(start, project):
    import msgspec

    from capkernel.policy import default_policy

    composed, decomposed = (unicodedata.normalize(form, "gehälter.csv") for form in ("NFC", "NFD"))
    assert composed != decomposed
    (project / decomposed).write_bytes(SECRET)
    assert plainly(project / decomposed) == SECRET
    policy = default_policy(project)
    policy = type(policy)(
        policy.profile,
        msgspec.structs.replace(policy.files, classified=(composed,)),
        policy.limits,
        policy.sandbox,
        project,
    )
    session = start(policy)
    session.cell()
    with pytest.raises(CapabilityDenied, match="classified"):
        session.read(decomposed)


def test_a_classified_directory_is_classified_from_whatever_root(session, project):
    (project / "secrets" / "deep").mkdir()
    (project / "secrets" / "deep" / "x").write_bytes(SECRET)
    assert plainly(project / "secrets" / "deep" / "x") == SECRET
    for root, path in ((".", "secrets/deep/x"), ("secrets", "deep/x"), ("secrets/deep", "x"), ("data", "a.txt")):
        if root == "data":
            assert session.read(path, root) == b"hello\n"
            continue
        with pytest.raises(CapabilityDenied):
            session.read(path, root)


def test_editor_copies_of_a_secret_are_secrets(session, project):
    names = (".env~", "..env.swp", ".env.swp", "#.env#", ".env.bak", ".env.orig", ".ipynb_checkpoints/.env-checkpoint")
    for name in names:
        path = project / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(SECRET)
        with pytest.raises(CapabilityDenied, match="classified"):
            session.read(name)


def test_a_renamed_file_that_was_deleted_is_not_there(session, project):
    scope = session.open()
    entry = session.access(scope, "data/a.txt")
    shutil.rmtree(project / "data")
    from capkernel.wire.worker import Invoke

    with pytest.raises(FileNotFoundError) as caught:
        session.result(Invoke(entry, "read_bytes"))
    assert caught.value.filename == "data/a.txt"
