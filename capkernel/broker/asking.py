"""Which effects wait for the person, and what the person has allowed and was not done yet.

Rule 1: an allowing is for one effect with exactly the facts that the person saw, in one cell, once. When a fact is
another one by then, it is asked again.
Rule 2: whoever does not know how to wait is refused: NeedsPerson is an EffectError like any other.
"""

from __future__ import annotations

import stat
import threading
from collections import Counter
from dataclasses import replace
from typing import Final

from capkernel.broker.failures import EffectError
from capkernel.broker.places import Place
from capkernel.policy.approvable import effects
from capkernel.policy.decision import ALLOWED, AskPerson, Decision

TITLES: Final = {
    "files.open_scope": "open the folder",
    "files.read": "read the file",
    "files.open": "read the file",
    "files.grep": "search the files below",
    "files.write": "write the file",
    "files.create": "create the file",
    "files.append": "append to the file",
    "files.mkdir": "make the folder",
    "files.delete": "delete",
    "files.read_classified": "take as a secret the file",
    "files.write_classified": "write a secret into the file",
    "files.overwrite_classified": "replace, by a secret, the classified file",
}
_CHANGES: Final = frozenset(("files.write", "files.create", "files.append", "files.delete", "files.write_classified",
                             "files.overwrite_classified"))  # fmt: skip


def about_file(effect: str, place: Place, cell: int, size: int | None = None) -> AskPerson:
    """The question about an effect on a place. size: bytes of new content. Nothing is said of the content of a
    classified file, its size included: what happens to it must not depend on it."""
    facts = [("path", place.shown), ("cell", str(cell))]
    if size is not None:
        facts.append(("new content", f"{size:,} bytes"))
    if effect in _CHANGES:
        facts.append(("there now", _there(place)))
    if effect == "files.overwrite_classified":
        facts.append(("note", "this session did not write what is there"))
    return AskPerson(effect, f"{TITLES[effect]} {place.shown}", (place.shown,), tuple(facts))


def about_folder(shown: str, cell: int) -> AskPerson:
    """The question about opening a granted folder."""
    facts = (("folder", shown), ("cell", str(cell)))
    return AskPerson("files.open_scope", f"{TITLES['files.open_scope']} {shown}", (shown,), facts)


def _there(place: Place) -> str:
    if place.unseen:
        return "not looked at: the policy hides classified names"
    if place.status is None:
        return "nothing"
    if stat.S_ISDIR(place.status.st_mode):
        return "a folder"
    if not stat.S_ISREG(place.status.st_mode):
        return "something else than a regular file"
    return "a classified file" if place.classified else f"a file of {place.status.st_size:,} bytes"


class NeedsPerson(EffectError):
    """The effect can be done once the person has said so."""

    def __init__(self, ask: AskPerson) -> None:
        super().__init__("CapabilityDenied", "this effect waits for the person's decision, which cannot be had here")
        self.ask = ask


class Asking:
    """Of one session. Thread-safe: effects run in threads."""

    def __init__(self, ask: tuple[str, ...]) -> None:
        """ask: of the policy."""
        self._effects = effects(ask)
        self._allowed: Counter[tuple[int, AskPerson]] = Counter()
        self._lock = threading.Lock()

    def asks(self, effect: str) -> bool:
        return effect in self._effects

    def decide(self, effect: str, cell: int, question: AskPerson) -> Decision:
        """ALLOWED when the effect does not ask, or the person has allowed exactly this; the question else."""
        if effect not in self._effects:
            return ALLOWED
        key = (cell, replace(question, reason=""))
        with self._lock:
            if self._allowed[key] > 0:
                self._allowed[key] -= 1
                return ALLOWED
        return question

    def allow(self, cell: int, question: AskPerson) -> None:
        """The person has: for the next time it is decided."""
        with self._lock:
            self._allowed[cell, replace(question, reason="")] += 1

    def begin_cell(self) -> None:
        with self._lock:
            self._allowed.clear()
