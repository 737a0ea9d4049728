"""What cells do every day works in a locked process, with and without bubblewrap, with and without an unprivileged
user.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from capkernel.sandbox import Child, Profile, bubblewrap, clean_environment, launch

WORK = """
import json, os, sys
from capkernel.sandbox import Profile, lock_down
report = lock_down(Profile.from_json(sys.argv[1]), inside_bwrap=sys.argv[2] == "bwrap")
results = {"level": report.level.label}

def work(function):
    try:
        results[function.__name__] = function()
    except BaseException as error:
        results[function.__name__] = f"{type(error).__name__}: {error}"
    return function

@work
def numpy_blas():
    import numpy
    a = numpy.ones((400, 400))
    return float((a @ a)[0, 0])

@work
def pandas_frame():
    import pandas
    return float(pandas.DataFrame({"a": [1, 2, 3]}).groupby("a").sum().index.max())

@work
def figure_in_scratch():
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.plot([1, 2]); plt.title("words"); plt.savefig(os.environ["HOME"] + "/figure.png")
    return os.path.getsize(os.environ["HOME"] + "/figure.png") > 1000

@work
def threads():
    import threading
    done = []
    thread = threading.Thread(target=lambda: done.append(1)); thread.start(); thread.join()
    return done

@work
def thread_pool():
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(4) as pool:
        return sum(pool.map(abs, range(-5, 0)))

@work
def event_loop():
    import asyncio
    async def main():
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, abs, -5)
    return asyncio.run(main())

@work
def time_zone():
    import datetime, zoneinfo
    return datetime.datetime(2026, 7, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris")).utcoffset().seconds

@work
def sqlite_in_memory():
    import sqlite3
    return sqlite3.connect(":memory:").execute("select 40 + 2").fetchone()[0]

@work
def sqlite_in_scratch():
    import sqlite3
    with sqlite3.connect(os.environ["HOME"] + "/data.db") as base:
        base.execute("create table t (a)"); base.execute("insert into t values (42)")
        return base.execute("select a from t").fetchone()[0]

@work
def foreign_functions():
    import ctypes
    return ctypes.CDLL("libm.so.6").abs(-3)

@work
def randomness():
    import secrets, uuid
    return len(uuid.uuid4().hex) + len(secrets.token_bytes(8))

@work
def copies_in_scratch():
    import shutil, tempfile
    place = tempfile.mkdtemp()
    with open(place + "/a", "w") as file:
        file.write("text")
    shutil.copy(place + "/a", place + "/b"); shutil.copy2(place + "/a", place + "/c")
    shutil.copytree(place, place + "2"); shutil.move(place + "2/b", place + "/d")
    os.truncate(os.open(place + "/a", os.O_RDWR), 2)
    size = os.path.getsize(place + "/a")
    shutil.rmtree(place); shutil.rmtree(place + "2")
    return size

@work
def alarm():
    import signal, time
    caught = []
    signal.signal(signal.SIGALRM, lambda *_: caught.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.2)
    return caught

@work
def own_signal():
    import signal
    caught = []
    signal.signal(signal.SIGUSR1, lambda *_: caught.append(1))
    signal.raise_signal(signal.SIGUSR1); os.kill(os.getpid(), signal.SIGUSR1)
    return caught

@work
def inherited_stream():
    import socket
    stream = socket.socket(fileno=int(sys.argv[3]))
    stream.sendall(b"ping")
    return stream.recv(4).decode()

@work
def processors():
    return os.cpu_count() >= 1 and len(os.sched_getaffinity(0)) >= 1

@work
def modules():
    import decimal, logging, lzma, ssl, multiprocessing, subprocess, socket, urllib.request, unicodedata
    return True

sys.stdout.write(json.dumps(results))
"""

EXPECTED = {
    "numpy_blas": 400.0,
    "pandas_frame": 3.0,
    "figure_in_scratch": True,
    "threads": [1],
    "thread_pool": 15,
    "event_loop": 5,
    "time_zone": 7200,
    "sqlite_in_memory": 42,
    "sqlite_in_scratch": 42,
    "foreign_functions": 3,
    "randomness": 40,
    "copies_in_scratch": 2,
    "alarm": [1],
    "own_signal": [1, 1],
    "inherited_stream": "pong",
    "processors": True,
    "modules": True,
}


def run(scratch: Path, *, wrapped: bool, memory: int | None = None) -> dict[str, Any]:
    import socket

    ours, theirs = socket.socketpair()
    profile = Profile("worker", scratch=str(scratch), memory_bytes=memory)
    argv = [sys.executable, "-P", "-s", "-E", "-c", WORK, profile.to_json(), "bwrap" if wrapped else "plain"]
    child: Child = launch(
        [*argv, str(theirs.fileno())],
        profile=profile,
        pass_fds=[theirs.fileno()],
        cwd="/",
        use_bwrap=wrapped,
        env=clean_environment({"HOME": str(scratch), "TMPDIR": str(scratch), "MPLCONFIGDIR": str(scratch)}),
        stdout=subprocess.PIPE,
        stderr=None,
    )
    theirs.close()
    try:
        ours.settimeout(60)
        assert ours.recv(4) == b"ping"
        ours.sendall(b"pong")
        assert child.process.stdout is not None
        text = child.process.stdout.read()
        assert child.wait(60) == 0
    finally:
        ours.close()
        child.terminate_hard()
    results: dict[str, Any] = json.loads(text)
    return results


@pytest.mark.parametrize(
    "wrapped", [False, pytest.param(True, marks=pytest.mark.bwrap)], ids=["without_bwrap", "with_bwrap"]
)
def test_the_usual_libraries_work_inside(tmp_path: Path, wrapped: bool) -> None:
    if wrapped and bubblewrap.why_not():
        pytest.skip(bubblewrap.why_not())
    results = run(tmp_path, wrapped=wrapped)
    assert results.pop("level") == ("full" if wrapped else "standard")
    assert results == EXPECTED


def test_the_address_space_is_bounded_when_the_profile_says_so(tmp_path: Path) -> None:
    code = """
import sys
from capkernel.sandbox import Profile, lock_down
lock_down(Profile.from_json(sys.argv[1]))
try:
    bytearray(1 << 30)
except MemoryError:
    print("bounded", flush=True)
else:
    print("unbounded", flush=True)
"""
    for memory, expected in ((None, "unbounded"), (512 << 20, "bounded")):
        profile = Profile("worker", memory_bytes=memory)
        child = launch(
            [sys.executable, "-P", "-s", "-E", "-c", code, profile.to_json()],
            profile=profile,
            pass_fds=(),
            cwd="/",
            env=clean_environment(),
            stdout=subprocess.PIPE,
            use_bwrap=False,
        )
        try:
            assert child.process.stdout is not None
            assert child.process.stdout.read().decode().strip() == expected
        finally:
            child.terminate_hard()


def test_nothing_is_left_in_the_environment_but_what_was_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LC_SOMETHING", "carried")
    code = "import os, json; print(json.dumps(sorted(os.environ)))"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert "OPENAI_API_KEY" in json.loads(plain.stdout), "an ordinary child has it"
    child = launch(
        [sys.executable, "-P", "-s", "-E", "-c", code],
        profile=None,
        pass_fds=(),
        env=clean_environment({"HOME": "/"}),
        cwd="/",
        stdout=subprocess.PIPE,
    )
    try:
        assert child.process.stdout is not None
        names = set(json.loads(child.process.stdout.read()))
    finally:
        child.terminate_hard()
    assert names <= {"PATH", "HOME", "LANG", "LANGUAGE", "TZ", "LC_ALL", "LC_CTYPE", *os.environ} - {
        "OPENAI_API_KEY",
        "PYTHONPATH",
        "LC_SOMETHING",
    }
    assert {"PATH", "HOME"} <= names
