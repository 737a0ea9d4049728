"""Where a cell uses files without asking, and what the same use is on a file capability.

Rule 1: a use is known by the full name of what is called, through the imports of the cell, or of earlier cells under
the usual name. Arguments without a place here make it no use that is known.
Rule 2: `is_safe` only for paths of which the beginning is known to be relative, and without `..`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from capkernel.checker.repairs.file_paths import Paths, quoted
from capkernel.checker.repairs.file_secrets import after_it, is_always_secret
from capkernel.checker.repairs.file_trees import COPIES, MOVES, Tree, is_listing, is_refused, listed, put
from capkernel.checker.repairs.imports import without
from capkernel.checker.repairs.source import Source, literal, unparsed
from capkernel.diagnostics.model import Edit

_MODES = {"r": "", "rt": "", "w": "w", "wt": "w", "x": "x", "xt": "x", "a": "a", "at": "a",
          "rb": "rb", "br": "rb", "wb": "wb", "bw": "wb", "xb": "xb", "bx": "xb", "ab": "ab", "ba": "ab"}  # fmt: skip
_COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "xz", ".zst": "zstd"}
_ARCHIVES = (".zip", ".tar", ".tgz")

# Full name → how the library wants the file: text, bytes, or bytes in which it seeks.
_READERS = {
    "pandas.read_csv": "text", "pandas.read_table": "text", "pandas.read_fwf": "text", "pandas.read_json": "text",
    "numpy.loadtxt": "text", "numpy.genfromtxt": "text", "numpy.load": "seek", "pandas.read_excel": "seek",
    "pandas.read_parquet": "seek", "pandas.read_feather": "seek", "pandas.read_orc": "seek",
    "pandas.read_stata": "seek", "matplotlib.pyplot.imread": "seek", "PIL.Image.open": "seek",
}  # fmt: skip
_WRITERS = {
    "numpy.save": "wb", "numpy.savez": "wb", "numpy.savez_compressed": "wb", "numpy.savetxt": "w",
    "matplotlib.pyplot.savefig": "wb", "matplotlib.pyplot.imsave": "wb",
}  # fmt: skip
_ADDED_ENDING = {"numpy.save": ".npy", "numpy.savez": ".npz", "numpy.savez_compressed": ".npz"}
_NAMED_FORMAT = ("savefig", "imsave", "imread")  # take the format from the ending of the path
_METHODS = {
    "to_csv": ("w", "pandas"), "to_json": ("w", "pandas"), "to_html": ("w", "pandas"), "to_latex": ("w", "pandas"),
    "to_markdown": ("w", "pandas"), "to_string": ("w", "pandas"), "to_parquet": ("wb", "pandas"),
    "to_feather": ("wb", "pandas"), "to_stata": ("wb", "pandas"), "to_excel": ("wb", "pandas"),
    "savefig": ("wb", "matplotlib"),
}  # fmt: skip
_PATH_KEYWORDS = ("filepath_or_buffer", "path_or_buf", "path_or_buffer", "path", "io", "fname", "file", "buf", "fp",
                  "excel_writer", "filename")  # fmt: skip
_OF_BYTES = ("encoding", "encoding_errors", "lineterminator", "engine")  # pandas heeds them for bytes alone

# `{}` is the entry, `{path}` its path as code. What is not the same in every case is not `safe`.
_OS = {
    "os.path.exists": ("{}.exists", True), "os.path.isfile": ("({0}.exists and not {0}.is_directory)", True),
    "os.path.isdir": ("{}.is_directory", True), "os.path.getsize": ("{}.size", True),
    "os.remove": ("{}.delete()", True), "os.unlink": ("{}.delete()", True), "os.mkdir": ("{}.mkdir()", False),
    "os.listdir": ("[entry.name for entry in {}.children]", True),
}  # fmt: skip
_OF_A_PATH = {
    "exists": ("{}.exists", True), "is_file": ("({0}.exists and not {0}.is_directory)", True),
    "is_dir": ("{}.is_directory", True), "unlink": ("{}.delete()", True), "mkdir": ("{}.mkdir()", False),
    "read_bytes": ("{}.read_bytes()", True),
}  # fmt: skip


@dataclass
class Access:
    """One use. `{fs}` in its texts is the file system; `replaced` is what its file, `with_file`, takes the place of."""

    call: ast.expr
    replaced: ast.expr
    is_safe: bool
    opened: str | None = None
    with_file: str = "{}"
    is_binary: bool = False
    inline: str | None = None
    inline_is_safe: bool = True
    inline_imports: frozenset[str] = frozenset()
    imports: frozenset[str] = frozenset()
    inline_replaced: ast.expr | None = None
    keeps: frozenset[str] = frozenset()  # names of the cell that the new text uses
    is_secret: bool = False  # what takes its place is a Classified

    def opened_with(self, fs: str) -> str:
        return (self.opened or "").format(fs=fs)

    def assigned_name(self, source: Source) -> str:
        """`f` of `f = open(…)`, else ""."""
        statement = source.parents.get(self.call)
        if self.with_file != "{}" or self.replaced is not self.call or not isinstance(statement, ast.Assign):
            return ""
        target = statement.targets[0]
        return target.id if len(statement.targets) == 1 and isinstance(target, ast.Name) else ""


class Uses:
    """What one cell does with files."""

    def __init__(self, source: Source, cell: int) -> None:
        self._source = source
        self._cell = cell
        self._module = source.module or ast.Module([], [])
        self._nodes = list(ast.walk(self._module))
        self._paths = Paths(source, self._nodes)

    def accesses(self) -> list[Access]:
        found: list[Access] = []
        for node in self._nodes:
            if isinstance(node, ast.Call):
                access = self._access(node)
                if access is not None:
                    found.append(access)
        inner = {id(n) for one in found for n in ast.walk(one.call) if n is not one.call}
        if any(id(one.call) in inner for one in found):
            return []  # one use in the arguments of another
        return sorted(found, key=lambda one: (one.call.lineno, one.call.col_offset))

    # ── names ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def free_name(self, used: Sequence[str], *wanted: str) -> str:
        """One of `wanted` that the cell does not use, and that was at most the name of a block in earlier cells."""
        words = set(re.findall(r"[^\W\d]\w*", self._source.text)) | set(used)
        for name in (*wanted, *(f"{wanted[0]}_{n}" for n in range(2, 100))):
            if name not in words and (name not in self._source.names or self._only_of_a_block(name)):
                return name
        return wanted[0]

    def _only_of_a_block(self, name: str) -> bool:
        for number in range(self._cell - 1, max(self._cell - 65, 0), -1):
            text = self._source.earlier(number)
            if re.search(rf"\b{name}\b", text):
                return re.search(rf"(?:request_file_system|\.open)\([^()]*\) as {name}\b", text) is not None
        return False

    def without_imports(self, accesses: list[Access]) -> list[tuple[ast.alias, Edit]]:
        """The imports that nothing needs once `accesses` are rewritten; `PurePath` where names of paths stay."""
        inside = {id(n) for one in accesses for n in ast.walk(one.call)}
        left = {n.id for n in self._nodes if isinstance(n, ast.Name) and id(n) not in inside}
        left |= frozenset().union(*(one.keeps for one in accesses))
        used = {n.id for n in self._nodes if isinstance(n, ast.Name) and id(n) in inside}
        found: list[tuple[ast.alias, Edit]] = []
        for statement in self._nodes:
            if not isinstance(statement, (ast.Import, ast.ImportFrom)):
                continue
            gone = [one for one in statement.names if self._goes(statement, one, used - left)]
            edit = without(self._source, statement, gone) if gone else self._pure(statement)
            gone = gone or statement.names[:1]
            if edit is not None:
                found += [(one, edit) for one in gone]
        return found

    def _pure(self, statement: ast.Import | ast.ImportFrom) -> Edit | None:
        """`PurePath` for a `Path` that is still needed to make names."""
        if not isinstance(statement, ast.ImportFrom) or len(statement.names) != 1 or statement.module != "pathlib":
            return None
        alias = statement.names[0]
        if alias.name != "Path" or not self._source.is_alone(statement):
            return None
        return Edit(self._source.span(statement), f"from pathlib import PurePath as {alias.asname or alias.name}")

    @staticmethod
    def _goes(statement: ast.Import | ast.ImportFrom, alias: ast.alias, unneeded: set[str]) -> bool:
        full = alias.name if isinstance(statement, ast.Import) else f"{statement.module}.{alias.name}"
        refused = full in ("glob", *_OS, "glob.glob", "glob.iglob", "io.open", "os.makedirs") or is_refused(full)
        return refused and (alias.asname or alias.name) in unneeded

    # ── uses ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _access(self, call: ast.Call) -> Access | None:
        full = self._paths.full(call.func)
        if full in ("open", "io.open"):
            return self._opened(call)
        if full in ("glob.glob", "glob.iglob"):
            return self._glob(call)
        if full in _OS or full == "os.makedirs":
            return self._os(call, full)
        if full in COPIES or full in MOVES:
            if len(call.args) != 2 or call.keywords:
                return None
            return self._placed(call, put(self._paths, call.args[0], call.args[1], full))
        if full in _READERS:
            return self._reader(call, full)
        if full in _WRITERS:
            return self._writer(call, full, _WRITERS[full])
        if isinstance(call.func, ast.Attribute):
            if self._paths.is_path(call.func.value):
                return self._path_method(call, call.func.value, call.func.attr)
            mode, owner = _METHODS.get(call.func.attr, ("", ""))
            if owner and any(one.partition(".")[0] == owner for one in self._paths.aliases.values()):
                return self._writer(call, call.func.attr, mode)
        return None

    def _opened(self, call: ast.Call, path: ast.expr | None = None) -> Access | None:
        given = {one.arg: one.value for one in call.keywords}
        positional = call.args if path is None else [path, *call.args]
        if not 1 <= len(positional) <= 2 or not given.keys() <= {"mode", "encoding", "errors", "newline"}:
            return None
        chosen = positional[1] if len(positional) > 1 else given.pop("mode", ast.Constant("r"))
        mode = _MODES.get(literal(chosen) or "")
        if mode is None:
            return None
        code, is_safe, _ = self._paths.path(positional[0])
        if not code:
            return None
        if is_always_secret(self._paths.folded(positional[0])):
            return self._secret_text(call, code) if mode == "" and path is None else None
        options = [f'"{mode}"'] if mode else []
        options += [f"{name}={_no_braces(self._source.segment(value))}" for name, value in given.items()
                    if not (isinstance(value, ast.Constant) and value.value is None)]  # fmt: skip
        binary = "b" in mode
        inline, imports = None, frozenset[str]()
        if mode in ("", "rb") and not given:
            read = _entry(code)
            inline = f"io.BytesIO({read}.read_bytes())" if binary else f"io.StringIO({read}.read(), None)"
            imports = frozenset(("import io",))
        return Access(call, call, is_safe and not self._seeks(), f"{_entry(code)}.open({', '.join(options)})",
                      is_binary=binary, inline=inline, inline_imports=imports)  # fmt: skip

    def _secret_text(self, call: ast.Call, code: str) -> Access | None:
        """`open(".env").read()`, `json.load(open("token.json"))`."""
        around = self._source.parents.get(call)
        outer = self._source.parents.get(around) if isinstance(around, ast.Attribute) else around
        if not isinstance(outer, ast.Call):
            return None
        read = "{fs}.read_classified(" + _no_braces(code) + ")"
        if isinstance(around, ast.Attribute) and not outer.args and not outer.keywords:
            if around.attr in ("read", "readlines"):
                return self._secret(outer, read + (".map(str.splitlines)" if around.attr == "readlines" else ""))
        elif outer.args == [call] and not outer.keywords and self._paths.full(outer.func) == "json.load":
            made = unparsed(outer.func).removesuffix("load") + "loads"
            return self._secret(outer, f"{read}.map({made})") if "." in made else None
        return None

    def _secret_table(self, call: ast.Call, path: ast.expr, code: str) -> Access | None:
        """`pd.read_csv("secrets/people.csv", sep=";")`: read in the vault."""
        if call.args[:1] != [path]:
            return None
        more = [self._source.segment(one) for one in call.args[1:]]
        more += [f"{one.arg}={self._source.segment(one.value)}" for one in call.keywords]
        reading = f"{self._source.segment(call.func)}({', '.join(['io.StringIO(text)', *more])})"
        text = "{fs}.read_classified(" + _no_braces(code) + ").map(lambda text: " + _no_braces(reading) + ")"
        return self._secret(call, text, "import io")

    def _secret(self, call: ast.Call, text: str, *imports: str) -> Access:
        whole, rest = after_it(self._source, call)
        text += f".map(lambda text: text{_no_braces(rest)})" if rest else ""
        return Access(whole, whole, False, inline=text, imports=frozenset(imports), is_secret=True)

    def _seeks(self) -> bool:
        """Whether the cell moves about in open files, which an open file of the capability does not."""
        moves = ("seek", "tell", "truncate", "fileno")
        return any(isinstance(n, ast.Attribute) and n.attr in moves for n in self._nodes)

    def _glob(self, call: ast.Call) -> Access | None:
        pattern = literal(call.args[0]) if len(call.args) == 1 and not call.keywords else None
        folder, _, name = (pattern or "").rpartition("/")
        code, is_safe, _ = self._paths.path(ast.Constant(folder or "."))
        if not code or not name or any(letter in folder for letter in "*?[") or "**" in name:
            return None
        tests = f"fnmatch.fnmatchcase(entry.name, {_no_braces(quoted(name))})"
        if not name.startswith("."):
            tests += ' and not entry.name.startswith(".")'
        text = f"[entry.path for entry in {_entry(code)}.children if {tests}]"
        return Access(call, call, is_safe, inline=text, imports=frozenset(("import fnmatch",)))

    def _os(self, call: ast.Call, full: str) -> Access | None:
        if full == "os.makedirs":
            options = {one.arg: one.value for one in call.keywords}
            text, same = "{}.mkdir()", "exist_ok" in options and unparsed(options["exist_ok"]) == "True"
            same = same or self._is_known_to_be_new(call)
            if not options.keys() <= {"exist_ok"}:
                return None
        else:
            text, same = _OS[full]
            if call.keywords:
                return None
        if len(call.args) > 1 or (not call.args and full != "os.listdir"):
            return None
        code, is_safe, _ = self._paths.path(call.args[0] if call.args else ast.Constant("."))
        if not code:
            return None
        simple = self._is_whole_statement(call) or ("mkdir" not in text and "delete" not in text)
        return Access(call, call, is_safe and same and simple, inline=text.format(_entry(code)))

    def _is_known_to_be_new(self, call: ast.Call) -> bool:
        """`if not os.path.exists(d): os.makedirs(d)`"""
        branch = self._source.parents.get(self._source.parents.get(call, call))
        if not isinstance(branch, ast.If) or not isinstance(branch.test, ast.UnaryOp) or branch.orelse:
            return False
        asked = branch.test.operand
        return (
            isinstance(branch.test.op, ast.Not)
            and isinstance(asked, ast.Call)
            and self._paths.full(asked.func) in ("os.path.exists", "os.path.isdir")
            and [unparsed(one) for one in asked.args] == [unparsed(one) for one in call.args]
        )

    def _path_method(self, call: ast.Call, path: ast.expr, method: str) -> Access | None:
        if method == "open":
            return self._opened(call, path)
        code, is_safe, _ = self._paths.path(path)
        if not code:
            return None
        if is_listing(call):
            tree = listed(self._paths, call, _entry(code))
            return None if tree is None else _of_tree(call, tree)
        if method in ("rename", "replace"):
            if len(call.args) != 1 or call.keywords:
                return None
            return self._placed(call, put(self._paths, path, call.args[0], f"os.{method}"))
        options = {one.arg: unparsed(one.value) for one in call.keywords}
        if method in ("read_text", "read_bytes") and is_always_secret(self._paths.folded(path)):
            suffix = "_bytes" if method == "read_bytes" else ""
            return self._secret(call, f"{_entry(code)}.read_classified{suffix}()")
        if method == "read_text" and not call.args and options.keys() <= {"encoding", "errors"}:
            given = ", ".join(f"{name}={value}" for name, value in options.items() if value != "None")
            inline = None if given else f"{_entry(code)}.read()"
            return Access(call, call, is_safe, f"{_entry(code)}.open({given})", with_file="{}.read()", inline=inline,
                          inline_is_safe=False)  # fmt: skip
        if method in ("write_text", "write_bytes") and len(call.args) == 1:
            utf8 = all(name == "encoding" and value.strip("'\"").lower() in ("utf-8", "utf8", "none")
                       for name, value in options.items())  # fmt: skip
            if not utf8:
                return None
            verb = "write" if method == "write_text" else "write_bytes"
            text = f"{_entry(code)}.{verb}({_no_braces(self._source.segment(call.args[0]))})"
            return Access(call, call, is_safe and self._is_whole_statement(call), inline=text)
        if method not in _OF_A_PATH or call.args:
            return None
        text, same = _OF_A_PATH[method]
        if method == "mkdir" and options == {"parents": "True", "exist_ok": "True"}:
            same = True
        elif options and method != "mkdir":
            return None
        if method in ("unlink", "mkdir"):
            same = same and self._is_whole_statement(call)
        return Access(call, call, is_safe and same, inline=text.format(_entry(code)))

    def _placed(self, call: ast.Call, tree: Tree | None) -> Access | None:
        """A file that is put somewhere: the call is a statement, and so is what takes its place."""
        return None if tree is None or not self._is_whole_statement(call) else _of_tree(call, tree)

    def _is_whole_statement(self, call: ast.Call) -> bool:
        return isinstance(self._source.parents.get(call), ast.Expr)

    def _argument(self, call: ast.Call) -> ast.expr | None:
        named = [one.value for one in call.keywords if one.arg in _PATH_KEYWORDS]
        if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
            return None
        return call.args[0] if call.args else named[0] if named else None

    def _reader(self, call: ast.Call, full: str) -> Access | None:
        given = {one.arg for one in call.keywords}
        path = self._argument(call)
        if path is None or given & {"compression", "storage_options", "mmap_mode", "memory_map", "allow_pickle"}:
            return None
        code, is_safe, name = self._paths.path(path)
        if not code:
            return None
        if is_always_secret(self._paths.folded(path)):
            return self._secret_table(call, path, code) if _READERS[full] == "text" else None
        how = "bytes" if _READERS[full] == "text" and given & set(_OF_BYTES) else _READERS[full]
        inline, with_file, packed = f"io.BytesIO({_entry(code)}.read_bytes())", "{}", _compression(name)
        if name.endswith(_ARCHIVES) or (packed and not full.startswith("pandas.")):
            return None
        if full.startswith("pandas.") and _READERS[full] == "text":
            is_safe = is_safe and not name.endswith("?")
            inline, with_file, how = inline + packed, with_file + packed, "bytes" if packed else how
        if full.endswith(_NAMED_FORMAT) and "format" not in given:
            inline += _format(name)
            is_safe = is_safe and "." in name
        if how == "seek" or (how == "bytes" and full.startswith("numpy.")):
            return Access(call, path, is_safe, inline=inline, imports=frozenset(("import io",)))
        opened = f"{_entry(code)}.open()" if how == "text" else f'{_entry(code)}.open("rb")'
        return Access(call, path, is_safe, opened, with_file, how != "text", inline,
                      inline_is_safe=full.startswith("pandas."), inline_imports=frozenset(("import io",)))  # fmt: skip

    def _writer(self, call: ast.Call, full: str, mode: str) -> Access | None:
        given = {one.arg for one in call.keywords}
        path = self._argument(call)
        if path is None or given & {"compression", "storage_options", "mode", "append", "partition_cols"}:
            return None
        if isinstance(path, ast.Constant) and literal(path) is None:
            return None
        code, is_safe, name = self._paths.path(path)
        if not code or not self._may_be_path(path):
            return None
        ending = _ADDED_ENDING.get(full, ".png" if full.endswith("savefig") and "format" not in given else "")
        if ending and name and not ("." in name if ending == ".png" else name.endswith(ending)):
            text = literal(path)
            code = f"{code} + {quoted(ending)}" if text is None else quoted(text + ending)
            name += ending
        with_file = "{}"
        if full.endswith(_NAMED_FORMAT) and "format" not in given:
            with_file += _format(name)
            is_safe = is_safe and "." in name
        packed = _compression(name)
        if name.endswith(_ARCHIVES) or (packed and full not in ("to_csv", "to_json")):
            return None
        if full in ("to_csv", "to_json"):
            is_safe = is_safe and not name.endswith("?")
            with_file, mode = with_file + packed, "wb" if packed else mode
        if mode == "w" and given & {"encoding", "errors", "lineterminator"}:
            mode = "wb"
        return Access(call, path, is_safe and bool(name or not ending), f'{_entry(code)}.open("{mode}")',
                      with_file=with_file, is_binary="b" in mode)  # fmt: skip

    def _may_be_path(self, node: ast.expr) -> bool:
        """Not a buffer that the cell made itself."""
        given = self._paths.given(node.id) if isinstance(node, ast.Name) else node
        made = self._paths.full(given.func) if isinstance(given, ast.Call) else ""
        return not made.startswith(("io.", "open"))

    def statements_of(self, dropped: list[tuple[ast.alias, Edit]]) -> Iterator[ast.stmt]:
        for alias, _ in dropped:
            statement = self._source.statement(alias)
            if statement is not None:
                yield statement


def _of_tree(call: ast.Call, tree: Tree) -> Access:
    return Access(call, call, tree.is_safe, inline=tree.text, imports=tree.imports, keeps=tree.keeps)


def _entry(code: str) -> str:
    return "{fs}.access(" + _no_braces(code) + ")"


def _no_braces(code: str) -> str:
    """`code` as it goes through `str.format`."""
    return code.replace("{", "{{").replace("}", "}}")


def _compression(name: str) -> str:
    """`, compression="gzip"` for a name whose ending says so."""
    found = [how for ending, how in _COMPRESSED.items() if name.endswith(ending)]
    return f', compression="{found[0]}"' if found else ""


def _format(name: str) -> str:
    """`, format="svg"` for a name whose ending says so; nothing for what is a png anyway."""
    ending = name.rpartition(".")[2].lower() if "." in name else "png"
    return "" if ending == "png" else f', format="{ending}"'
