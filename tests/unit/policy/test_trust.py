"""The trust store: what counts, what does not, and who may have made it."""

from __future__ import annotations

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from capkernel.policy import trust
from capkernel.policy.load import Source
from capkernel.policy.trust import STORE_NAME, TrustError, read_store


@pytest.fixture
def store(tmp_path: Path) -> Path:
    place = tmp_path / "config" / "capkernel"
    place.parent.mkdir()
    return place


@pytest.fixture
def source(tmp_path: Path) -> Source:
    (tmp_path / "project").mkdir()
    return Source(tmp_path / "project" / "capkernel.toml", b'profile = "strict"\n')


def test_exactly_this_content_at_exactly_this_path(store, source, tmp_path):
    assert not read_store(store).trusts(source)
    trust.trust(store, source)
    assert read_store(store).trusts(source)
    assert not read_store(store).trusts(Source(source.file, source.data + b"#"))
    assert not read_store(store).trusts(Source(tmp_path / "elsewhere" / "capkernel.toml", source.data))
    assert not read_store(store).trusts(Source(source.file.with_suffix(".json"), source.data))


def test_trusting_anew_replaces_and_untrusting_forgets(store, source):
    other = Source(source.file, b"")
    trust.trust(store, source)
    trust.trust(store, other)
    assert not read_store(store).trusts(source)
    assert read_store(store).trusts(other)
    assert len(read_store(store).entries) == 1
    assert trust.untrust(store, source.file)
    assert not trust.untrust(store, source.file)
    assert read_store(store).entries == ()


def test_the_file_is_private_and_nothing_temporary_is_left(store, source):
    old = os.umask(0)
    try:
        trust.trust(store, source)
    finally:
        os.umask(old)
    assert stat.S_IMODE((store / STORE_NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE(store.stat().st_mode) & 0o077 == 0
    assert os.listdir(store) == [STORE_NAME]


def spoilt(store: Path, how: str) -> None:
    file = store / STORE_NAME
    if how == "readable by others":
        file.chmod(0o644)
    elif how == "a link":
        file.rename(store / "real")
        file.symlink_to("real")
    elif how == "a second name":
        os.link(file, store / "other")
    elif how == "a pipe":
        file.unlink()
        os.mkfifo(file, 0o600)
    elif how == "damaged":
        file.write_text(file.read_text()[:-20])
    elif how == "of another version":
        file.write_text(file.read_text().replace('"version": 1', '"version": 2'))
    elif how == "another key":
        file.write_text(file.read_text().replace('"version": 1', '"version": 1, "x": 1'))
    elif how == "no digest":
        raw = json.loads(file.read_text())
        raw["files"][0]["sha256"] = ""
        file.write_text(json.dumps(raw))
    elif how == "deep":
        file.write_text("[" * 100_000)
    elif how == "too large":
        os.truncate(file, 17 * 1_048_576)
    elif how == "writable directory":
        store.chmod(0o777)


@pytest.mark.parametrize(
    "how",
    ["readable by others", "a link", "a second name", "a pipe", "damaged", "of another version", "another key",
     "no digest", "deep", "too large", "writable directory"],
)  # fmt: skip
def test_a_store_that_is_not_sound_trusts_nothing_and_says_so(store, source, how):
    trust.trust(store, source)
    assert read_store(store).trusts(source)
    spoilt(store, how)
    found = read_store(store)
    assert not found.trusts(source)
    assert found.problem
    assert str(source.file) not in found.problem
    with pytest.raises(TrustError):
        trust.trust(store, source)


def test_a_store_of_someone_else_trusts_nothing(store, source, monkeypatch):
    trust.trust(store, source)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert read_store(store).problem
    assert not read_store(store).trusts(source)


def test_a_store_inside_of_the_directory_it_speaks_for_counts_for_nothing(tmp_path, source):
    inside = source.file.parent / ".config" / "capkernel"
    with pytest.raises(TrustError, match="inside of the directory"):
        trust.trust(inside, source)
    elsewhere = tmp_path / "c" / "capkernel"
    trust.trust(elsewhere, source)  # as a repository would ship it, with the right mode
    inside.parent.mkdir()
    elsewhere.rename(inside)
    assert len(read_store(inside).entries) == 1
    assert not read_store(inside).trusts(source)


def test_a_relative_configuration_directory_is_not_used(tmp_path, source, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trust.trust(tmp_path / "c" / "capkernel", source)
    assert read_store(tmp_path / "c" / "capkernel").trusts(source)
    assert "relative" in read_store(Path("c/capkernel")).problem
    with pytest.raises(TrustError, match="relative"):
        trust.trust(Path("c/capkernel"), source)


def test_several_at_once_lose_nothing(store, tmp_path):
    sources = [Source(tmp_path / f"p{number}" / "capkernel.toml", b"") for number in range(12)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: trust.trust(store, one), sources))
    assert {entry.path for entry in read_store(store).entries} == {str(one.file) for one in sources}


def test_paths_and_contents_that_are_no_text_cannot_be_trusted(store, tmp_path):
    for source in (
        Source(tmp_path / os.fsdecode(b"\xff") / "capkernel.toml", b""),
        Source(tmp_path / "p" / "capkernel.toml", b"\xff"),
    ):
        with pytest.raises(TrustError, match="UTF-8"):
            trust.trust(store, source)


def test_the_number_of_entries_is_bounded(store, source, tmp_path, monkeypatch):
    monkeypatch.setattr(trust, "MAX_ENTRIES", 1)
    trust.trust(store, source)
    trust.trust(store, source)
    with pytest.raises(TrustError, match="untrust some"):
        trust.trust(store, Source(tmp_path / "q" / "capkernel.toml", b""))


def test_links_on_the_way_are_resolved_and_the_name_itself_is_not(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to("real")
    (tmp_path / "real" / "capkernel.toml").symlink_to("/etc/hostname")
    assert trust.canonical_place(tmp_path / "way" / "capkernel.toml") == tmp_path / "real" / "capkernel.toml"
