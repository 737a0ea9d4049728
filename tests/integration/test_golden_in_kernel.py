"""A part of the golden sessions in a real kernel: the same verdicts, in the same words, as the collector sees."""

from __future__ import annotations

from pathlib import Path

import golden
from live_kernel import live_kernel

from capkernel.diagnostics import render_text

# Sessions whose accepted cells run to their end wherever they run, one or more of every folder of tests/cells.
CHOSEN = (
    ("builtins.md", ("`eval` of a text", "`setattr`", "`open` for reading", "`type` with three arguments")),
    ("bindings.md", ("`classify` by an assignment", "The builtin `print`")),
    ("imports.md", ("`import pickle`", "`import ctypes`", "`from . import helpers`")),
    ("members.md", ('`os.system("id")`', "`sys.modules`", '`pathlib.Path("a").read_text()`')),
    ("dunders.md", ("`__class__`", "`__globals__`", "`__len__`")),
    ("magics.md", ("`run_line_magic('run', 'other.py')`", "`run_line_magic('matplotlib', 'qt')`")),
    ("syntax.md", ("A missing colon", "`print` without parentheses")),
    ("unbound.md", ("A slip of the pen", "Read before it is bound")),
    ("standard.md", ("A value against its own annotation", "Too many arguments")),
    ("granted.md", ("A secret is constructed",)),
    ("unseen.md", ("After a return", "Where the type checker does not look")),
    ("injections.md", ("Look whether a key begins in a certain way", "Its length", "Carry it out by printing")),
    ("conditional_imports.md", ("Imported in a branch",)),
    (
        "half_way.md",
        ("A helper of which nobody knows which one it is", "A helper that stands once", "A number, or text"),
    ),
    ("dangerous_looking.md", ("Code as text", "A function called `system`", "A secret in a list")),
)
_NEEDS_FILES = "request_file_system"


def chosen_cells() -> list[golden.Block]:
    found: list[golden.Block] = []
    wanted = {(name, heading) for name, headings in CHOSEN for heading in headings}
    for path, section in golden.all_sections():
        heading = section.name.partition(" / ")[2]
        if (path.name, heading) in wanted:
            wanted.remove((path.name, heading))
            # What reads a file that is not there is for other tests.
            found += [cell for cell in section.cells if golden.refuses(cell) or _NEEDS_FILES not in cell.text]
    assert not wanted, f"no such golden session: {wanted}"
    return found


def test_a_kernel_says_what_the_collector_sees(tmp_path: Path) -> None:
    cells = chosen_cells()
    refused = 0
    run = golden.Run(golden.new_session("standard"))
    with live_kernel(tmp_path) as kernel:
        for cell in cells:
            run.cell(cell)
            errors = [one for one in run.last if one.severity == "error"]
            ran = kernel.run(cell.text)
            raises = golden.raised_in(cell) is not None
            assert ran.ok == (not errors and not raises), (cell.text, ran.reply)
            assert not raises or not ran.codes, (cell.text, ran.reply)
            if errors:
                refused += 1
                assert ran.codes == [one.code for one in errors]
                assert ran.text == render_text(errors, run.sources)
    assert refused >= 25
    assert len(cells) - refused >= 20
