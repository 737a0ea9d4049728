"""Attack programs where nothing protects: IPython, plain objects in the place of capabilities and Classified values.

Reads JSON lines, one program each, and answers each with a line when it has ended; every program runs in a forked
process of its own, with standard output and error in a file. A `map` here calls the function, a handle is a path, and
a block ends nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import signal
import sys
from typing import Any

SECONDS = 20


class Open:
    """A Classified without protection."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def map(self, f: Any) -> Open:
        return Open(f(self.value))

    def flat_map(self, f: Any) -> Open:
        made: Open = f(self.value)
        return made

    def zip(self, other: Open) -> Open:
        return Open((self.value, other.value))

    def __repr__(self) -> str:
        return str(self.value)

    def __format__(self, spec: str) -> str:
        return str(self.value)

    def __eq__(self, other: object) -> bool:
        return self.value == (other.value if isinstance(other, Open) else other)

    def __lt__(self, other: Open) -> bool:
        return bool(self.value < other.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Any:
        return iter(self.value)

    def __contains__(self, item: Any) -> bool:
        return item in self.value

    def __getitem__(self, key: Any) -> Any:
        return self.value[key]

    def __add__(self, other: Any) -> Any:
        return self.value + other

    def __radd__(self, other: Any) -> Any:
        return other + self.value

    __class_getitem__ = classmethod(lambda cls, _: cls)


# A match statement asks a value for its sequence.
import collections.abc  # noqa: E402

collections.abc.Sequence.register(Open)


class StandIn:
    """A FileSystem or a FileEntry without protection."""

    def __init__(self, root: str, name: str = "") -> None:
        self._root = root
        self._name = name

    root = property(lambda self: self._root)
    at = property(lambda self: pathlib.Path(self._root) / self._name)
    path = property(lambda self: str(self.at))
    name = property(lambda self: self.at.name)
    exists = property(lambda self: self.at.exists())
    is_directory = property(lambda self: self.at.is_dir())
    size = property(lambda self: self.at.stat().st_size)
    children = property(lambda self: [StandIn(str(child)) for child in sorted(self.at.iterdir())])

    def access(self, path: str) -> StandIn:
        return StandIn(str(self.at), path)

    def subtree(self, path: str) -> StandIn:
        return StandIn(str(self.at / path))

    def read_only(self) -> StandIn:
        return self

    def walk(self) -> list[StandIn]:
        return [StandIn(str(found)) for found in sorted(self.at.rglob("*"))]

    def read(self) -> str:
        return self.at.read_text()

    def read_bytes(self) -> bytes:
        return self.at.read_bytes()

    def read_lines(self) -> list[str]:
        return self.at.read_text().splitlines()

    def lines(self) -> Any:
        with self.at.open() as stream:
            yield from stream

    def for_each_line(self, op: Any) -> None:
        for number, line in enumerate(self.lines(), 1):
            op(line, number)

    def open(self, mode: str = "r") -> Any:
        return self.at.open(mode)

    def find(self, folder: str, glob: str) -> list[str]:
        return [str(found.relative_to(self.at)) for found in sorted((self.at / folder).rglob(glob))]

    def grep(self, path: str, pattern: str) -> list[str]:
        return [line for line in (self.at / path).read_text().splitlines() if re.search(pattern, line)]

    def grep_recursive(self, folder: str, pattern: str, glob: str = "*") -> list[str]:
        files = [self.at / found for found in self.find(folder, glob) if (self.at / found).is_file()]
        return [line for file in files for line in file.read_text().splitlines() if re.search(pattern, line)]

    def write(self, text: str) -> None:
        self.at.write_text(text)

    def append(self, text: str) -> None:
        with self.at.open("a") as stream:
            stream.write(text)

    def write_bytes(self, data: bytes) -> None:
        self.at.write_bytes(data)

    def delete(self) -> None:
        self.at.unlink()

    def mkdir(self) -> None:
        self.at.mkdir(parents=True, exist_ok=True)

    def read_classified(self, path: str = "") -> Open:
        return Open((self.at / path).read_text())

    def write_classified(self, *arguments: Any) -> None:
        *path, value = arguments
        (self.at / "".join(path)).write_text(str(value.value))


def request_file_system(root: str = ".") -> Any:
    return contextlib.nullcontext(StandIn(str(root)))


def run(shell: Any, program: dict[str, Any]) -> None:
    """One program, in this process; everything it puts out goes to standard output."""
    names: dict[str, Any] = {
        "request_file_system": request_file_system, "classify": Open, "Classified": Open, "FileSystem": StandIn,
        "FileEntry": StandIn, **program["names"],
    }  # fmt: skip
    names["s"] = StandIn(".").read_classified("secrets/canary.txt")
    shell.push(names, interactive=False)
    for cell in program["cells"]:
        result = shell.run_cell(cell, store_history=True)
        if result.result is not None:
            print(shell.display_formatter.format(result.result))
        problem = result.error_before_exec or result.error_in_exec
        if problem is not None:
            print("raised", type(problem).__name__, problem)
        sys.stdout.flush()


def main() -> None:
    import numpy  # noqa: F401  # once, for all
    import pandas  # noqa: F401
    from IPython.core.interactiveshell import InteractiveShell
    from traitlets.config import Config

    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell.instance(config=config, colors="nocolor")
    # `s` can be pickled like any object of a module; IPython has put its own module in the place of this one.
    sys.modules["unprotected"] = sys.modules.get("unprotected") or type(sys)("unprotected")
    sys.modules["unprotected"].Open = Open  # type: ignore[attr-defined]
    Open.__module__ = "unprotected"
    for line in sys.stdin:
        program = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            signal.alarm(SECONDS)
            os.chdir(program["directory"])
            out = os.open(program["out"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            try:
                run(shell, program)
            except BaseException as problem:
                print("ended by", type(problem).__name__, problem)
            sys.stdout.flush()
            os._exit(0)
        os.waitpid(child, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    sys.path[:] = [entry for entry in sys.path if entry != str(pathlib.Path(__file__).parent)]
    main()
