"""The mypy plugin: capabilities and Classified values are granted, never constructed and never subclassed.

It only adds refusals to what mypy says; all rules about where a capability may go are in the capture checker.
"""

from __future__ import annotations

from collections.abc import Callable

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy.errorcodes import ErrorCode
from mypy.nodes import TypeInfo
from mypy.options import Options
from mypy.plugin import ClassDefContext, FunctionContext, Plugin
from mypy.types import Type

CAPABILITY_FORGE = ErrorCode("capability-forge", "Construction or subclassing of a capability", "capkernel")

_CLASSIFIED = "capkernel.api.classified.Classified"
_CAPABILITY = "capkernel.api.files.Capability"
_API = "capkernel.api."


def is_granted(info: TypeInfo) -> bool:
    """Whether values of this class are only ever granted."""
    return any(base.fullname in (_CLASSIFIED, _CAPABILITY) for base in info.mro)


class CapabilityPlugin(Plugin):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._granted: dict[str, bool] = {}

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        return _constructed if self._is_granted_name(fullname) else None

    def get_base_class_hook(self, fullname: str) -> Callable[[ClassDefContext], None] | None:
        return _subclassed if self._is_granted_name(fullname) else None

    def _is_granted_name(self, fullname: str) -> bool:
        if not fullname.startswith(_API):
            return False
        known = self._granted.get(fullname)
        if known is None:
            entry = self.lookup_fully_qualified(fullname)
            known = entry is not None and isinstance(entry.node, TypeInfo) and is_granted(entry.node)
            self._granted[fullname] = known
        return known


def _constructed(context: FunctionContext) -> Type:
    name = str(context.default_return_type).partition("[")[0].rpartition(".")[2]
    how = "is granted by a `request_*` block"
    if name == "Classified":
        how = "comes from `read_classified`, `classify` or `map`"
    context.api.fail(f'"{name}" {how}, never constructed', context.context, code=CAPABILITY_FORGE)
    return context.default_return_type


def _subclassed(context: ClassDefContext) -> None:
    # Only cells are asked to keep this rule; the API's own classes derive from Capability.
    if not context.cls.fullname.startswith(_API):
        context.api.fail(
            f'"{context.cls.name}" derives from a class whose values are granted, never made',
            context.reason,
            code=CAPABILITY_FORGE,
        )


def plugin(version: str) -> type[Plugin]:
    """mypy's entry point, for `capkernel check` in an editor."""
    del version
    return CapabilityPlugin
