"""What plain effects do, what they refuse, and what their errors say."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import time

import pytest

from capkernel.api.errors import CapabilityDenied, CapabilityRevoked
from capkernel.broker.files import FileEffects
from capkernel.policy import Exclusions, load_policy
from capkernel.wire.plan import NOTHING, Plan, ScopeSite, Span
from capkernel.wire.worker import Call, CallResult, CloseScope, Invoke, OpenScope

pytestmark = pytest.mark.usefixtures("opener")  # with the system call, and without it


def test_results_have_the_shapes_the_cell_expects(session, project):
    scope = session.open()
    (handle, name), blob = session.result(Invoke(scope, "access", "./data//a.txt"))
    assert (name, blob) == ("data/a.txt", b"")
    assert session.result(Invoke(handle, "exists")) == (True, b"")
    assert session.result(Invoke(handle, "is_directory")) == (False, b"")
    assert session.result(Invoke(handle, "is_classified")) == (False, b"")
    assert session.result(Invoke(handle, "size")) == (6, b"")
    assert session.result(Invoke(handle, "read_bytes"))[1] == b"hello\n"
    (folder, _), _ = session.result(Invoke(scope, "access", "data"))
    [[child, child_name]], _ = session.result(Invoke(folder, "children"))
    assert child_name == "data/a.txt"
    assert session.result(Invoke(child, "read_bytes"))[1] == b"hello\n"


def test_children_are_sorted_and_leave_out_what_is_excluded(start, project):
    (project / "venv").mkdir()
    (project / "venv" / "pyvenv.cfg").touch()
    (project / "library").mkdir()
    session = start(exclusions=Exclusions([(str(project / "library"), "a library")]))
    session.cell()
    scope = session.open()
    names = [name for _handle, name in session.do(scope, ".", "children")]
    assert names == [".env", "data", "secrets"]
    for path in ("venv", "venv/pyvenv.cfg", "library/x"):
        with pytest.raises(CapabilityDenied, match="no file is granted here"):
            session.access(scope, path)
    with pytest.raises(CapabilityDenied, match="no file is granted here"):
        session.open("venv")


def test_writing_creates_parents_and_replaces_whole(session, project):
    scope = session.open()
    session.do(scope, "out/deep/x.txt", "write", b"one")
    session.do(scope, "out/deep/x.txt", "write", b"two")
    assert (project / "out/deep/x.txt").read_bytes() == b"two"
    assert os.listdir(project / "out/deep") == ["x.txt"]  # nothing temporary is left


def test_writing_keeps_permissions_but_no_set_user_id(session, project):
    path = project / "data" / "a.txt"
    path.chmod(0o4750)
    session.do(session.open(), "data/a.txt", "write", b"x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o750


def test_appending_creates_then_adds(session, project):
    scope = session.open()
    session.do(scope, "log/x.txt", "append", b"one ")
    session.do(scope, "log/x.txt", "append", b"two")
    assert (project / "log/x.txt").read_bytes() == b"one two"


def test_appending_to_one_of_several_names_is_refused(session, project):
    os.link(project / "data" / "a.txt", project / "data" / "b.txt")
    with pytest.raises(CapabilityDenied, match="hard links"):
        session.do(session.open(), "data/b.txt", "append", b"x")


def test_making_a_directory_with_parents_and_again(session, project):
    scope = session.open()
    session.do(scope, "a/b/c", "mkdir")
    session.do(scope, "a/b/c", "mkdir")
    assert (project / "a/b/c").is_dir()
    with pytest.raises(FileExistsError):
        session.do(scope, "data/a.txt", "mkdir")


def test_errors_name_the_path_as_the_cell_wrote_it(session, project):
    scope = session.open("data")
    for path, method, kind in (
        ("missing.txt", "read_bytes", FileNotFoundError),
        ("no/where.txt", "size", FileNotFoundError),
        (".", "read_bytes", IsADirectoryError),
        (".", "write", IsADirectoryError),
        ("a.txt/b", "read_bytes", NotADirectoryError),
        ("a.txt", "children", NotADirectoryError),
        ("missing", "children", FileNotFoundError),
    ):
        try:
            handle = session.access(scope, path)
        except kind as problem:
            caught = problem
        else:
            with pytest.raises(kind) as info:
                session.result(Invoke(handle, method), b"x")
            caught = info.value
        assert caught.filename == path
        assert str(project) not in str(caught)
    with pytest.raises(FileNotFoundError) as info:
        session.open("missing")
    assert info.value.filename == "missing"
    with pytest.raises(NotADirectoryError):
        session.open("data/a.txt")


def test_exists_answers_false_for_what_is_not_there(session):
    scope = session.open()
    assert session.do(scope, "nothing/at/all", "exists") is False
    assert session.do(scope, "nothing", "is_directory") is False


@pytest.mark.parametrize("path", ["a\0b", "x" * 256, "d/" * 300 + "x", "y" * 5000])
def test_nonsense_paths_are_refused(session, path):
    with pytest.raises((ValueError, OSError)):
        session.access(session.open(), path)


def test_classified_paths_allow_names_only(session):
    scope = session.open()
    assert session.do(scope, "secrets/key.txt", "exists") is True
    assert session.do(scope, "secrets", "is_directory") is True
    assert session.do(scope, "secrets/key.txt", "is_classified") is True
    assert session.do(scope, "secrets/none", "is_classified") is True
    for path, method in (
        ("secrets/key.txt", "read_bytes"),
        ("secrets/key.txt", "size"),
        ("secrets/key.txt", "write"),
        ("secrets/key.txt", "append"),
        ("secrets/new.txt", "write"),
        ("secrets", "children"),
        ("secrets/new", "mkdir"),
        (".env", "read_bytes"),
    ):
        with pytest.raises(CapabilityDenied, match="read_classified"):
            session.do(scope, path, method, b"x")


@pytest.mark.parametrize(
    "path",
    [".git/config", ".GIT/hooks/pre-commit", "sub/.git", "book.ipynb", "x/CONFTEST.py", "a.pth", ".vscode/t.json"],
)
def test_protected_paths_are_read_and_not_written(session, project, path):
    file = project / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"old")
    scope = session.open()
    assert session.do(scope, path, "read_bytes") == b"old"
    for method in ("write", "append"):
        with pytest.raises(CapabilityDenied, match="protected"):
            session.do(scope, path, method, b"new")
    assert file.read_bytes() == b"old"


def test_protected_directories_are_not_made_and_a_narrower_root_does_not_help(session, project):
    with pytest.raises(CapabilityDenied, match="protected"):
        session.do(session.open(), "sub/.git", "mkdir")
    (project / ".git" / "hooks").mkdir(parents=True)
    with pytest.raises(CapabilityDenied, match="protected"):
        session.do(session.open(".git/hooks"), "pre-commit", "write", b"#!/bin/sh\n")


def test_unprotect_names_what_may_be_written(start, project, tmp_path_factory):
    policy_file = project / "policy.toml"
    policy_file.write_text('[files]\nunprotect = ["*.ipynb"]\n')
    session = start(load_policy(policy_file))
    session.cell()
    scope = session.open()
    session.do(scope, "book.ipynb", "write", b"{}")
    with pytest.raises(CapabilityDenied, match="protected"):
        session.do(scope, "conftest.py", "write", b"")


def test_files_that_the_trusted_side_would_import_are_not_written(start, project):
    session = start(exclusions=Exclusions([], imports=[str(project)]))
    session.cell()
    scope = session.open()
    session.do(scope, "data/table.csv", "write", b"1")
    with pytest.raises(CapabilityDenied, match="imports"):
        session.do(scope, "msgspec.py", "write", b"")


def test_the_policy_file_is_excluded_also_by_another_name(start, project):
    policy_file = project / "capkernel.toml"
    policy_file.write_text('profile = "strict"\n')
    os.link(policy_file, project / "innocent.txt")
    session = start(load_policy(policy_file), exclusions=Exclusions.ambient(policy_file))
    session.cell()
    scope = session.open()
    for path in ("capkernel.toml", "innocent.txt"):
        with pytest.raises(CapabilityDenied, match="policy file"):
            session.access(scope, path)


# ── authority = policy ∩ plan ∩ now ──────────────────────────────────────────────────────────────────────────────────


def test_only_roots_that_the_plan_lists_are_opened(start, project):
    site = ScopeSite("file_system", "data", 1, Span(1, 0, 1, 1))
    session = start()
    session.cell(Plan(scopes=(site,)))
    session.open("data")
    for root in (".", "data/", "./data", "secrets"):
        with pytest.raises(CapabilityDenied, match="plan of the running cell"):
            session.open(root)
    session.cell(NOTHING)
    with pytest.raises(CapabilityDenied, match="plan of the running cell"):
        session.open("data")


def test_nothing_is_done_while_no_cell_runs(start):
    session = start()
    with pytest.raises(CapabilityDenied, match="no cell is running"):
        session.open()
    session.cell()
    scope = session.open()
    entry = session.access(scope, "data/a.txt")
    session.end()
    with pytest.raises(CapabilityDenied, match="no cell is running"):
        session.result(OpenScope("file_system", "."))
    for effect in (Invoke(scope, "access", "x"), Invoke(entry, "read_bytes")):
        with pytest.raises(CapabilityRevoked, match="no cell is running"):
            session.result(effect)


def test_a_scope_is_dead_in_the_next_cell(start):
    session = start()
    session.cell()
    scope = session.open()
    entry = session.access(scope, "data/a.txt")
    session.cell()
    for effect in (Invoke(scope, "access", "x"), Invoke(entry, "read_bytes")):
        with pytest.raises(CapabilityRevoked):
            session.result(effect)


def test_leaving_the_block_ends_what_was_granted_in_it_and_nothing_else(session):
    outer, inner = session.open(), session.open("data")
    kept = session.access(outer, "data/a.txt")
    lost = session.access(inner, "a.txt")
    session.close_scope(inner)
    with pytest.raises(CapabilityRevoked):
        session.result(Invoke(lost, "read_bytes"))
    assert session.result(Invoke(kept, "read_bytes"))[1] == b"hello\n"
    session.result(CloseScope(inner))  # closing twice is fine


def test_made_up_handles_and_methods_are_refused(session):
    with pytest.raises(CapabilityRevoked):
        session.result(Invoke("0" * 32, "read_bytes"))
    scope = session.open()
    entry = session.access(scope, "data/a.txt")
    for handle, method in ((scope, "read_bytes"), (entry, "access"), (entry, "__class__"), (entry, "x" * 99)):
        with pytest.raises(TypeError, match="has no method"):
            session.result(Invoke(handle, method))


def test_closing_a_file_handle_does_not_end_its_scope(session):
    scope = session.open()
    entry = session.access(scope, "data/a.txt")
    session.result(CloseScope(entry))
    assert session.result(Invoke(entry, "read_bytes"))[1] == b"hello\n"


def test_without_roots_the_refusal_says_what_to_do(start, project, monkeypatch):
    monkeypatch.setenv("HOME", str(project))
    session = start(base=project)
    session.cell()
    with pytest.raises(CapabilityDenied, match="project directory"):
        session.open()


def test_asking_again_gives_the_same_handle(session):
    scope = session.open()
    assert session.access(scope, "data/a.txt") == session.access(scope, "data/a.txt")


def test_an_absolute_root_of_the_policy_may_be_named_absolutely(start, project, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    (other / "x.csv").write_text("1\n")
    policy_file = project / "p.toml"
    policy_file.write_text(f"[files]\nroots = ['.', {json.dumps(str(other))}]\n")
    session = start(load_policy(policy_file))
    session.cell()
    scope = session.open(str(other))
    assert session.do(scope, str(other / "x.csv"), "read_bytes") == b"1\n"
    with pytest.raises(CapabilityDenied):
        session.access(scope, str(project / ".env"))


def test_an_unforeseen_error_is_a_failure_without_details(session, monkeypatch):
    def broken(*_: object) -> bytes:
        raise RuntimeError("super-secret detail")

    monkeypatch.setattr(FileEffects, "read", broken)
    with pytest.raises(RuntimeError) as caught:
        session.read("data/a.txt")
    assert "super-secret" not in str(caught.value)
    assert "RuntimeError" in str(caught.value)


def test_effects_are_audited_before_they_happen(session, project):
    scope = session.open()
    session.do(scope, "data/a.txt", "read_bytes")
    with pytest.raises(CapabilityDenied):
        session.do(scope, ".env", "read_bytes")
    with pytest.raises(CapabilityDenied):
        session.do(scope, "../x", "read_bytes")
    lines = [json.loads(line) for line in session.audit_file.read_text().splitlines()]
    said = [(line["what"], line["decision"], line["path"]) for line in lines]
    assert ("files.open_scope", "allowed", ".") in said
    assert ("files.read", "allowed", "data/a.txt") in said
    assert ("files.read", "denied", ".env") in said
    assert ("files.access", "denied", "../x") in said
    text = session.audit_file.read_text()
    assert str(project) not in text
    assert "hello" not in text
    assert "shop" not in text


def test_without_an_audit_nothing_happens(session, project):
    scope = session.open()
    entry = session.access(scope, "data/a.txt")
    session.audit.close()
    for effect, blob in (
        (OpenScope("file_system", "."), b""),
        (Invoke(entry, "read_bytes"), b""),
        (Invoke(entry, "write"), b"changed"),
    ):
        with pytest.raises(CapabilityDenied, match="audit"):
            session.result(effect, blob)
    assert (project / "data/a.txt").read_bytes() == b"hello\n"


def test_a_write_does_not_land_after_its_scope_has_ended(session, project, monkeypatch):
    from capkernel.broker import atomic

    scope = session.open()
    written = atomic.write_all

    def end_meanwhile(fd: int, data: bytes) -> None:
        written(fd, data)
        session.broker.close_cell()

    monkeypatch.setattr(atomic, "write_all", end_meanwhile)
    with pytest.raises(CapabilityRevoked):
        session.do(scope, "data/a.txt", "write", b"late")
    assert (project / "data/a.txt").read_bytes() == b"hello\n"
    assert sorted(os.listdir(project / "data")) == ["a.txt"]


def test_no_descriptors_leak(session):
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    session.read("data/a.txt")
    before = count()
    for _ in range(30):
        session.read("data/a.txt")
        for path, method in ((".env", "read_bytes"), ("../x", "size"), ("new/y", "size"), ("data", "read_bytes")):
            scope = session.open()
            with pytest.raises((OSError, ValueError)):
                session.do(scope, path, method)
            session.close_scope(scope)
    assert count() == before


def test_sizes_are_bounded(session, project, monkeypatch):
    from capkernel.broker import files, trees

    monkeypatch.setattr(files, "MAX_READ", 5)
    with pytest.raises(OSError, match="more than 5 bytes") as caught:
        session.read("data/a.txt")
    assert caught.value.filename == "data/a.txt"
    monkeypatch.setattr(trees, "MAX_ENTRIES", 2)
    with pytest.raises(OSError, match="too much in it"):
        session.do(session.open(), ".", "children")
    monkeypatch.undo()
    monkeypatch.setattr(trees, "MAX_CHARACTERS", 5)
    with pytest.raises(OSError, match="too much in it"):
        session.do(session.open(), ".", "children")


def test_many_calls_at_once_are_answered_or_refused(session):
    entry = session.access(session.open(), "data/a.txt")

    async def many() -> list[tuple[CallResult, bytes]]:
        calls = [session.broker.call(Call(number, Invoke(entry, "read_bytes")), b"") for number in range(100)]
        return await asyncio.gather(*calls)

    answers = session.loop.run_until_complete(many())
    assert [answer.call for answer, _blob in answers] == list(range(100))
    good = [blob for answer, blob in answers if answer.error is None]
    refused = [answer.error.kind for answer, _blob in answers if answer.error is not None]
    assert good == [b"hello\n"] * 64
    assert refused == ["CapabilityDenied"] * 36
    assert session.result(Invoke(entry, "read_bytes"))[1] == b"hello\n"


def test_a_cancelled_call_runs_to_its_end_and_leaves_no_descriptor(session, project, monkeypatch):
    from capkernel.broker import atomic

    entry = session.access(session.open(), "data/a.txt")
    session.result(Invoke(entry, "write"), b"one")
    before = len(os.listdir("/proc/self/fd"))
    written = atomic.write_all

    def slowly(fd: int, data: bytes) -> None:
        time.sleep(0.2)
        written(fd, data)

    monkeypatch.setattr(atomic, "write_all", slowly)

    async def cancel() -> None:
        task = asyncio.create_task(session.broker.call(Call(1, Invoke(entry, "write")), b"two"))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait({task})

    session.loop.run_until_complete(cancel())
    assert (project / "data/a.txt").read_bytes() == b"two"
    assert len(os.listdir("/proc/self/fd")) == before
