"""How long a person waits for the first result, through capkernel and through stock ipykernel, paired and interleaved.

cold: from the launch of the kernel until `1+1` has its reply and `idle`, as with "Run all" right after opening.
warm: the same cell as the first in a kernel that was launched some seconds ago. The checker's cache of library types
is built before. Ratios are medians of paired ratios. Options: `--rounds N`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from capkernel.checker.cache import build_cache

ARGV = {
    "capkernel": [sys.executable, "-P", "-s", "-E", "-m", "capkernel.kernel", "-f", "{connection_file}"],
    "stock": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
}
SETTLED_SECONDS = 4.0


def first_result(argv: list[str], directory: str, settled: float) -> float:
    """Seconds until the first result; from the launch, or from now when the kernel may settle before."""
    manager = KernelManager()
    manager._kernel_spec = KernelSpec(argv=argv, display_name="bench", language="python", interrupt_mode="signal")
    began = time.perf_counter()
    manager.start_kernel(cwd=directory, stderr=subprocess.DEVNULL)
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        if settled:
            time.sleep(settled)
            began = time.perf_counter()
        run(client, "1+1")
        return time.perf_counter() - began
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def run(client: BlockingKernelClient, code: str) -> None:
    request = client.execute(code)
    while True:
        message = client.get_iopub_msg(timeout=120)
        mine = message["parent_header"].get("msg_id") == request
        if mine and message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
            break
    while True:
        reply = client.get_shell_msg(timeout=120)
        if reply["parent_header"].get("msg_id") == request:
            if reply["content"]["status"] != "ok":
                raise SystemExit(f"{code!r} did not run: {reply['content']}")
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    build_cache(print)
    seconds: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as directory:
        os.environ["IPYTHONDIR"] = directory
        os.environ["XDG_STATE_HOME"] = directory
        for argv in ARGV.values():  # what the file system has to read for the first time is not our subject
            first_result(argv, directory, 0)
        for number in range(rounds):
            for kind, settled in (("cold", 0.0), ("warm", SETTLED_SECONDS)):
                for name in list(ARGV) if number % 2 else list(ARGV)[::-1]:
                    seconds.setdefault((kind, name), []).append(first_result(ARGV[name], directory, settled))
    result = {}
    for kind in ("warm", "cold"):
        ours, stock = seconds[kind, "capkernel"], seconds[kind, "stock"]
        result[f"{kind}_ratio"] = round(statistics.median(a / b for a, b in zip(ours, stock, strict=True)), 3)
        shown = [f"{statistics.median(values) * 1e3:.1f} ms" for values in (ours, stock)]
        print(f"{kind}: capkernel {shown[0]}, stock {shown[1]}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
