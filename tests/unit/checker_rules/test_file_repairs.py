"""The repair of files opened without asking: what it makes of a cell, and what it leaves alone."""

from __future__ import annotations

import golden
import pytest
from fixer import apply_offered

from capkernel.checker.protocol import Accepted, Rejected
from capkernel.checker.repairs.file_secrets import is_always_secret
from capkernel.diagnostics import Diagnostic

SAME = {
    "closed": (
        'f = open("a", "w")\nfor i in range(3):\n    f.write(f"{i}")\nf.close()\nprint("done")\n',
        'with request_file_system() as fs, fs.access("a").open("w") as f:\n'
        '    for i in range(3):\n        f.write(f"{i}")\nprint("done")\n',
    ),
    "two, closed together": (
        'f = open("a")\ng = open("b", "w")\ng.write(f.read())\nf.close()\ng.close()\n',
        'with request_file_system() as fs:\n    with fs.access("a").open() as f:\n'
        '        with fs.access("b").open("w") as g:\n            g.write(f.read())\n',
    ),
    "strings over lines": (
        'if True:\n    text = open("a").read() + """\n x\ny"""\n    # a comment\nz = open("b").read()\n',
        'with request_file_system() as fs:\n    if True:\n        with fs.access("a").open() as f:\n'
        '            text = f.read() + """\n x\ny"""\n        # a comment\n'
        '    with fs.access("b").open() as f:\n        z = f.read()\n',
    ),
    "in a function": (
        'def load() -> str:\n    """Text."""\n    return open("a").read()\nprint(load())\n',
        'def load() -> str:\n    """Text."""\n    with request_file_system() as fs, fs.access("a").open() as f:\n'
        "        return f.read()\nprint(load())\n",
    ),
    "evaluated again and again": (
        'while open("a").read():\n    pass\n',
        'import io\nwith request_file_system() as fs:\n    while io.StringIO(fs.access("a").read(), None).read():\n'
        "        pass\n",
    ),
    "two in one statement": (
        'same = open("a").read() == open("b").read()\n',
        'with request_file_system() as fs, fs.access("a").open() as f, fs.access("b").open() as g:\n'
        "    same = f.read() == g.read()\n",
    ),
    "a name that is taken": (
        'fs = f = 1\nx = open("a").read()\n',
        'fs = f = 1\nwith request_file_system() as files, files.access("a").open() as g:\n    x = g.read()\n',
    ),
    "an import among others": (
        'from os import listdir, sep\nnames = listdir("d")\nprint(sep)\n',
        'from os import sep\nwith request_file_system() as fs:\n'
        '    names = [entry.name for entry in fs.access("d").children]\nprint(sep)\n',
    ),
    "braces": (
        'import json\njson.dump({"a": {1: 2}}, open("a{}.json", "w"))\n',
        'import json\nwith request_file_system() as fs, fs.access("a{}.json").open("w") as f:\n'
        '    json.dump({"a": {1: 2}}, f)\n',
    ),
}  # fmt: skip

IMPORTED = {
    "a directory": (
        'from pathlib import Path\nfor p in Path("d").iterdir():\n    print(p.read_text())\n',
        "from pathlib import PurePath as Path\nwith request_file_system() as fs:\n"
        '    for p in [Path(entry.path) for entry in fs.access("d").children]:\n'
        "        with fs.access(str(p)).open() as f:\n            print(f.read())\n",
    ),
    "a pattern of paths": (
        'from pathlib import Path\nd = Path("d")\nnames = [p.name for p in sorted(d.glob("*.csv"))]\n',
        "import fnmatch\nfrom pathlib import PurePath as Path\nd = Path(\"d\")\nwith request_file_system() as fs:\n"
        '    names = [p.name for p in sorted([Path(entry.path) for entry in fs.access("d").children'
        ' if fnmatch.fnmatchcase(entry.name, "*.csv")])]\n',
    ),
    "everything below": (
        'from pathlib import Path\nfiles = sorted(Path("d").glob("**/*.py"))\n',
        "import fnmatch\nfrom pathlib import PurePath as Path\nwith request_file_system() as fs:\n"
        '    files = sorted([Path(entry.path) for entry in fs.access("d").walk()'
        ' if fnmatch.fnmatchcase(entry.name, "*.py")])\n',
    ),
    "a copy": (
        'import shutil\nshutil.copy("a.txt", "out/b.txt")\n',
        'with request_file_system() as fs:\n    fs.access("out/b.txt").write_bytes(fs.access("a.txt").read_bytes())\n',
    ),
    "a copy into a directory": (
        'from shutil import copy\ncopy("d/a.txt", "out/")\n',
        'with request_file_system() as fs:\n'
        '    fs.access("out/a.txt").write_bytes(fs.access("d/a.txt").read_bytes())\n',
    ),
    "another name": (
        'import os\nos.rename("a.txt", "b.txt")\n',
        'import os\nwith request_file_system() as fs:\n'
        '    fs.access("b.txt").write_bytes(fs.access("a.txt").read_bytes()); fs.access("a.txt").delete()\n',
    ),
    "another name for a path": (
        'from pathlib import Path\nPath("a.txt").rename("b.txt")\n',
        'with request_file_system() as fs:\n'
        '    fs.access("b.txt").write_bytes(fs.access("a.txt").read_bytes()); fs.access("a.txt").delete()\n',
    ),
    "a directory that is made once": (
        'import os\nif not os.path.exists("out"):\n    os.makedirs("out")\n',
        'import os\nwith request_file_system() as fs:\n    if not fs.access("out").exists:\n'
        '        fs.access("out").mkdir()\n',
    ),
}  # fmt: skip

SECRET = {
    "a text": (
        'text = open(".env").read()\n',
        'with request_file_system() as fs:\n    text = fs.read_classified(".env")\n',
    ),
    "what is done with it": (
        'key = open("secrets/a.txt").read().split("=")[1]\n',
        "with request_file_system() as fs:\n"
        '    key = fs.read_classified("secrets/a.txt").map(lambda text: text.split("=")[1])\n',
    ),
    "a path object": (
        'from pathlib import Path\nkey = (Path("keys") / "id_rsa").read_text().strip()\n',
        "with request_file_system() as fs:\n"
        '    key = fs.access("keys/id_rsa").read_classified().map(lambda text: text.strip())\n',
    ),
    "bytes": (
        'from pathlib import Path\nkey = Path("a.pem").read_bytes()\n',
        'with request_file_system() as fs:\n    key = fs.access("a.pem").read_classified_bytes()\n',
    ),
    "lines": (
        'lines = open("token.txt").readlines()\n',
        'with request_file_system() as fs:\n    lines = fs.read_classified("token.txt").map(str.splitlines)\n',
    ),
    "json": (
        'import json\nkey = json.load(open("credentials.json"))\n',
        'import json\nwith request_file_system() as fs:\n'
        '    key = fs.read_classified("credentials.json").map(json.loads)\n',
    ),
    "a table": (
        'import pandas as pd\ndf = pd.read_csv("secrets/a.csv", sep=";")\n',
        "import io\nimport pandas as pd\nwith request_file_system() as fs:\n"
        '    df = fs.read_classified("secrets/a.csv").map(lambda text: pd.read_csv(io.StringIO(text), sep=";"))\n',
    ),
    "a block": (
        'with open(".env") as f:\n    text = f.read().strip()\n',
        'with request_file_system(".") as fs:\n'
        '    text = fs.access(".env").read_classified().map(lambda text: text.strip())\n',
    ),
    "a block with json": (
        'import json\nwith open("secrets/token.json") as f:\n    key = json.load(f)\nprint(key)\n',
        'import json\nwith request_file_system("secrets") as fs:\n'
        '    key = fs.access("token.json").read_classified().map(json.loads)\nprint(key)\n',
    ),
}  # fmt: skip

# No repair may offer to read these as plain text, which the broker refuses.
NEVER_PLAIN = (
    'for line in open(".env"):\n    print(line)\n',
    'with open(".env") as f:\n    for line in f:\n        print(line)\n',
    'text = open(".env").read()\nprint(len(text))\n',
    'import pandas as pd\nprint(len(pd.read_csv("secrets/a.csv")))\n',
    'open(".env", "w").write("x")\n',
)

DIFFERENT = {
    "an absolute path": 'x = open("/a").read()\n',
    "a folder above": 'x = open("../a").read()\n',
    "a path nobody knows": 'x = open(input()).read()\n',
    "an address": 'import pandas as pd\nx = pd.read_csv("https://example.com/a.csv")\n',
    "moving about": 'with open("a", "rb") as f:\n    f.seek(3)\n    x = f.read()\n',
    "reading and writing": 'with open("a", "r+") as f:\n    x = f.read()\n',
    "an error that would be lost": 'import os\nos.mkdir("a")\n',
    "a name that may be of a directory": 'import os\nos.rename("old", "new")\n',
    "a copy to where nobody knows": 'from shutil import copy\ncopy("a.txt", input())\n',
    "what a move gives": 'from shutil import move\nprint(move("a.txt", "b.txt"))\n',
    "a directory somewhere else": 'from pathlib import Path\nfiles = list(Path("/etc").iterdir())\n',
    "a pattern above": 'from pathlib import Path\nfiles = list(Path("..").glob("*.txt"))\n',
    "a directory of another kind": 'import os\nif not os.path.exists("a"):\n    os.makedirs("b")\n',
    "the number of characters": 'from pathlib import Path\nn = Path("a").write_text("x")\n',
}  # fmt: skip


def refusals(text: str, *earlier: str) -> tuple[Diagnostic, ...]:
    session = golden.new_session("standard")
    for number, one in enumerate(earlier, 1):
        verdict = session.check(number, one)
        assert isinstance(verdict, Accepted)
        session.commit(number, frozenset(verdict.names), frozenset())
    verdict = session.check(len(earlier) + 1, text)
    return verdict.diagnostics if isinstance(verdict, Rejected) else ()


@pytest.mark.parametrize("name", SAME)
def test_the_same_through_one_block(name: str) -> None:
    text, repaired = SAME[name]
    found = refusals(text)
    assert {one.code for one in found} == {"ambient-authority"}
    assert {one.fix.applicability for one in found if one.fix is not None} == {"safe"}
    assert apply_offered(text, found) == repaired
    assert not refusals(repaired)


@pytest.mark.parametrize("name", IMPORTED)
def test_trees_and_moves_are_the_same_through_one_block(name: str) -> None:
    text, repaired = IMPORTED[name]
    found = refusals(text)
    assert {one.code for one in found} <= {"ambient-authority", "unsafe-import"}
    assert {one.fix.applicability for one in found if one.fix is not None} == {"safe"}
    assert apply_offered(text, found) == repaired
    assert not refusals(repaired)


@pytest.mark.parametrize("name", SECRET)
def test_what_every_policy_calls_a_secret_is_read_as_one(name: str) -> None:
    text, repaired = SECRET[name]
    found = refusals(text)
    assert {one.fix.applicability for one in found if one.fix is not None} == {"unsafe"}  # it is a Classified then
    assert apply_offered(text, found) == repaired
    assert not refusals(repaired)


@pytest.mark.parametrize("text", NEVER_PLAIN)
def test_a_secret_is_not_offered_as_plain_text(text: str) -> None:
    found = refusals(text)
    assert found
    for one in found:
        assert one.fix is None or not one.fix.edits or "request_file_system" not in apply_offered(text, [one])


def test_the_same_text_of_a_file_that_is_no_secret_is_offered_as_plain_text() -> None:
    text = NEVER_PLAIN[2].replace(".env", "notes.txt")
    assert 'fs.access("notes.txt").open()' in apply_offered(text, refusals(text))


@pytest.mark.parametrize(
    "path", [".env", "a/.env.local", "secrets/a.csv", "x/.ssh/config", "./id_rsa", "a.PEM", "Secrets/b"]
)
def test_which_paths_are_always_secret(path: str) -> None:
    assert is_always_secret(path)


@pytest.mark.parametrize("path", ["data.csv", "notes.txt", "environment.yml", ".", "", "src/keys.py", None])
def test_which_paths_are_not(path: str | None) -> None:
    assert not is_always_secret(path)


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_may_mean_something_else_is_not_safe(name: str) -> None:
    found = refusals(DIFFERENT[name])
    assert found
    assert {one.code for one in found} <= {"ambient-authority", "unsafe-import"} or name == "an address"
    assert all(one.fix is None or one.fix.applicability != "safe" for one in found)


def test_a_name_of_an_earlier_cell_is_not_taken() -> None:
    text = 'x = open("a").read()\n'
    (found,) = refusals(text, "f = 1\n")
    assert "as g:" in apply_offered(text, [found])
    block = 'with request_file_system() as fs, fs.access("b").open() as f:\n    y = f.read()\n'
    (found,) = refusals(text, block)  # which has ended
    assert "as f:" in apply_offered(text, [found])


def test_an_address_is_not_made_a_path() -> None:
    (found,) = refusals(DIFFERENT["an address"])
    assert found.fix is None or "request_file_system" not in found.fix.code


def test_one_repair_for_all_uses() -> None:
    found = refusals('a = open("a").read()\nb = open("b").read()\nprint(a, b)\n')
    assert len(found) == 2
    assert len({one.fix for one in found}) == 1
