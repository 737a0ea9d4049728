"""The text that `DataFrame.query`, `DataFrame.eval` and `pandas.eval` run: an expression like any other.

It may name columns, and names of the session behind `@`. It is judged when it is written out; text that is put together
at run time is refused, but for numbers: a value is named with `@`.
"""

from __future__ import annotations

import ast
import io
import tokenize

from capkernel.checker.captures.known import Context, Data, Imported, View
from capkernel.checker.captures.paths import path_of
from capkernel.checker.captures.reexports import own_path
from capkernel.checker.captures.types import instances, is_any
from capkernel.checker.subset.bindings import is_interpreter_attribute
from capkernel.checker.subset.imports import HIDDEN_MODULES
from capkernel.checker.subset.report import Report, show
from capkernel.checker.tables import ambient, pure

_FRAME = ("pandas.core.frame.DataFrame", "pandas.DataFrame")
_NUMBERS = frozenset(("builtins.int", "builtins.float", "builtins.bool"))
_MARK = "at_"


class FrameText:
    """Judges the calls that run the text of an expression."""

    def __init__(self, context: Context, view: View, report: Report) -> None:
        self._context = context
        self._view = view
        self._report = report

    def visit(self, node: ast.Call) -> None:
        kind = self._kind(node)
        if not kind:
            return
        given = node.args[:1] or [keyword.value for keyword in node.keywords if keyword.arg == "expr"]
        if not given:
            return
        text = self._text(given[0])
        if text is None:
            if kind == "frame":
                self._report.add(
                    "unsafe-feature",
                    given[0],
                    "this expression is put together at run time, so it cannot be checked before it runs",
                    help="write the expression out, and name values with `@`",
                    fix=show('limit = 3\ndf.query("a > @limit")'),
                )
            return
        self._judge(given[0], text)

    def _kind(self, node: ast.Call) -> str:
        function = node.func
        path = path_of(function, self._context, self._view)
        if path == "pandas.eval":
            return "frame"
        if path or not isinstance(function, ast.Attribute) or function.attr not in ("query", "eval"):
            return ""
        typ = self._context.type_of(function.value)
        if typ is not None and any(info.fullname in _FRAME for info in instances(typ)):
            return "frame"
        return "unknown" if is_any(typ) else ""

    def _text(self, node: ast.expr) -> str | None:
        """The text as written, with a number for what is a number; None when it is not in sight."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else ""
        if isinstance(node, ast.JoinedStr):
            parts = [self._text(part) for part in node.values]
            return None if None in parts else "".join(part for part in parts if part is not None)
        if isinstance(node, ast.FormattedValue):
            return "0" if self._is_number(node.value) else None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self._text(node.left), self._text(node.right)
            return None if left is None or right is None else left + right
        if isinstance(node, ast.Name):
            return self._of_name(node)
        typ = self._context.type_of(node)
        # A frame or a plain value is no text.
        named = [] if typ is None else list(instances(typ))
        return "" if named and not any(info.fullname in ("builtins.str", "builtins.object") for info in named) else None

    def _of_name(self, node: ast.Name) -> str | None:
        scope = self._context.scopes.owner(node)
        bindings = [] if scope is None else scope.bindings.get(node.id, [])
        if len(bindings) == 1 and bindings[0].value is not None:
            return self._text(bindings[0].value)
        return None

    def _is_number(self, node: ast.expr) -> bool:
        typ = self._context.type_of(node)
        named = [] if typ is None else list(instances(typ))
        return bool(named) and all(info.fullname in _NUMBERS or info.fullname.startswith("numpy.") for info in named)

    # ── what it says ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _judge(self, place: ast.expr, text: str) -> None:
        try:
            tree = ast.parse(_python(text))
        except (SyntaxError, ValueError, tokenize.TokenError, RecursionError):
            return  # pandas says what is wrong with it; it reads no more of Python than Python does
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute):
                continue
            name = node.attr
            if name in HIDDEN_MODULES:
                self._refuse(place, f"`.{name}` may be the module `{name}`, which is outside the session")
                return
            if name.startswith("_") or is_interpreter_attribute(name) or name in ambient().path_methods:
                self._refuse(place, f"`.{name}` is not available in the text of an expression")
                return
            key = self._member(node)
            if key is not None:
                self._refuse(place, f"this text reaches `{key}`, which is outside the session")
                return

    def _member(self, node: ast.Attribute) -> str | None:
        parts = [node.attr]
        base = node.value
        while isinstance(base, ast.Attribute):
            parts.append(base.attr)
            base = base.value
        if not isinstance(base, ast.Name) or not base.id.startswith(_MARK):
            return None
        entry = self._view.lookup(base.id.removeprefix(_MARK))
        if entry is None or isinstance(entry.known, Data):
            return None
        if not isinstance(entry.known, Imported):
            return base.id.removeprefix(_MARK)
        path = own_path(".".join([entry.known.path, *reversed(parts)]))
        table = ambient()
        if table.member(path) is not None or table.refused_module(path) is not None or path in table.partial:
            return path
        root = path.partition(".")[0]
        return path if path in table.path_functions or not (pure().is_pure(path) or pure().is_module(root)) else None

    def _refuse(self, place: ast.expr, message: str) -> None:
        self._report.add(
            "unsafe-feature",
            place,
            message,
            help="compute it before, give it a name, and use the name with `@`",
            fix=show('limit = values.max()\ndf.query("a < @limit")'),
        )


def _python(text: str) -> str:
    """The text with pandas' own spellings written in Python: `@name`, and columns in backquotes."""
    found: list[str] = []
    quoted = False
    for part in text.split("`"):
        found.append("column" if quoted else part)
        quoted = not quoted
    cleaned = "".join(found)
    out: list[str] = []
    tokens = list(tokenize.generate_tokens(io.StringIO(cleaned.strip() + "\n").readline))
    for token, following in zip(tokens, [*tokens[1:], tokens[-1]], strict=True):
        if token.string == "@" and following.type == tokenize.NAME:
            out.append(_MARK)
        elif token.type in (tokenize.NEWLINE, tokenize.NL):
            out.append("\n")
        elif token.type not in (tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
            glued = token.type == tokenize.NAME and out and out[-1] == _MARK
            out.append(token.string if glued else f" {token.string}")
    return "\n".join(line.strip() for line in "".join(out).split("\n"))
