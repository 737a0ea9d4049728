"""Records: two private files for each execution, masked, bounded, and never in the way."""

from __future__ import annotations

import logging
import os
import re
import stat
import threading
from pathlib import Path

import pytest

from capkernel.kernel import recorder as module
from capkernel.kernel.firewall import Output
from capkernel.kernel.recorder import CUT, MAX_FILE, Recorder, RecordsUnavailable, Transcript, clean_session

NAME = re.compile(r"\d{8}T\d{6}\.\d{3}_\d{4}_([A-Za-z0-9_-]+)\.(py|result)")
MUCH = 1 << 30


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "records"


def files(place: Path, ending: str) -> list[Path]:
    return sorted(place.rglob(f"*.{ending}"))


def transcript(*outputs: Output) -> Transcript:
    made = Transcript()
    for output in outputs:
        made.add(output)
    return made


def printed(text: str) -> Output:
    return Output("stream", {"name": "stdout", "text": text})


def keep(place: Path, *records: tuple[str, str], session: str = "s1", max_bytes: int = MUCH) -> None:
    made = Recorder.open_ambient(session, max_bytes, place)
    for code, result in records:
        made.record(code, result)
    made.close()


def test_each_execution_is_a_code_and_a_result(place):
    keep(place, ("x = 1\n", "status: success\n"))
    (code,), (result,) = files(place, "py"), files(place, "result")
    found = NAME.fullmatch(code.name)
    assert found is not None
    assert found[1] == "s1"
    assert code.stem == result.stem
    assert code.read_text() == "x = 1\n"
    assert result.read_text() == "status: success\n"


def test_the_files_are_private_and_so_is_their_directory(place):
    before = os.umask(0)
    try:
        keep(place, ("1", "2"))
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.rglob("*.*")} == {0o600}
    assert stat.S_IMODE(place.stat().st_mode) == stat.S_IMODE((place / "s1").stat().st_mode) == 0o700


def test_success_has_a_status_line_and_the_output():
    made = transcript(printed("a\n"), Output("execute_result", {"data": {"text/plain": "2", "text/html": "<b>2</b>"}}))
    assert made.result({"status": "ok"}) == "status: success\na\n2\n"


def test_failure_has_a_status_line_the_output_and_the_error():
    made = transcript(printed("before\n"))
    reply = {"status": "error", "ename": "ValueError", "evalue": "no", "traceback": ["line one"]}
    assert made.result(reply) == "status: failure\nbefore\n\nError: ValueError: no\nline one"


def test_no_output_and_no_error_is_a_success():
    assert transcript().result({"status": "ok"}) == "status: success\n"


def test_several_records_are_separate_pairs_in_order(place):
    keep(place, *((f"x = {number}", str(number)) for number in range(10)))
    assert [path.read_text() for path in files(place, "py")] == [f"x = {number}" for number in range(10)]
    assert len({path.name for path in files(place, "result")}) == 10


def test_empty_and_foreign_text_is_kept(place):
    keep(place, ("", ""), ("grüße = '数 🎉'\r\n", "\ud800"))
    assert [path.read_bytes() for path in files(place, "py")] == [b"", "grüße = '数 🎉'\r\n".encode()]
    assert files(place, "result")[1].read_text() == "\\ud800"


@pytest.mark.parametrize(
    ("session", "cleaned"),
    [("../../etc/x", "etcx"), ("/", "unknown"), ("", "unknown"), ("-_", "unknown"), ("a" * 99, "a" * 64), ("a.", "a")],
)  # fmt: skip
def test_a_session_name_cannot_lead_elsewhere(place, tmp_path, session, cleaned):
    assert clean_session(session) == cleaned
    keep(place, ("1", "2"), session=session)
    assert {path.parent for path in tmp_path.rglob("*.py")} == {place / cleaned}
    assert all(f"_{cleaned}." in path.name for path in place.rglob("*.*"))


def test_a_directory_that_cannot_be_made_is_said_by_its_path(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordsUnavailable, match=re.escape(str(tmp_path / "file" / "records"))):
        Recorder.open_ambient("s1", MUCH, tmp_path / "file" / "records")


def test_a_directory_that_cannot_be_written_is_an_error_at_the_start(tmp_path, monkeypatch):
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise PermissionError(13, "no")

    monkeypatch.setattr(module.os, "mkdir", refuse)  # the tests may run as root, whom no mode stops
    with pytest.raises(RecordsUnavailable, match="Permission denied"):
        Recorder.open_ambient("s1", MUCH, tmp_path)


def test_what_cannot_be_written_is_a_line_in_the_log_and_no_error(place, monkeypatch, caplog):
    made = Recorder.open_ambient("s1", MUCH, place)
    real = os.open

    def full(path: object, flags: int, *rest: object, **more: object) -> int:
        if flags & os.O_CREAT:
            raise OSError(28, "secret words")
        return real(path, flags, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(module.os, "open", full)
    with caplog.at_level(logging.WARNING, "capkernel"):
        made.record("1", "2")
        made.close()
    assert "not recorded: No space left" in caplog.text
    assert "secret words" not in caplog.text
    assert files(place, "py") == []


def test_a_disk_that_hangs_holds_nobody_and_costs_records(place, monkeypatch, caplog):
    made = Recorder.open_ambient("s1", MUCH, place)
    gate = threading.Event()
    real = made._write
    monkeypatch.setattr(made, "_write", lambda *args: (gate.wait(30), real(*args)))
    with caplog.at_level(logging.WARNING, "capkernel"):
        for _ in range(module.MAX_WAITING + 5):
            made.record("1", "2")
    assert "the disk is" in caplog.text
    gate.set()
    made.close()
    assert module.MAX_WAITING <= len(files(place, "py")) <= module.MAX_WAITING + 1


def test_a_file_is_bounded_and_says_so(place):
    keep(place, ("x" * (3 * MAX_FILE), "é" * MAX_FILE))
    for path in (*files(place, "py"), *files(place, "result")):
        assert path.read_text().endswith(CUT)
        assert path.stat().st_size <= MAX_FILE + len(CUT)


def test_a_key_at_the_cut_is_not_left_in_half(place):
    key = "ghp_" + "a8Kd02LmQp47Zx91BvTyUw35"
    keep(place, ("x" * (MAX_FILE - 10) + " " + key + " " + "y" * 100, ""))
    assert "ghp_" not in files(place, "py")[0].read_text()


def test_a_transcript_is_bounded_and_empty_once_it_is_recorded():
    made = transcript(*(printed("x" * 100_000) for _ in range(9)))
    assert sum(map(len, made.parts)) == 2 * MAX_FILE
    made.result({"status": "ok"})
    made.add(printed("later"))
    assert made.parts == []


def test_the_oldest_of_a_session_go_when_it_takes_too_much(place):
    keep(place, *(("x", f"{number}" * 1000) for number in range(9)), max_bytes=3500)
    assert [path.read_text()[0] for path in files(place, "result")] == ["6", "7", "8"]
    assert len(files(place, "py")) == 3


def test_the_oldest_sessions_go(place, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "SESSIONS_KEPT", 3)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("")
    place.mkdir()
    (place / "link").symlink_to(precious)
    for number in range(5):
        keep(place, ("1", "2"), session=f"s{number}")
        os.utime(place / f"s{number}", (number, number))
    assert sorted(entry.name for entry in place.iterdir()) == ["link", "s2", "s3", "s4"]
    assert (precious / "file").exists()


def test_a_link_in_place_of_the_session_is_not_followed(place, tmp_path):
    place.mkdir()
    (place / "s1").symlink_to(tmp_path)
    with pytest.raises(RecordsUnavailable):
        Recorder.open_ambient("s1", MUCH, place)


def test_a_directory_swapped_for_a_link_meanwhile_gets_nothing(place, tmp_path):
    """The descriptor that was opened is what counts. First: by path, it would be followed."""
    made = Recorder.open_ambient("s1", MUCH, place)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (place / "s1").rename(place / "moved")
    (place / "s1").symlink_to(elsewhere)
    (place / "s1" / "proof").write_text("followed")
    assert (elsewhere / "proof").exists()
    made.record("1", "2")
    made.close()
    assert len(list(elsewhere.iterdir())) == 1
    assert len(list((place / "moved").iterdir())) == 2


def test_colours_do_not_hide_a_password(place):
    traceback = "\x1b[1mpassword\x1b[0m\x1b[36m =\x1b[0m \x1b[33m'hunter2'\x1b[0m"
    keep(place, ("", traceback))
    assert "hunter2" not in files(place, "result")[0].read_text()
