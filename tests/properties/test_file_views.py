"""Views of files: whatever is granted, narrowed and revoked in whatever order, no view does more than its parent."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from file_broker import FileBroker, Tree, tree
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from capkernel.api.errors import CapabilityDenied, CapabilityRevoked
from capkernel.wire.worker import CloseScope, Invoke, OpenScope

ROOTS = [".", ".", "a", "a/b", "in", "out", "..", "a/../c"]
FOLDERS = ["a", "a/b", "b", "c", "in", "up", "up/c", "out", "..", "../c", "f", "nowhere", "a/../a"]
FILES = ["f", "a/f", "b/f", "c/f", "a/b/f", "in/f", "up/f", "up/c/f", "out/f", "../f", "../c/f", "../../f", "new",
         "a/new/x", "../new", "c", "."]  # fmt: skip
which = st.sampled_from(range(64))
READS = ("read_bytes", "size", "exists", "children", "open_read", "files")
WRITES = ("write", "append", "create", "mkdir", "delete")
METHODS = [*READS, *WRITES, "write", "read_bytes"]


@dataclass(frozen=True)
class View:
    """What a file system may do, as the model has it."""

    handle: str
    parent: View | None
    scope: str
    folder: str  # where it really is
    writable: bool


class Views(RuleBasedStateMachine):
    """A tree with links; the model knows of each view its folder, whether it writes, and the block it ends with."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Path(tempfile.mkdtemp()).resolve()
        self.root = self.base / "root"
        (self.root / "a" / "b").mkdir(parents=True)
        (self.root / "c").mkdir()
        (self.base / "root-private").mkdir()
        for place in ("root/f", "root/a/f", "root/a/b/f", "root/c/f", "root-private/f", "f"):
            (self.base / place).write_bytes(place.encode())
        (self.root / "in").symlink_to("a/b")
        (self.root / "out").symlink_to("../root-private")
        (self.root / "a" / "up").symlink_to("..")
        (self.root / "a" / "out").symlink_to("../../root-private")
        self.broker = FileBroker(self.root, self.base / "audit")
        self.live: set[str] = set()  # scopes
        self.known: list[View] = []
        self.outside = self.beyond()
        self.cell = False

    def beyond(self) -> Tree:
        """All that no view may touch."""
        return {p: c for p, c in tree(self.base).items() if not p.startswith(("root/", "audit"))}

    def teardown(self) -> None:
        self.broker.close()
        shutil.rmtree(self.base)

    def is_live(self, view: View) -> bool:
        return self.cell and view.scope in self.live

    def real(self, folder: str, path: str) -> str | None:
        """Where the path leads, None when it is not below the folder."""
        where = os.path.realpath(os.path.join(folder, path))
        return where if where == folder or where.startswith(folder + "/") else None

    @initialize()
    def first(self) -> None:
        self.begin_cell()
        self.grant(".")
        self.narrow(1, "a")
        self.narrow(1, "")
        self.narrow(2, "b")

    def chosen(self, which: int) -> View:
        """A view that was ever made; mostly one that lives."""
        live = [view for view in self.known if self.is_live(view)]
        among = live if live and which < 56 else self.known
        return among[which % len(among)]

    @rule(what=st.sampled_from(["cell", "no cell", "block", "block", "grant", "grant", "grant"]), which=which,
          root=st.sampled_from(ROOTS))  # fmt: skip
    def change(self, what: str, which: int, root: str) -> None:
        """What begins and what ends."""
        if what == "cell":
            self.begin_cell()
        elif what == "no cell":
            self.end_cell()
        elif what == "block":
            self.revoke(self.chosen(which))
        else:
            self.grant(root)

    def begin_cell(self) -> None:
        self.broker.begin_cell()
        self.cell = True
        self.live.clear()

    def end_cell(self) -> None:
        self.broker.end_cell()
        self.cell = False
        self.live.clear()

    def grant(self, root: str) -> None:
        folder = self.real(str(self.root), root)
        if not self.cell:
            with pytest.raises(CapabilityDenied, match="no cell is running"):
                self.broker.ask(OpenScope("file_system", root))
            return
        if folder is None or not os.path.isdir(folder):
            with pytest.raises((CapabilityDenied, OSError)):
                self.broker.ask(OpenScope("file_system", root))
            return
        handle = self.broker.ask(OpenScope("file_system", root))
        self.live.add(handle)
        self.known.append(View(handle, None, handle, folder, True))

    @rule(which=which, path=st.sampled_from([*FOLDERS, *[""] * 6]))
    def narrow(self, which: int, path: str) -> None:
        """A view of a view: below `path`, or for reading alone when that is empty."""
        view = self.chosen(which)
        effect = Invoke(view.handle, "subtree", path) if path else Invoke(view.handle, "read_only")
        if not self.is_live(view):
            with pytest.raises(CapabilityRevoked):
                self.broker.ask(effect)
            return
        try:
            handle = self.broker.ask(effect)
        except OSError:
            # It may also be refused for how it gets there; never for being a folder below that is named plainly.
            assert path
            assert ".." in path or "up" in path or not self.is_folder(view, path)
            return
        folder = self.real(view.folder, path or ".")
        assert folder is not None, "a view of what is not in its parent"
        self.known.append(View(handle, view, view.scope, folder, view.writable and bool(path)))

    def is_folder(self, view: View, path: str) -> bool:
        folder = self.real(view.folder, path)
        return folder is not None and os.path.isdir(folder)

    def revoke(self, view: View) -> None:
        self.broker.ask(CloseScope(view.handle))
        self.live.discard(view.handle)  # of what is no block, nothing ends

    @rule(acts=st.lists(st.tuples(which, st.sampled_from(FILES), st.sampled_from(METHODS)), min_size=1, max_size=8))
    def act(self, acts: list[tuple[int, str, str]]) -> None:
        for which, path, method in acts:
            self.act_once(self.chosen(which), path, method, f"{method} {which}".encode())

    def act_once(self, view: View, path: str, method: str, content: bytes) -> None:
        before = tree(self.root)
        try:
            answer = self.broker.do(view.handle, path, method, content)
        except CapabilityRevoked:
            assert not self.is_live(view)
        except CapabilityDenied:
            assert self.is_live(view)
            plain = "up" not in path and ".." not in path and self.real(view.folder, path) is not None
            assert not plain or (method in WRITES and not view.writable)
        except OSError:
            assert self.is_live(view)
        else:
            self.happened(view, path, method, content, answer, before)
            return
        assert tree(self.root) == before

    def happened(self, view: View, path: str, method: str, content: bytes, answer: object, before: Tree) -> None:
        """Something was done: then the model allows it to the view and to everything that the view came from."""
        after = tree(self.root)
        changed = {p for p in before.keys() | after.keys() if before.get(p, b"?") != after.get(p, b"?")}
        above: View | None = view
        while above is not None:
            assert self.is_live(above)
            assert above.writable or not changed
            assert all(f"{self.root}/{p}".startswith(f"{above.folder}/") for p in changed)
            above = above.parent
        where = self.real(view.folder, path)
        assert method in WRITES or not changed
        if method == "delete":
            assert len(changed) == 1
        elif method != "exists" or answer:
            assert where is not None
        if method == "read_bytes":
            assert where is not None
            assert answer == Path(where).read_bytes()
        if method in ("write", "create"):
            assert where is not None
            assert Path(where).read_bytes() == content

    @invariant()
    def nothing_outside_is_touched(self) -> None:
        assert self.beyond() == self.outside

    @invariant()
    def what_ended_is_dead(self) -> None:
        for view in self.known[-6:]:
            if not self.is_live(view):
                with pytest.raises(CapabilityRevoked):
                    self.broker.ask(Invoke(view.handle, "access", "f"))


# Without shrinking: each step is many effects, and a failure says what was done.
_PHASES = (Phase.explicit, Phase.generate)
TestViews = Views.TestCase
TestViews.settings = settings(max_examples=60, stateful_step_count=15, deadline=None, derandomize=True, phases=_PHASES)


@pytest.mark.slow
@pytest.mark.timeout(1800)
class TestViewsForLong(Views.TestCase):
    settings = settings(max_examples=2000, stateful_step_count=40, deadline=None, derandomize=True, phases=_PHASES)
