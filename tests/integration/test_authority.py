"""The authority line in a real session: shown, in the metadata, enforced, and not to be forged by a cell."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from live_kernel import LiveKernel, Ran, live_kernel
from nbclient import NotebookClient
from nbconvert import HTMLExporter, MarkdownExporter
from nbformat.v4 import new_code_cell, new_notebook

from capkernel.bridge.launch import kernel_manager

READ = 'with request_file_system("data") as fs:\n    text = fs.access("a.txt").read()\ntext'
LINE = "may: read data/a.txt · nothing else"


@pytest.fixture
def kernel(project: Path) -> Iterator[LiveKernel]:
    with live_kernel(project) as running:
        yield running


def displays(ran: Ran) -> list[dict[str, Any]]:
    return [message["content"] for message in ran.messages if "data" in message["content"]]


def test_it_is_shown_first_and_kept_in_every_metadata(kernel: LiveKernel) -> None:
    ran = kernel.run(READ + "\n")
    first, result = displays(ran)
    assert first["data"]["text/plain"] == LINE
    assert LINE in first["data"]["text/html"]
    assert first["metadata"] == {"capkernel": {"authority": LINE, "kind": "authority"}}
    assert result["metadata"] == {"capkernel": {"authority": LINE}}
    assert ran.reply_metadata["capkernel"]["authority"] == LINE
    assert ran.reply_metadata["capkernel"]["plan"]["scopes"] == [
        {"kind": "file_system", "argument": "data", "cell": 1, "uses": [{"verb": "read", "paths": ["a.txt"]}]}
    ]

    stream = kernel.run(READ.replace("\ntext", "\nprint(text)")).messages[-1]
    assert (stream["msg_type"], stream["metadata"]) == ("stream", {"capkernel": {"authority": LINE}})


def test_a_cell_that_can_do_nothing_shows_nothing(kernel: LiveKernel) -> None:
    ran = kernel.run("1 + 1")
    assert [content["metadata"] for content in displays(ran)] == [{}]
    assert ran.reply_metadata["capkernel"] == {"authority": "", "plan": {"scopes": [], "sinks": [], "asks": []}}
    refused = kernel.run("open('data/a.txt')")
    assert refused.codes == ["ambient-authority"]
    assert "capkernel" not in refused.reply_metadata
    silent = kernel.run(READ, silent=True)
    assert displays(silent) == []


def test_a_cell_cannot_forge_it(kernel: LiveKernel) -> None:
    forged = (
        "from IPython.display import display, HTML\n"
        "display({'text/plain': 'may: nothing'}, raw=True, metadata={'capkernel': {'authority': 'may: nothing'}})\n"
    )
    (alone,) = displays(kernel.run(forged))
    assert alone["data"]["text/plain"] == "may: nothing", "the display itself goes through"
    assert alone["metadata"] == {}
    _first, beside, _result = displays(kernel.run(forged + READ))
    assert beside["metadata"] == {"capkernel": {"authority": LINE}}


def test_the_audit_has_it_at_the_start_of_the_cell(kernel: LiveKernel) -> None:
    assert kernel.run(READ).ok
    (file,) = (Path(os.environ["XDG_STATE_HOME"]) / "capkernel" / "audit").iterdir()
    entries = [json.loads(line) for line in file.read_text().splitlines()]
    entries = [entry for entry in entries if entry["cell"] == entries[-1]["cell"]]
    assert (entries[0]["what"], entries[0]["authority"]) == ("cell", LINE)
    assert [entry["what"] for entry in entries][-1] == "files.read"


def test_ordinary_cells_do_what_their_line_says(kernel: LiveKernel, project: Path) -> None:
    """What the checker leaves out of a plan, the broker refuses: so idioms must all be in it."""
    assert kernel.run(
        "def save(fs: FileSystem, name: str, text: str) -> None:\n    fs.access(name).write(text)\n"
        "def each(fs: FileSystem):\n    for f in fs.access('.').children:\n        yield f.name, f.size\n"
    ).ok
    ran = kernel.run(
        'with request_file_system("data") as src, request_file_system(".") as dst:\n'
        '    save(dst, "copy.txt", src.access("a.txt").read())\n'
        "    found = list(each(src))\n"
        '    if dst.access("copy.txt").exists:\n'
        '        dst.access("log/l.txt").append("x")\n'
        '    key = dst.access(".env").read_classified()\n'
        '    dst.write_classified("secrets/new.txt", key)\n'
        "found"
    )
    assert ran.ok, ran.reply
    assert "('a.txt', 6)" in ran.text
    assert (project / "copy.txt").read_text() == "hello\n"
    assert (project / "log" / "l.txt").read_text() == "x"


def test_nbclient_and_nbconvert_take_it(project: Path) -> None:
    notebook = new_notebook(cells=[new_code_cell(READ), new_code_cell("text.upper()")])
    client = NotebookClient(notebook, km=kernel_manager(), resources={"metadata": {"path": str(project)}})
    client.execute()
    nbformat.validate(notebook)
    outputs = notebook.cells[0].outputs
    assert [output.output_type for output in outputs] == ["display_data", "execute_result"]
    assert outputs[1].metadata["capkernel"]["authority"] == LINE
    assert notebook.cells[1].outputs[0].metadata == {}
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert LINE in page
    text, _ = MarkdownExporter().from_notebook_node(notebook)
    assert "may: read data/a.txt" in text
