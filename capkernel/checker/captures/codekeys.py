"""Which code object each function of a cell becomes: the identity by which the worker will name it.

The tree is compiled as the worker compiles it (compiling runs nothing); every code object is then matched to the
definition it was made from by name, first line and place.
"""

from __future__ import annotations

import ast
import warnings
from types import CodeType

from capkernel.wire.codekey import cell_filename, code_key
from capkernel.wire.plan import CodeKey

# A body of nothing but a constant may have no instruction with a place.
_NOWHERE = (0, 0)

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


class CodeKeys:
    """The keys of one cell."""

    def __init__(self, cell: int, source: str | ast.Module) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = compile(source, cell_filename(cell), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        self._keys: dict[tuple[str, int], list[CodeKey]] = {}
        todo = [code]
        while todo:
            for constant in todo.pop().co_consts:
                if isinstance(constant, CodeType):
                    todo.append(constant)
                    key = code_key(constant)
                    if key is not None:
                        self._keys.setdefault((key.name, key.line), []).append(key)

    def of(self, node: Definition) -> CodeKey | None:
        """The key of the function or class that `node` defines; None when it was compiled away."""
        name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
        decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
        line = min([node.lineno, *(decorator.lineno for decorator in decorators)])
        start, end = _extent(node)
        named = self._keys.get((name, line), ())
        inside = [key for key in named if key.span[:2] != _NOWHERE and start <= key.span[:2] and key.span[2:] <= end]
        if not inside:
            nowhere = {key for key in named if key.span[:2] == _NOWHERE}
            return nowhere.pop() if len(nowhere) == 1 else self._alone(node, nowhere)
        # A function made inside has its place inside; the outermost is this one.
        inside.sort(key=lambda key: (key.span[:2], tuple(-part for part in key.span[2:])))
        return inside[0]

    def _alone(self, node: Definition, known: set[CodeKey]) -> CodeKey | None:
        """The key of a function that does nothing but return a constant, as it is when compiled by itself."""
        if not known or not isinstance(node, ast.Lambda):
            return None
        filename = cell_filename(next(iter(known)).cell)
        (code,) = (
            constant
            for constant in compile(ast.Expression(node), filename, "eval", dont_inherit=True).co_consts
            if isinstance(constant, CodeType)
        )
        key = code_key(code)
        return key if key in known else None


def _extent(node: Definition) -> tuple[tuple[int, int], tuple[int, int]]:
    if isinstance(node, ast.Lambda):
        return (node.body.lineno, node.body.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
    return (node.lineno, 0), (node.end_lineno or 0, node.end_col_offset or 0)
