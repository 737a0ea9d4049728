"""The keeper's state, with a runner that the tests play."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from played_keeper import PlayedKeeper

from capkernel.vault.keeper import Keeper
from capkernel.wire.errors import RemoteProtocolError
from capkernel.wire.values import decode, encode
from capkernel.wire.vault import (
    Begin,
    Count,
    Fill,
    Limits,
    Put,
    Settle,
    Settled,
    Write,
    Written,
    Zip,
)


class Handle:
    def __init__(self, name: str) -> None:
        self.name = name


def captured(*names: str) -> bytes:
    return encode({"globals": {name: Handle(name) for name in names}}, handle_of=lambda it: getattr(it, "name", None))


class Played(PlayedKeeper):
    def write(self, handle: str, path: Path, limit: int = 1000) -> None:
        self.send(Write(9, handle, limit), b"", os.open(path, os.O_WRONLY | os.O_CREAT))


def test_a_handle_is_accepted_once() -> None:
    played = Played()
    played.put("a", "first")
    before = played.status()
    played.put("a", "second value")
    played.map("a", "a")
    played.send(Zip("a", "a", "a"))
    assert played.status() == before
    assert played.jobs == []


def test_values_with_handles_or_without_sense_are_poison() -> None:
    played = Played()
    for number, blob in enumerate((b"", b"CKV1\0\0\0\xff", captured("x"))):
        played.send(Put(f"p{number}", ""), blob)
        assert played.described(f"p{number}").state == "poison"


def test_jobs_run_one_at_a_time_in_order_with_the_captured_values_and_no_others() -> None:
    played = Played()
    for name in ("a", "b", "secret"):
        played.put(name, name)
    played.map("m1", "a", captured("b"))
    played.map("m2", "m1")
    assert [job.number for job, _ in played.jobs] == [1]
    pieces = played.jobs[0][1]
    assert [piece.handle for piece, _ in pieces] == ["", "", "b"]
    assert [decode(pieces[0][1]), decode(pieces[2][1])] == ["a", "b"]
    played.keeper.job_done(encode("ab"))
    assert decode(played.jobs[1][1][0][1]) == "ab"
    assert played.described("m2").state == "pending"


def test_lineage_is_the_union_over_source_partners_and_captured() -> None:
    played = Played()
    played.put("a", 1, "file a", "label a")
    played.put("b", 2, "file b")
    played.put("c", 3, "file c", "label c")
    played.send(Zip("z", "a", "b"))
    played.map("m", "z", captured("c"))
    assert played.described("m").origins == ("file a", "file b", "file c")
    played.keeper.job_done(encode(6))
    found = played.described("m")
    assert (found.state, found.type_name, found.labels) == ("value", "int", ("label a", "label c"))
    assert found.parents == ("z", "c")


def test_poison_propagates_through_map_zip_and_captured_handles_without_a_job() -> None:
    played = Played()
    played.put("a", 1)
    played.map("bad", "a")
    played.keeper.job_done(None, "ZeroDivisionError", "cell 1, line 2")
    jobs = len(played.jobs)
    played.map("m", "bad")
    played.send(Zip("z", "a", "bad"))
    played.map("c", "a", captured("bad"))
    assert len(played.jobs) == jobs
    for name in ("m", "z", "c"):
        found = played.described(name)
        assert (found.state, found.reason, found.place) == ("poison", "ZeroDivisionError", "cell 1, line 2")


def test_an_unknown_source_is_poison() -> None:
    played = Played()
    played.put("a", 1)
    played.map("m", "never")
    played.map("c", "a", captured("never"))
    played.send(Zip("z", "never", "a"))
    assert {played.described(name).state for name in "mcz"} == {"poison"}
    assert played.described("never").state == "unknown"


def test_a_job_waits_for_a_runner() -> None:
    played = Played(runner=False)
    played.put("a", 1)
    played.map("m", "a")
    assert played.described("m").state == "pending"
    played.runner = True
    played.keeper.advance()
    played.keeper.job_done(encode(2))
    assert played.described("m").state == "value"


def test_settle_answers_after_what_was_posted_before() -> None:
    played = Played()
    played.put("a", 1)
    played.map("m", "a")
    played.send(Settle(3))
    assert played.told == []
    played.keeper.job_done(encode(2))
    assert played.told == [Settled(3)]


def test_bounds_make_poison() -> None:
    played = Played(Limits(total_bytes=100, job_input_bytes=60))
    played.put("a", "x" * 50)
    played.put("b", "y" * 50)
    assert played.described("b").reason == "the vault is full"
    played.map("m", "a")
    assert played.described("m").reason == "the function's input is too large"


def test_fill_reads_text_and_bytes_and_refuses_the_rest(tmp_path: Path) -> None:
    played = Played(Limits(fill_bytes=10))
    good, large, latin = tmp_path / "good", tmp_path / "large", tmp_path / "latin"
    good.write_bytes("é\r\n".encode())
    large.write_bytes(b"x" * 11)
    latin.write_bytes(b"\xe9")
    reading, writing = os.pipe()
    os.close(writing)
    for handle, kind, descriptor in (
        ("text", "str", os.open(good, os.O_RDONLY)), ("bytes", "bytes", os.open(latin, os.O_RDONLY)),
        ("large", "str", os.open(large, os.O_RDONLY)), ("latin", "str", os.open(latin, os.O_RDONLY)),
        ("pipe", "str", reading), ("text", "str", os.open(latin, os.O_RDONLY)),
    ):  # fmt: skip
        played.send(Fill(handle, kind, "o"), b"", descriptor)  # type: ignore[arg-type]
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)
    assert played.described("text").type_name == "str"
    assert played.described("bytes").type_name == "bytes"
    reasons = [played.described(name).reason for name in ("large", "latin", "pipe")]
    assert reasons == ["the file is too large", "UnicodeDecodeError", "the file could not be read"]
    played.write("text", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == "é\r\n".encode()


def test_writes_and_their_outcomes(tmp_path: Path) -> None:
    played = Played()
    for name, value in (("s", "é"), ("b", b"\0"), ("n", 5), ("lone", "\ud800"), ("long", "x" * 1001)):
        played.put(name, value)
    for name in ("s", "b", "n", "lone", "long", "unknown"):
        played.write(name, tmp_path / name)
    outcomes = [(answer.outcome, answer.size) for answer in played.told if isinstance(answer, Written)]
    assert outcomes == [
        ("written", 2),
        ("written", 1),
        ("not_text", 0),
        ("not_text", 0),
        ("too_large", 1001),
        ("poison", 0),
    ]
    assert [(tmp_path / name).read_bytes() for name in ("s", "b", "n", "long")] == ["é".encode(), b"\0", b"", b""]


def test_a_write_to_a_descriptor_that_cannot_be_written_fails(tmp_path: Path) -> None:
    played = Played()
    played.put("s", "x")
    (tmp_path / "f").touch()
    played.send(Write(1, "s", 10), b"", os.open(tmp_path / "f", os.O_RDONLY))
    played.send(Write(2, "s", 10), b"", os.open("/dev/null", os.O_WRONLY))
    assert [answer.outcome for answer in played.told if isinstance(answer, Written)] == ["failed", "failed"]


def test_a_write_of_a_pending_value_waits_for_it_and_for_nothing_else(tmp_path: Path) -> None:
    played = Played()
    played.put("a", "now")
    played.map("m", "a")
    played.write("m", tmp_path / "later")
    played.write("a", tmp_path / "now")
    assert [answer.size for answer in played.told if isinstance(answer, Written)] == [3]
    played.keeper.job_done(encode("mapped"))
    assert (tmp_path / "later").read_text() == "mapped"


def test_the_first_message_is_begin_and_comes_once() -> None:
    played = Played()
    with pytest.raises(RemoteProtocolError):
        played.send(Begin(Limits()))
    with pytest.raises(RemoteProtocolError):
        Keeper(tell=print, start=lambda job, pieces: True).accept(Count(1), b"", None)


def test_no_value_is_in_a_repr() -> None:
    played = Played()
    played.put("a", "canary")
    assert "canary" not in repr(played.keeper._entries["a"])
