"""`Supervisor.up` gives at once what `ready` gives, and nothing where `ready` waits or refuses."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from capkernel.kernel.supervisor import NotReady, Parts, Supervisor
from capkernel.sandbox import Level

WORKER, CHECKER = SimpleNamespace(fit=True, ended=False), SimpleNamespace()


async def supervisor() -> Supervisor:
    """One whose processes are up, as far as it knows."""
    broker: Any = SimpleNamespace(call=None, call_quickly=None, post=None, worker_lost=lambda: None)
    made = Supervisor(Parts(lambda: 1 / 0, lambda: 1 / 0, broker, None, Level.NONE))  # type: ignore[arg-type,return-value]
    made._starting = asyncio.get_running_loop().create_task(asyncio.sleep(0))  # type: ignore[arg-type]
    await made._starting
    made._worker, made._checker = WORKER, CHECKER  # type: ignore[assignment]
    return made


def test_up_is_ready() -> None:
    async def both() -> None:
        session = await supervisor()
        assert session.up == (WORKER, CHECKER) == await session.ready()

    asyncio.run(both())


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("_closed", True),
        ("_starting", None),
        ("_unfit", "it is not isolated"),
        ("_problem", "the checker did not start"),
        ("_worker", None),
        ("_worker", SimpleNamespace(fit=False, ended=False)),
        ("_worker", SimpleNamespace(fit=True, ended=True)),
        ("_checker", None),
    ],
)
def test_where_ready_refuses_nothing_is_up(attribute: str, value: object) -> None:
    async def both() -> None:
        session = await supervisor()
        setattr(session, attribute, value)
        assert session.up is None
        with pytest.raises((NotReady, ZeroDivisionError)):  # starting a part anew fails here
            await session.ready()

    asyncio.run(both())


def test_nothing_is_up_while_a_part_starts() -> None:
    async def look() -> None:
        session = await supervisor()
        session._starting = asyncio.get_running_loop().create_task(asyncio.sleep(30))  # type: ignore[arg-type]
        assert session.up is None
        session._starting.cancel()
        session = await supervisor()
        session._vault_died = True
        assert session.up is None

    asyncio.run(look())
