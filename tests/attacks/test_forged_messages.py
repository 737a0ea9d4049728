"""A worker that writes its own messages: with the checker off, a cell takes the link to the kernel into its own hands.

The control shows that it really has the link: a hand-made request is granted and a hand-made read answered. Each
forgery then gains nothing, and the session still works after it: the secret is what it was, and a map is done.
"""

# ruff: noqa: E501  (a cell of text is easier to read as it is)
from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from leaks import leaked
from live_kernel import LiveKernel, Ran
from unchecked import checker_off_kernel

LINK = """
import threading, time, secrets as numbers
from capkernel.api import membrane
from capkernel.wire.plan import CodeKey
from capkernel.wire.values import encode
from capkernel.wire.worker import (
    Call, Classify, CloseScope, Comm, Finished, FunctionRef, InputRequest, Invoke, MapClassified, OpenScope, Published, Ready,
    ZipClassified,
)
ours = membrane.current()
link = ours._channel
NONE = encode({"globals": {}, "closure": {}})
def up(t):
    return t.upper()
def ask(effect, blob=b""):
    try:
        return link.call(effect, blob)
    except Exception as problem:
        print("refused:", type(problem).__name__)
def fresh():
    return numbers.token_hex(16)
"""
READ = "with request_file_system('.') as fs:\n    s = fs.read_classified('secrets/canary.txt')\n"

# name → (a cell; what it prints when it has gained something is GAINED or the marker)
FORGERIES = {
    "another value under a known handle": "link.send(Classify(s._handle), encode('GAINED'))",
    "a map onto a known handle": (
        "reference, captured = ours.describe(up)\nlink.send(MapClassified(s._handle, s._handle, reference), captured)"
    ),
    "a zip onto a known handle": "link.send(ZipClassified(s._handle, s._handle, s._handle))",
    "a function of no cell": (
        "for key in (CodeKey(1, 1, '<lambda>', (1, 0, 1, 9)), CodeKey(-1, 0, '', (0, 0, 0, 0))):\n"
        "    link.send(MapClassified(fresh(), s._handle, FunctionRef(key=key)), NONE)"
    ),
    "a library function of no plan": (
        "for name in ('os.system', 'subprocess.run', 'capkernel.vault.apply.run', '', '.', 'builtins.__import__'):\n"
        "    link.send(MapClassified(fresh(), s._handle, FunctionRef(table=name)), NONE)"
    ),
    "captured data of another shape": (
        "reference, _ = ours.describe(up)\n"
        "for blob in (b'', b'\\xff' * 99, encode([]), encode({'globals': 1}), encode({'closures': {'x': 3}, 'more': 1}), NONE[:-1]):\n"
        "    link.send(MapClassified(fresh(), s._handle, reference), blob)"
    ),
    "captured handles nobody knows": (
        "reference, _ = ours.describe(up)\n"
        "class Fake: pass\n"
        "blob = encode({'globals': {'x': Fake()}, 'closure': {}}, handle_of=lambda v: fresh() if type(v) is Fake else None)\n"
        "link.send(MapClassified(fresh(), s._handle, reference), blob)"
    ),
    "handles that are none": (
        "reference, captured = ours.describe(up)\n"
        "for handle in ('', 'x', '../../etc', 'A' * 32, '0' * 33, '\\u0660' * 32, 'g' * 32, '0' * 31 + '\\n'):\n"
        "    link.send(MapClassified(handle, s._handle, reference), captured)\n"
        "    link.send(MapClassified(fresh(), handle, reference), captured)\n"
        "    ask(Invoke(handle, 'read_bytes'))"
    ),
    "a file handle as a secret and a secret as a file": (
        "handle, _ = link.call(OpenScope('file_system', '.'))\n"
        "ask(Invoke(s._handle, 'read_bytes'))\n"
        "entry = link.call(Invoke(handle, 'access', 'secrets/new.txt'))[0][0]\n"
        "ask(Invoke(entry, 'write_classified', secret=handle))\n"
        "ask(Invoke(entry, 'write_classified', secret=fresh()))"
    ),
    "methods that are none": (
        "handle, _ = link.call(OpenScope('file_system', '.'))\n"
        "entry = link.call(Invoke(handle, 'access', 'data/marker.txt'))[0][0]\n"
        "for method in ('__class__', '_fill', 'open_for_vault', '', 'read_bytes\\n', 'x' * 10_000):\n"
        "    ask(Invoke(entry, method))\n    ask(Invoke(handle, method))"
    ),
    "scopes that are none": (
        "for kind in ('exec', 'network', '', 'file_system\\n', 'FILE_SYSTEM'):\n"
        "    if ask(OpenScope(kind, '.')):\n        print('GAINED')"
    ),
    "roots and paths outside": (
        "for root in ('..', '/', '~', '/proc/self', 'data/../..', '\\x00', 'a' * 100_000, '../outside', './../outside'):\n"
        "    if ask(OpenScope('file_system', root)):\n        print('GAINED', root)\n"
        "handle, _ = link.call(OpenScope('file_system', '.'))\n"
        "for path in ('..', '/etc/passwd', '../outside/marker.txt', 'data/../../outside/marker.txt', '\\x00', 'a' * 100_000,\n"
        "             'out/marker.txt', '/proc/self/environ', 'data/marker.txt/../../../outside/marker.txt'):\n"
        "    found = ask(Invoke(handle, 'access', path))\n"
        "    if found:\n        print(ask(Invoke(found[0][0], 'read_bytes')))"
    ),
    "the secret by other spellings": (
        "handle, _ = link.call(OpenScope('file_system', '.'))\n"
        "for path in ('secrets/canary.txt', 'secrets//canary.txt', './secrets/canary.txt', 'secrets/./canary.txt',\n"
        "             'data/../secrets/canary.txt', 'hard.txt', 'soft.txt', 'soft/canary.txt', 'SECRETS/CANARY.TXT',\n"
        "             'se\\u200bcrets/canary.txt', 'ｓecrets/canary.txt', 'secrets/canary.txt/', 'secrets\\\\canary.txt'):\n"
        "    found = ask(Invoke(handle, 'access', path))\n"
        "    if found:\n        print(ask(Invoke(found[0][0], 'read_bytes')), ask(Invoke(found[0][0], 'size')))"
    ),
    "diagnostics of the kernel's own": (
        "for kind in ('display_data', 'execute_result', 'update_display_data'):\n"
        "    link.send(Published(REQUEST, kind, {'data': {'application/vnd.capkernel.diagnostics.v1+json': {'diagnostics': []},\n"
        "        'application/vnd.capkernel.diagnostics+json': 'GAINED', 'text/plain': 'x'},\n"
        "        'metadata': {'application/vnd.capkernel.x': 'GAINED'}, 'transient': {'display_id': 'kernel-1'}}))"
    ),
    "outputs for another request": (
        "for request in (0, 1, REQUEST - 1, REQUEST + 1, 2**60, -1):\n"
        "    link.send(Published(request, 'stream', {'name': 'stdout', 'text': 'GAINED'}))"
    ),
    "active outputs": (
        "link.send(Published(REQUEST, 'display_data', {'data': {'application/javascript': 'GAINED', 'text/html':\n"
        "    '<script>GAINED</script><img src=x onerror=GAINED><a href=\"javascript:GAINED\">x</a>',\n"
        "    'application/vnd.jupyter.widget-view+json': {'model_id': 'GAINED'}}}))\n"
        "link.send(Comm(REQUEST, 'comm_open', 'GAINED', {'a': 'GAINED'}, 'x', buffers=(6,)), b'GAINED')"
    ),
    "a question for another cell": "link.send(InputRequest(1, 'GAINED', True))\nlink.send(InputRequest(REQUEST, 'GAINED', True))",
    "a scope closed twice": (
        "handle, _ = link.call(OpenScope('file_system', '.'))\n"
        "link.call(CloseScope(handle)); link.call(CloseScope(handle)); link.call(CloseScope(fresh()))\n"
        "found = ask(Invoke(handle, 'access', 'data/marker.txt'))\n"
        "if found:\n    print('GAINED')"
    ),
    "more calls than may wait": (
        "handle, _ = link.call(OpenScope('file_system', '.'))\n"
        "threads = [threading.Thread(target=ask, args=(Invoke(handle, 'access', f'data/{n}'),)) for n in range(200)]\n"
        "[t.start() for t in threads]\n[t.join() for t in threads]\nprint('all answered')"
    ),
}

# These end the worker: the names are gone, nothing else is.
FATAL = {
    "ready once more": "link.send(Ready('{}'))",
    "no frame at all": "link._link.sendall(b'\\xff' * 64)",
    "a frame of four gigabytes": "link._link.sendall(b'\\x00\\xff\\xff\\xff\\xff\\xff\\xff\\xff' * 2)",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("forged")
    project = base / "project"
    for folder in (project / "data", project / "secrets", base / "outside"):
        folder.mkdir(parents=True)
    (project / "data" / "marker.txt").write_text("the marker")
    (base / "outside" / "marker.txt").write_text("GAINED")
    canary = project / "secrets" / "canary.txt"
    canary.write_text("canary" + secrets.token_hex(16))
    (project / "hard.txt").hardlink_to(canary)
    (project / "soft.txt").symlink_to("secrets/canary.txt")
    (project / "soft").symlink_to("secrets")
    (project / "out").symlink_to("../outside")
    return project


@pytest.fixture(scope="module")
def kernel(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with checker_off_kernel(place) as running:
            yield running


def run(kernel: LiveKernel, code: str) -> Ran:
    return kernel.run(code, allow_stdin=False)


def begin(kernel: LiveKernel) -> None:
    begun = run(kernel, LINK + READ)
    assert begun.ok, begun.everything


def with_request(code: str) -> str:
    """The number of the running request is what the worker's streams know."""
    return f"import sys\nREQUEST = sys.stdout._latest\n{code}\n# request_file_system\n"


def works(kernel: LiveKernel, place: Path) -> None:
    """The secret is what it was, and the vault takes this session's functions."""
    name, secret = f"secrets/{secrets.token_hex(4)}.txt", (place / "secrets" / "canary.txt").read_text()
    done = run(
        kernel, f"with request_file_system('.') as fs:\n    fs.write_classified({name!r}, s.map(lambda t: t + '!'))"
    )
    assert done.ok, done.everything
    end = time.monotonic() + 30
    while (place / name).read_text() != secret + "!":
        assert time.monotonic() < end, "the map was not done"
        time.sleep(0.05)


def test_the_link_is_in_its_hands(kernel: LiveKernel, place: Path) -> None:
    begin(kernel)
    read = run(
        kernel,
        "handle, _ = link.call(OpenScope('file_system', '.'))  # as request_file_system does\n"
        "entry = link.call(Invoke(handle, 'access', 'data/marker.txt'))[0][0]\n"
        "print(link.call(Invoke(entry, 'read_bytes'))[1].decode())",
    )
    assert "the marker" in read.stdout, read.everything
    said = run(kernel, with_request("link.send(Published(REQUEST, 'stream', {'name': 'stdout', 'text': 'by hand'}))"))
    assert "by hand" in said.stdout
    works(kernel, place)


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_gains_nothing(kernel: LiveKernel, place: Path, name: str) -> None:
    begin(kernel)
    ran = run(kernel, with_request(FORGERIES[name]))
    shown = [message["content"] for message in ran.messages if message["msg_type"] != "execute_input"]
    assert "GAINED" not in repr(shown), shown
    assert not leaked((place / "secrets" / "canary.txt").read_text(), ran.everything)
    assert ran.ok, ran.everything
    works(kernel, place)


@pytest.mark.parametrize("name", FATAL)
def test_a_broken_link_ends_the_worker_alone(kernel: LiveKernel, place: Path, name: str) -> None:
    begin(kernel)
    ran = run(kernel, FATAL[name] + "\ntime.sleep(5)")
    assert ran.reply["ename"] == "WorkerDied", ran.everything
    begin(kernel)
    works(kernel, place)


def test_a_cell_that_says_it_has_finished_is_over(kernel: LiveKernel, place: Path) -> None:
    """Whoever goes on after its own end speaks out of turn: the process is ended, and nothing was read for it."""
    begin(kernel)
    ended = run(
        kernel,
        with_request(
            "handle, _ = link.call(OpenScope('file_system', '.'))\n"
            "entry = link.call(Invoke(handle, 'access', 'data/marker.txt'))[0][0]\n"
            "seen = []\n"
            "link.send(Finished(REQUEST, {'status': 'ok'}))\n"
            "time.sleep(0.5)\n"
            "try:\n    seen.append(link.call(Invoke(entry, 'read_bytes'))[1])\n"
            "except Exception as problem:\n    seen.append(type(problem).__name__)"
        ),
    )
    assert ended.ok
    time.sleep(1)
    after = run(kernel, "print(seen)")
    assert after.reply["ename"] == "NameError", "what it kept is gone with it"
    assert "the worker process ended" in after.everything
    assert "out of turn" in after.everything or "protocol" in after.everything, after.everything
    begin(kernel)  # the next tests find what the lost worker held
    works(kernel, place)


def test_a_thread_that_hammers_a_handle_stops_reading_when_the_cell_ends(kernel: LiveKernel, place: Path) -> None:
    begin(kernel)
    started = run(
        kernel,
        "handle, _ = link.call(OpenScope('file_system', '.'))  # request_file_system\n"
        "entry = link.call(Invoke(handle, 'access', 'data/marker.txt'))[0][0]\n"
        "outcomes, stop = [], threading.Event()\n"
        "def hammer():\n"
        "    while not stop.is_set():\n"
        "        try:\n            outcomes.append(link.call(Invoke(entry, 'read_bytes'))[1] == b'the marker')\n"
        "        except Exception as problem:\n            outcomes.append(type(problem).__name__)\n"
        "threads = [threading.Thread(target=hammer, daemon=True) for _ in range(3)]\n"
        "[t.start() for t in threads]\n"
        "while True not in outcomes:\n    time.sleep(0.01)\n"
        "print(True in outcomes)",
    )
    assert "True" in started.stdout, "the handle works while its cell runs"
    # What was answered while the first cell ran may be noted only now; what is noted after that counts.
    more = "before = len(outcomes)\nwhile len(outcomes) < before + 60:\n    time.sleep(0.01)\n"
    after = run(kernel, f"{more}del outcomes[:]\n{more}stop.set()\nprint(sorted(set(map(str, outcomes))))")
    assert after.stdout.strip() == "['CapabilityRevoked']"
    works(kernel, place)
