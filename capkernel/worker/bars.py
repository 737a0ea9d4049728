"""Progress bars as text, where outputs may not be active: tqdm's widget would stand still there.

`tqdm.auto` and `tqdm.notebook` choose the widget by what is installed and where they run, and have no setting for it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_WIDGET = "tqdm.notebook"


class _TextBars(Loader):
    def exec_module(self, module: ModuleType) -> None:
        from tqdm.std import tqdm, trange

        named: dict[str, Any] = {"tqdm": tqdm, "tqdm_notebook": tqdm, "trange": trange, "tnrange": trange}
        # The last two: what tqdm.autonotebook asks for to know that the widget is there.
        module.__dict__.update(named, __all__=list(named), IProgress=object, WARN_NOIPYW="")


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None  # noqa: ARG002
    ) -> ModuleSpec | None:  # fmt: skip
        return ModuleSpec(fullname, _TextBars()) if fullname == _WIDGET else None


def as_text() -> None:
    """From now on `tqdm.notebook` is `tqdm.std` in this process."""
    sys.meta_path.insert(0, _Finder())
