"""The pairing code: what it takes, how often, how long, and for whom."""

from __future__ import annotations

import hmac

import pytest

from capkernel.viewer.jupyter import pairing
from capkernel.viewer.jupyter.pairing import CODE_SECONDS, PAIRED_SECONDS, TRIES, NotPaired, Pairing


class Desk:
    """A Pairing whose time stands still, and what it printed."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.shown: list[tuple[str, str]] = []
        self.pairing = Pairing(lambda who, code: self.shown.append((who, code)), self._time, self._time)

    def _time(self) -> float:
        return self.time

    def code(self, identity: str = "ada") -> str:
        self.pairing.begin(identity)
        return self.shown[-1][1]

    def wrong(self) -> str:
        right = self.shown[-1][1]
        return right[:-1] + ("1" if right[-1] == "0" else "0")


def test_the_printed_code_pairs_once() -> None:
    desk = Desk()
    code = desk.code()
    assert len(code) == 8
    assert code.isdigit()
    cookie = desk.pairing.finish("ada", code)
    assert desk.pairing.holds("ada", cookie)
    with pytest.raises(NotPaired, match="There is no code"):
        desk.pairing.finish("ada", code)


def test_codes_differ() -> None:
    assert len({Desk().code() for _ in range(20)}) == 20


def test_a_wrong_code_is_refused_and_the_fourth_try_is_too_late_for_the_right_one() -> None:
    desk = Desk()
    code = desk.code()
    for left in ("2 tries are left", "one try is left", "no try is left"):
        with pytest.raises(NotPaired, match=left):
            desk.pairing.finish("ada", desk.wrong())
    with pytest.raises(NotPaired, match="Three codes were wrong"):
        desk.pairing.finish("ada", code)
    assert Desk().pairing.holds("ada", "") is False


def test_the_right_code_at_the_last_try_pairs() -> None:
    """The twin of the test above: what stops it there is the count, nothing else."""
    desk = Desk()
    code = desk.code()
    for _ in range(TRIES - 1):
        with pytest.raises(NotPaired):
            desk.pairing.finish("ada", desk.wrong())
    assert desk.pairing.holds("ada", desk.pairing.finish("ada", code))


def test_a_code_expires() -> None:
    desk = Desk()
    code = desk.code()
    desk.time += CODE_SECONDS - 1
    assert desk.pairing.finish("ada", code)
    desk.time += 1000
    code = desk.code()
    desk.time += CODE_SECONDS
    with pytest.raises(NotPaired, match="has expired"):
        desk.pairing.finish("ada", code)


def test_no_second_code_while_the_first_could_live_for_anybody() -> None:
    desk = Desk()
    desk.code()
    desk.code()
    assert len(desk.shown) == 1, "a reload prints no second one"
    for _ in range(TRIES):
        with pytest.raises(NotPaired):
            desk.pairing.finish("ada", desk.wrong())
    for identity in ("ada", "another login with the same token"):
        with pytest.raises(NotPaired, match="in two minutes"):
            desk.pairing.begin(identity)
    desk.time += CODE_SECONDS
    desk.code("grace")
    assert [who for who, _ in desk.shown] == ["ada", "grace"]


def test_a_code_is_for_who_asked() -> None:
    desk = Desk()
    code = desk.code("ada")
    with pytest.raises(NotPaired):
        desk.pairing.finish("eve", code)
    assert desk.pairing.finish("ada", code), "and it took no try of hers"


def test_a_pairing_is_bound_to_the_identity_the_time_and_the_server() -> None:
    desk = Desk()
    cookie = desk.pairing.finish("ada", desk.code())
    assert desk.pairing.holds("ada", cookie)
    assert not desk.pairing.holds("eve", cookie)
    assert not Desk().pairing.holds("ada", cookie), "another server, or the same after a restart"
    ends, nonce, signature = cookie.split(".")
    for changed in (f"{int(ends) + 1}.{nonce}.{signature}", f"{ends}.{nonce[::-1]}.{signature}", f"{ends}.{nonce}.",
                    f"{ends}.{nonce}.{signature[::-1]}", "..", "", "x.y.z", f"{'9' * 400}.a.b", "١.a.b",
                    f"{ends}.{nonce}.\udc80"):  # fmt: skip
        assert not desk.pairing.holds("ada", changed), changed
    desk.time += PAIRED_SECONDS - 1
    assert desk.pairing.holds("ada", cookie)
    desk.time += 1
    assert not desk.pairing.holds("ada", cookie)


@pytest.mark.parametrize("given", ["", "1" * 7, "1" * 9, "١٢٣٤٥٦٧٨", "x" * 4000, "\udc80"])
def test_nonsense_is_a_wrong_code(given: str) -> None:
    desk = Desk()
    desk.code()
    with pytest.raises(NotPaired, match="not the code"):
        desk.pairing.finish("ada", given)


def test_codes_and_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def seen(a: bytes, b: bytes) -> bool:
        compared.append(b)
        return compare(a, b)

    monkeypatch.setattr(pairing.hmac, "compare_digest", seen)
    desk = Desk()
    code = desk.code()
    cookie = desk.pairing.finish("ada", code)
    desk.pairing.holds("ada", cookie)
    assert compared == [code.encode(), cookie.split(".")[2].encode()]


def test_what_is_printed_is_inert_in_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    pairing.on_terminal("\x1b]0;evil\x07" + "x" * 500, "12345678")
    said = capsys.readouterr().err
    assert "pairing code: 1234 5678" in said
    assert "\x1b" not in said
    assert len(said) < 500
