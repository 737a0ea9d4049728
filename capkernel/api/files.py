"""Files, as a cell sees them: a FileSystem for the time of a block, and FileEntries out of it.

These objects hold a handle number and names, no authority: the broker decides at every call.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import IO, Any, BinaryIO, Final, Literal, Never, TextIO, cast, final, overload

from capkernel.api import membrane
from capkernel.api.classified import Classified, adopt
from capkernel.api.errors import CapabilityRevoked
from capkernel.api.search import GrepMatch, lines_of, matches_in, matching
from capkernel.api.streams import Fetched
from capkernel.wire.worker import CloseScope, Invoke, OpenScope

_BATCH: Final = 2_000  # files that one search asks for at once
_TEXT_MODES: Final = ("r", "rt", "w", "wt", "x", "xt", "a", "at")
_BINARY_MODES: Final = ("rb", "wb", "xb", "ab")
_WRITES: Final = {"w": "write", "x": "create", "a": "append"}


class Capability:
    """A handle: it designates something and is the authority to use it. Granted by a block, never constructed."""

    __slots__ = ("__weakref__", "_handle", "_name")
    _handle: str
    _name: str

    def __init__(self, _: Never, /) -> None:
        raise TypeError(f"{type(self).__name__} is granted by a request_* block, not constructed")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"

    def __copy__(self) -> Never:
        raise TypeError("a capability cannot be copied: pass it on inside its block")

    def __deepcopy__(self, _memo: object) -> Never:
        raise TypeError("a capability cannot be copied: pass it on inside its block")

    def __reduce__(self) -> Never:
        raise TypeError("a capability cannot be pickled: it is valid only in its block")


@final
class FileEntry(Capability):
    """One path below a granted root. Needs the block it came from; every use after it raises CapabilityRevoked.

    ``with request_file_system("data") as fs: text = fs.access("notes.txt").read()``
    """

    __slots__ = ()

    @property
    def path(self) -> str:
        """POSIX path relative to the granted root."""
        return self._name

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def exists(self) -> bool:
        return bool(_invoke(self, "exists")[0])

    @property
    def is_directory(self) -> bool:
        return bool(_invoke(self, "is_directory")[0])

    @property
    def is_classified(self) -> bool:
        """Whether the policy calls this path a secret: then only the `*_classified` methods read and write it."""
        return bool(_invoke(self, "is_classified")[0])

    @property
    def size(self) -> int:
        """Bytes. Refused on classified files."""
        return int(_invoke(self, "size")[0])

    def read(self) -> str:
        """The whole file as UTF-8 text. Refused on classified files."""
        return _invoke(self, "read_bytes")[1].decode("utf-8")

    def read_bytes(self) -> bytes:
        """The whole file. Refused on classified files."""
        return _invoke(self, "read_bytes")[1]

    def read_lines(self) -> list[str]:
        """The lines of the file, without their ends. Refused on classified files."""
        return lines_of(self.read())

    def lines(self) -> Iterator[str]:
        """The lines one after the other, without their ends; the file is never held whole. UTF-8."""
        with self.open() as stream:
            for line in stream:
                yield line.removesuffix("\n")

    def for_each_line(self, op: Callable[[str, int], None], /) -> None:
        """Call `op(line, number)` for every line, from number 1."""
        for number, line in enumerate(self.lines(), 1):
            op(line, number)

    @overload
    def open(
        self,
        mode: Literal["r", "rt", "w", "wt", "x", "xt", "a", "at"] = "r",
        *,
        encoding: str = "utf-8",
        errors: str = "strict",
        newline: str | None = None,
    ) -> AbstractContextManager[TextIO]: ...
    @overload
    def open(self, mode: Literal["rb", "wb", "xb", "ab"]) -> AbstractContextManager[BinaryIO]: ...
    def open(
        self, mode: str = "r", *, encoding: str = "utf-8", errors: str = "strict", newline: str | None = None
    ) -> AbstractContextManager[TextIO] | AbstractContextManager[BinaryIO]:
        """An ordinary Python file for a `with` block, as pandas, csv, json, numpy and matplotlib take it.

        ``with fs.access("data.csv").open() as f: table = pd.read_csv(f)``  What is written is put in place at the end
        of the block, all at once, and not at all when the block fails. Refused on classified paths.
        """
        if mode not in _TEXT_MODES + _BINARY_MODES:
            raise ValueError(f"the mode is one of {', '.join(_TEXT_MODES + _BINARY_MODES)}")
        text = None if mode in _BINARY_MODES else (encoding, errors, newline)
        return cast("AbstractContextManager[TextIO]", _reading(self, text) if mode[0] == "r" else
                    _writing(self, mode[0], text))  # fmt: skip

    def write(self, content: str, /) -> None:
        """Replace the file by this text, atomically; creates parents. Refused on classified paths."""
        self.write_bytes(_exact(content, str).encode("utf-8"))

    def write_bytes(self, content: bytes, /) -> None:
        """Replace the file by these bytes, atomically; creates parents. Refused on classified paths."""
        _invoke(self, "write", blob=_exact(content, bytes))

    def append(self, content: str, /) -> None:
        """Add text at the end; creates the file. Refused on classified paths."""
        _invoke(self, "append", blob=_exact(content, str).encode("utf-8"))

    def delete(self) -> None:
        """Take away this file, link or empty directory; of a link, the link. Refused on classified paths."""
        _invoke(self, "delete")

    def mkdir(self) -> None:
        """Make this directory and its parents. An existing one is fine."""
        _invoke(self, "mkdir")

    @property
    def children(self) -> list[FileEntry]:
        """The entries of a directory, sorted by name."""
        found = _invoke(self, "children")[0]
        return [_grant(FileEntry, handle, name) for handle, name in found]

    def walk(self) -> list[FileEntry]:
        """Everything below a directory, each directory before what is in it. Links and classified directories are
        listed and not entered."""
        found = _invoke(self, "walk")[0]
        return [_grant(FileEntry, handle, name) for handle, name in found]

    def read_classified(self) -> Classified[str]:
        """The file as a secret: its text stays in the vault. UTF-8."""
        return adopt(_invoke(self, "read_classified")[0])

    def read_classified_bytes(self) -> Classified[bytes]:
        """The file as a secret: its bytes stay in the vault."""
        return adopt(_invoke(self, "read_classified_bytes")[0])

    def write_classified(self, content: Classified[str] | Classified[bytes], /) -> None:
        """Write a secret to a classified path. The name is taken at once; the content follows from the vault."""
        _invoke(self, "write_classified", secret=content._handle)


@final
class FileSystem(Capability):
    """The files below one granted root, for the time of the block."""

    __slots__ = ()

    @property
    def root(self) -> str:
        """The root as it was asked for."""
        return self._name

    def access(self, path: str, /) -> FileEntry:
        """The entry at `path`, relative to the root. It need not exist yet. Leaving the root is CapabilityDenied."""
        handle, name = _invoke(self, "access", path=_exact(path, str))[0]
        entry: FileEntry = _grant(FileEntry, handle, name)
        return entry

    def read_classified(self, path: str, /) -> Classified[str]:
        """Short for `access(path).read_classified()`."""
        handle, _name = _invoke(self, "access", path=_exact(path, str))[0]
        return adopt(membrane.current().call(Invoke(handle, "read_classified"))[0])

    def grep(self, path: str, pattern: str) -> list[GrepMatch]:
        """The lines of a file in which the regular expression is found. Refused on classified files."""
        compiled = re.compile(_exact(pattern, str))
        entry = self.access(path)
        return matches_in(entry.path, entry.read(), compiled)

    def grep_recursive(self, dir: str, pattern: str, glob: str = "*") -> list[GrepMatch]:  # noqa: A002
        """`grep` in every file below `dir` whose name matches `glob`. Classified files, and files that are no UTF-8
        text or cannot be read, are passed over."""
        compiled = re.compile(_exact(pattern, str))
        top = self.access(dir)
        found: list[GrepMatch] = []
        paths = tuple(matching(_files_below(top), _exact(glob, str)))
        start = 0
        while start < len(paths):
            sizes, content = _invoke(top, "read_many", paths=paths[start : start + _BATCH])
            place = 0
            for path, size in zip(paths[start:], sizes, strict=False):
                if size >= 0:
                    text = _text(content[place : place + size])
                    place += size
                    if text is not None:
                        found += matches_in(path, text, compiled)
            start += len(sizes)
        return found

    def find(self, dir: str, glob: str) -> list[str]:  # noqa: A002
        """The paths of the files below `dir` whose name matches `glob`, sorted as they are walked."""
        return list(matching(_files_below(self.access(dir)), _exact(glob, str)))

    def read_only(self) -> FileSystem:
        """The same files, for looking and reading alone. Ends with the block."""
        return cast("FileSystem", _grant(FileSystem, _invoke(self, "read_only")[0], self.root))

    def subtree(self, path: str, /) -> FileSystem:
        """The files below a directory of this root; paths are relative to it. Ends with the block."""
        handle = _invoke(self, "subtree", path=_exact(path, str))[0]
        return cast("FileSystem", _grant(FileSystem, handle, path))

    def write_classified(self, path: str, content: Classified[str] | Classified[bytes], /) -> None:
        """Short for `access(path).write_classified(content)`."""
        self.access(path).write_classified(content)


def request_file_system(root: str = ".") -> AbstractContextManager[FileSystem]:
    """Ask for the files below `root` (relative to the notebook's directory) for the time of a `with` block.

    ``with request_file_system("data") as fs: ...``  Raises CapabilityDenied when the policy does not allow the root.
    """
    return _file_system_scope(_exact(root, str))


@contextmanager
def _file_system_scope(root: str) -> Iterator[FileSystem]:
    channel = membrane.current()
    handle, _blob = channel.call(OpenScope("file_system", root))
    try:
        yield _grant(FileSystem, handle, root)
    finally:
        channel.call(CloseScope(handle))


_Text = tuple[str, str, str | None]


@contextmanager
def _reading(entry: FileEntry, text: _Text | None) -> Iterator[IO[Any]]:
    (handle, size), first = _invoke(entry, "open_read")

    def fetch(offset: int) -> bytes:
        return membrane.current().call(Invoke(handle, "piece", offset=offset))[1]

    raw = io.BufferedReader(Fetched(first, size, fetch if handle else None), 1 << 18)
    try:
        with raw if text is None else io.TextIOWrapper(raw, text[0], text[1], text[2]) as stream:
            yield stream
    finally:
        if handle:
            with suppress(CapabilityRevoked):  # the block ended first, and the file with it
                membrane.current().call(Invoke(handle, "close"))


@contextmanager
def _writing(entry: FileEntry, how: str, text: _Text | None) -> Iterator[IO[Any]]:
    _invoke(entry, "may_create" if how == "x" else "may_write")
    kept = _Kept()
    stream = kept if text is None else io.TextIOWrapper(kept, text[0], text[1], text[2])
    try:
        yield stream
        if not stream.closed:
            stream.flush()
    except BaseException:
        kept.content = b""
        raise
    finally:
        stream.close()
    _invoke(entry, _WRITES[how], blob=kept.content)


class _Kept(io.BytesIO):
    """What was written, still known when a library has closed the file itself."""

    content = b""

    def close(self) -> None:
        if not self.closed:
            self.content = self.getvalue()
        super().close()


def _files_below(top: FileEntry) -> list[str]:
    names: list[str] = _invoke(top, "files")[0]
    return names


def _text(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _grant(kind: type[Any], handle: str, name: str) -> Any:
    made = object.__new__(kind)
    made._handle = handle
    made._name = name
    return made


def _invoke(
    capability: Capability,
    method: str,
    *,
    path: str = "",
    secret: str = "",
    paths: tuple[str, ...] = (),
    blob: bytes = b"",
) -> tuple[Any, bytes]:
    return membrane.current().call(Invoke(capability._handle, method, path, secret, paths), blob)


def _exact(value: Any, kind: type[Any]) -> Any:
    # A subclass could answer differently each time it is asked; the broker must see what it decides on.
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value
