"""What the plan says can be done in each block, as the line a person reads. What is not understood widens it."""

# ruff: noqa: E501  (cells, as they are written)
from __future__ import annotations

import ast
import inspect

import pytest

from capkernel.api.files import FileEntry, FileSystem
from capkernel.checker.captures.verbs import VERBS_OF
from capkernel.wire.authority import authority_line
from capkernel.wire.plan import VERB_OF_METHOD, VERBS

from .conftest import Notebook

ALL = "list, read, write, read classified, write classified"


def may(notebook: Notebook, text: str) -> str:
    line = authority_line(notebook.accepted(text).plan)
    return line.removeprefix("may: ").removesuffix(" · nothing else")


def test_every_member_of_the_api_that_asks_the_broker_has_its_verb() -> None:
    asked = {}
    for kind in (FileEntry, FileSystem):
        for name, member in vars(kind).items():
            function = member.fget if isinstance(member, property) else member
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            source = ast.parse("class C:\n" + inspect.getsource(function))
            methods = {
                call.args[1].value
                for call in ast.walk(source)
                if isinstance(call, ast.Call) and len(call.args) > 1 and isinstance(call.args[1], ast.Constant)
            } & VERB_OF_METHOD.keys()
            if methods:
                asked[name] = {VERB_OF_METHOD[method] for method in methods}
    assert len(asked) >= 15
    for name, verbs in asked.items():
        assert verbs <= set(VERBS_OF[name]), name
    members = {name for kind in (FileEntry, FileSystem) for name in vars(kind) if not name.startswith("_")}
    silent = {"path", "name", "root", "access", "subtree", "read_only"}  # they ask for nothing that a plan lists
    assert members - silent == VERBS_OF.keys()
    assert {verb for verbs in VERBS_OF.values() for verb in verbs} == set(VERB_OF_METHOD.values()) == set(VERBS)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('with request_file_system("data") as fs:\n    t = fs.access("a.csv").read()', "read data/a.csv"),
        ('with request_file_system("data") as fs:\n    t = fs.access("./x//a").read_bytes()', "read data/x/a"),
        ('n = "a" + "b"\nwith request_file_system("data") as fs:\n    t = fs.access(n).read()', "read data/"),
        ('with request_file_system("data") as fs:\n    f = fs.access("a")\n    if f.exists:\n        f.write("x")', "list, write data/a"),
        ('with request_file_system("data") as fs:\n    t = [f.read() for f in fs.access(".").children]', "list, read data/"),
        ('with request_file_system("data") as fs:\n    for f in fs.access("in").children:\n        print(f.size)', "list data/"),
        ('with request_file_system() as fs:\n    k = fs.read_classified(".env")', "read classified .env"),
        ('with request_file_system() as fs:\n    k = fs.access(".env").read_classified()', "read classified .env"),
        ('s = classify("k")\nwith request_file_system() as fs:\n    fs.write_classified("secrets/k", s)', "write classified secrets/k"),
        ('with request_file_system("data") as fs:\n    print(fs.root)', "open data/"),
        ('with request_file_system("data") as fs:\n    found = fs.grep("a.csv", "x")', "read data/a.csv"),
        ('with request_file_system("data") as fs:\n    found = fs.grep_recursive("in", "x", "*.py")', "list, read data/in"),
        ('with request_file_system("data") as fs:\n    found = fs.find("in", "*.py")', "list data/in"),
        ('with request_file_system("data") as fs:\n    found = fs.find(dir="in", glob="*.py")', "list data/in"),
        ('with request_file_system("data") as fs:\n    for f in fs.access("in").walk():\n        f.delete()', "list data/in · write data/"),
        ('with request_file_system("data") as fs:\n    n = sum(1 for _ in fs.access("a").lines())', "read data/a"),
        ('import pandas as pd\nwith request_file_system("data") as fs, fs.access("a.csv").open() as f:\n    t = pd.read_csv(f)', "read data/a.csv"),
        ('import json\nwith request_file_system("data") as fs, fs.access("a").open("w") as f:\n    json.dump([1], f)', "write data/a"),
        ('def m() -> str:\n    return "w"\nwith request_file_system("data") as fs:\n    with fs.access("a").open("wb") as f:\n        f.write(b"")', "write data/a"),
        ('with request_file_system("data") as fs:\n    t = fs.subtree("in").access("a").read()', "read data/in/a"),
        ('with request_file_system("data") as fs:\n    t = fs.read_only().subtree("in").grep("a", "x")', "read data/in/a"),
        ('rows = []\nwith request_file_system("data") as fs:\n    rows.append(fs.access("a").read())', "read data/a"),
        (
            'with request_file_system("a") as src, request_file_system("b") as dst:\n    dst.access("y").write(src.access("x").read())',
            "read a/x · write b/y",
        ),
        (
            'with request_file_system("a") as fs:\n    t = fs.access("x").read()\nwith request_file_system("b") as fs:\n    fs.access("y").append(t)',
            "read a/x · write b/y",
        ),
        (
            'def load(fs: FileSystem, name: str) -> str:\n    return fs.access(name).read()\n'
            'def save(fs: FileSystem, text: str) -> None:\n    fs.access("out").write(text)\n'
            'with request_file_system("a") as src:\n    t = load(src, "x")\nwith request_file_system("b") as dst:\n    save(dst, t)',
            "read a/ · write b/out",
        ),
    ],
)  # fmt: skip
def test_what_is_understood_is_said_exactly(notebook: Notebook, text: str, said: str) -> None:
    assert may(notebook, text) == said


@pytest.mark.parametrize(
    ("before", "text", "said"),
    [
        # Through helpers of earlier cells, called by name, and those that call them.
        ("def low(fs: FileSystem) -> str:\n    return fs.access('x').read()\ndef high(fs: FileSystem) -> str:\n    return low(fs)",
         'with request_file_system("a") as fs:\n    high(fs)', "read a/x"),
        # Without annotations nobody knows the type: the name of the member counts.
        ("def low(f):\n    return f.read()", 'with request_file_system("a") as fs:\n    low(fs.access("x"))', "read a/"),
        # A function that is handed around may run in any block; one out of a nested container may be any.
        ("def wipe(f: FileEntry) -> None:\n    f.write('')",
         'with request_file_system("a") as fs:\n    jobs = {"wipe": [wipe]}\n    jobs["wipe"][0](fs.access("x"))', f"{ALL} a/"),
        ("def wipe(f: FileEntry) -> None:\n    f.write('')",
         'with request_file_system("a") as fs:\n    for job in (wipe,):\n        job(fs.access("x"))', "write a/"),
        ("def wipe(f: FileEntry) -> None:\n    f.write('')\ndef use(job, f: FileEntry) -> None:\n    job(f)",
         'with request_file_system("a") as fs:\n    use(wipe, fs.access("x"))', "write a/"),
        # A method, a property, a protocol.
        ("class Job:\n    def run(self, f: FileEntry) -> str:\n        return f.read()\njob = Job()",
         'with request_file_system("a") as fs:\n    job.run(fs.access("x"))', "read a/"),
        ("from typing import Protocol\nclass Readable(Protocol):\n    def read(self) -> str: ...\ndef take(r: Readable) -> str:\n    return r.read()",
         'with request_file_system("a") as fs:\n    take(fs.access("x"))', "read a/"),
        # The block itself is in a helper.
        ("def load() -> str:\n    with request_file_system('deep') as fs:\n        return fs.access('x').read()", "t = load()", "read deep/x"),
        # What a helper names may be in a narrower view.
        ("def low(fs: FileSystem) -> str:\n    return fs.access('x').read()",
         'with request_file_system("a") as fs:\n    t = low(fs.subtree("in"))', "read a/"),
        # One name for two things.
        ("", 'with request_file_system("a") as fs:\n    f = fs.access("x")\n    f = fs.access("y")\n    f.read()', "read a/"),
        # A generator runs where it is advanced.
        ("def each(f: FileEntry):\n    yield f.read()",
         'with request_file_system("a") as fs:\n    g = each(fs.access("x"))\n    t = list(g)', "read a/"),
        # A bound method is a use.
        ("", 'with request_file_system("a") as fs:\n    take = fs.access("x").read\n    take()', f"{ALL} a/"),
        ("", 'with request_file_system("a") as fs:\n    t = list(map(FileEntry.read, [fs.access("x")]))', "read a/"),
        # Members by name, or a library that looks for them: anything.
        ("import operator", 'with request_file_system("a") as fs:\n    operator.methodcaller("read")(fs.access("x"))', f"{ALL} a/"),
        ("import json", 'with request_file_system("a") as fs:\n    json.load(fs.access("x"))', f"{ALL} a/"),
        ("", 'with request_file_system("a") as fs:\n    match fs.access("x"):\n        case FileEntry(exists=True):\n            pass', "list a/"),
    ],
)  # fmt: skip
def test_what_is_less_certain_widens(notebook: Notebook, before: str, text: str, said: str) -> None:
    if before:
        notebook.accepted(before)
    assert may(notebook, text) == said


def test_a_name_that_means_something_else_now_is_judged_as_it_is(notebook: Notebook) -> None:
    notebook.accepted("out: list[str] = []\ndef keep(text: str) -> None:\n    out.append(text)")
    text = 'with request_file_system("a") as fs:\n    keep(fs.access("x").read())'
    assert may(notebook, text) == "read a/x"
    notebook.accepted("from typing import Any\nout: Any = 3")
    assert may(notebook, text) == "read a/x · write a/"  # `out` may be a file now


def test_data_made_by_a_helper_does_not_carry_its_authority(notebook: Notebook) -> None:
    notebook.accepted(
        "def load() -> str:\n    with request_file_system('d') as fs:\n        return fs.access('x').read()"
    )
    assert may(notebook, "text = load()") == "read d/x"
    assert may(notebook, "len(text)") == ""
    notebook.accepted("later = [load]")
    assert may(notebook, "later[0]()") == "read d/x"
    notebook.accepted("first, second = load, 2")
    assert may(notebook, "first()") == "read d/x"


def test_two_blocks_of_one_name_in_a_function_that_is_called_in_neither(notebook: Notebook) -> None:
    text = (
        "def peek() -> str:\n    return fs.access('x').read()\n"
        "with request_file_system('a') as fs:\n    peek()\nwith request_file_system('b') as fs:\n    fs.access('y').write('')"
    )
    # `peek` reads through whatever `fs` is: both blocks.
    assert may(notebook, text) == "read a/x · read b/x · write b/y"
