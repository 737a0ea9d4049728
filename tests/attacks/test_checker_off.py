"""Five programs that print, write, send, pickle and format a secret, with the checker switched off.

Each is first run where nothing protects the secret: a plain process in which `map` just calls the function. There it
must leak. Then the same text runs in a session whose checker accepts everything, and nothing of the secret may come
out: not in an output, not in a file, not over a socket, not in a reply.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Listener, listening
from unchecked import checker_off_kernel

PRINT = """
print(s)
display(s)
s.map(print)
s.map(lambda t: print(t) or t)
s.map(lambda t: __import__("sys").stdout.write(t))
s.map(lambda t: __import__("os").write(1, t.encode()))
"""

WRITE = """
with request_file_system(".") as fs:
    fs.access("leak-a.txt").write(str(s))
s.map(lambda t: open("leak-b.txt", "w").write(t))
s.map(lambda t: open(FOLDER + "/leak-c.txt", "w").write(t))
s.map(lambda t: __import__("pathlib").Path(SCRATCH).joinpath("leak-d.txt").write_text(t))
"""

SEND = """
s.map(lambda t: __import__("socket").create_connection(("127.0.0.1", PORT), 2).sendall(t.encode()))
s.map(lambda t: __import__("urllib.request").request.urlopen(f"http://127.0.0.1:{PORT}/{t}", timeout=2))
"""

PICKLE = """
import pickle
seen = []
s.map(seen.append)
s.map(lambda t: seen.append(t))
s.map(lambda t: globals().__setitem__("stolen", t))
try:
    print(pickle.dumps(s))
except TypeError as problem:
    print(problem)
print(vars(s) if hasattr(s, "__dict__") else [getattr(s, name) for name in s.__slots__ if name in dir(s)])
print(seen, globals().get("stolen"))
"""

FORMAT = """
print(f"{s} {s!r} {s:>80}", "%s" % s, "{0!s}".format(s), str([s]), repr({"k": s}))
try:
    s.map(lambda t: (_ for _ in ()).throw(ValueError(t)))
except ValueError as problem:
    print(problem)
print(s.map(lambda t: f"<{t}>"), s.map(len).map(str))
"""

PROGRAMS = {"print": PRINT, "write": WRITE, "send": SEND, "pickle": PICKLE, "format": FORMAT}

# What a session without protection would be: `map` calls the function, the value shows itself.
UNPROTECTED = """
import contextlib, pathlib
display = print

class Open:
    def __init__(self, value): self.value = value
    def map(self, f): return Open(f(self.value))
    def __repr__(self): return repr(self.value)
    def __format__(self, spec): return format(str(self.value), spec)

class File:
    def __init__(self, path): self.path = path
    def access(self, path): return File(path)
    def write(self, text): pathlib.Path(self.path).write_text(text)

request_file_system = lambda root: contextlib.nullcontext(File(root))
s = Open(pathlib.Path("secrets/canary.txt").read_text())
"""


@pytest.fixture
def canary(project: Path) -> str:
    text = "canary" + secrets.token_hex(16)
    (project / "secrets" / "canary.txt").write_text(text)
    return text


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening(3) as made:
        yield made


def written(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.rglob("leak*"))


def settings(project: Path, listener: Listener, scratch: Path) -> str:
    return f"PORT = {listener.port}\nFOLDER = {str(project)!r}\nSCRATCH = {str(scratch)!r}\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_program_leaks_where_nothing_protects(
    name: str, project: Path, canary: str, listener: Listener, tmp_path_factory: pytest.TempPathFactory
) -> None:
    scratch = tmp_path_factory.mktemp("scratch")
    program = UNPROTECTED + settings(project, listener, scratch) + PROGRAMS[name]
    done = subprocess.run([sys.executable, "-c", program], cwd=project, capture_output=True, text=True, timeout=60)
    everything = done.stdout + done.stderr + written(project) + written(scratch) + listener.heard.decode()
    assert canary in everything, done.stderr


@pytest.mark.timeout(240)
def test_nothing_leaks_with_the_checker_off(project: Path, canary: str, listener: Listener) -> None:
    with checker_off_kernel(project) as kernel:
        assert kernel.run("with request_file_system('.') as fs:\n    s = fs.read_classified('secrets/canary.txt')").ok
        scratch = Path(kernel.process("capkernel.worker.main").environ()["TMPDIR"])
        assert kernel.run(settings(project, listener, scratch)).ok
        seen = []
        for program in PROGRAMS.values():
            # Statement by statement, so that one that raises does not save the next from being tried.
            for statement in statements(program):
                seen.append(kernel.run(statement).everything)
        # A map that must work shows that the vault took the functions of this session at all.
        assert kernel.run("up = s.map(lambda t: t.upper())").ok
        assert kernel.run("with request_file_system('.') as fs:\n    fs.write_classified('secrets/up.txt', up)").ok
        wait_until(project / "secrets" / "up.txt", canary.upper())
        seen.append(written(project))
        seen.append(written(scratch))
    everything = "".join(seen) + listener.heard.decode()
    for form in (canary, canary.upper(), canary[3:20]):
        assert form not in everything
    assert "Classified[?](***)" in everything, "masks are shown, so outputs were looked at"


def statements(program: str) -> list[str]:
    import ast

    return [ast.unparse(statement) for statement in ast.parse(program).body]


def wait_until(path: Path, expected: str) -> None:
    import time

    end = time.monotonic() + 30
    while time.monotonic() < end:
        if path.exists() and path.read_text() == expected:
            return
        time.sleep(0.1)
    raise AssertionError("the vault did not write what the function makes")
