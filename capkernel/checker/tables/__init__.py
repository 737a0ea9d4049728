"""What the checker knows about names it has no source for: which are pure, which borrow, which reach outside.

The knowledge is data in the TOML files beside this one; nothing here decides. Paths are as a cell writes them
("numpy.sum", "os.environ"), not where a library happens to define the function.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["Advice", "Ambient", "Borrows", "Pure", "Subset", "ambient", "borrows", "pure", "subset"]


@dataclass(frozen=True)
class Advice:
    """What to do instead of a refused thing. `code` stands only when the session has the API name `needs`."""

    text: str
    code: str = ""
    needs: str = ""


@dataclass(frozen=True)
class Subset:
    """Names with a meaning in the safe subset."""

    code: frozenset[str]
    namespaces: frozenset[str]
    interactive: frozenset[str]
    files: frozenset[str]
    fixed: frozenset[str]
    readable_dunders: frozenset[str]
    operators: frozenset[str]
    settable_dunders: frozenset[str]
    module_dunders: frozenset[str]
    method_dunders: frozenset[str]
    class_data_dunders: frozenset[str]
    frame_attributes: frozenset[str]
    magics: frozenset[str]
    matplotlib_backends: frozenset[str]
    metaclasses: frozenset[str]

    @property
    def forbidden(self) -> frozenset[str]:
        """Builtins a cell may not even name."""
        return self.code | self.namespaces | self.interactive | self.files


@dataclass(frozen=True)
class Ambient:
    """Where authority hides in modules. Values are keys of `advice`."""

    refused_modules: Mapping[str, str]
    partial: Mapping[str, frozenset[str]]
    partial_advice: Mapping[str, str]
    member_advice: Mapping[str, str]
    denied: Mapping[str, str]
    path_functions: Mapping[str, int]
    plain_calls: Mapping[str, frozenset[str]]
    path_methods: frozenset[str]
    path_owners: tuple[str, ...]
    path_keywords: frozenset[str]
    path_text: tuple[str, ...]
    advice: Mapping[str, Advice]

    def refused_module(self, module: str) -> str | None:
        """The advice for a module that is nothing but authority, or None. A submodule follows its package, but for one
        that has a pure part."""
        for prefix in reversed(prefixes(module)):
            if prefix in self.partial:
                return None
            if prefix in self.refused_modules:
                return self.refused_modules[prefix]
        return None

    def member(self, path: str) -> str | None:
        """The advice for a refused member ("os.environ"), or None when it may be used."""
        if path in self.denied:
            return self.denied[path]
        module, _, name = path.rpartition(".")
        allowed = self.partial.get(module)
        if allowed is None or name in allowed:
            return None
        return self.member_advice.get(path, self.partial_advice[module])

    def reaches(self, path: str) -> bool:
        """Whether anything of what has this path is refused."""
        return path in self.partial or self.member(path) is not None or self.refused_module(path) is not None


@dataclass(frozen=True)
class Pure:
    """What a function inside `Classified.map` may use."""

    names: frozenset[str]
    modules: frozenset[str]
    partial_modules: frozenset[str]
    exceptions: frozenset[str]
    effects: Mapping[str, str]
    impure_methods: frozenset[str]
    text_without_target: frozenset[str]
    safe_owners: tuple[str, ...]

    def is_pure(self, path: str) -> bool:
        """Whether a name of a library may be used: it, its class or its whole module is listed."""
        if path in self.exceptions or any(prefix in self.exceptions for prefix in prefixes(path)):
            return False
        if path in self.names or path in self.modules:
            return True
        return any(prefix in self.names or prefix in self.modules for prefix in prefixes(path)[:-1])

    def is_module(self, path: str) -> bool:
        """Whether a module may be named at all inside a pure function."""
        return path in self.modules or path in self.partial_modules

    def effect(self, path: str) -> str:
        """What an impure name does, in a word; "" when only unknown."""
        for prefix in reversed(prefixes(path)):
            if prefix in self.effects:
                return self.effects[prefix]
        return ""


@dataclass(frozen=True)
class Borrows:
    """Functions that keep nothing of what they are given, and those that run it later."""

    names: frozenset[str]
    data: frozenset[str]
    frames: frozenset[str]
    packages: frozenset[str]
    keeping: frozenset[str]
    methods: frozenset[str]
    storing: tuple[str, ...]
    starts: frozenset[str]
    start_methods: frozenset[str]
    plain_members: frozenset[str]

    def keeps_nothing(self, path: str) -> bool:
        if path in self.keeping:
            return False
        return path in self.names or path.partition(".")[0] in self.packages or pure().is_pure(path)


def prefixes(path: str) -> list[str]:
    """ "a.b.c" → ["a", "a.b", "a.b.c"]."""
    parts = path.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


@cache
def subset() -> Subset:
    data = _load("subset.toml")
    builtins, dunders = data["builtins"], data["dunders"]
    return Subset(
        code=frozenset(builtins["code"]),
        namespaces=frozenset(builtins["namespaces"]),
        interactive=frozenset(builtins["interactive"]),
        files=frozenset(builtins["files"]),
        fixed=frozenset(builtins["fixed"]),
        readable_dunders=frozenset(dunders["readable"]),
        operators=frozenset(dunders["operators"]),
        settable_dunders=frozenset(dunders["settable"]),
        module_dunders=frozenset(dunders["module"]),
        method_dunders=frozenset(dunders["methods"]),
        class_data_dunders=frozenset(dunders["class_data"]),
        frame_attributes=frozenset(data["frames"]["attributes"]),
        magics=frozenset(data["magics"]["allowed"]),
        matplotlib_backends=frozenset(data["magics"]["matplotlib"]),
        metaclasses=frozenset(data["metaclasses"]["allowed"]),
    )


@cache
def ambient() -> Ambient:
    data = _load("ambient.toml")
    partial = data["partial"]
    return Ambient(
        refused_modules=data["refused_modules"],
        partial={module: frozenset(entry["allow"]) for module, entry in partial.items()},
        partial_advice={module: entry["advice"] for module, entry in partial.items()},
        member_advice=data["member_advice"],
        denied=data["denied"],
        path_functions=data["path_functions"],
        plain_calls={name: frozenset(allowed) for name, allowed in data["plain_calls"].items()},
        path_methods=frozenset(data["path_methods"]["names"]),
        path_owners=tuple(data["path_methods"]["owners"]),
        path_keywords=frozenset(data["path_keywords"]["names"]),
        path_text=tuple(data["path_text"]["names"]),
        advice={name: Advice(**entry) for name, entry in data["advice"].items()},
    )


@cache
def pure() -> Pure:
    data, scipy = _load("pure.toml"), _load("pure_scipy.toml")
    listed = {f"builtins.{name}" for name in data["builtins"]["names"]}
    members = data["names"] | scipy["names"]
    for module, names in members.items():
        listed |= {f"{module}.{name}" for name in names}
    methods = data["methods"]
    return Pure(
        names=frozenset(listed),
        modules=frozenset(data["modules"]["all"]),
        partial_modules=frozenset(data["modules"]["partial"]) | {"scipy", "scipy.cluster"} | frozenset(members),
        exceptions=frozenset(data["except"]["names"]) | frozenset(scipy["except"]["names"]),
        effects=data["effects"],
        impure_methods=frozenset(methods["impure"]),
        text_without_target=frozenset(methods["text_without_target"]),
        safe_owners=tuple(methods["safe_owners"]),
    )


@cache
def borrows() -> Borrows:
    data = _load("borrows.toml")
    return Borrows(
        names=frozenset(data["functions"]["names"]),
        data=frozenset(data["functions"]["data"]),
        frames=frozenset(data["functions"]["frames"]),
        packages=frozenset(data["functions"]["packages"]),
        keeping=frozenset(data["functions"]["keeping"]),
        methods=frozenset(data["methods"]["names"]),
        storing=tuple(data["methods"]["storing"]),
        starts=frozenset(data["starts"]["names"]),
        start_methods=frozenset(data["starts"]["methods"]),
        plain_members=frozenset(data["api"]["plain"]),
    )


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads((files(__name__) / name).read_text(encoding="utf-8"))
