"""What a cell's objects do before any message leaves: masks, and refusals that depend on nothing secret."""

from __future__ import annotations

import copy
import gc
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import capkernel.api as api
from capkernel.api import Classified, FileSystem, classify, membrane
from capkernel.api.classified import adopt, take_dropped
from capkernel.api.errors import CapabilityDenied, CapabilityRevoked, exception_from
from capkernel.wire.worker import Failure, FunctionRef


class Recorder:
    """A membrane that keeps what crosses it."""

    def __init__(self) -> None:
        self.crossed: list[tuple[Any, bytes]] = []

    def call(self, effect: Any, blob: bytes = b"") -> tuple[Any, bytes]:
        self.crossed.append((effect, blob))
        return ["f" * 32, "a.txt"], b"content"

    def post(self, operation: Any, blob: bytes = b"") -> None:
        self.crossed.append((operation, blob))

    def describe(self, function: Any) -> tuple[FunctionRef, bytes]:
        return FunctionRef(table=f"builtins.{function.__name__}"), b""

    def mask_type(self) -> str:
        return "str"


@pytest.fixture(autouse=True)
def recorder() -> Iterator[Recorder]:
    before = list(membrane._installed)
    made = Recorder()
    membrane.install(made)
    yield made
    membrane._installed[:] = before


def test_every_way_to_write_it_is_the_mask() -> None:
    secret = adopt("0" * 32)
    mask = "Classified[str](***)"
    assert [repr(secret), str(secret), f"{secret}", f"{secret!r:>40}".strip(), f"{secret:>90}"] == [mask] * 5
    assert str({"k": [secret]}) == "{'k': [Classified[str](***)]}"


@pytest.mark.parametrize(
    "observe",
    [bool, len, iter, list, hash, int, float, bytes, lambda s: s == s, lambda s: s != 1, lambda s: s < s,
     lambda s: 1 in s, lambda s: s[0], lambda s: s + "a", lambda s: {s: 1}, lambda s: s(), sorted],
)  # fmt: skip
def test_it_has_no_observable(observe: Any) -> None:
    with pytest.raises(TypeError, match=r"map|not iterable|\*\*\*"):
        observe(adopt("0" * 32))


def test_it_cannot_be_made_pickled_or_told_apart_by_copying() -> None:
    secret = adopt("0" * 32)
    with pytest.raises(TypeError):
        Classified(1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert copy.deepcopy(secret) is secret


def test_a_capability_cannot_be_made_copied_or_pickled() -> None:
    with pytest.raises(TypeError):
        FileSystem("x")  # type: ignore[arg-type]
    with api.request_file_system(".") as fs:
        for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                attempt(fs)


def test_map_posts_and_waits_for_nothing(recorder: Recorder) -> None:
    secret = classify("hello")
    made = secret.map(len)
    (put, value), (mapped, _) = recorder.crossed
    assert put.new == secret._handle
    assert b"hello" in value
    assert (mapped.source, mapped.new, mapped.function.table) == (secret._handle, made._handle, "builtins.len")
    assert len(made._handle) == 32
    assert made._handle != secret._handle


def test_the_block_closes_its_scope_also_after_an_error(recorder: Recorder) -> None:
    with pytest.raises(ZeroDivisionError), api.request_file_system("data"):
        1 / 0  # noqa: B018
    assert [type(effect).__name__ for effect, _ in recorder.crossed] == ["OpenScope", "CloseScope"]


def test_a_string_that_could_change_its_mind_is_refused() -> None:
    class Chameleon(str):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = str.__hash__

    with pytest.raises(TypeError, match="expected str, got Chameleon"):
        api.request_file_system(Chameleon("data"))


def test_failures_become_the_exceptions_python_users_expect() -> None:
    assert isinstance(exception_from(Failure("CapabilityDenied", "no")), CapabilityDenied)
    assert isinstance(exception_from(Failure("CapabilityDenied", "no")), PermissionError)
    assert isinstance(exception_from(Failure("CapabilityRevoked", "dead")), CapabilityRevoked)
    missing = exception_from(Failure("FileNotFoundError", "No such file", 2, "a.txt"))
    assert isinstance(missing, FileNotFoundError)
    assert (missing.errno, missing.filename) == (2, "a.txt")
    assert type(exception_from(Failure("SystemExit", "odd"))) is RuntimeError


def test_the_public_names_are_what_the_package_exports() -> None:
    assert sorted(api.__all__) == api.__all__
    for name in api.__all__:
        assert getattr(api, name).__doc__


def test_a_mask_that_is_gone_is_noted_once_and_a_copy_is_no_other() -> None:
    gc.collect()
    take_dropped(1_000_000)
    first, second = adopt("1" * 32), adopt("2" * 32)
    again = copy.copy(first)
    del first
    assert take_dropped(10) == ()
    del again, second
    assert take_dropped(1) == ("1" * 32,)
    assert take_dropped(10) == ("2" * 32,)
    assert take_dropped(10) == ()


def test_noting_it_sends_nothing(recorder: Recorder) -> None:
    gone = adopt("3" * 32)
    del gone
    assert recorder.crossed == []
