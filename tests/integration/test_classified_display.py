"""A displayed Classified on the wire: two sessions with different secrets, of which one makes a value fail, say the
same to the byte; and what a notebook keeps of it is good where no card can be drawn."""

from __future__ import annotations

import json
import time
from pathlib import Path

import nbformat
import pytest
from leaks import leaked, normal
from live_kernel import LiveKernel, Ran, live_kernel

from capkernel.kernel.classified_bundle import MIME_TYPE

SECRETS = ("41", "canary-of-no-number-" + "z" * 40)  # `int` fails for the second
MAKE = """import pandas as pd
with request_file_system('.') as fs:
    s = fs.read_classified('secrets/a.txt')
n = s.map(lambda t: int(t))
d = s.map(lambda t: {letter: [letter] for letter in t})
f = s.map(lambda t: pd.DataFrame({'c': list(t)}))
b = s.map(lambda t: t.encode())
"""
WAIT = "with request_file_system('.') as fs:\n    fs.write_classified('secrets/copy.txt', b.map(lambda x: x.decode()))"
CELLS = ["s", "n", "d", "f", "b", "n.zip(s)", "display(n, s)", "[n, {'k': s}]", "h = display(n, display_id='q')",
         "h.update(f)", "print(n, s)", "classify({'a': 1}, label='mine')", "s.map(str.strip).map(len)",
         "print(repr(n)); n"]  # fmt: skip


def shown(kernel: LiveKernel, project: Path, secret: str) -> list[Ran]:
    made = [kernel.run(MAKE), kernel.run(WAIT)]
    assert all(ran.ok for ran in made), [ran.reply for ran in made]
    copy = project / "secrets" / "copy.txt"
    end = time.monotonic() + 60
    while not (copy.exists() and copy.read_text() == secret):  # the values before it are there, or have failed
        assert time.monotonic() < end, "the vault did not write the file"
        time.sleep(0.05)
    return [*made, *(kernel.run(cell) for cell in CELLS)]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[list[Ran]]:
    """What every cell put out, with each of the secrets."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        for secret in SECRETS:
            project = tmp_path_factory.mktemp("project")
            (project / "secrets").mkdir()
            (project / "secrets" / "a.txt").write_text(secret)
            with live_kernel(project) as kernel:
                found.append(shown(kernel, project, secret))
    return found


def said(ran: Ran) -> list[str]:
    """All of it but what a first start says of its caches."""
    heard = [message for message in ran.messages if message["content"].get("name") != "stderr"]
    return [normal({"reply": ran.reply, "metadata": ran.reply_metadata.get("capkernel")}), *(
        normal({key: message[key] for key in ("msg_type", "content", "metadata", "buffers")}) for message in heard
    )]  # fmt: skip


def test_iopub_and_replies_are_the_same_bytes_for_other_secrets_and_for_poison(two: list[list[Ran]]) -> None:
    first, second = two
    for one, other in zip(first, second, strict=True):
        assert one.ok, one.everything
        assert said(one) == said(other)
    assert not leaked(SECRETS[1], "".join(ran.everything for ran in second))


def test_every_way_to_display_one_gives_the_card(two: list[list[Ran]]) -> None:
    bundles = [
        [message["content"]["data"][MIME_TYPE]["type"] for message in ran.messages
         if MIME_TYPE in message["content"].get("data", {})]
        for ran in two[1][2:]
    ]  # fmt: skip
    assert bundles == [
        ["str"], ["int"], ["dict[str, list[str]]"], ["DataFrame"], ["bytes"], ["tuple[int, str]"], ["int", "str"], [],
        ["int"], ["DataFrame"], [], ["dict[str, int]"], ["int"], ["int"],
    ]  # fmt: skip
    listed = two[1][2 + CELLS.index("[n, {'k': s}]")]
    assert listed.text == "[Classified[int](***), {'k': Classified[str](***)}]", "inside a container the mask alone"


def test_exports_show_the_mask_and_what_to_do(two: list[list[Ran]]) -> None:
    from nbconvert import HTMLExporter, MarkdownExporter

    outputs = [
        nbformat.v4.output_from_msg({**message, "header": {"msg_type": message["msg_type"]}})
        for ran in two[1][2:4]
        for message in ran.messages
        if message["msg_type"] == "execute_result"
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("s", outputs=outputs)])
    assert nbformat.validate(book) is None
    for exporter in (HTMLExporter(), MarkdownExporter()):
        text, _ = exporter.from_notebook_node(book)
        assert "<code>Classified[str](***)</code>" in text
        assert "capkernel view" in text
    assert json.loads(json.dumps(outputs[0]["data"]))["text/plain"] == "Classified[str](***)"
