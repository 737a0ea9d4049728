"""May a value be shown in the page of the Jupyter server that launched this kernel? What a card gets is decided here.

Rule 1: only to the launcher (`kernel.launcher`), and never while the policy lets outputs be active: their JavaScript
runs in that page.
Rule 2: a value of an origin that the policy calls high, or every value when it says so, goes to a page only when the
person proved that the page is theirs. What is not known to be of another origin counts as high.
"""

from __future__ import annotations

from collections.abc import Collection

from capkernel.kernel.launcher import Launcher
from capkernel.policy.model import Policy
from capkernel.policy.paths import PathRules
from capkernel.wire.view import AskForPage, Refused

_ELSEWHERE = "This kernel got no viewer secret from what started it, so no page may ask it."
_OTHER_PROCESS = "Only the process that started this kernel may ask for its page."
_NOT_PROVED = "This is not the viewer secret that this kernel was started with."
_ACTIVE = "The policy allows active outputs (output.active): their JavaScript runs in this page, so it shows no secret."


class PageReveal:
    """Decides for one session. Without a policy there is no page."""

    def __init__(self, launcher: Launcher | None, policy: Policy | None) -> None:
        self._launcher = launcher
        self._rules = None if policy is None else PathRules(policy)
        self._marks_high = policy is not None and bool(policy.viewer.high)
        self.pairing = policy is None or policy.viewer.pairing
        active = policy is None or policy.output.active
        self.off = _ELSEWHERE if launcher is None else _ACTIVE if active else ""

    def refusal(self, given: bytes, challenge: bytes, process: int) -> str:
        """Why this process is no card of ours, "" when it is."""
        if self._launcher is None:
            return _ELSEWHERE
        if not self._launcher.is_process(process):
            return _OTHER_PROCESS
        return "" if self._launcher.proved(given, challenge) else _NOT_PROVED

    def is_high(self, origins: Collection[str] | None) -> bool:
        """Whether one of the origins needs a paired page. origins: None when they are not known."""
        if not self._marks_high or self._rules is None:
            return False
        return not origins or any(self._rules.is_high(origin) for origin in origins)

    def refused(self, asked: AskForPage, *, high: bool) -> Refused | None:
        """Why the value is not shown in the page; None when it is."""
        if self.off:
            return Refused(asked.request, self.off, "reveal-off")
        if (high or self.pairing) and not asked.paired:
            return Refused(asked.request, "The policy wants a paired page for this value.", "pairing-needed")
        return None


NO_PAGE = PageReveal(None, None)
