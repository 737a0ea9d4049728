"""Cells that open files without asking: refused, repaired by what the refusal offers, then as they are in Python."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_kernel import LiveKernel, Ran, live_kernel

from capkernel.diagnostics import Edit, Span, apply_edits
from capkernel.diagnostics.render_json import MIME_TYPE

pytestmark = pytest.mark.timeout(600)

# Each is a cell that Python runs as it is; the last line says what it read.
CELLS = {
    "a table": 'import pandas as pd\ndf = pd.read_csv("data.csv")\nprint(df.to_dict())',
    "options": 'df = pd.read_csv("latin.csv", encoding="latin-1", sep=";")\nprint(df.to_dict())',
    "compressed": 'df = pd.read_csv("data.csv.gz")\nprint(df.to_dict())',
    "arrays": 'import numpy as np\na = np.load("a.npy")\nb = np.loadtxt("t.txt")\nprint(a, b)',
    "text": 'from pathlib import Path\nt = Path("lines.txt").read_text()\nprint(repr(t))',
    "a name": "from pathlib import Path\nbase = Path('sub')\nt = (base / 'in.txt').read_text()\nprint(repr(t))",
    "open": 'f = open("lines.txt")\nprint(f.readlines())\nf.close()',
    "with": 'with open("lines.txt", "rb") as f:\n    print(f.read())',
    "json": 'import json\nvalue = json.load(open("a.json"))\nprint(value)',
    "listing": 'import os\nprint(sorted(os.listdir("sub")), os.path.exists("none"), os.path.isfile("sub"))',
    "a pattern": "import glob\nnames = sorted(glob.glob('sub/*.csv'))\nprint(names)",
    "tables": "frames = []\nfor path in sorted(glob.glob('sub/*.csv')):\n    frames.append(pd.read_csv(path))\n"
    "print(pd.concat(frames).to_dict('list'))",
    "a comprehension": "print(pd.concat([pd.read_csv(p) for p in ('sub/a.csv', 'sub/b.csv')]).to_dict('list'))",
    "a missing file": 'try:\n    pd.read_csv("none.csv")\nexcept FileNotFoundError:\n    print("not there")',
    "writing": 'df = pd.DataFrame({"a": ["x,1", "é"]})\ndf.to_csv("out.csv", index=False)\nnp.save("b", np.arange(3))\n'
    'Path("note.txt").write_text("""two\nlines""")\nwith open("log.txt", "a") as f:\n    f.write("more\\n")\n'
    'print(open("out.csv").read())',
    "taking away": 'print(os.path.exists("old.txt"))\nos.remove("old.txt")\nprint(os.path.exists("old.txt"))',
    "paths": 'from pathlib import Path\nfor p in sorted(Path("sub").iterdir()):\n'
    "    print(p, p.suffix, len(p.read_text()))",
    "paths by a pattern": 'from pathlib import Path\nimport pandas as pd\nfound = sorted(Path("sub").glob("*.csv"))\n'
    'for p in found:\n    df = pd.read_csv(p)\n    print(p.stem, df["v"].sum())',
    "paths below": 'from pathlib import Path\nprint(sorted(str(p) for p in Path(".").rglob("in*.txt")))',
    "copying": 'import shutil\nimport os\nshutil.copy("lines.txt", "copy.txt")\n'
    'shutil.copyfile("a.npy", "sub/c.npy")\nshutil.copy("t.txt", "sub/")\n'
    'print(open("copy.txt", "rb").read(), sorted(os.listdir("sub")))',
    "moving": 'import os\nif not os.path.exists("moved"):\n    os.makedirs("moved")\n'
    'os.rename("copy.txt", "moved/c.txt")\nos.replace("moved/c.txt", "log.txt")\n'
    'print(os.listdir("moved"), os.path.exists("copy.txt"))',
    "a function": 'def load(n: int) -> str:\n    with open(f"sub/in{n}.txt") as f:\n        return f.read()\n'
    "print(load(2))",
}
CELLS["tables"] = "import glob\n" + CELLS["tables"]
CELLS["writing"] = "from pathlib import Path\n" + CELLS["writing"]


def make_files(folder: Path) -> None:
    (folder / "sub").mkdir(parents=True)
    (folder / "data.csv").write_bytes('name,x\r\né,1\r\n"a,b",2\r\n'.encode())
    (folder / "data.csv.gz").write_bytes(gzip.compress(b"x\n1\n2\n"))
    (folder / "latin.csv").write_bytes("a;b\né;ü\n".encode("latin-1"))
    (folder / "lines.txt").write_bytes("één\r\ntwo\rthree\n".encode())
    (folder / "t.txt").write_text("1 2\n3 4\n")
    (folder / "a.json").write_text('{"a": [1, null]}')
    (folder / "old.txt").write_text("old")
    (folder / "log.txt").write_text("first\n")
    np.save(folder / "a.npy", np.arange(4.0).reshape(2, 2))
    for name, text in {
        "a.csv": "v\n1\n",
        "b.csv": "v\n2\n",
        ".c.csv": "v\n3\n",
        "in.txt": "in",
        "in2.txt": "2",
    }.items():
        (folder / "sub" / name).write_text(text)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def offered(ran: Ran) -> list[dict[str, Any]]:
    """The repairs of a refusal, each once."""
    found: list[dict[str, Any]] = []
    for message in ran.messages:
        for diagnostic in message["content"].get("data", {}).get(MIME_TYPE, {}).get("diagnostics", []):
            if diagnostic["severity"] == "error" and diagnostic["fix"] not in found:
                found.append(diagnostic["fix"])
    return found


def repaired(kernel: LiveKernel, cell: str) -> str:
    ran = kernel.run(cell)
    assert set(ran.codes) <= {"ambient-authority", "unsafe-import"}, ran.text
    assert ran.codes, f"it ran: {ran.stdout}"
    (fix,) = offered(ran)  # one for the whole cell
    assert fix["applicability"] == "safe", ran.text
    edits = [Edit(Span(**edit["span"]), edit["text"]) for edit in fix["edits"]]
    text = apply_edits(cell, edits)
    assert text.count("request_file_system()") == 1, text
    return text


def test_the_repaired_cell_does_what_the_cell_does(tmp_path: Path) -> None:
    plain, ours = tmp_path / "plain", tmp_path / "ours"
    make_files(plain)
    make_files(ours)
    said = {}
    program = "import io, contextlib\nspace = {}\n"
    for name, cell in CELLS.items():
        program += f"print('cell', {name!r})\nexec({cell!r}, space)\n"
    run = subprocess.run([sys.executable, "-c", program], cwd=plain, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    for part in run.stdout.split("cell ")[1:]:
        name, _, text = part.partition("\n")
        said[name] = text
    with live_kernel(ours) as kernel:
        for name, cell in CELLS.items():
            done = kernel.run(repaired(kernel, cell))
            assert done.ok, (name, done.text, done.reply)
            assert done.stdout == said[name], name
    assert files_of(ours) == files_of(plain)
    assert not files_of(plain).keys() & {"old.txt"}
