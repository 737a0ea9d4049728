"""`get_ipython()` stands only in what the transformer made of an allowed line magic; the rest names the plain way.

Magics that carry code (`%time`, `%timeit` and their cell forms) are expanded before checking and never arrive here.
"""

from __future__ import annotations

import ast

from capkernel.checker.subset.report import Report, advice, show
from capkernel.checker.tables import subset

_PLAIN = {
    "config": "config",
    "bash": "command",
    "sh": "command",
    "script": "command",
    "sx": "command",
    "system": "command",
    "run": "code",
    "load": "code",
    "loadpy": "code",
    "load_ext": "code",
    "reload_ext": "code",
    "autoreload": "reload",
    "pip": "command",
    "conda": "command",
    "mamba": "command",
    "uv": "command",
    "cd": "file",
    "ls": "file",
    "pwd": "file",
    "writefile": "file",
    "file": "file",
    "cat": "file",
    "save": "file",
    "env": "environment",
    "set_env": "environment",
    "store": "pickle",
    "debug": "reflection",
    "pdb": "reflection",
    "prun": "reflection",
}
_SETTINGS = frozenset(
    (
        "InlineBackend.figure_format",
        "InlineBackend.figure_formats",
        "InlineBackend.rc",
        "InteractiveShell.ast_node_interactivity",
        "Completer.use_jedi",
    )
)
_FIGURE_FORMATS = frozenset(("retina", "png", "png2x", "jpeg", "svg"))


def magic_call(node: ast.Call) -> str | None:
    """The method that `get_ipython().method(...)` calls; None when this is no such call."""
    function = node.func
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Call):
        return None
    inner = function.value
    if not isinstance(inner.func, ast.Name) or inner.func.id != "get_ipython":
        return None
    return function.attr


def check_magic(node: ast.Call, method: str, report: Report) -> None:
    """Judge one `get_ipython().method(...)`."""
    if method in ("system", "getoutput"):
        help_text, fix = advice("command")
        report.add("unsafe-magic", node, "`!` runs a command outside the session", help=help_text, fix=fix)
        return
    name, line = _literal(node, 0), _literal(node, 1)
    if (
        method == "run_line_magic"
        and name is not None
        and line is not None
        and not node.keywords
        and len(node.args) == 2
    ):
        if _is_allowed(name, line):
            return
        if name == "matplotlib":
            report.add(
                "unsafe-magic",
                node,
                "`%matplotlib` stands only with its inline backend",
                help="figures are shown below the cell; no other backend has a window here",
                fix=show("%matplotlib inline"),
            )
            return
        _refuse(node, f"%{name}", name, report)
    elif method == "run_cell_magic" and name is not None:
        _refuse(node, f"%%{name}", name, report)
    else:
        report.add(
            "unsafe-magic",
            node,
            "`get_ipython()` gives a cell the whole kernel",
            help="write an allowed magic at the start of a line (`%matplotlib inline`, `%timeit`), or plain Python",
        )


def _refuse(node: ast.Call, shown: str, name: str, report: Report) -> None:
    help_text, fix = advice(_PLAIN[name]) if name in _PLAIN else ("write it as plain Python", None)
    report.add("unsafe-magic", node, f"`{shown}` is not an allowed magic", help=help_text, fix=fix)


def _is_allowed(name: str, line: str) -> bool:
    if name == "matplotlib":
        return line.strip() in subset().matplotlib_backends
    if name == "config":
        return _is_harmless_setting(line)
    return name in subset().magics


def _is_harmless_setting(line: str) -> bool:
    # `%config` evaluates its right side: only a literal is what it looks like.
    target, equals, value = line.partition("=")
    target, value = target.strip(), value.strip()
    if not equals or target not in _SETTINGS:
        return False
    if target == "InlineBackend.figure_format" and value.strip("'\"") in _FIGURE_FORMATS:
        return True
    try:
        said = ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        return False
    if target in ("InlineBackend.figure_format", "InlineBackend.figure_formats"):
        return isinstance(said, (list, tuple, set)) and set(map(str, said)) <= _FIGURE_FORMATS
    if target == "InteractiveShell.ast_node_interactivity":
        return said in ("all", "last", "last_expr", "none", "last_expr_or_assign")
    return isinstance(said, dict) if target != "Completer.use_jedi" else said is False


def _literal(node: ast.Call, position: int) -> str | None:
    if len(node.args) <= position:
        return None
    argument = node.args[position]
    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
        return argument.value
    return None
