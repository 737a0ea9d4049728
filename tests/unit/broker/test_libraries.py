"""Open files of a FileEntry in the hands of the libraries that people give them to, also in pieces so small that they
seek."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capkernel.api import FileSystem, membrane, request_file_system
from capkernel.api.streams import Fetched
from capkernel.broker import invocations, opened

from .conftest import InProcess, Session


@pytest.fixture(params=[opened.PIECE, 1000])
def fs(session: Session, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[FileSystem]:
    monkeypatch.setattr(membrane, "_installed", [InProcess(session)])
    monkeypatch.setattr(opened, "PIECE", request.param)
    monkeypatch.setattr(invocations, "PIECE", request.param)
    with request_file_system(".") as granted:
        yield granted


TABLE = pd.DataFrame({"number": range(500), "word": [f"w{number}" for number in range(500)]})


def test_pandas_csv(fs: FileSystem) -> None:
    with fs.access("t.csv").open("w") as f:
        TABLE.to_csv(f, index=False)
    for engine in ("c", "python"):
        with fs.access("t.csv").open() as f:
            assert pd.read_csv(f, engine=engine).equals(TABLE)
    with fs.access("t.csv").open("rb") as b:
        assert pd.read_csv(b).equals(TABLE)
    with fs.access("t.csv").open("rb") as b:
        assert sum(len(part) for part in pd.read_csv(b, chunksize=100)) == 500


def test_pandas_json_and_pickle_free_formats(fs: FileSystem) -> None:
    with fs.access("t.json").open("w") as f:
        TABLE.to_json(f)
    with fs.access("t.json").open() as f:
        assert pd.read_json(f)["word"].tolist() == TABLE["word"].tolist()
    with fs.access("t.dta").open("wb") as b:
        TABLE.to_stata(b, write_index=False)
    with fs.access("t.dta").open("rb") as b:
        assert pd.read_stata(b)["number"].tolist() == list(range(500))


def test_csv_and_json(fs: FileSystem) -> None:
    with fs.access("rows.csv").open("w", newline="") as f:
        csv.writer(f).writerows([[number, "a\nb"] for number in range(300)])
    with fs.access("rows.csv").open(newline="") as f:
        rows = list(csv.reader(f))
    assert (len(rows), rows[299]) == (300, ["299", "a\nb"])
    with fs.access("x.json").open("w") as f:
        json.dump({"k": list(range(1000))}, f)
    with fs.access("x.json").open() as f:
        assert json.load(f) == {"k": list(range(1000))}


def test_numpy(fs: FileSystem) -> None:
    numbers = np.arange(1000.0).reshape(100, 10)
    with fs.access("a.npy").open("wb") as b:
        np.save(b, numbers)
    with fs.access("a.npy").open("rb") as b:
        assert np.array_equal(np.load(b), numbers)
    with fs.access("a.npz").open("wb") as b:
        np.savez_compressed(b, one=numbers, two=numbers * 2)
    with fs.access("a.npz").open("rb") as b, np.load(b) as both:
        assert np.array_equal(both["two"], numbers * 2)
    with fs.access("a.txt").open("w") as f:
        np.savetxt(f, numbers)
    with fs.access("a.txt").open() as f:
        assert np.array_equal(np.loadtxt(f), numbers)


def test_zip_archives(fs: FileSystem) -> None:
    with fs.access("a.zip").open("wb") as b, zipfile.ZipFile(b, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(20):
            archive.writestr(f"f{number}.txt", f"content {number} " * 200)
    with fs.access("a.zip").open("rb") as b, zipfile.ZipFile(b) as archive:
        assert archive.testzip() is None
        assert archive.read("f7.txt") == b"content 7 " * 200
        with archive.open("f3.txt") as inner:
            assert inner.read(9) == b"content 3"


def test_images(fs: FileSystem) -> None:
    image = pytest.importorskip("PIL.Image")
    noise = image.frombytes("RGB", (64, 64), random.Random(1).randbytes(64 * 64 * 3))
    for kind in ("png", "tiff", "bmp", "gif"):
        with fs.access(f"i.{kind}").open("wb") as b:
            noise.save(b, format=kind)
        with fs.access(f"i.{kind}").open("rb") as b:
            again = image.open(b)
            again.load()
        assert again.size == (64, 64)
    with fs.access("i.png").open("rb") as b:
        assert image.open(b).convert("RGB").tobytes() == noise.tobytes()


def test_figures(fs: FileSystem) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure()
    FigureCanvasAgg(figure)
    figure.add_subplot().plot([1, 2])
    for kind, start in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        with fs.access(f"f.{kind}").open("wb") as b:
            figure.savefig(b, format=kind)
        assert fs.access(f"f.{kind}").read_bytes().startswith(start)


def test_seeking_is_what_a_file_on_the_disk_does(fs: FileSystem, project: Path) -> None:
    (project / "x").write_bytes(random.Random(2).randbytes(10_000))
    with fs.access("x").open("rb") as ours, open(project / "x", "rb") as theirs:
        for offset, whence in ((5000, 0), (-100, 2), (0, 0), (20, 1), (-7, 1), (0, 2), (5, 2), (9_999, 0)):
            assert ours.seek(offset, whence) == theirs.seek(offset, whence)
            assert ours.read(50) == theirs.read(50)
            assert ours.tell() == theirs.tell()
        assert (ours.readable(), ours.seekable(), ours.writable()) == (True, True, False)
        with pytest.raises(ValueError, match="negative"):
            ours.seek(-1)
    (project / "u").write_text("äöü\n" * 1000, "utf-8")
    with fs.access("u").open() as ours, open(project / "u", encoding="utf-8") as theirs:
        assert ours.readline() == theirs.readline()
        place = ours.tell()
        assert ours.read() == theirs.read()
        ours.seek(place)
        assert ours.readline() == "äöü\n"


@settings(max_examples=300, deadline=None)
@given(
    content=st.binary(max_size=200),
    piece=st.integers(1, 40),
    steps=st.lists(st.tuples(st.integers(-30, 230), st.sampled_from([0, 1, 2]), st.integers(0, 60)), max_size=12),
)
def test_any_seeks_and_reads_are_those_of_bytes(content: bytes, piece: int, steps: list[tuple[int, int, int]]) -> None:
    ours = io.BufferedReader(
        Fetched(content[:piece], len(content), lambda offset: content[offset : offset + piece]), 16
    )
    theirs = io.BytesIO(content)
    for offset, whence, count in steps:
        base = (0, theirs.tell(), len(content))[whence]
        if base + offset >= 0:  # else one raises and the other goes to the start
            assert ours.seek(offset, whence) == theirs.seek(base + offset, os.SEEK_SET)
        assert ours.read(count) == theirs.read(count)
