"""Files, as a cell sees them: a FileSystem for the time of a block, and FileEntries out of it.

These objects hold a handle number and names, no authority: the broker decides at every call.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Never, final

from capkernel.api import membrane
from capkernel.api.classified import Classified, adopt
from capkernel.wire.worker import CloseScope, Invoke, OpenScope


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
        return self.read().splitlines()

    def write(self, content: str, /) -> None:
        """Replace the file by this text, atomically; creates parents. Refused on classified paths."""
        self.write_bytes(_exact(content, str).encode("utf-8"))

    def write_bytes(self, content: bytes, /) -> None:
        """Replace the file by these bytes, atomically; creates parents. Refused on classified paths."""
        _invoke(self, "write", blob=_exact(content, bytes))

    def append(self, content: str, /) -> None:
        """Add text at the end; creates the file. Refused on classified paths."""
        _invoke(self, "append", blob=_exact(content, str).encode("utf-8"))

    def mkdir(self) -> None:
        """Make this directory and its parents. An existing one is fine."""
        _invoke(self, "mkdir")

    @property
    def children(self) -> list[FileEntry]:
        """The entries of a directory, sorted by name."""
        found = _invoke(self, "children")[0]
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


def _grant(kind: type[Any], handle: str, name: str) -> Any:
    made = object.__new__(kind)
    made._handle = handle
    made._name = name
    return made


def _invoke(
    capability: Capability, method: str, *, path: str = "", secret: str = "", blob: bytes = b""
) -> tuple[Any, bytes]:
    return membrane.current().call(Invoke(capability._handle, method, path, secret), blob)


def _exact(value: Any, kind: type[Any]) -> Any:
    # A subclass could answer differently each time it is asked; the broker must see what it decides on.
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
    return value
