"""Looking for bytes in the whole memory of a process, from outside. Needs the right to read it (as root has)."""

from __future__ import annotations

from pathlib import Path

CHUNK = 16 * 1024 * 1024


def readable(pid: int) -> bool:
    """Whether this process may read the memory of `pid` at all."""
    try:
        with Path(f"/proc/{pid}/mem").open("rb"):
            return True
    except OSError:
        return False


def count_in_memory(pid: int, needle: bytes) -> int:
    """How often `needle` occurs in the mapped, readable memory of process `pid`."""
    found = 0
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            if "r" not in rights or line.endswith(("[vvar]", "[vsyscall]", "[vvar_vclock]")):
                continue
            start, end = (int(part, 16) for part in span.split("-"))
            found += _count_in_span(memory, start, end, needle)
    return found


def _count_in_span(memory: object, start: int, end: int, needle: bytes) -> int:
    found, tail, at = 0, b"", start
    while at < end:
        try:
            memory.seek(at)  # type: ignore[attr-defined]
            piece = memory.read(min(CHUNK, end - at))  # type: ignore[attr-defined]
        except (OSError, ValueError, OverflowError):
            return found  # a mapping that went away, or one that the kernel does not let anyone read
        if not piece:
            return found
        window = tail + piece
        found += window.count(needle)
        tail = window[-(len(needle) - 1) :]
        at += len(piece)
    return found
