"""The code that nobody here wrote: notebooks and problems of public repositories, and which of their cells count.

Rule 1: a cell counts when stock ipykernel runs it and when it needs, by the lists below and nothing else, no ambient
authority and no reflection, neither itself nor through a name that only such a cell bound.
"""

from __future__ import annotations

import ast
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython.core.inputtransformer2 import TransformerManager

HOW_TO_FILL = """\
CAPKERNEL_CORPUS names no folder. Fill one with (any of) these, then set the variable to it:
    git clone --depth 1 https://github.com/norvig/pytudes
    git clone --depth 1 https://github.com/jakevdp/PythonDataScienceHandbook
    git clone --depth 1 https://github.com/openai/human-eval
Of pytudes the notebooks A to L are read, of the handbook its chapters 1 to 3."""

# The rule, as data. Modules that reach outside or into the interpreter; some have parts that do not.
AUTHORITY_MODULES = frozenset(
    (
        "os sys subprocess socket socketserver ssl http urllib requests urllib3 aiohttp ftplib smtplib "
        "webbrowser shutil glob pathlib tempfile fileinput sqlite3 shelve dbm pickle cPickle dill joblib "
        "ctypes cffi importlib runpy pkgutil inspect gc dis symtable signal resource multiprocessing psutil "
        "pty mmap builtins code codeop pdb bdb cProfile profile tracemalloc atexit site platform getpass nltk "
        "ipywidgets line_profiler memory_profiler io codecs"
    ).split()
)
HARMLESS_PARTS = frozenset(
    (
        "os.path os.sep os.linesep os.name os.path.join os.path.basename os.path.splitext os.path.split "
        "os.path.dirname sys.maxsize sys.version sys.version_info sys.getsizeof sys.stdout sys.stderr "
        "sys.platform sys.setrecursionlimit sys.getrecursionlimit sys.float_info sys.byteorder sys.maxunicode "
        "sys.exit io.StringIO io.BytesIO urllib.parse platform.python_version pathlib.PurePath"
    ).split()
)
AUTHORITY_NAMES = frozenset(
    ("open exec eval compile __import__ globals locals vars setattr delattr breakpoint exit quit").split()
)
AUTHORITY_ATTRIBUTES = frozenset(
    (
        "read_csv read_table read_excel read_pickle read_sql read_hdf read_parquet read_html read_fwf "
        "read_feather savefig imread imsave loadtxt genfromtxt fromfile memmap tofile urlopen urlretrieve "
        "to_csv to_excel to_pickle to_sql to_hdf to_parquet fetch_lfw_people fetch_openml load_dataset "
        "DataReader system popen __dict__ __code__ __globals__ __class__ __bases__ __subclasses__ "
        "__builtins__ __closure__ __defaults__ __mro__ __import__ gi_frame f_locals f_globals"
    ).split()
)
HARMLESS_MAGICS = frozenset(
    ("matplotlib time timeit xmode precision config pinfo pinfo2 who whos lsmagic pprint colors").split()
)


@dataclass(frozen=True)
class Notebook:
    """A notebook's code cells, or a problem as one cell."""

    name: str
    cells: tuple[str, ...]


def notebooks(root: Path) -> list[Notebook]:
    """Those of the two notebook collections below `root`, by the names of the files."""
    found = []
    for path in sorted(root.rglob("*.ipynb")):
        where = str(path.parent.relative_to(root))
        if ".ipynb_checkpoints" in where or any(part.startswith(".") for part in path.relative_to(root).parts):
            continue
        if "pytudes" in where and where.endswith("ipynb") and re.match("[A-Za-z]", path.name):
            wanted = path.name[0].upper() <= "L"
        else:
            wanted = where.endswith("PythonDataScienceHandbook/notebooks") and path.name[:2] in ("01", "02", "03")
        if wanted:
            found.append(read_notebook(path))
    return found


def read_notebook(path: Path) -> Notebook:
    """The code cells of one file that are not empty."""
    data: dict[str, Any] = json.loads(path.read_text("utf-8"))
    cells = data.get("cells") or [cell for sheet in data.get("worksheets", []) for cell in sheet["cells"]]
    texts = []
    for cell in cells:
        source = cell.get("source", cell.get("input", ""))
        text = source if isinstance(source, str) else "".join(source)
        if cell["cell_type"] == "code" and text.strip():
            texts.append(text)
    return Notebook(path.name, tuple(texts))


def problems(root: Path) -> list[Notebook]:
    """HumanEval: the solution as one cell, its test as the next."""
    found = []
    for path in root.rglob("HumanEval.jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                task = json.loads(line)
                solution = task["prompt"] + task["canonical_solution"]
                test = f"{task['test']}\ncheck({task['entry_point']})"
                found.append(Notebook(task["task_id"], (solution, test)))
        break
    return found


def plain_text(text: str) -> str:
    """What IPython makes of a cell, with the bodies of timing magics in sight."""
    try:
        made: str = TransformerManager().transform_cell(text)
    except SyntaxError:
        return text
    return made


def needs(text: str) -> str:
    """What of the outside or of the interpreter a cell uses, in a word; "" when nothing."""
    found = re.match(r"\s*%%(\w+)([^\n]*)\n", text)
    if found is not None:
        if found[1] not in ("time", "timeit"):
            return f"%%{found[1]}"
        text = text[found.end() :]
    try:
        tree = ast.parse(plain_text(text))
    except SyntaxError:
        return "syntax"
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        word = _need(node, modules)
        if word:
            return word
    return ""


def _need(node: ast.AST, modules: dict[str, str]) -> str:
    if isinstance(node, ast.Import):
        for alias in node.names:
            root = alias.name.partition(".")[0]
            if root in AUTHORITY_MODULES and alias.name not in HARMLESS_PARTS:
                if root not in ("os", "sys", "io", "urllib", "platform", "pathlib"):
                    return f"import {alias.name}"
                modules[alias.asname or root] = root
    elif isinstance(node, ast.ImportFrom):
        module = node.module or "."
        if node.level or module.partition(".")[0] in AUTHORITY_MODULES:
            for alias in node.names:
                if f"{module}.{alias.name}" not in HARMLESS_PARTS and module not in HARMLESS_PARTS:
                    return f"from {module} import {alias.name}"
    elif isinstance(node, ast.Name):
        if node.id in AUTHORITY_NAMES:
            return node.id
    elif isinstance(node, ast.Attribute):
        if node.attr in AUTHORITY_ATTRIBUTES:
            return f".{node.attr}"
        if isinstance(node.value, ast.Name) and node.value.id in ("os", "sys", "io", "platform", "pathlib", "urllib"):
            path = f"{node.value.id}.{node.attr}"
            if path not in HARMLESS_PARTS:
                return path
    elif isinstance(node, ast.Call):
        return _need_of_call(node)
    return ""


def _need_of_call(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Name) and function.id == "getattr":
        return "" if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else "getattr"
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        inner = function.value.func
        if isinstance(inner, ast.Name) and inner.id == "get_ipython":
            first = node.args[0] if node.args else None
            name = first.value if isinstance(first, ast.Constant) else ""
            if function.attr != "run_line_magic" or name not in HARMLESS_MAGICS:
                return "!" if function.attr in ("system", "getoutput") else f"%{name}"
            second = node.args[1]
            if name in ("time", "timeit") and isinstance(second, ast.Constant):
                return needs(str(second.value))
    return ""


def bound_names(text: str) -> frozenset[str]:
    """Names that a cell binds at its top level."""
    return frozenset(_bound(_body(text)))


def read_names(text: str) -> frozenset[str]:
    """Names that stand in a cell to be read, wherever."""
    return frozenset(
        node.id
        for statement in _body(text)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )


def _body(text: str) -> list[ast.stmt]:
    text = re.sub(r"\A\s*%%(time|timeit)[^\n]*\n", "", text)
    try:
        body = ast.parse(plain_text(text)).body
    except SyntaxError:
        return []
    for node in [node for statement in body for node in ast.walk(statement)]:
        if (
            isinstance(node, ast.Call)
            and len(node.args) == 2
            and isinstance(node.args[0], ast.Constant)
            and node.args[0].value in ("time", "timeit")
            and isinstance(node.args[1], ast.Constant)
        ):
            body += _body(str(node.args[1].value))
    return body


def _bound(body: list[ast.stmt]) -> Iterator[str]:
    todo: list[ast.AST] = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
            continue
        if isinstance(node, ast.Lambda):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.partition(".")[0]
        todo.extend(ast.iter_child_nodes(node))
