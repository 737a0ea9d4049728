"""What a worker put around the timed parts of a cell, taken off again: written apart from `worker.timing`."""

from __future__ import annotations

import ast


def untimed(tree: ast.Module) -> tuple[ast.Module, int, int]:
    """The tree without timing; how many parts were timed once and how many often.

    Raises AssertionError where something of the timing stands in a form that is not known here.
    """
    once = often = 0

    def block(body: list[ast.stmt]) -> list[ast.stmt]:
        nonlocal once, often
        left: list[ast.stmt] = []
        index = 0
        while index < len(body):
            statement = body[index]
            while isinstance(statement, ast.Expr) and _is_shown_after(statement.value):
                statement.value = statement.value.value.elts[0]
            if _is_call(statement, "begin_timing"):
                once += 1
            elif _is_call(statement, "end_timing"):
                pass
            elif isinstance(statement, ast.FunctionDef) and statement.name == "__timed__":
                often += 1
                call, gone = body[index + 1], body[index + 2]
                assert _is_call(call, "time_often"), ast.dump(call)
                assert isinstance(gone, ast.Delete)
                assert [ast.unparse(target) for target in gone.targets] == ["__timed__"]
                assert not ast.unparse(statement.args)
                assert not statement.decorator_list
                left += block(statement.body)
                index += 2
            else:
                left.append(statement)
            index += 1
        for statement in left:
            for field, value in ast.iter_fields(statement):
                if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                    setattr(statement, field, block(value))
                elif isinstance(value, list):
                    for part in value:
                        if isinstance(part, ast.ExceptHandler | ast.match_case):
                            part.body = block(part.body)
        return left

    tree.body = block(tree.body)
    rest = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in _METHODS]
    assert not rest, ast.dump(rest[0])
    return tree, once, often


_METHODS = ("begin_timing", "end_timing", "time_often")


def _is_call(node: ast.AST, method: str) -> bool:
    value = node.value if isinstance(node, ast.Expr) else node
    return isinstance(value, ast.Call) and ast.unparse(value.func) == f"get_ipython().{method}"


def _is_shown_after(node: ast.expr) -> bool:
    """`(value, get_ipython().end_timing())[0]`."""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Tuple)
        and len(node.value.elts) == 2
        and _is_call(node.value.elts[1], "end_timing")
        and isinstance(node.slice, ast.Constant)
        and node.slice.value == 0
    )
