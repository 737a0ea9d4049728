"""Starting, finding, signalling and ending processes, and looking at them from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import capkernel
from capkernel.sandbox import (
    Child,
    Level,
    Profile,
    Report,
    SandboxError,
    bubblewrap,
    clean_environment,
    interpreter_argv,
    launch,
    prefers_bwrap,
    survey,
    verify,
)

NOBODY = 65534
WRAPPED = [False, pytest.param(True, marks=pytest.mark.bwrap)]
PRELUDE = """
import json, os, signal, sys, time
from capkernel.sandbox import *
from capkernel.sandbox.lockdown import _Features
def say(*words):
    os.write(1, (json.dumps(words) + "\\n").encode())
def lock(features=None):
    report = lock_down(Profile.from_json(sys.argv[1]), inside_bwrap=sys.argv[2] == "bwrap", _features=features)
    say(report.level.label, os.getpid())
    return report
"""


class Started:
    """A child running a text of Python, and the lines it says."""

    def __init__(self, code: str, profile: Profile | None, *, wrapped: bool, fds: Sequence[int] = ()) -> None:
        text = profile.to_json() if profile else ""
        argv = [sys.executable, "-P", "-s", "-E", "-c", PRELUDE + code, text, "bwrap" if wrapped else "plain"]
        self.child = launch(
            argv,
            profile=profile,
            pass_fds=fds,
            env=clean_environment(),
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            use_bwrap=wrapped if profile else None,
        )

    def hear(self) -> list[Any]:
        assert self.child.process.stdout is not None
        line = self.child.process.stdout.readline()
        words: list[Any] = json.loads(line)
        return words

    def errors(self) -> str:
        assert self.child.process.stderr is not None
        return self.child.process.stderr.read().decode()


@pytest.fixture
def start(request: pytest.FixtureRequest) -> Iterator[Any]:
    running: list[Child] = []

    def begin(code: str, profile: Profile | None = None, *, wrapped: bool = False, fds: Sequence[int] = ()) -> Started:
        if wrapped and bubblewrap.why_not():
            pytest.skip(bubblewrap.why_not())
        started = Started(code, profile, wrapped=wrapped, fds=fds)
        running.append(started.child)
        return started

    yield begin
    for child in running:
        child.terminate_hard()


def gone(pid: int, within: float = 5.0) -> bool:
    """True when the process ends (or is a zombie) in time."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_the_pid_is_the_interpreters_own_and_gets_interrupts(start: Any, wrapped: bool) -> None:
    started = start(
        "lock()\ntry:\n    say('ready'); time.sleep(30)\nexcept KeyboardInterrupt:\n    say('interrupted')",
        Profile("worker"),
        wrapped=wrapped,
    )
    level, inner = started.hear()
    child = started.child
    assert level == ("full" if wrapped else "standard")
    assert child.level_expected == Level.parse(level)
    assert (inner == child.pid) is not wrapped
    assert (child.process.pid == child.pid) is not wrapped
    assert child.host_pid(inner) == child.pid
    assert started.hear() == ["ready"]
    assert verify(child.pid) == []
    os.kill(child.pid, signal.SIGINT)
    assert started.hear() == ["interrupted"]
    assert child.wait(10) == 0


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_a_death_by_signal_is_told_as_such(start: Any, wrapped: bool) -> None:
    started = start("lock(); time.sleep(30)", Profile("worker"), wrapped=wrapped)
    started.hear()
    assert started.child.poll() is None
    assert started.child.send_signal(signal.SIGKILL)
    assert started.child.wait(10) == -signal.SIGKILL
    assert not started.child.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_terminate_hard_ends_the_jobs_it_forked_too(start: Any, wrapped: bool) -> None:
    profile = Profile("runner", allow_fork=True)
    code = "lock()\nchild = os.fork()\nif child: say(child)\ntime.sleep(30)"
    started = start(code, profile, wrapped=wrapped)
    started.hear()
    job = started.child.host_pid(started.hear()[0])
    assert job is not None
    assert job != started.child.pid
    started.child.terminate_hard()
    assert gone(started.child.pid)
    assert gone(job)


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_terminate_hard_ends_the_jobs_of_a_dead_interpreter(start: Any, wrapped: bool) -> None:
    """The interpreter is dead and reaped, what it forked lives on (without bubblewrap, which ends the namespace)."""
    profile = Profile("runner", allow_fork=True)
    started = start("lock()\nchild = os.fork()\nif child: say(child)\ntime.sleep(30)", profile, wrapped=wrapped)
    started.hear()
    job = started.child.host_pid(started.hear()[0])
    assert job is not None
    started.child.send_signal(signal.SIGKILL)
    started.child.wait(10)
    if not wrapped:
        assert Path(f"/proc/{job}").exists(), "it lives on"
    started.child.terminate_hard()
    assert gone(job)


@pytest.mark.parametrize("kind", ["helper", "plain", pytest.param("bwrap", marks=pytest.mark.bwrap)])
def test_no_child_outlives_the_process_that_launched_it(kind: str) -> None:
    if kind == "bwrap" and bubblewrap.why_not():
        pytest.skip(bubblewrap.why_not())
    inner = PRELUDE + "if sys.argv[1]: lock()\ntime.sleep(60)"
    launcher = f"""
import sys, time
from capkernel.sandbox import *
profile = None if {kind!r} == "helper" else Profile("worker")
child = launch([sys.executable, "-P", "-s", "-E", "-c", {inner!r}, profile.to_json() if profile else "", {kind!r}],
    profile=profile, pass_fds=(), env=clean_environment(), cwd="/", stdout=1,
    use_bwrap=None if profile is None else {kind == "bwrap"})
print(child.pid, flush=True)
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        pid = next(int(line) for line in process.stdout if line.strip().isdigit())
        time.sleep(0.5)  # beyond lock_down, which changes what could reset the death signal
        assert not gone(pid, 0.1)
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert gone(pid)


def test_an_ordinary_child_does_outlive_it() -> None:
    """What the test above would see without the death signal."""
    launcher = (
        "import subprocess, sys, time; print(subprocess.Popen(['/bin/sleep', '30']).pid, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", launcher], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    try:
        assert not gone(pid, 0.5)
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_a_child_launched_from_a_thread_lives_on_when_the_thread_ends(start: Any, wrapped: bool) -> None:
    found: list[Started] = []
    thread = threading.Thread(
        target=lambda: found.append(start("lock(); time.sleep(30)", Profile("worker"), wrapped=wrapped))
    )
    thread.start()
    thread.join()
    found[0].hear()
    time.sleep(0.3)
    assert found[0].child.poll() is None


def test_only_the_named_descriptors_are_inherited(start: Any) -> None:
    leaked, kept = os.open("/etc/passwd", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        code = "\ndef there(n):\n    try: os.fstat(n); return True\n    except OSError: return False\n"
        code += f"say(there({leaked}), there({kept}), os.readlink('/proc/self/fd/0'), os.getsid(0) == os.getpid())"
        assert start(code, Profile("worker"), fds=[kept]).hear() == [False, True, "/dev/null", True]
        plain = subprocess.run(
            [sys.executable, "-c", f"import os; os.fstat({leaked})"], close_fds=False, check=False, capture_output=True
        )
        assert plain.returncode == 0, "an ordinary child has it"
    finally:
        os.close(leaked)
        os.close(kept)


@pytest.mark.bwrap
def test_bubblewrap_leaves_no_descriptor_of_its_own(start: Any) -> None:
    # one entry is the directory being listed, which is closed again before it is read
    code = "say([n for n in os.listdir('/proc/self/fd') if int(n) > 2 and os.path.exists('/proc/self/fd/' + n)])"
    assert start(code, Profile("worker"), wrapped=True).hear() == [[]]


def test_bubblewrap_can_be_demanded_and_its_absence_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "_tried", lambda: ("bubblewrap (bwrap) is not installed", True))
    arguments: dict[str, Any] = {"pass_fds": (), "env": clean_environment(), "cwd": "/"}
    with pytest.raises(SandboxError, match="not installed"):
        launch([sys.executable, "-c", ""], profile=Profile("worker"), use_bwrap=True, **arguments)
    child = launch([sys.executable, "-c", ""], profile=Profile("worker"), **arguments)
    assert child.level_expected is Level.STANDARD
    assert not child.in_bwrap
    child.terminate_hard()


@pytest.mark.bwrap
def test_a_command_that_bubblewrap_cannot_run_is_an_error() -> None:
    if bubblewrap.why_not():
        pytest.skip(bubblewrap.why_not())
    # The scratch directory does not exist, so bubblewrap ends before it starts anything.
    with pytest.raises(SandboxError, match="bubblewrap ended"):
        launch(
            [sys.executable, "-c", ""],
            profile=Profile("worker", scratch="/nonexistent/scratch"),
            pass_fds=(),
            env=clean_environment(),
            cwd="/",
            use_bwrap=True,
        )


def test_a_program_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(SandboxError, match="could not be started"):
        launch(["/nonexistent/python"], profile=None, pass_fds=(), env={}, cwd="/")
    with pytest.raises(SandboxError, match="absolute"):
        launch(["python"], profile=None, pass_fds=(), env={}, cwd="/")


def test_the_output_of_an_isolated_process_is_no_file(tmp_path: Path) -> None:
    """No file can grow in it, so it would die at its first word: said before it starts."""
    code = "from capkernel.sandbox import *\nlock_down(Profile('worker', file_bytes=0))\nprint('word', flush=True)"
    arguments: dict[str, Any] = {"pass_fds": (), "env": clean_environment(), "cwd": "/", "use_bwrap": False}
    argv = [sys.executable, "-P", "-s", "-E", "-c", code]
    with open(tmp_path / "out", "wb") as file:
        child = launch(argv, profile=Profile("worker", file_bytes=1000), stdout=file, **arguments)
        assert child.wait(20) != 0, "the words of a process whose files cannot grow are lost"
        child.terminate_hard()
        for stream in ("stdout", "stderr"):
            with pytest.raises(SandboxError, match="must be a pipe"):
                launch(argv, profile=Profile("worker"), **{stream: file}, **arguments)


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_another_process_of_the_same_user_cannot_read_the_memory_of_a_locked_one(start: Any, wrapped: bool) -> None:
    """Root is stopped only without CAP_SYS_PTRACE, so the reader drops its capabilities first.

    So does the ordinary process it can read: one with more capabilities than the reader is closed to it anyway.
    """
    hold = "import ctypes\nsecret = ctypes.create_string_buffer(b'TOPSECRET-123456')\n"
    hold += "say(ctypes.addressof(secret)); time.sleep(60)"
    reader = """
import ctypes, struct, sys
from capkernel.sandbox import libc, privileges, syscalls, seccomp
privileges.drop_capabilities()
pid, address = int(sys.argv[1]), int(sys.argv[2])
try:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address); print(memory.read(16) == b"TOPSECRET-123456")
except OSError:
    print(False)
buffer = ctypes.create_string_buffer(16)
local = ctypes.create_string_buffer(struct.pack("<QQ", ctypes.addressof(buffer), 16), 16)
remote = ctypes.create_string_buffer(struct.pack("<QQ", address, 16), 16)
number = seccomp.current_architecture().numbers["process_vm_readv"]
libc.system_call(number, pid, local, 1, remote, 1, 0)
print(buffer.raw == b"TOPSECRET-123456")
"""

    def read(started: Started, address: int) -> list[str]:
        command = [sys.executable, "-c", reader, str(started.child.pid), str(address)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    plain = start("from capkernel.sandbox import privileges; privileges.drop_capabilities()\n" + hold)
    assert read(plain, plain.hear()[0]) == ["True", "True"], "an ordinary process is read"
    locked = start("lock()\n" + hold, Profile("keeper"), wrapped=wrapped)
    locked.hear()
    # In a user namespace of bubblewrap the kernel gives its owner all rights: so `prefers_bwrap` is false there.
    readable = wrapped and bubblewrap.uses_user_namespace()
    assert read(locked, locked.hear()[0]) == [str(readable)] * 2
    assert not (readable and prefers_bwrap(Profile("keeper")))


def test_a_module_of_the_package_runs_by_its_name_in_both_layers() -> None:
    for wrapped in (False, True) if not bubblewrap.why_not() else (False,):
        profile = Profile("worker")
        child = launch(
            interpreter_argv("capkernel.sandbox.probe", profile.to_json(), "bwrap" if wrapped else "plain"),
            profile=profile,
            pass_fds=(),
            env=clean_environment(),
            cwd="/",
            stdout=subprocess.PIPE,
            use_bwrap=wrapped,
        )
        assert child.process.stdout is not None
        report = Report.from_json(child.process.stdout.read().decode().strip())
        child.terminate_hard()
        assert report.level is (Level.FULL if wrapped else Level.STANDARD)


def test_a_process_that_is_not_locked_is_seen_from_outside(start: Any) -> None:
    started = start("say('ready'); time.sleep(30)")
    started.hear()
    problems = verify(started.child.pid)
    assert any("Seccomp" in problem for problem in problems)
    assert any("NoNewPrivs" in problem for problem in problems)
    assert any("core files" in problem or "locked memory" in problem for problem in problems)
    if os.geteuid() == 0:
        assert any("CapEff" in problem for problem in problems)
    started.child.terminate_hard()
    assert verify(started.child.pid) == [f"process {started.child.pid} is not there"]


def test_one_unlocked_thread_is_seen_from_outside(start: Any) -> None:
    """A filter binds one thread and what it starts: a thread from before would be open. lock_down refuses to start
    then.
    """
    code = """
import threading
from capkernel.sandbox import landlock, seccomp, libc, privileges
thread = threading.Thread(target=time.sleep, args=(30,), daemon=True); thread.start()
try:
    lock()
except SandboxError as error:
    say(str(error))
libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1); privileges.drop_capabilities()
privileges.set_limits(Profile.from_json(sys.argv[1]))
machine = seccomp.current_architecture()
say(seccomp.install(machine, seccomp.compile_lock(machine, os.getpid(), allow_fork=False, scratch=False)))
time.sleep(30)
"""
    started = start(code, Profile("worker"))
    assert "2 threads" in started.hear()[0]
    assert started.hear() == [0]
    assert any("Seccomp" in problem for problem in verify(started.child.pid))


def test_a_forked_job_can_give_up_forking(start: Any) -> None:
    code = """
lock()
def attempt(function):
    try:
        child = function()
    except OSError:
        return "refused"
    if child == 0:
        os._exit(0)
    if child:
        os.waitpid(child, 0)
    return "done"
import resource, threading
parent = os.getpid()
def job():
    ran = []
    thread = threading.Thread(target=lambda: ran.append(1)); thread.start(); thread.join()
    resource.setrlimit(resource.RLIMIT_CPU, (5, 5))
    say(attempt(os.fork), ran, attempt(lambda: os.kill(parent, 0)), resource.getrlimit(resource.RLIMIT_CPU))
for deny in (False, True):
    child = os.fork()
    if child == 0:
        if deny:
            deny_fork()
        job(); os._exit(0)
    os.waitpid(child, 0)
say(attempt(os.fork))
"""
    started = start(code, Profile("runner", allow_fork=True))
    started.hear()
    assert started.hear() == ["done", [1], "done", [5, 5]], "before, a job can fork and signal its parent"
    assert started.hear() == ["refused", [1], "refused", [5, 5]]
    assert started.hear() == ["done"], "the runner itself still forks"


def test_a_forked_job_dies_with_the_runner(start: Any) -> None:
    code = """
lock()
for bound in (False, True):
    child = os.fork()
    if child == 0:
        if bound:
            deny_fork()
        say(os.getpid()); time.sleep(60)
time.sleep(60)
"""
    started = start(code, Profile("runner", allow_fork=True))
    started.hear()
    first, second = started.hear()[0], started.hear()[0]
    started.child.send_signal(signal.SIGKILL)
    ended = [gone(first, 1.0), gone(second, 1.0)]
    assert sorted(ended) == [False, True], (
        "the one that called deny_fork ends, the other lives on until the session ends"
    )
    started.child.terminate_hard()
    assert gone(first)
    assert gone(second)


def test_deny_fork_outside_a_child_that_may_add_filters_is_an_error(start: Any) -> None:
    code = "lock()\ntry:\n    deny_fork()\nexcept SandboxError as error:\n    say(str(error))"
    started = start(code, Profile("worker"))
    started.hear()
    assert "EPERM" in started.hear()[0]


def test_the_self_test_finds_a_filter_with_a_hole(start: Any) -> None:
    """Each hole makes lock_down fail, so it is not the list of mechanisms that is believed."""
    code = """
from capkernel.sandbox import seccomp, bpf
original = seccomp.lock_rules
hole = sys.argv[3] if len(sys.argv) > 3 else HOLE
seccomp.lock_rules = lambda *a, **k: [r for r in original(*a, **k) if r.name != hole] + [bpf.Rule(hole)]
try:
    lock()
except SandboxError as error:
    say(str(error))
"""
    for hole, named in (
        ("socket", "sockets_closed"),
        ("socketpair", "sockets_closed"),
        ("sendto", "sockets_closed"),
        ("kill", "signals_closed"),
        ("fcntl", "signals_closed"),
        ("execve", "exec_closed"),
        ("clone", "forks_closed"),
        ("ptrace", "tracing_closed"),
        ("unshare", "kernel_interfaces_closed"),
        ("prlimit64", "process_oracles_closed"),
    ):
        heard = start(f"HOLE = {hole!r}\n" + code, Profile("worker")).hear()
        assert "self-test failed" in heard[0], hole
        assert named in heard[0], hole


def test_the_self_test_finds_an_open_file_system(start: Any) -> None:
    code = """
from capkernel.sandbox import lockdown
for closed in (True, False):
    if not closed: lockdown.landlock.restrict = lambda *a, **k: None
    child = os.fork()
    if child == 0:
        try:
            lock()
        except SandboxError as error:
            say(str(error))
        os._exit(0)
    os.waitpid(child, 0)
"""
    started = start(code, Profile("worker"))
    assert started.hear()[0] == "standard"
    message = started.hear()[0]
    assert "files_closed" in message
    assert "writes_closed" in message


def test_a_missing_mechanism_lowers_the_level_and_is_said(start: Any) -> None:
    for features, level, word in (
        ("_Features(landlock=0)", "partial", "Landlock"),
        ("_Features(seccomp=False)", "partial", "filter"),
        ("_Features(landlock=0, seccomp=False)", "none", "filter"),
        ("_Features(landlock=1)", "standard", ""),
    ):
        started = start(f"report = lock({features}); say(*report.notes); say(report.to_json())", Profile("worker"))
        assert started.hear()[0] == level
        notes = started.hear()
        assert word in " ".join(notes)
        assert Report.from_json(started.hear()[0]).level.label == level


def test_lock_down_starts_no_process(start: Any) -> None:
    """ctypes.util.find_library would start compilers and linkers; here nothing but the interpreter runs."""
    code = """
import resource
before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
lock()
say(before, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
    started = start(code, Profile("worker"))
    started.hear()
    assert started.hear() == [0, 0]
    code = "import resource, ctypes.util; ctypes.util.find_library('c')\n"
    code += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(plain.stdout) > 0, "find_library does start processes"


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_the_survey_proves_the_level(wrapped: bool) -> None:
    if wrapped and bubblewrap.why_not():
        pytest.skip(bubblewrap.why_not())
    found = survey(use_bwrap=None if wrapped else False)
    assert found.level is (Level.FULL if wrapped else Level.STANDARD)
    assert found.problem == ""
    assert ("metadata_hidden" in found.missing) is not wrapped
    assert found.lines()[0].startswith(f"sandbox level: {found.level.label}")
    assert json.loads(found.to_json())["level"] == found.level.label


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_unprivileged_user_gets_the_same_levels_and_leaves_no_orphans() -> None:
    package = str(Path(capkernel.__file__).parent.parent)
    find = f"import sys; sys.path.insert(0, {package!r})\n"
    inner = find + PRELUDE + "lock(); time.sleep(60)"
    code = f"""{find}
import json, os, subprocess
from capkernel.sandbox import *
from capkernel.sandbox import bubblewrap
for wrapped in (False, True):
    if wrapped and bubblewrap.why_not():
        continue
    profile = Profile("worker")
    argv = [sys.executable, "-P", "-s", "-E", "-c", {inner!r}, profile.to_json(), "bwrap" if wrapped else "plain"]
    child = launch(argv, profile=profile, pass_fds=(), env=clean_environment(), cwd="/", stdout=subprocess.PIPE,
        use_bwrap=wrapped)
    level = json.loads(child.process.stdout.readline())[0]
    print(json.dumps([level, verify(child.pid), child.pid]), flush=True)
print(json.dumps([prefers_bwrap(Profile(role)) for role in ("worker", "keeper", "runner")]), flush=True)
os._exit(0)
"""
    for candidate in dict.fromkeys([sys.executable, "/usr/bin/python3"]):
        try:
            done = subprocess.run(
                [candidate, "-I", "-c", code],
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                cwd="/",
                env={},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            continue
        assert done.returncode == 0, done.stderr[-2000:]
        told = [json.loads(line) for line in done.stdout.splitlines()]
        # Without root bubblewrap needs a user namespace, which would open the memory of keeper and runner.
        assert told.pop() == [not bubblewrap.why_not(), False, False]
        levels = ["standard"] if bubblewrap.why_not() else ["standard", "full"]
        assert [level for level, _, _ in told] == levels
        assert [problems for _, problems, _ in told] == [[] for _ in levels]
        assert all(gone(pid) for _, _, pid in told)
        return
    pytest.skip("no Python from 3.11 on that an unprivileged user can run")
