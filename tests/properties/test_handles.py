"""The life of handles: whatever is granted and revoked, in whatever order, only what is live answers."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from capkernel.broker.failures import EffectError
from capkernel.broker.handles import HandleTable

LIMIT = 12


class Handles(RuleBasedStateMachine):
    """The model is three sets: which handles live, in which scope, in which cell."""

    scopes = Bundle("scopes")
    handles = Bundle("handles")

    def __init__(self) -> None:
        super().__init__()
        self.table: HandleTable[str] = HandleTable(LIMIT)
        self.cell: int | None = None
        self.number = 0
        self.live: dict[str, tuple[str, str]] = {}  # handle → scope, target
        self.ever: set[str] = set()
        self.counter = 0

    def _new(self, handle: str) -> None:
        assert len(handle) == 32
        assert handle not in self.ever, "a number was used twice"
        self.ever.add(handle)

    @rule()
    def begin_cell(self) -> None:
        self.number += 1
        self.table.begin(self.number)
        self.cell = self.number
        self.live.clear()

    @rule()
    def end_cell(self) -> None:
        ended = self.table.end()
        assert sorted(ended) == sorted(target for _scope, target in self.live.values())
        self.cell = None
        self.live.clear()

    @rule(other=st.integers(0, 3))
    def revoke_cell(self, other: int) -> None:
        self.table.revoke_cell(self.number - other)
        if other == 0 and self.cell is not None:
            self.live.clear()

    @rule(target=scopes)
    def open_scope(self) -> str:
        self.counter += 1
        if self.cell is None or len(self.live) >= LIMIT:
            with pytest.raises(EffectError):
                self.table.mint_scope(f"t{self.counter}")
            return multiple()
        handle = self.table.mint_scope(f"t{self.counter}")
        self._new(handle)
        self.live[handle] = (handle, f"t{self.counter}")
        return handle

    @rule(target=handles, scope=scopes)
    def mint(self, scope: str) -> str:
        self.counter += 1
        if scope not in self.live or len(self.live) >= LIMIT:
            with pytest.raises(EffectError):
                self.table.mint(scope, f"t{self.counter}")
            return multiple()
        handle = self.table.mint(scope, f"t{self.counter}")
        self._new(handle)
        self.live[handle] = (scope, f"t{self.counter}")
        return handle

    @rule(scope=consumes(scopes))
    def close_scope(self, scope: str) -> None:
        ended = self.table.revoke_scope(scope)
        gone = [handle for handle, (owner, _target) in self.live.items() if owner == scope]
        assert sorted(ended) == sorted(self.live.pop(handle)[1] for handle in gone)
        assert self.table.revoke_scope(scope) == []

    @rule(handle=handles)
    def closing_what_is_no_scope_does_nothing(self, handle: str) -> None:
        assert self.table.revoke_scope(handle) == []

    @invariant()
    def exactly_the_live_answer(self) -> None:
        assert len(self.table) == len(self.live)
        for handle in self.ever:
            if handle in self.live:
                found = self.table.find(handle)
                assert (found.scope, found.target) == self.live[handle]
                assert found.cell == self.cell
            else:
                with pytest.raises(EffectError) as caught:
                    self.table.find(handle)
                assert caught.value.kind == "CapabilityRevoked"


TestHandles = Handles.TestCase
TestHandles.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
