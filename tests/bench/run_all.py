"""Runs every benchmark here and adds a dated section to docs/performance.md: `make bench`.

A benchmark is `NAME.py`; it prints lines for a person and one JSON object as its last line.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPORT = HERE.parents[1] / "docs" / "performance.md"
NAMES = ("check", "execute", "files", "map", "start")  # `soak` takes long: `make soak`
NEED_A_CORPUS = ("utility",)  # left out unless CAPKERNEL_CORPUS names a folder
NEED_CHROMIUM = ("reveal",)
PEERS = ("ipykernel", "IPython", "mypy", "numpy", "pandas")


def main() -> int:
    results: dict[str, dict[str, object]] = {}
    browser = NEED_CHROMIUM if any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))) else ()
    for name in (*NAMES, *browser, *(NEED_A_CORPUS if os.environ.get("CAPKERNEL_CORPUS") else ())):
        print(f"== {name}", flush=True)
        done = subprocess.run([sys.executable, "-P", str(HERE / f"{name}.py")], stdout=subprocess.PIPE, text=True)
        print(done.stdout, end="", flush=True)
        if done.returncode != 0:
            print(f"{name} failed with exit code {done.returncode}; nothing was written to {REPORT.name}")
            return 1
        results[name] = json.loads(done.stdout.strip().splitlines()[-1])
    with REPORT.open("a") as report:
        report.write(_section(results))
    return 0


def _section(results: dict[str, dict[str, object]]) -> str:
    peers = ", ".join(f"{name} {_version(name)}" for name in PEERS)
    lines = [
        f"\n## {datetime.date.today().isoformat()}\n",
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"Python {platform.python_version()}; {peers}.",
        "",
        "| benchmark | key | value |",
        "|---|---|---|",
    ]
    lines += [
        f"| {name} | `{key}` | {_shown(value)} |" for name, keys in results.items() for key, value in keys.items()
    ]
    return "\n".join(lines) + "\n"


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main())
