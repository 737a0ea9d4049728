"""Files are read and written exactly where an oracle says that a path stays inside: random trees, links, odd names."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from file_broker import FileBroker, tree
from hypothesis import given, settings
from hypothesis import strategies as st

from capkernel.broker import confine
from capkernel.wire.worker import CloseScope, OpenScope

NAMES = ["a", "b", "é", "e\N{COMBINING ACUTE ACCENT}", "a b", "-rf", "...", "x\ny", "*", "A", "\N{SOFT HYPHEN}", "~"]
names = st.sampled_from(NAMES)
parts = st.lists(st.one_of(names, names, names, st.just(".."), st.just(".")), min_size=1, max_size=5)
paths = parts.map("/".join)
targets = st.one_of(paths, paths, paths.map("../root-private/".__add__), paths.map("../".__add__),
                    paths.map("/nowhere/".__add__), st.just("<root>/a"), st.just("<outside>/a"))  # fmt: skip
kinds = st.one_of(st.just("file"), st.just("folder"), targets)
places = st.lists(names, min_size=1, max_size=3).map("/".join)
things = st.lists(st.tuples(places, kinds), max_size=12)


def build(root: Path, outside: Path, wanted: list[tuple[str, str]]) -> None:
    """What of it can be made, in this order."""
    for path, kind in wanted:
        place = root / path
        with contextlib.suppress(OSError):
            place.parent.mkdir(parents=True, exist_ok=True)
            if os.path.realpath(place.parent) != str(place.parent):
                continue  # nothing is put through a link
            if kind == "file":
                place.write_bytes(path.encode())
            elif kind == "folder":
                place.mkdir()
            else:
                place.symlink_to(kind.replace("<root>", str(root)).replace("<outside>", str(outside)))


def inside(root: Path, path: str) -> bool:
    real = os.path.realpath(root / path)
    return real == str(root) or real.startswith(f"{root}/")


def meets_a_link(root: Path, path: str) -> bool:
    """Whether a link, or something that is not there, stands on the way: what comes of those is another's question."""
    current = str(root)
    for part in path.split("/")[:-1]:
        current = os.path.normpath(os.path.join(current, part))
        if os.path.islink(current) or not os.path.isdir(current) or not inside(root, os.path.relpath(current, root)):
            return True
    return os.path.islink(root / path) or not inside(root, path)


@contextmanager
def world(wanted: list[tuple[str, str]]) -> Iterator[tuple[Path, FileBroker]]:
    base = Path(tempfile.mkdtemp()).resolve()
    root, outside = base / "root", base / "root-private"
    try:
        for folder in (root, outside, base / "audit"):
            folder.mkdir()
        for name in ("a", "b"):
            (outside / name).write_bytes(b"outside")
            (base / name).write_bytes(b"above")
        build(root, outside, wanted)
        broker = FileBroker(root, base / "audit")
        try:
            broker.begin_cell()
            yield root, broker
        finally:
            broker.close()
    finally:
        shutil.rmtree(base)


def check(wanted: list[tuple[str, str]], asked: list[str]) -> None:
    with world(wanted) as (root, broker):
        beyond = {p: c for p, c in tree(root.parent).items() if not p.startswith(("root/", "audit"))}
        for number, path in enumerate(asked):
            view = broker.ask(OpenScope("file_system", "."))
            reads(broker, view, root, path)
            writes(broker, view, root, path, f"new {number}".encode())
            broker.ask(CloseScope(view))
            now = {p: c for p, c in tree(root.parent).items() if not p.startswith(("root/", "audit"))}
            assert now == beyond


def reads(broker: FileBroker, view: str, root: Path, path: str) -> None:
    real = Path(os.path.realpath(root / path))
    try:
        content = broker.do(view, path, "read_bytes")
    except OSError:
        assert meets_a_link(root, path) or not real.is_file()
    else:
        assert inside(root, path)
        assert content == real.read_bytes()


def writes(broker: FileBroker, view: str, root: Path, path: str, content: bytes) -> None:
    before, real, plain = tree(root), Path(os.path.realpath(root / path)), not meets_a_link(root, path)
    fits = not real.is_dir() and real.parent.is_dir() and path.rpartition("/")[2] not in (".", "..")
    try:
        broker.do(view, path, "write", content)
    except OSError:
        assert not (plain and fits)
        assert tree(root) == before
    else:
        assert real.read_bytes() == content
        changed = {p for p, c in tree(root).items() if before.get(p, b"?") != c}
        assert changed
        assert all(f"{real}/".startswith(f"{root}/{p}/") for p in changed), "more than the file and its folders"


ways = pytest.mark.parametrize("way", ["openat2", "walk"])


@contextmanager
def by(way: str) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if way == "walk":
            patch.setattr(confine, "openat2_works", lambda: False)
        patch.setattr(os, "fsync", lambda _fd: None)
        yield


@ways
@settings(max_examples=120, deadline=None, derandomize=True)
@given(wanted=things, asked=st.lists(paths, min_size=1, max_size=6))
def test_an_effect_happens_where_the_oracle_says(way: str, wanted: list[tuple[str, str]], asked: list[str]) -> None:
    with by(way):
        check(wanted, asked)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@ways
@settings(max_examples=5000, deadline=None, derandomize=True)
@given(wanted=things, asked=st.lists(paths, min_size=1, max_size=8))
def test_an_effect_happens_where_the_oracle_says_for_long(
    way: str, wanted: list[tuple[str, str]], asked: list[str]
) -> None:
    with by(way):
        check(wanted, asked)


def test_the_oracle_and_a_plain_open_disagree() -> None:
    """Without confinement the same trees are left: what the property would find."""
    with world([("a", "../root-private/a")]) as (root, broker):
        assert (root / "a").read_bytes() == b"outside"
        assert not inside(root, "a")
        assert not inside(root, "../b")
        view = broker.ask(OpenScope("file_system", "."))
        with pytest.raises(OSError, match="leaves its granted root"):
            broker.do(view, "a", "read_bytes")
