"""What a missing name comes from: a slip of the pen, or a cell that was refused and would have bound it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from capkernel.checker.repairs.names import closest, known_names
from capkernel.checker.repairs.source import Source, dotted
from capkernel.diagnostics.model import Diagnostic

_MISSING = re.compile(r"(?:Name )?`([^`.]+)` is not (?:bound|defined)$")


_NO_MEMBER = re.compile(r"Module (?:`([\w.]+)` )?has no attribute `(\w+)`$")


def _module_at(diagnostic: Diagnostic, source: Source) -> str:
    """The module that `m.member` is read of, by what the cell imports as `m`."""
    node = source.at(diagnostic.span, ast.Attribute)
    name = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    for one in ast.walk(source.module or ast.Module([], [])):
        if isinstance(one, ast.Import):
            for alias in one.names:
                if alias.asname == name:
                    return alias.name
    return name


def missing_name(diagnostic: Diagnostic) -> str:
    """The name that a finding says is nowhere, "" for any other finding."""
    found = _MISSING.match(diagnostic.message) if diagnostic.code in ("unbound-name", "name-defined") else None
    return "" if found is None else found[1]


def with_causes(diagnostics: Iterable[Diagnostic], refused_names: Mapping[str, int]) -> list[Diagnostic]:
    """`diagnostics`, where names that a refused cell would have bound name that cell."""
    return [
        one if (name := missing_name(one)) not in refused_names else msgspec.structs.replace(
            one, help=f"cell {refused_names[name]} would bind it and was refused: repair and run that one first"
        )
        for one in diagnostics
    ]  # fmt: skip


def with_suggestions(
    diagnostics: Sequence[Diagnostic], source: Source, members: Callable[[str], frozenset[str]]
) -> list[Diagnostic]:
    """`diagnostics`, where missing names and members of modules ask for the close one that is there."""
    known = known_names(source)
    found = []
    for one in diagnostics:
        name = missing_name(one)
        near = closest(name, known) if len(name) > 2 and "refused" not in one.help else ""
        if near:
            one = msgspec.structs.replace(one, message=f"{one.message}; did you mean `{near}`?")
        missed = _NO_MEMBER.match(one.message) if one.code == "attr-defined" else None
        near = "" if missed is None else closest(missed[2], members(missed[1] or _module_at(one, source)))
        if near:
            one = msgspec.structs.replace(one, message=f"{one.message}; maybe `{near}`?")
        found.append(one)
    return found
