"""What the names of a cell stand for, and which file a path in it is of, as far as the text of the cell says.

Rule 1: what is not known is `?`. A path is known to be inside only when its beginning is.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from capkernel.checker.repairs.source import Source, dotted, literal

_USUAL = {
    "pd": "pandas", "np": "numpy", "plt": "matplotlib.pyplot", "pandas": "pandas", "numpy": "numpy", "os": "os",
    "io": "io", "glob": "glob", "pathlib": "pathlib", "Path": "pathlib.Path",
}  # fmt: skip
PATHS = ("pathlib.Path", "pathlib.PosixPath")
_SAME_ITEMS = ("sorted", "list", "tuple", "set", "reversed")


class Paths:
    """The names and paths of one cell."""

    def __init__(self, source: Source, nodes: Sequence[ast.AST]) -> None:
        self._source = source
        self._nodes = nodes
        self._stored = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
        self.aliases = self._imported()

    def _imported(self) -> dict[str, str]:
        found = {name: full for name, full in _USUAL.items() if name in self._source.names and name not in self._stored}
        for node in self._nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
        return found

    def full(self, node: ast.AST) -> str:
        name = dotted(node)
        first, dot, rest = name.partition(".")
        if first in self._stored:
            return ""
        if first == "open" and not dot and "open" not in self.aliases:
            return "open"
        return self.aliases[first] + dot + rest if first in self.aliases else ""

    def path(self, node: ast.expr) -> tuple[str, bool, str]:
        """A path as code, whether it surely stays below the folder, and how it ends."""
        whole = self.folded(node)
        if whole is not None:
            inside = bool(whole) and not whole.startswith(("/", "~", "\\")) and ".." not in whole and ":" not in whole
            if not inside:
                return "", False, ""  # what it names is not below the folder of the notebook
            return quoted(whole), True, whole.rpartition("/")[2]
        samples = self.samples(node, 4)
        code = self._source.segment(node)
        if self.is_path(node):
            code = f"str({code})"
        if any("://" in one for one in samples):
            return "", False, ""
        known = bool(samples) and all(
            not one.startswith(("/", "~", "?", "\\")) and ".." not in one and ":" not in one for one in samples
        )
        endings = {one.rpartition("/")[2].rpartition(".")[2] for one in samples}
        return code, known, samples[0].rpartition("/")[2] if len(endings) == 1 else "?"

    def folded(self, node: ast.expr) -> str | None:
        """The text of a path that the cell writes out: a literal, `Path("a") / "b"`, `os.path.join("a", "b")`."""
        if isinstance(node, ast.Constant):
            return literal(node)
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and self.is_path(node.left):
            parts = [node.left, node.right]
        elif isinstance(node, ast.Call) and not node.keywords and self.full(node.func) in (*PATHS, "os.path.join"):
            parts = node.args or [ast.Constant(".")]
        texts = [self.folded(one) for one in parts]
        known = [one for one in texts if one is not None]
        if isinstance(node, ast.Name) and self.is_path(node):
            return self.folded(self.given(node.id) or node)
        if not parts or len(known) < len(texts) or any(one.startswith("/") for one in known[1:]):
            return None
        return "/".join(one.rstrip("/") if one != "/" else one for one in known)

    def is_path(self, node: ast.expr) -> bool:
        if isinstance(node, ast.BinOp):
            return isinstance(node.op, ast.Div) and self.is_path(node.left)
        if isinstance(node, ast.Name):
            given = self.given(node.id)
            if given is not None and self._is_item(node.id):
                return self.listing(given, 4) is not None
            return given is not None and not isinstance(given, ast.Name) and self.is_path(given)
        return isinstance(node, ast.Call) and self.full(node.func) in PATHS

    def listing(self, node: ast.expr, depth: int) -> ast.Call | None:
        """The call of which these are the items, when the items are paths: `sorted(Path("d").glob("*.csv"))`."""
        if depth == 0:
            return None
        if isinstance(node, ast.Name):
            given = self.given(node.id)
            return None if given is None or self._is_item(node.id) else self.listing(given, depth - 1)
        if not isinstance(node, ast.Call):
            return None
        if dotted(node.func) in _SAME_ITEMS and node.args:
            return self.listing(node.args[0], depth - 1)
        lists = isinstance(node.func, ast.Attribute) and node.func.attr in ("iterdir", "glob", "rglob")
        return node if lists and isinstance(node.func, ast.Attribute) and self.is_path(node.func.value) else None

    def name_of_path(self) -> str:
        """What the cell calls `pathlib.Path`, when it has a name of its own."""
        return next((name for name, full in self.aliases.items() if full in PATHS), "")

    def _is_item(self, name: str) -> bool:
        """Whether its one binding is that of a loop."""
        bound = [n for n in self._nodes if isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)]
        return len(bound) == 1 and isinstance(self._source.parents.get(bound[0]), (ast.For, ast.comprehension))

    def samples(self, node: ast.expr, depth: int) -> list[str]:
        """What the text may look like, with `?` for what is not known; [] when nothing is."""
        if depth == 0:
            return []
        if isinstance(node, ast.Constant):
            text = literal(node)
            return [] if text is None else [text]
        if isinstance(node, ast.JoinedStr):
            return ["".join(literal(one) or "?" for one in node.values)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.samples(node.left, depth - 1), self.samples(node.right, depth - 1)
            return [a + b for a in left or ["?"] for b in right or ["?"]][:16]
        if isinstance(node, ast.Call) and self.full(node.func) == "os.path.join":
            parts = [self.samples(one, depth - 1)[:1] or ["?"] for one in node.args]
            return ["/".join(one for part in parts for one in part)]
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            return [text for one in node.elts for text in self.samples(one, depth - 1) or ["?"]][:16]
        if isinstance(node, ast.Call) and self.full(node.func) == "os.listdir":
            return ["name?"]
        if isinstance(node, ast.Call) and (self.full(node.func) == "glob.glob" or dotted(node.func) in _SAME_ITEMS):
            return self.samples(node.args[0], depth - 1) if node.args else []
        if isinstance(node, ast.Call) and self.listing(node, 1) is not None:
            assert isinstance(node.func, ast.Attribute)
            folder, pattern = self.folded(node.func.value), literal(node.args[0]) if node.args else "name?"
            return [] if folder is None or pattern is None else [f"{folder}/{pattern}".removeprefix("./")]
        if isinstance(node, ast.Name):
            given = self.given(node.id)
            return [] if given is None else self.samples(given, depth - 1)
        return []

    def given(self, name: str) -> ast.expr | None:
        """What the one binding of a name gives it, or gives it the items of."""
        bound = [n for n in self._nodes if isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load)]
        if len(bound) != 1:
            return None
        parent = self._source.parents.get(bound[0])
        if isinstance(parent, (ast.Assign, ast.AnnAssign)):
            return parent.value
        return parent.iter if isinstance(parent, (ast.For, ast.comprehension)) and parent.target is bound[0] else None


def quoted(text: str) -> str:
    return '"' + repr(text)[1:-1].replace('"', '\\"') + '"' if '"' in text or "'" not in text else repr(text)
