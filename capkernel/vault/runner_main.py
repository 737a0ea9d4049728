"""The runner: a process that forks one process per job, sees no value and runs nothing of a user.

`python -m capkernel.vault.runner_main --fd N --profile JSON --wall bwrap|plain`

Every job starts from the same state, the one of this process: the standard library modules below, and numpy and pandas
once a job has needed them (importing these runs no user code and depends on no value's content). They are
single-threaded here, so a fork never finds a lock held by a thread that is gone.
"""

from __future__ import annotations

import os
import sys

from capkernel.vault.startup import begin

_ONE_THREAD = (
    "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip
_PRELOADED = (
    "base64", "binascii", "bisect", "calendar", "collections", "copy", "csv", "dataclasses", "datetime", "decimal",
    "difflib", "enum", "fractions", "functools", "hashlib", "heapq", "hmac", "html", "io", "itertools", "json", "math",
    "operator", "re", "statistics", "string", "textwrap", "typing", "unicodedata", "urllib.parse", "uuid", "zlib",
    "zoneinfo",
)  # fmt: skip


def main(arguments: list[str]) -> None:
    """Arguments: see `startup.begin`. Returns when the keeper closes the link."""
    # Cannot be opened once locked. It tells of this process only, and a job closes it.
    memory = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    link, report = begin("runner", arguments)
    for variable in _ONE_THREAD:
        os.environ[variable] = "1"

    import importlib

    for module in _PRELOADED:
        importlib.import_module(module)

    from capkernel.vault.runner import Runner

    Runner(link, memory).serve(report)
    os._exit(0)  # at once: a job that outlived its limits waits for the kernel to notice


if __name__ == "__main__":
    main(sys.argv[1:])
