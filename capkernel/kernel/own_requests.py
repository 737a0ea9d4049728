"""Two requests that Jupyter does not have: judge a cell without running it, and say what the session holds.

`capkernel_check_request` and `capkernel_state_request`; docs/kernel.md lists the fields of both.

Rule 1: nothing runs, and nothing that a later cell could see changes.
Rule 2: names, types, labels, what may be done; never a value.
"""

from __future__ import annotations

import itertools
from typing import Any

from capkernel.checker.protocol import Accepted, KnownNames, ListNames, Rejected
from capkernel.diagnostics import Diagnostic, for_client, render_text, to_json
from capkernel.kernel.cell_text import CellRefused, CellTexts, as_typed, help_wanted
from capkernel.kernel.local_modules import LocalModules, UnreadableModule, refusal
from capkernel.kernel.pipeline import Pipeline
from capkernel.kernel.ports import CheckerPort
from capkernel.kernel.requests import error
from capkernel.kernel.supervisor import NotReady, Supervisor
from capkernel.wire.authority import authority_data, authority_line
from capkernel.wire.local_names import BEFORE_NAME
from capkernel.wire.plan import NOTHING, Plan

CHECK = "capkernel_check_request"
STATE = "capkernel_state_request"


class OwnRequests:
    """Answers both. `numbers`: of cells that count for nobody."""

    def __init__(
        self, supervisor: Supervisor, pipeline: Pipeline, texts: CellTexts, numbers: itertools.count[int]
    ) -> None:
        self._supervisor = supervisor
        self._pipeline = pipeline
        self._texts = texts
        self._numbers = numbers
        self._questions = itertools.count(1)

    async def check(self, code: str) -> dict[str, Any]:
        """The content of the reply: the verdict on `code`, were it the next cell."""
        number = next(self._numbers)
        try:
            text = self._texts.checked(code, number).text
        except CellRefused as refused:
            return self._refused(code, refused.text, number, (refused.diagnostic,))
        if help_wanted(text) is not None:
            return _accepted("", NOTHING, (), {}, "")
        try:
            _, checker = await self._supervisor.ready()
            await self._pipeline.settle()
            return await self._judged(checker, number, code, text)
        except NotReady as problem:
            return error("SessionNotReady", str(problem))

    async def _judged(self, checker: CheckerPort, number: int, code: str, text: str) -> dict[str, Any]:
        modules = self._pipeline.modules.copy()
        stopped = await self._new_module(checker, modules, number, code, text)
        if stopped is not None:
            return stopped
        verdict = await checker.check(number, text, modules.names(), trial=True)
        if isinstance(verdict, Rejected):
            shown, diagnostics = as_typed(code, text, verdict.diagnostics)
            return self._refused(code, shown, number, diagnostics)
        return self._passed(code, text, number, verdict)

    async def _new_module(
        self, checker: CheckerPort, modules: LocalModules, number: int, code: str, text: str
    ) -> dict[str, Any] | None:
        """The answer when the cell needs a local module that has not run: only the first of them can be judged."""
        broker = self._supervisor.broker
        try:
            wanted = await modules.wanted(number, text, lambda path: broker.read_module(path, number))
        except UnreadableModule as problem:
            return self._refused(code, text, number, (problem.diagnostic,))
        if not wanted:
            return None
        module = wanted[0]
        verdict = await checker.check(module.number, module.text, module.names, trial=True)
        if isinstance(verdict, Rejected):
            return self._refused(code, text, number, tuple(refusal(module, one, number) for one in verdict.diagnostics))
        reason = f"{module.path} is new or has changed: it is judged, and runs, before the cell is judged"
        return {**_accepted("", NOTHING, (), {}, ""), "verdict": "unknown", "reason": reason}

    def _passed(self, code: str, text: str, number: int, verdict: Accepted) -> dict[str, Any]:
        warnings = for_client(verdict.warnings, code, text)
        shown = self._pipeline.named(render_text(warnings, self._pipeline.sources | {number: text}))
        names = {name: typ for name, typ in verdict.names.items() if BEFORE_NAME not in name and "·" not in name}
        return _accepted(shown, verdict.plan, warnings, names, verdict.last_type)

    def _refused(self, code: str, text: str, number: int, found: tuple[Diagnostic, ...]) -> dict[str, Any]:
        found = for_client(found, code, text)
        shown = self._pipeline.named(render_text(found, self._pipeline.sources | {number: text}))
        return {**_accepted(shown, NOTHING, found, {}, ""), "verdict": "refused"}

    async def state(self, count: int, *, profile: str, active: bool) -> dict[str, Any]:
        """The content of the reply. `count`: of cells so far. `active`: whether outputs may act in the page."""
        checker = self._supervisor.idle_checker
        if self._pipeline.running is None:
            await self._pipeline.settle()
        known = None if checker is None else await checker.look(ListNames(next(self._questions)))
        cell, may, handles = self._supervisor.broker.live()
        running = self._pipeline.running
        running = None if running is None or running.callback else running
        report = self._supervisor.report
        names = known.names if isinstance(known, KnownNames) else ()
        return {
            "status": "ok",
            "epoch": self._supervisor.epoch,
            "execution_count": count,
            "names": [
                {"name": one.name, "type": one.type, "cell": one.cell, "label": one.label, "standing": one.standing}
                for one in names
            ],
            "names_known": isinstance(known, KnownNames),
            "names_count": known.count if isinstance(known, KnownNames) else 0,
            "running": None if running is None else running.count,
            "live": {
                "cell": cell,
                "may": list(may),
                "handles": handles,
                "authority": "" if running is None else running.authority,
            },
            "profile": profile,
            "sandbox": "" if report is None else report.level.label,
            "active_outputs": active,
        }


def _accepted(
    text: str, plan: Plan, found: tuple[Diagnostic, ...], names: dict[str, str], last_type: str
) -> dict[str, Any]:
    return {
        "status": "ok",
        "verdict": "accepted",
        "reason": "",
        "text": text,
        "authority": authority_line(plan),
        "plan": authority_data(plan)["plan"],
        **to_json(found),
        "names": names,
        "result": last_type,
    }
