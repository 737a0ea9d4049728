"""Runs the attacks of `inside.py` in the configurations asked for and prints the results as JSON.

A program of its own, so that the same steps run as root and as an unprivileged user. Usage: driver.py JSON with
"package" (the folder that holds capkernel), "inside" (the text of inside.py), "names" and "runs" (name ->
configuration).
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

REQUEST = json.loads(sys.stdin.read())
sys.path.insert(0, REQUEST["package"])

from capkernel.sandbox import Profile, clean_environment, launch, verify  # noqa: E402

VICTIM = """
import ctypes, json, os, signal, socket, sys, time
signal.signal(signal.SIGUSR1, lambda *_: None)
secret = ctypes.create_string_buffer(b"TOPSECRET-123456")
sockets = []
for name in (sys.argv[1], "\\0" + sys.argv[2]):
    sockets.append(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
    sockets[-1].bind(name)
print(json.dumps({"pid": os.getpid(), "address": ctypes.addressof(secret)}), flush=True)
time.sleep(300)
"""


def run(name, settings, base, victim):
    directory = os.path.join(base, name)
    places = {part: os.path.join(directory, part) for part in ("target", "outside", "scratch")}
    for place in places.values():
        os.makedirs(place)
    for part, files in (
        ("target", ["library.txt"]),
        ("outside", ["notes.txt", "rename.txt", "unlink.txt", "grow.txt"]),
    ):
        for file in files:
            with open(os.path.join(places[part], file), "w") as handle:
                handle.write("some text\n")
    locked = settings["locked"]
    scratch = places["scratch"] if settings.get("scratch", True) else None
    profile = Profile(
        settings.get("role", "worker"),
        read=(places["target"],),
        scratch=scratch,
        allow_fork=settings.get("allow_fork", False),
    )
    read_end, write_end = os.pipe()
    grow = os.open(os.path.join(places["outside"], "grow.txt"), os.O_RDWR)
    config = {
        "victim": victim,
        **places,
        "grow_fd": grow,
        "report_fd": write_end,
        "true": shutil.which("true"),
        "locked": locked,
        "bwrap": settings.get("bwrap", False),
        "features": settings.get("features", {}),
        "profile": profile.to_json(),
        "names": settings.get("names", REQUEST["names"]),
        "int80": settings.get("int80", False),
    }
    text = f"import sys; sys.path.insert(0, {REQUEST['package']!r})\n" + REQUEST["inside"]
    child = launch(
        [sys.executable, "-P", "-s", "-E", "-c", text, json.dumps(config)],
        profile=profile if locked else None,
        pass_fds=[write_end, grow],
        env=clean_environment({"HOME": places["scratch"], "TMPDIR": places["scratch"]}),
        cwd=places["outside"],
        stderr=sys.stderr.buffer,
        use_bwrap=settings.get("bwrap", False) if locked else None,
    )
    os.close(write_end)
    os.close(grow)
    with os.fdopen(read_end, "rb") as results:
        text = results.read()
    code = child.wait(30)
    child.terminate_hard()
    return {"code": code, "results": json.loads(text) if text else {}}


def main():
    base = tempfile.mkdtemp(prefix="capkernel-attacks-")
    abstract = "capkernel-victim-" + os.path.basename(base)
    path = os.path.join(base, "victim.socket")
    victim = subprocess.Popen([sys.executable, "-c", VICTIM, path, abstract], stdout=subprocess.PIPE)
    try:
        known = {**json.loads(victim.stdout.readline()), "path": path, "abstract": abstract}
        results = {name: run(name, settings, base, known) for name, settings in REQUEST["runs"].items()}
        results["victim"] = {"alive": victim.poll() is None, "unlocked": verify(victim.pid)}
    finally:
        victim.kill()
        victim.wait()
        victim.stdout.close()
        with contextlib.suppress(OSError):
            shutil.rmtree(base)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
