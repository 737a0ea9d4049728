"""The warm mypy build every cell is checked on: its options, its modules, and the loading of modules a cell imports.

Rule 1: every option comes from here. No configuration file, no MYPYPATH, no working directory: what a notebook's folder
holds cannot change what a check says.
Rule 2: the options of library modules are the same in every profile, so that all share one cache; only the options
of cells differ.
Rule 3: after the warm-up nothing is written to the cache.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import mypy.build as mypy_build
from mypy.build import PRI_INDIRECT, BuildManager, State
from mypy.errors import CompileError
from mypy.fixup import NodeFixer
from mypy.fscache import FileSystemCache
from mypy.modulefinder import BuildSource
from mypy.modules_state import modules_state
from mypy.options import Options
from mypy.semanal_main import semantic_analysis_for_scc
from mypy.server.update import ensure_trees_loaded
from mypy.types import instance_cache
from mypy.version import __version__ as _mypy_version

from capkernel.checker.mypy_plugin import CapabilityPlugin
from capkernel.checker.pinned import problem

API = "capkernel.api"
NOTEBOOK = "capkernel.checker.notebook"

# Loaded before the first cell, so that no cell pays for them.
_STANDARD = """
abc argparse array asyncio base64 bisect builtins calendar cmath collections collections.abc colorsys
concurrent.futures contextlib copy csv dataclasses datetime decimal difflib enum fractions functools glob hashlib heapq
html io itertools json logging math numbers operator os os.path pathlib pprint random re secrets shutil statistics
string struct sys textwrap time timeit types typing typing_extensions unicodedata urllib.parse urllib.request uuid
warnings xml.etree.ElementTree zipfile zoneinfo
""".split()
_LIBRARIES = ("numpy", "pandas", "matplotlib.pyplot")


class UnsupportedMypy(RuntimeError):
    """The installed mypy is not the one whose internals this engine was made for."""


def mypy_version() -> str:
    return _mypy_version


def require_supported() -> None:
    """Raise UnsupportedMypy unless the mypy that was imported is of the pinned line."""
    wrong = problem(mypy_version())
    if wrong:
        raise UnsupportedMypy(wrong)


def library_options(cache_directory: Path | None) -> Options:
    """The options of everything that is not a cell."""
    options = Options()
    options.incremental = cache_directory is not None
    options.cache_dir = os.devnull if cache_directory is None else str(cache_directory)
    options.sqlite_cache = False
    options.python_version = sys.version_info[:2]
    options.python_executable = sys.executable
    options.platform = sys.platform
    options.native_parser = False  # one parser for all: CPython's, whose trees the worker compiles
    options.preserve_asts = True
    options.raise_exceptions = True  # an internal error is an exception here, never SystemExit
    options.show_traceback = False
    options.show_column_numbers = True
    options.error_summary = False
    options.many_errors_threshold = -1
    options.show_error_code_links = False
    options.ignore_missing_imports = True
    options.allow_redefinition = True
    options.check_untyped_defs = True
    options.config_file = None
    # What the API is made of is no part of what a cell sees of it, and leads to pandas and all that pandas leads to.
    options.per_module_options = {"capkernel.wire.*": {"follow_imports": "skip"}}
    options.build_per_module_cache()
    return options


def present_libraries() -> list[str]:
    """Those of the big libraries that are installed; the warm build holds them."""
    from importlib.util import find_spec

    return [name for name in _LIBRARIES if find_spec(name.partition(".")[0]) is not None]


class WarmBuild:
    """A mypy BuildManager with the standard library and the API loaded, and the big libraries: all that are installed,
    or those of `libraries`."""

    def __init__(self, cache_directory: Path | None, *, libraries: Sequence[str] | None = None) -> None:
        require_supported()
        os.environ.pop("MYPYPATH", None)
        self.output = io.StringIO()  # where mypy would print; never shown
        names = [*_STANDARD, API, NOTEBOOK, *(present_libraries() if libraries is None else libraries)]
        options = library_options(cache_directory)
        self._plugin = CapabilityPlugin(options)
        text = "".join(f"import {name}\n" for name in names)
        result = mypy_build.build(
            [BuildSource(None, "_prelude", text)],
            options,
            # Something must stand there, or mypy searches the working directory; a device holds no modules.
            alt_lib_path=os.devnull,
            fscache=FileSystemCache(),
            extra_plugins=[self._plugin],
            stdout=self.output,
            stderr=self.output,
        )
        self.manager: BuildManager = result.manager
        self.graph = result.graph
        self.options: Options = options
        ensure_trees_loaded(self.manager, self.graph, [*self.graph["_prelude"].dependencies, "_prelude"])
        self.manager.errors.reset()

    def take_over(self) -> None:
        """Point mypy's process-wide state at this build: another one was made since (tests, `capkernel check`)."""
        if modules_state.modules is not self.manager.modules:
            modules_state.modules = self.manager.modules
            modules_state.node_fixer = NodeFixer(self.manager.modules, self.options.use_fine_grained_cache)
            instance_cache.reset()

    def freeze(self) -> None:
        """Take what is loaded out of the garbage collector's sight: a full collection of it costs 200 ms.

        Not even one first: what little garbage the start made stays, and the start is a third shorter.
        """
        gc.freeze()

    def load(self, modules: Iterable[str]) -> None:
        """Load the modules of `modules` that can be found and are not loaded yet, with all they import."""
        manager, graph = self.manager, self.graph
        wanted = [name for name in modules if name not in manager.modules]
        known = [name for name in wanted if name in graph]
        if known:
            ensure_trees_loaded(manager, graph, known)
        sources = []
        for name in wanted:
            if name not in graph:
                path = manager.find_module_cache.find_module(name)
                if isinstance(path, str) and self._is_affordable(name, path):
                    sources.append(BuildSource(path, name, None, followed=True))
        if sources:
            self._load_new(sources)

    def _is_affordable(self, name: str, path: str) -> bool:
        """Stubs, and what the cache holds. The source of a whole library takes longer to check than a cell may."""
        return path.endswith(".pyi") or mypy_build.find_cache_meta(name, path, self.manager) is not None

    def _load_new(self, sources: list[BuildSource]) -> None:
        manager, graph = self.manager, self.graph
        new: list[State] = []
        try:
            mypy_build.load_graph(sources, manager, graph, new)
        except CompileError:
            # A library that cannot be read is a library without types; no cell is to blame.
            for state in new:
                graph.pop(state.id, None)
                manager.modules.pop(state.id, None)
            return
        for state in new:
            manager.import_map[state.id] = state.dependencies_set | state.suppressed_set
        for component in mypy_build.sorted_components_inner(graph, {state.id for state in new}, PRI_INDIRECT):
            members = mypy_build.order_ascc(graph, component)
            outside = [name for member in members for name in graph[member].dependencies if name not in component]
            ensure_trees_loaded(manager, graph, outside)
            if all(graph[member].is_fresh() for member in members):
                mypy_build.process_fresh_modules(graph, members, manager)
                continue
            for member in members:
                graph[member].parse_file()
            semantic_analysis_for_scc(graph, members, manager.errors)
            for member in members:
                graph[member].type_check_first_pass()
            for member in members:
                while graph[member].type_check_second_pass():
                    pass
                graph[member].finish_passes()
                manager.errors.error_info_map.pop(graph[member].xpath, None)
