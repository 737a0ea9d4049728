"""What of a worker's output reaches the Jupyter clients. Without it a cell's JavaScript would own the person's page.

Rule 1: closed lists. A message kind, a field or a MIME type that is not named here is dropped.
Rule 2: whatever is dropped, `text/plain` stays, so an output never vanishes without a word.
Rule 3: everything counts against the cell's output limit, and past it nothing but one marker goes out.
Rule 4: `application/vnd.capkernel.*`, display ids of the kernel's own and the names of its own errors cannot come from
here. A displayed Classified comes as its handle, and its whole bundle is made of the broker's records.
With active outputs (`output.active`, the operator's word) rules 3 and 4 hold, and of rule 1 only the list of kinds:
every MIME type passes as it is.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from capkernel.kernel.classified_bundle import Bundles
from capkernel.kernel.html import clean_html
from capkernel.kernel.image import clean_jpeg, clean_png
from capkernel.kernel.latex import is_plain_math
from capkernel.kernel.text import clean_text, show_hidden, size_of
from capkernel.wire.worker import HANDLE_MIME, Published

DEFAULT_LIMIT = 10 * 1024 * 1024
_LEAST = 256  # bytes that any message counts for: a page also dies of a million empty ones
_LATE = 1024 * 1024  # bytes that a cell may put out after its end
_LINES = 500  # of a traceback
_NAME = 200  # characters of a display id or an exception's name
_DISPLAY_ID = "worker-"
_DISPLAYS = frozenset({"display_data", "update_display_data", "execute_result"})
_STREAMS = frozenset({"stdout", "stderr"})
_LONGEST = 100_000  # characters of an exception's text, or of one line of its traceback
_MOST_TEX = 100_000  # characters of a formula
_MOST_SIDE = 10_000  # pixels that an image is shown across
# What the kernel itself answers with. A cell may name its exceptions so, but a client must not take one for the other.
KERNEL_ERRORS = frozenset({
    "CellRefused", "HelpNotFound", "MalformedRequest", "NotEvaluated", "NotSupported", "RequestFailed",
    "SessionNotReady", "VaultLost", "WorkerDied",
})  # fmt: skip
_FORGED = "cell."
_MIME = re.compile(r"[a-z]{1,20}/[A-Za-z0-9.+-]{1,60}")
_KINDS = 4  # that are named
_MARKUP = re.compile(r"<[^>]*>")  # of cleaned HTML
_LOOKED_AT = 1_000_000  # characters of HTML that are looked through for a script
HINT: Final = (
    "capkernel: shown as text, because scripts and widgets in outputs are off; the operator may allow them: "
    "`[output] active = true` in the policy\n"
)
_SIZES = frozenset({"width", "height"})


_OWN: Final = "capkernel"
_ACTS: Final = ("application/javascript", "application/vnd.")  # MIME types that begin so run code, or would like to


@dataclass(frozen=True)
class Output:
    """A message for iopub. `metadata` is the message's own; of comm messages only, as are `buffers`."""

    kind: str
    content: dict[str, Any]
    metadata: dict[str, Any] | None = None
    buffers: tuple[bytes, ...] = ()


class CellOutput:
    """The outputs of one cell: counts them and lets pass what may. `limit` is in bytes. `active`: of any MIME type.
    `classified`: see `kernel.classified_bundle`."""

    def __init__(
        self, count: int, limit: int = DEFAULT_LIMIT, *, active: bool = False, classified: Bundles = lambda _: None
    ) -> None:
        self._count = count
        self._active = active
        self._classified = classified
        self._hinted = False
        self._limit = limit
        self._left = limit
        self._marked = False

    def passed(self, message: Published) -> list[Output]:
        """What goes out for `message`: usually one output, none, or the marker that says the limit is reached."""
        if message.kind in _DISPLAYS:
            output: Output | None = _display(message.kind, message.content, self._count, active=self._active)
        else:
            output = _PASS[message.kind](message.content) if message.kind in _PASS else None
        if output is None:
            return []
        if message.kind in _DISPLAYS and self._masked(message.content.get("data"), output):
            return self.counted(output)
        passed = self.counted(output)
        if self._active or self._hinted or message.kind not in _DISPLAYS:
            return passed
        if _acts(message.content.get("data"), output.content["data"]):
            self._hinted = True
            passed += self.counted(Output("stream", {"name": "stderr", "text": HINT}))
        return passed

    def _masked(self, data: Any, output: Output) -> bool:
        """Put the kernel's bundle in place of what the worker showed of a Classified, when it is one."""
        handle = data.get(HANDLE_MIME) if isinstance(data, dict) else None
        bundle = self._classified(handle) if isinstance(handle, str) else None
        if bundle is None:
            return False
        output.content.update(data=bundle, metadata={})
        return True

    def counted(self, output: Output) -> list[Output]:
        """`output` if it is within the limit. A stream is cut to fit; anything else goes whole or not at all."""
        if self._marked:
            return []
        size = max(_LEAST, _size(output.content) + sum(map(len, output.buffers)))
        if output.kind == "stream":
            size = max(1, _size(output.content))
        if size <= self._left:
            self._left -= size
            return [output]
        self._marked = True
        cut: list[Output] = []
        if output.kind == "stream":
            text = output.content["text"][: self._left]
            cut.append(Output("stream", {"name": output.content["name"], "text": text}))
        note = f"\n[output cut: more than {self._limit:,} bytes in this cell (limits.output_bytes in the policy)]\n"
        return [*cut, Output("stream", {"name": "stderr", "text": note})]

    def finish(self) -> None:
        """The cell has ended. What its threads and tasks still put out has a small limit, or the limits of many cells
        would add up."""
        self._left = min(self._left, _LATE)

    @property
    def full(self) -> bool:
        return self._marked


def stream(name: str, text: str) -> Output:
    """Text of a stream, cleaned."""
    return Output("stream", {"name": name, "text": clean_text(text)})


def clean_error(content: dict[str, Any]) -> dict[str, Any]:
    """Name, value and traceback of an exception of a cell, as clean text."""
    lines = content.get("traceback")
    kept = (
        [_short(clean_text(line)) for line in lines[:_LINES] if isinstance(line, str)]
        if isinstance(lines, list)
        else []
    )
    name = clean_text(_text(content, "ename"))[:_NAME]
    return {
        "ename": _FORGED + name if name.strip() in KERNEL_ERRORS else name,
        "evalue": _short(clean_text(_text(content, "evalue"))),
        "traceback": kept,
    }


def clean_bundle(data: Any, *, active: bool = False) -> dict[str, Any]:
    """The MIME types of `data` that may pass, made harmless (`active`: as they are). Always holds `text/plain`."""
    kept: dict[str, Any] = {}
    if isinstance(data, dict) and active:
        for mime, value in data.items():
            if isinstance(mime, str) and len(mime) <= _NAME and not _is_own(mime):
                passed = _plain(value) if mime == "text/plain" else as_json(value)
                if passed is not None:
                    kept[mime] = passed
    elif isinstance(data, dict):
        for mime, value in data.items():
            clean = _CLEAN.get(mime)
            cleaned = clean(value) if clean is not None else None
            if cleaned is not None:
                kept[mime] = cleaned
        markdown = data.get("text/markdown")
        if isinstance(markdown, str) and "text/html" not in kept:
            # Markdown may hold raw HTML and images; its source reads well enough.
            kept["text/plain"] = clean_text(markdown)
    if "text/plain" not in kept:
        kept["text/plain"] = f"[{', '.join(kept)}]" if kept else _not_shown(data)
    return kept


def _not_shown(data: Any) -> str:
    kinds = [mime for mime in data if isinstance(mime, str) and _MIME.fullmatch(mime)] if isinstance(data, dict) else []
    return (
        f"[an output that is not shown here: {', '.join(kinds[:_KINDS])}]"
        if kinds
        else "[an output that is not shown here]"
    )


def _stream(content: dict[str, Any]) -> Output | None:
    name, text = content.get("name"), content.get("text")
    if name not in _STREAMS or not isinstance(text, str):
        return None
    return stream(str(name), text)


def _error(content: dict[str, Any]) -> Output:
    return Output("error", clean_error(content))


def _clear(content: dict[str, Any]) -> Output:
    return Output("clear_output", {"wait": content.get("wait") is True})


def _display(kind: str, content: dict[str, Any], count: int, *, active: bool) -> Output:
    data = clean_bundle(content.get("data"), active=active)
    metadata = content.get("metadata")
    kept = without_own(metadata) if active else _metadata(metadata, data)
    out: dict[str, Any] = {"data": data, "metadata": kept if isinstance(kept, dict) else {}}
    if kind == "execute_result":
        out["execution_count"] = count
    transient = content.get("transient")
    identity = transient.get("display_id") if isinstance(transient, dict) else None
    if isinstance(identity, str) and 0 < len(identity) <= _NAME:
        out["transient"] = {"display_id": _DISPLAY_ID + clean_text(identity)}
    elif kind != "execute_result":
        out["transient"] = {}
    return Output(kind, out)


_PASS: dict[str, Callable[[dict[str, Any]], Output | None]] = {
    "stream": _stream,
    "error": _error,
    "clear_output": _clear,
}


def _acts(data: Any, kept: dict[str, Any]) -> bool:
    """Whether an output needed code in the page, and what is `kept` of it does not show the same."""
    if not isinstance(data, dict):
        return False
    html = data.get("text/html")
    script = isinstance(html, str) and "text/html" not in kept and "<script" in html[:_LOOKED_AT]
    return script or any(isinstance(mime, str) and mime.startswith(_ACTS) and not _is_own(mime) for mime in data)


def _is_own(mime: str) -> bool:
    return mime.lower().startswith(f"application/vnd.{_OWN}")


def as_json(value: Any) -> Any:
    """What came out of msgpack, as JSON has it; None when it has no word for it."""
    if isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError):
        return None


def without_own(metadata: Any) -> Any:
    """Metadata as JSON has it, without the key that only the kernel writes."""
    if not isinstance(metadata, dict):
        return {}
    return as_json({key: value for key, value in metadata.items() if key != _OWN})


def _metadata(metadata: Any, data: dict[str, Any]) -> dict[str, Any]:
    """Of all metadata, the size of an image."""
    kept: dict[str, Any] = {}
    if isinstance(metadata, dict):
        for mime in data:
            own = metadata.get(mime)
            if isinstance(own, dict):
                sizes = {key: own[key] for key in _SIZES & own.keys() if _is_length(own[key])}
                if sizes:
                    kept[mime] = sizes
    return kept


def _plain(value: Any) -> str | None:
    return clean_text(value) if isinstance(value, str) else None


def _is_length(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 < value <= _MOST_SIDE


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} [cut: {len(text):,} characters]"


def _html(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    cleaned = clean_html(value.encode("utf-8", "replace").decode("utf-8"))
    if cleaned is None or not cleaned.strip():
        return None
    # A place for a script to draw in is nothing without it.
    return None if "<script" in value[:_LOOKED_AT] and not _MARKUP.sub("", cleaned).strip() else cleaned


def _latex(value: Any) -> str | None:
    if not isinstance(value, str) or len(value) > _MOST_TEX or not is_plain_math(value):
        return None
    return clean_text(value)


def _image(clean_raw: Callable[[bytes], bytes | None]) -> Callable[[Any], str | None]:
    def clean(value: Any) -> str | None:
        if not isinstance(value, str):
            return None
        try:
            raw = clean_raw(base64.b64decode(value.replace("\n", ""), validate=True))
        except (binascii.Error, ValueError):
            return None
        return None if raw is None else base64.b64encode(raw).decode("ascii")

    return clean


def _json(value: Any) -> Any:
    # It came out of a bounded msgpack body, so it is plain; what JSON has no word for, or is not valid text, is not.
    try:
        text = msgspec.json.encode(value).decode()
        # A backslash that is shown must be escaped in JSON.
        shown = text if text.isascii() else show_hidden(text, escape="\\\\")
        return msgspec.json.decode(shown)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        return None


_CLEAN: dict[Any, Callable[[Any], Any]] = {
    "text/plain": _plain,
    "text/html": _html,
    "text/latex": _latex,
    "image/png": _image(clean_png),
    "image/jpeg": _image(clean_jpeg),
    "application/json": _json,
}


def _text(content: dict[str, Any], key: str) -> str:
    value = content.get(key)
    return value if isinstance(value, str) else ""


def _size(value: Any) -> int:
    """Bytes of all text in `value`, roughly; every item counts for something."""
    if isinstance(value, str):
        return size_of(value)
    if isinstance(value, dict):
        return sum(_size(key) + _size(item) for key, item in value.items()) + 8
    if isinstance(value, list | tuple):
        return sum(_size(item) for item in value) + 8
    return 8
