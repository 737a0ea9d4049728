"""What the kernel itself needs to know of the policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from capkernel.kernel.recorder import Recorder


ACTIVE_OUTPUTS: Final = (
    "active outputs are ON (output.active in the policy): a script in an output acts as you in this page, so secrets "
    "are not shown in it; `capkernel view` shows them"
)
"""How a session says so."""


@dataclass(frozen=True)
class Settings:
    """Bytes and seconds. `notices` are told once, at the first cell; `later` is work that is done in a thread once the
    session is ready. `news` are lines that come up meanwhile, taken away by who tells them, with the next cell.
    `recorder`: when the policy keeps records."""

    output_bytes: int
    cell_seconds: float
    notices: tuple[str, ...] = ()
    later: tuple[Callable[[], None], ...] = ()
    news: list[str] = field(default_factory=list)
    recorder: Recorder | None = None
    cell_memory_mb: int | None = None  # as it is told when a cell meets it
    profile: str = ""  # of the checker, as it is told to clients
    active_outputs: bool = False  # scripts, widgets and comms may act in the page: no secret is shown in it
