"""The real session: checker, broker, vault and worker together, and what happens when one of them dies."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_kernel import LiveKernel, live_kernel
from unchecked import unchecked_kernel

from capkernel.kernel import font_cache


@pytest.fixture
def kernel(project: Path) -> Iterator[LiveKernel]:
    with live_kernel(project) as started:
        yield started


def test_a_session(kernel: LiveKernel) -> None:
    assert kernel.run("x = 20\nx + 1").text == "21"
    assert kernel.run("import os\nos.system('ls')").codes == ["ambient-authority"]
    assert kernel.run("with request_file_system('data') as fs:\n    text = fs.access('a.txt').read()").ok
    assert kernel.run("text").text == "'hello\\n'"
    ran = kernel.run(
        "with request_file_system('.') as fs:\n"
        "    secret = fs.read_classified('.env').map(str.strip)\n    print(secret)"
    )
    assert "***" in ran.stdout, ran.everything
    assert "NAME=shop" not in ran.everything


def test_help_is_looked_up_not_run(kernel: LiveKernel) -> None:
    page = kernel.run("zip?").reply["payload"][0]
    assert page["source"] == "page"
    assert "iterables" in page["data"]["text/plain"]
    assert page["data"].keys() == {"text/plain"}
    assert kernel.run("no_such_name?").reply["ename"] == "HelpNotFound"
    kernel.run("class C:\n    @property\n    def p(self) -> int:\n        print('ran')\n        return 1\nc = C()")
    ran = kernel.run("c.p?")
    assert ran.stdout == ""
    assert "Property" in ran.everything
    assert kernel.run("zip?\n1").codes == ["unsafe-magic"]


def answer(kernel: LiveKernel, request: str) -> dict[str, Any]:
    """The content of the reply to a request on the shell channel."""
    while True:
        message = kernel.client.get_shell_msg(timeout=60)
        if message["parent_header"].get("msg_id") == request:
            content: dict[str, Any] = message["content"]
            return content


def test_completion_by_type_then_columns_and_keys(kernel: LiveKernel) -> None:
    def offered(code: str) -> list[str]:
        """Each as the whole text would be with it."""
        content = answer(kernel, kernel.client.complete(code, len(code)))
        return [code[: content["cursor_start"]] + match + code[content["cursor_end"] :] for match in content["matches"]]

    assert kernel.run("import pandas as pd\ndf = pd.DataFrame({'price': [1]})\nbox = {'colour': 1}").ok
    assert offered("df.groupb") == ["df.groupby"]
    assert "df.price" in offered("df.pri")  # a column: only the frame knows it
    assert any("price" in text for text in offered("df['pri"))
    assert any("colour" in text for text in offered("box['col"))
    assert offered("later = 'a'\nlater.splitl") == ["later = 'a'\nlater.splitlines"]  # it has not run
    assert offered("print(f'{df.pri") == ["print(f'{df.price"]
    assert offered("df.groupby('pri") == ["df.groupby('price"]
    assert offered("df[['pri") == ["df[['price"]
    assert offered("%time df.groupb") == ["%time df.groupby"]
    assert "import pandas" in offered("import pand")
    assert offered("setat") == []  # refused
    assert offered("box.__cla") == []  # a cell could not say it
    assert offered("%lsm") == ["%lsmagic"]
    assert offered("%writef") == []  # refused


def test_help_says_whether_a_capability_is_live(kernel: LiveKernel) -> None:
    def said(code: str, cursor: int) -> str:
        content = answer(kernel, kernel.client.inspect(code, cursor))
        return str(content["data"].get("text/plain", ""))

    code = "with request_file_system('data') as fs:\n    f = fs.access('a.txt')"
    assert kernel.run("1").ok  # the session is ready
    assert "live: granted by the block that begins on line 1" in said(code, code.index("fs:"))
    assert kernel.run(code).ok
    page = kernel.run("fs?").reply["payload"][0]["data"]["text/plain"]
    assert "Capability: dead: the block of cell 2 that granted it has ended" in page
    assert kernel.run("key = classify('xyzzy')").ok
    page = kernel.run("key?").reply["payload"][0]["data"]["text/plain"]
    assert page.startswith("Type: Classified[str]\nLabel: classified")
    assert "xyzzy" not in page
    page = said("'a'.splitlines", 8)
    assert "splitlines(keepends: bool = ...) -> list[str]" in page
    assert "Return a list of the lines" in page  # its docstring


def test_names_reach_the_checker(kernel: LiveKernel) -> None:
    assert kernel.run("a = 1\nraise ValueError('stop')\nb = 2").reply["ename"] == "ValueError"
    assert kernel.run("a").text == "1"
    assert kernel.run("b").codes == ["unbound-name"]
    assert kernel.run("del a").ok
    assert kernel.run("a").codes == ["unbound-name"]
    assert kernel.run("if x9 := 5:\n    y9 = x9").ok
    assert kernel.run("y9").text == "5"


def test_a_dead_checker_costs_no_names(kernel: LiveKernel) -> None:
    assert kernel.run("kept = 41").ok
    kernel.process("capkernel.checker.main").kill()
    for _ in range(2):  # the first question may be the one that finds it dead: refused, never unchecked
        ran = kernel.run("kept + 1")
        if ran.ok:
            break
        assert ran.codes == ["checker-unavailable"]
    assert ran.text == "42"
    assert kernel.run("undefined_name").codes == ["unbound-name"]


def test_a_dead_worker_resets_the_checker_too(kernel: LiveKernel) -> None:
    assert kernel.run("gone = 1").ok
    kernel.process("capkernel.worker.main").kill()
    ran = kernel.run("gone")
    if not ran.codes:  # this one found it dead
        assert ran.reply["ename"] == "WorkerDied"
        ran = kernel.run("gone")
    assert ran.codes == ["unbound-name"]
    assert kernel.run("1 + 1").text == "2"


@pytest.mark.parametrize("part", ["capkernel.vault.keeper_main", "capkernel.vault.runner_main"])
def test_a_dead_vault_is_replaced(kernel: LiveKernel, part: str) -> None:
    assert kernel.run("before = classify('x')").ok
    kernel.process(part).kill()
    time.sleep(1.0)
    ran = kernel.run("after = classify('y').map(str.upper)\nprint(after)")
    assert ran.ok, ran.everything
    assert "***" in ran.stdout


def test_completion_and_inspection_run_no_code_of_the_user(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        kernel.run(
            "ran = []\n"
            "class Loud:\n"
            "    @property\n    def prop(self): ran.append('property')\n"
            "    def __dir__(self): ran.append('dir'); return ['one']\n"
            "    def __getattr__(self, name): ran.append(name); raise AttributeError(name)\n"
            "    def __repr__(self): ran.append('repr'); return 'x'\n"
            "    def __len__(self): ran.append('len'); return 1\n"
            "    def __iter__(self): ran.append('iter'); return iter([])\n"
            "    def __call__(self): ran.append('call')\n"
            "    def _repr_mimebundle_(self, *a, **k): ran.append('bundle'); return {}\n"
            "    def _ipython_key_completions_(self): ran.append('keys'); return ['k']\n"
            "    def __getitem__(self, key): ran.append('item'); return 1\n"
            "loud = Loud()\nbox = {'k': loud}\n"
        )
        for code in (
            "loud.",
            "loud.prop.",
            "loud['",
            "loud()",
            "loud().x",
            "box['k'].",
            "box['",
            "Loud().",
            "loud(",
            "loud.prop(",
            "box['k'](",
            "Loud.pr",
            "loud.",
        ):
            kernel.client.complete(code, len(code))
            assert kernel.client.get_shell_msg(timeout=10)["content"]["status"] == "ok"
        for code in ("loud", "loud.prop", "Loud", "loud.missing", "box['k']"):
            kernel.client.inspect(code, len(code), detail_level=1)
            assert kernel.client.get_shell_msg(timeout=10)["content"]["status"] == "ok"
        assert kernel.run("ran").text == "[]"


def test_help_shows_signature_and_text(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        kernel.run("def area(width: float) -> float:\n    'The area of a square.'\n    return width")
        kernel.client.inspect("area", 4)
        text = kernel.client.get_shell_msg(timeout=10)["content"]["data"]["text/plain"]
        assert "width: float" in text
        assert "The area of a square." in text
        kernel.client.inspect("request_file_system", 5)
        assert "with" in kernel.client.get_shell_msg(timeout=10)["content"]["data"]["text/plain"]
        kernel.client.complete("request_f", 9)
        assert "request_file_system" in kernel.client.get_shell_msg(timeout=10)["content"]["matches"]


def test_completion_while_a_cell_runs_is_empty_not_late(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        kernel.run("import time")
        kernel.client.execute("time.sleep(0.5)")
        kernel.client.complete("zi", 2)
        kinds = [kernel.client.get_shell_msg(timeout=10)["msg_type"] for _ in range(2)]
        assert kinds == ["execute_reply", "complete_reply"]  # one channel, in order, as every kernel


def test_no_future_of_a_cell_changes_what_later_cells_mean(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        kernel.run("from __future__ import barry_as_FLUFL")
        assert kernel.run("1 != 2").text == "True"


def test_the_font_list_is_built_by_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert font_cache.missing()
    font_cache.build()
    [made] = font_cache.directory().iterdir()
    assert made.name.startswith("fontlist-")
    assert not font_cache.missing()
    given = tmp_path / "given"
    given.mkdir()
    font_cache.provide(given)
    assert [entry.name for entry in given.iterdir()] == [made.name]


def test_a_cell_learns_no_path_from_the_arguments(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path) as kernel:
        assert kernel.run("import sys; sys.argv").text == "['capkernel']"
