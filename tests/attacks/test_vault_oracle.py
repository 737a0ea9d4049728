"""Can a cell learn one bit of a secret from what happens to a function that was applied to it?

Two sessions run the same cells. Their secrets differ in one character, and the mapped functions branch on it: in one
session they return at once, in the other they crash, exit, recurse, loop, eat memory, or return something huge. First
it is shown that the two secrets do make a difference where nothing protects them: in a plain process. Then everything a
client and a cell of the two sessions see is compared byte for byte; only ids and dates are taken out.

The checker is switched off, so that the functions may do what no checked function may.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from leaks import normal
from live_kernel import LiveKernel
from unchecked import checker_off_kernel

# What a function does when the secret begins with "1".
BEHAVIOURS = {
    "segfaults": "__import__('ctypes').string_at(0)",
    "aborts": "__import__('os').abort()",
    "exits": "__import__('os')._exit(3)",
    "exits politely": "__import__('sys').exit(3)",
    "raises": "1 // 0",
    "recurses": "(lambda f: f(f))(lambda f: [f(f)])",
    "loops": "any(False for _ in iter(int, 1))",
    "loops in C": "sum(range(10 ** 15))",
    "sleeps": "__import__('time').sleep(3600)",
    "eats memory": "bytearray(10 ** 13)",
    "eats memory slowly": "[bytearray(10 ** 8) for _ in range(200)]",
    "returns much": "'x' * (200 * 1024 * 1024)",
    "returns too much": "'x' * (400 * 1024 * 1024)",
    "returns what cannot be sent": "open",
    "prints": "__import__('os').write(2, b'seen') and print('seen')",
    "kills its parent": "__import__('os').kill(__import__('os').getppid(), 9)",
    "writes into every descriptor": "[w(n, b'\\xff' * 99) for w in [__import__('os').write] for n in range(3, 30)]",
}
COMES_TO_AN_END = ("raises", "exits", "segfaults", "returns much")  # in a plain process, within seconds

CELLS = [
    "with request_file_system('.') as fs:\n    s = fs.access('secrets/bit.txt').read_classified()\n"
    "    other = fs.access('.env').read_classified()\nprint(s, other)",
    *[
        f"def act(text):\n    return ({action}) if text.startswith('1') else 'tiny'\nr{number} = s.map(act)\n"
        f"t{number} = r{number}.map(len)\nprint(r{number}, t{number}, repr(r{number}.zip(s)) if hasattr(s, 'zip') else '')"  # noqa: E501
        for number, action in enumerate(BEHAVIOURS.values())
    ],
    # Sinks: names are taken alike, also for what is poison, and the second write to a name ends alike.
    "with request_file_system('.') as fs:\n"
    f"    for n, value in enumerate([{', '.join(f'r{n}' for n in range(len(BEHAVIOURS)))}]):\n"
    "        for again in range(2):\n"
    "            file = fs.access(f'secrets/out-{n}.txt')\n            file.write_classified(value)\n"
    "            print(n, file.exists, file.is_classified)\n"
    "            try:\n                print(file.size)\n            except Exception as problem:\n                print(problem)",  # noqa: E501
    "other.map(lambda t: t.upper())\nkept = 41",
    "print(kept + 1, other, [r0, t0])",
]


def act(bit: str, action: str) -> tuple[int, int]:
    """What the function does in a plain process: how it ended, and how much came out."""
    program = f"text = {bit!r}\nresult = ({action}) if text.startswith('1') else 'tiny'\nprint(len(result))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    return done.returncode, len(done.stdout)


@pytest.mark.parametrize("name", COMES_TO_AN_END)
def test_in_a_plain_process_the_secret_shows(name: str) -> None:
    assert act("0x", BEHAVIOURS[name]) != act("1x", BEHAVIOURS[name])


class Trace:
    """Everything that a client sees, in order per channel, and names of files."""

    def __init__(self, folder: Path, bit: str) -> None:
        for name in ("data", "secrets"):
            (folder / name).mkdir(parents=True)
        self.secret = bit + "canary" + secrets.token_hex(8)
        (folder / "secrets" / "bit.txt").write_text(self.secret)
        (folder / ".env").write_text("TOKEN=alive\n")
        self.policy = folder / "capkernel.toml"
        self.policy.write_text("[limits]\nmap_seconds = 2\n")
        self.folder = folder
        self.lines: list[str] = []

    def take(self) -> Trace:
        with checker_off_kernel(self.folder, "--policy", str(self.policy)) as kernel:
            for number, cell in enumerate(CELLS):
                self._run(kernel, number, cell)
            end = time.monotonic() + 400  # jobs run one after the other, some to their time limit
            alive = self.folder / "secrets" / "alive.txt"
            self._run(
                kernel, len(CELLS),
                "with request_file_system('.') as fs:\n"
                "    fs.access('secrets/alive.txt').write_classified(other.map(lambda t: t.upper()))",
            )  # fmt: skip
            while alive.read_text() != "TOKEN=ALIVE\n":
                assert time.monotonic() < end, "the other values are not alive"
                time.sleep(0.2)
            self._run(kernel, len(CELLS) + 1, "print(kept, s, other)")
            self.lines += sorted(os.path.relpath(p, self.folder) for p in self.folder.rglob("*"))
            self.lines += self._late(kernel)
        return self

    def _run(self, kernel: LiveKernel, number: int, cell: str) -> None:
        ran = kernel.run(cell, seconds=60)
        # How a stream is cut into messages is a matter of time, which is not compared.
        streams = [m["content"] for m in ran.messages if m["msg_type"] == "stream"]
        for name in ("stdout", "stderr"):
            text = "".join(content["text"] for content in streams if content["name"] == name)
            self.lines.append(normal({"cell": number, name: text}) if text else f"{number}: no {name}")
        others = [message for message in ran.messages if message["msg_type"] != "stream"]
        for message in (*others, {"msg_type": "execute_reply", "content": ran.reply, "metadata": {}}):
            self.lines.append(
                normal(
                    {
                        "cell": number,
                        "kind": message["msg_type"],
                        "content": message["content"],
                        "metadata": message["metadata"],
                        "buffers": len(message.get("buffers", [])),
                    }
                )
            )

    def _late(self, kernel: LiveKernel) -> list[str]:
        """What is still said when all is done: nothing."""
        found = []
        while kernel.client.iopub_channel.msg_ready():
            message = kernel.client.get_iopub_msg(timeout=1)
            if message["msg_type"] != "status":
                found.append(normal({"kind": message["msg_type"], "content": message["content"]}))
        return found


@pytest.mark.timeout(580)
def test_two_secrets_leave_the_same_trace(tmp_path: Path) -> None:
    traces = [Trace(tmp_path / name, bit) for name, bit in (("a", "0"), ("b", "1"))]
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(Trace.take, traces)
    assert len(one.lines) > 3 * len(CELLS)
    assert [line for line in one.lines if '"stderr":' in line] == []  # nothing is announced
    assert one.lines == two.lines
    everything = "\n".join([*one.lines, *two.lines])
    assert "canary" not in everything
    assert "seen" not in re.sub(r"write\(2, b'seen'\) and print\('seen'\)", "", everything)
    assert "***" in everything
    # The trace of the outside, which no cell sees, does differ: the functions did branch on the secret.
    sizes = [[(t.folder / "secrets" / f"out-{n}.txt").stat().st_size for n in range(len(BEHAVIOURS))] for t in traces]
    assert sizes[0] == [len("tiny")] * len(BEHAVIOURS)
    assert sum(size != len("tiny") for size in sizes[1]) >= len(BEHAVIOURS) - 2
