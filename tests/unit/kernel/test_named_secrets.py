"""Variables that the policy names come through the clean start, and no other."""

from __future__ import annotations

import os

import pytest

from capkernel.kernel.named_secrets import hold, take


def content(fd: int) -> bytes:
    data = os.pread(fd, 1 << 20, 0)
    os.close(fd)
    return data


def test_only_what_is_wanted_is_taken_and_the_rest_is_gone() -> None:
    held = hold({b"A": b"one", b"KEY": b"p\xc3\xa4ss=word\n", b"OTHER": b"secret of someone else"})
    found = take(held, {"THE_KEY": "KEY", "MISSING": "NONE"})
    assert list(found) == ["THE_KEY"]
    assert content(found["THE_KEY"]) == b"p\xc3\xa4ss=word\n"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({b"XKEY": b"no", b"KEY": b"yes"}, b"yes"),
        ({b"OTHER": b"KEY=no", b"KEY": b"yes"}, b"yes"),
        ({b"KEY": b""}, b""),
        ({b"KEY": b"x" * 300_000}, b"x" * 300_000),
    ],
)
def test_the_variable_itself(environment: dict[bytes, bytes], expected: bytes) -> None:
    assert content(take(hold(environment), {"K": "KEY"})["K"]) == expected


@pytest.mark.parametrize("environment", [{}, {b"KE": b"Y=1"}, {b"XKEY": b"no"}])
def test_what_is_not_there(environment: dict[bytes, bytes]) -> None:
    assert take(hold(environment), {"K": "KEY"}) == {}


def test_nothing_is_wanted() -> None:
    held = hold({b"KEY": b"x"})
    assert take(held, {}) == {}
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held)


def test_no_descriptor_is_inherited() -> None:
    held = hold({b"KEY": b"x"})
    assert not os.get_inheritable(held)
    (fd,) = take(held, {"K": "KEY"}).values()
    assert not os.get_inheritable(fd)
    os.close(fd)
