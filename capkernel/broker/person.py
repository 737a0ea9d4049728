"""What only the person gives: secrets that a cell asks for by name, and values that leave the vault.

Rule 1: a typed secret goes from the person's viewer to the vault, sealed; a named one through a descriptor. Neither is
ever in this process as a value.
Rule 2: nothing of a value is released without the person's decision about that very value, and until then nothing that
the cell can see depends on it: not whether it is poison, not how large it is.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from capkernel.broker.approvals import Approvals, Granted
from capkernel.broker.audit import AuditLog
from capkernel.broker.classified_handles import ClassifiedHandles
from capkernel.broker.failures import EffectError, denied
from capkernel.broker.ledger import MAX_TEXT, Ledger
from capkernel.broker.ports import VaultPort
from capkernel.policy.decision import AskPerson, Denied
from capkernel.policy.model import Policy
from capkernel.wire.plan import Plan
from capkernel.wire.worker import AskRelease, AskSecret

MAX_NAMES: Final = 100  # of secrets, of one session
MAX_LABEL: Final = 200
MAX_ORIGINS: Final = 20
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_SECRET, _RELEASE = "secret.request", "secret.declassify"  # names of effects

Ask = Callable[[AskPerson], Awaitable[Granted | Denied]]


@dataclass(frozen=True)
class _Held:
    """A secret of the session. life: of the vault that holds it."""

    handle: str
    life: int


class PersonEffects:
    """`request_secret` and `request_declassify`, of one session. On the event loop."""

    def __init__(
        self,
        policy: Policy,
        vault: VaultPort,
        audit: AuditLog,
        approvals: Approvals,
        handles: ClassifiedHandles,
        ledger: Ledger,
        given: Mapping[str, int],
    ) -> None:
        """given: names of the policy's secrets that were in the environment, and descriptors of what they are."""
        self._named = {name: secret.env for name, secret in policy.secrets.items()}
        self._may_release = policy.approvals.declassify
        self._vault = vault
        self._audit = audit
        self._approvals = approvals
        self._handles = handles
        self._ledger = ledger
        self._given = given
        self._held: dict[str, _Held] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def secret(self, effect: AskSecret, cell: int, plan: Plan, ask: Ask) -> str:
        """The handle of the secret. ask: asks the person, while the cell runs. Raises EffectError, AuditUnavailable."""
        name = effect.name
        if not _NAME.fullmatch(name):
            raise EffectError(
                "ValueError", "the name of a secret has 1 to 64 letters, digits and _, and no digit first"
            )
        listed = any(site.kind == "secret" and site.argument in (None, name) for site in plan.asks)
        self._require_listed(_SECRET, listed, name, cell, 'request_secret("...")')
        if name not in self._turns and len(self._turns) >= MAX_NAMES:
            raise denied(f"a session asks for at most {MAX_NAMES} secrets")
        async with self._turns[name]:  # threads that ask for the same one get the same one
            held = self._held.get(name)
            if held is None or held.life != self._vault.life:
                held = self._held[name] = await self._new(name, effect.label[:MAX_LABEL], cell, ask)
            else:
                self._audit.record(_SECRET, "allowed", cell=cell, path=name)
            return held.handle

    async def _new(self, name: str, label: str, cell: int, ask: Ask) -> _Held:
        origin, life = f"secret:{name}", self._vault.life
        if name in self._named:
            fd = self._given.get(name)
            if fd is None:
                said = f"the policy takes this secret from the environment variable {self._named[name]}"
                self._audit.record(_SECRET, "denied", cell=cell, path=name, reason=said)
                raise denied(f"{said}, which was not set when the kernel was started: set it and restart the kernel")
            self._audit.record(_SECRET, "allowed", cell=cell, path=name, reason="named in the policy")
            handle = self._handles.mint(pinned=True)
            try:
                self._vault.fill(handle, fd, "str", origin, label)
            except RuntimeError as problem:
                raise denied(f"the vault cannot take a secret now: {problem}") from None
        else:
            handle = await self._typed(name, origin, label, cell, ask)
        self._ledger.secret(handle, cell, origin, label)
        return _Held(handle, life)

    async def _typed(self, name: str, origin: str, label: str, cell: int, ask: Ask) -> str:
        facts = (("name", name), ("cell", str(cell)), ("what happens", "it goes to the vault; cells get a handle"))
        question = AskPerson(_SECRET, f"type the secret {name}", (name,), facts, "secret", label, about=name)
        refused = self._approvals.refusal(question, cell)
        if refused is None:  # nothing is made for a question that is not asked
            handle = self._handles.mint(pinned=True)
            try:
                key = await self._vault.expect(handle, origin, label)
            except RuntimeError as problem:  # it is gone, or has no room for another
                raise denied(f"the vault cannot take a secret now: {problem}") from None
            answer = await ask(replace(question, handle=handle, key=key))
            if isinstance(answer, Granted):
                return handle
            refused = answer
        raise denied(f"the secret {name} was not given: {refused.reason}")

    async def release(self, effect: AskRelease, cell: int, plan: Plan, ask: Ask) -> bytes:
        """The encoded value. ask: as for `secret`. Raises EffectError, AuditUnavailable."""
        handle = effect.handle
        self._handles.require(handle)
        listed = any(site.kind == "declassify" for site in plan.asks)
        self._require_listed(_RELEASE, listed, handle, cell, "request_declassify(...)")
        if not self._may_release:
            reason = "the policy lets no classified value be released (approvals.declassify = false)"
            self._audit.record(_RELEASE, "denied", cell=cell, path=handle, reason=reason)
            raise denied(reason)
        answer = await ask(self._release_question(handle, effect.reason, cell))
        if isinstance(answer, Granted):
            return answer.blob
        raise denied(answer.reason)

    def _release_question(self, handle: str, reason: str, cell: int) -> AskPerson:
        known = self._ledger.get(handle)
        origins = sorted(self._vault.origins(handle) or ())
        shown = ", ".join(origin[:MAX_TEXT] for origin in origins[:MAX_ORIGINS]) or "none"
        if len(origins) > MAX_ORIGINS:
            shown += f" and {len(origins) - MAX_ORIGINS} more"
        kind = known.type if known is not None else ""
        code = known.code if known is not None else ""
        facts = [("cell", str(cell)), ("static type", kind or "not known"), ("made from", shown)]
        if code:
            facts.append(
                ("by", code if known is None or known.code_cell is None else f"{code} (cell {known.code_cell})")
            )
        if known is not None and known.label:
            facts.append(("the cell calls it", f'"{known.label}"'))
        title = f"release a value made from {shown} to the cell, which can show it to anyone"
        return AskPerson(_RELEASE, title, (shown, kind, code), tuple(facts), "release", reason, handle)

    def _require_listed(self, what: str, listed: bool, path: str, cell: int, call: str) -> None:
        if not listed:
            reason = "the plan of the running cell does not list this request"
            self._audit.record(what, "denied", cell=cell, path=path, reason=reason)
            raise denied(f"{reason}; write it in the cell as `{call}`")
