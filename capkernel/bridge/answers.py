"""The answers to `capkernel_check_request` and `capkernel_state_request`, typed. Docs: docs/kernel.md."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from capkernel.diagnostics.model import Diagnostic
from capkernel.diagnostics.render_json import from_json

CHECK = "capkernel_check_request"
STATE = "capkernel_state_request"


class Verdict(msgspec.Struct, frozen=True):
    """What the checker says of a cell that does not run.

    `verdict`: "accepted", "refused", or "unknown" with its `reason` (a local module must run first). `text`: the
    diagnostics as a terminal shows them. `authority`: what it would be allowed to do, "" for nothing. `names`: what it
    can bind, with static types. `result`: the static type of its last expression, "" for none.
    """

    verdict: Literal["accepted", "refused", "unknown"]
    reason: str
    text: str
    authority: str
    names: dict[str, str]
    result: str
    diagnostics: tuple[Diagnostic, ...] = ()


class SessionName(msgspec.Struct, frozen=True):
    """A name of the session. `type` is its static type, `cell` the number of the cell that bound it. `label`: "plain",
    "classified" (it is, or holds, a classified value) or "capability"; `standing`: whether that is live, and why."""

    name: str
    type: str
    cell: int
    label: Literal["plain", "classified", "capability"]
    standing: str


class Live(msgspec.Struct, frozen=True):
    """What the running cell may do: `cell` is its number or None, `may` what its plan lets it ask for, `handles` how
    many handles it holds, `authority` the line that was shown."""

    cell: int | None
    may: tuple[str, ...]
    handles: int
    authority: str


class State(msgspec.Struct, frozen=True):
    """What a session holds; never a value. `epoch` counts up whenever its names may have changed. `names_count` is of
    all names, also of those left out because there are too many; `names_known`: the checker could be asked.
    `active_outputs`: scripts and widgets in outputs act in the page, by the policy's word."""

    epoch: int
    execution_count: int
    names: tuple[SessionName, ...]
    names_known: bool
    names_count: int
    running: int | None
    live: Live
    profile: str
    sandbox: str
    active_outputs: bool


def verdict_of(content: dict[str, Any]) -> Verdict:
    """Raises msgspec.ValidationError for what is no such answer."""
    diagnostics = from_json(content)
    return msgspec.convert({**content, "diagnostics": diagnostics}, Verdict, from_attributes=True)


def state_of(content: dict[str, Any]) -> State:
    """Raises msgspec.ValidationError for what is no such answer."""
    return msgspec.convert(content, State)
