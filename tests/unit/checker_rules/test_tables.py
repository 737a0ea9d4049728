"""The tables name what exists, and a sample of what they call pure has no effect."""

from __future__ import annotations

import builtins
import importlib
import io
import random
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from capkernel.checker import tables


def _find(path: str) -> Any:
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise ImportError(path)


def _without_scipy(paths: Iterable[str]) -> list[str]:
    return sorted(path for path in paths if path.partition(".")[0] != "scipy")


@pytest.mark.parametrize("path", _without_scipy(tables.pure().names))
def test_every_pure_name_exists(path: str) -> None:
    package = path.partition(".")[0]
    if package in ("numpy", "pandas"):
        pytest.importorskip(package)
    _find(path)


def test_every_name_of_scipy_exists() -> None:
    """Its wheel is too large for the development environment: tested where it is installed."""
    pytest.importorskip("scipy", reason="scipy is not installed: its part of the purity tables is NOT tested here")
    pure = tables.pure()
    names = {path for path in pure.names | pure.exceptions | pure.partial_modules if path.startswith("scipy")}
    assert len(names) > 1000
    for path in sorted(names):
        _find(path)


def test_what_is_said_of_scipy() -> None:
    pure = tables.pure()
    assert pure.is_pure("scipy.stats.norm.cdf")
    assert pure.is_pure("scipy.linalg.solve")
    assert pure.is_module("scipy.stats")
    for path in ("stats.norm.rvs", "stats.bootstrap", "optimize.dual_annealing", "io.loadmat", "sparse.save_npz"):
        assert not pure.is_pure(f"scipy.{path}")


@pytest.mark.parametrize("module", _without_scipy(tables.pure().modules | tables.pure().partial_modules))
def test_every_pure_module_exists(module: str) -> None:
    if module.partition(".")[0] in ("numpy", "pandas"):
        pytest.importorskip(module.partition(".")[0])
    importlib.import_module(module)


def test_every_exception_exists() -> None:
    for path in _without_scipy(tables.pure().exceptions):
        if path.startswith("pandas"):
            pytest.importorskip("pandas")
        _find(path)


def test_an_exception_is_not_pure_though_its_class_is() -> None:
    assert tables.pure().is_pure("datetime.datetime")
    assert tables.pure().is_pure("datetime.datetime.fromisoformat")
    assert not tables.pure().is_pure("datetime.datetime.now")


@pytest.mark.parametrize(
    "path",
    ["time.time", "random.random", "os.environ", "builtins.print", "numpy.random.rand", "uuid.uuid4", "numpy.load"],
)
def test_effects_are_not_pure(path: str) -> None:
    assert not tables.pure().is_pure(path)


@pytest.mark.parametrize("name", sorted(tables.subset().forbidden - {"help", "exit", "quit"}))
def test_forbidden_names_are_builtins(name: str) -> None:
    assert hasattr(builtins, name)


def test_allowed_members_of_partial_modules_exist_or_are_new() -> None:
    missing = [
        f"{module}.{name}"
        for module, names in tables.ambient().partial.items()
        for name in names
        if not _exists(f"{module}.{name}")
    ]
    assert missing == []


def _exists(path: str) -> bool:
    try:
        _find(path)
    except (ImportError, AttributeError):
        return False
    return True


def test_every_advice_that_is_named_is_there() -> None:
    table = tables.ambient()
    named = {
        *table.refused_modules.values(),
        *table.partial_advice.values(),
        *table.member_advice.values(),
        *table.denied.values(),
    }
    assert named <= set(table.advice)


def test_refused_modules_take_their_submodules_along() -> None:
    assert tables.ambient().refused_module("http.client") == "network"
    assert tables.ambient().refused_module("urllib.request") == "network"
    assert tables.ambient().refused_module("urllib.parse") is None
    assert tables.ambient().refused_module("httpx") is None


_SAMPLE: dict[str, tuple[Any, ...]] = {
    "builtins.len": ([1, 2],),
    "builtins.sorted": ([3, 1, 2],),
    "json.loads": ('{"a": [1, 2]}',),
    "json.dumps": ({"a": [1, 2]},),
    "re.findall": ("a", "banana"),
    "math.sqrt": (2.0,),
    "statistics.mean": ([1, 2, 3],),
    "textwrap.dedent": ("  a\n  b",),
    "html.escape": ("<a>",),
    "base64.b64encode": (b"abc",),
    "urllib.parse.urlsplit": ("https://example.com/a?b",),
    "datetime.datetime.fromisoformat": ("2024-01-02",),
    "decimal.Decimal": ("1.10",),
    "fractions.Fraction": (1, 3),
    "collections.Counter": ("banana",),
    "copy.deepcopy": ([[1], [2]],),
    "zlib.crc32": (b"abc",),
    "unicodedata.normalize": ("NFC", "é"),
    "difflib.get_close_matches": ("appel", ["apple", "pear"]),
    "uuid.UUID": ("12345678123456781234567812345678",),
    "ast.literal_eval": ("[1, 2]",),
    "numpy.sum": ([1, 2, 3],),
    "numpy.linalg.norm": ([3.0, 4.0],),
}


@pytest.mark.parametrize("path", sorted(_SAMPLE))
def test_a_pure_function_has_no_effect(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.startswith("numpy"):
        pytest.importorskip("numpy")
    function: Callable[..., Any] = _find(path)
    assert tables.pure().is_pure(path)
    arguments, copies = _SAMPLE[path], repr(_SAMPLE[path])
    first = repr(function(*arguments))  # imports and caches happen here

    def forbidden(*_: object, **__: object) -> Any:
        raise AssertionError(f"{path} had an effect")

    out = io.StringIO()
    state = random.getstate()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(builtins, "open", forbidden)
    monkeypatch.setattr(time, "time", forbidden)
    assert repr(function(*arguments)) == first, "the same argument gave another result"
    assert repr(arguments) == copies, "the argument was changed"
    assert out.getvalue() == ""
    assert random.getstate() == state


def test_the_probe_sees_an_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the test above relies on: a printing function would be noticed."""
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    print("x")
    assert out.getvalue() == "x\n"
