"""What people do in notebooks every day and no other test looks at, with the checker on."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_kernel import LiveKernel, Ran, live_kernel


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    with live_kernel(tmp_path_factory.mktemp("everyday")) as started:
        yield started


def stderr(ran: Ran) -> str:
    return "".join(
        m["content"]["text"] for m in ran.messages if m["msg_type"] == "stream" and m["content"]["name"] == "stderr"
    )


def answer(kernel: LiveKernel, request: str) -> dict[str, Any]:
    while True:
        message = kernel.client.get_shell_msg(timeout=60)
        if message["parent_header"].get("msg_id") == request:
            content: dict[str, Any] = message["content"]
            return content


@pytest.mark.parametrize("module", ["tqdm", "tqdm.auto", "tqdm.notebook"])
def test_tqdm_shows_its_bar(kernel: LiveKernel, module: str) -> None:
    code = f"from {module} import tqdm\nfor each in tqdm(range(3)):\n    pass"
    for _ in range(2):  # a second run begins anew
        ran = kernel.run(code)
        assert ran.ok, ran.everything
        shown = stderr(ran)
        assert "\r" in shown
        assert "3/3" in shown
        assert "\x1b[A" not in shown


def test_warnings_of_python_arrive(kernel: LiveKernel) -> None:
    ran = kernel.run("import warnings\nwarnings.warn('mind the gap')")
    assert ran.ok, ran.everything
    assert "UserWarning: mind the gap" in stderr(ran)


@pytest.mark.parametrize(
    ("magic", "shown"),
    [
        ("%who", "kept_name"),
        ("%whos", "kept_name"),
        ("%who_ls", "kept_name"),
        ("%lsmagic", "%timeit"),
        ("%xmode Plain", "Plain"),
        ("%precision 3", "'%.3f'"),
        ("%time kept_name", "Wall time"),
        ("%timeit -n 1 -r 1 kept_name", "per loop"),
        ("%%time\nkept_name", "Wall time"),
        ("%matplotlib inline", ""),
        ("%config InlineBackend.figure_format = 'png'", ""),
    ],
)
def test_magics_that_are_allowed(kernel: LiveKernel, magic: str, shown: str) -> None:
    kernel.run("kept_name = 5")
    ran = kernel.run(magic)
    assert ran.ok, ran.everything
    assert shown in ran.stdout + ran.text


@pytest.mark.parametrize(
    "magic", ["%load_ext x", "%run x.py", "!ls", "%%bash\nls", "%env", "%cd ..", "%history", "%reset -f out"]
)
def test_magics_that_are_not(kernel: LiveKernel, magic: str) -> None:
    assert kernel.run(magic).codes == ["unsafe-magic"]


def test_a_task_prints_into_the_cell_that_started_it(kernel: LiveKernel) -> None:
    code = (
        "import asyncio\n"
        "go = asyncio.Event()\n"
        "async def later() -> None:\n"
        "    await go.wait()\n"
        "    print('from the task')\n"
        "task = asyncio.create_task(later())"
    )
    first = kernel.client.execute(code)
    assert answer(kernel, first)["status"] == "ok"
    second = kernel.client.execute("go.set()\nawait task\nprint('from the cell')")
    assert answer(kernel, second)["status"] == "ok"
    kernel.client.execute("1")
    texts: dict[str, str] = {}
    done = False
    while not done:
        message = kernel.client.get_iopub_msg(timeout=60)
        parent = message["parent_header"].get("msg_id", "")
        if message["msg_type"] == "stream":
            texts[parent] = texts.get(parent, "") + message["content"]["text"]
        done = message["msg_type"] == "execute_input" and message["content"]["code"] == "1"
    assert texts[first] == "from the task\n"
    assert texts[second] == "from the cell\n"
    kernel.run("2")


def test_a_display_is_updated_by_a_later_cell(kernel: LiveKernel) -> None:
    assert kernel.run("from IPython.display import display\nhandle = display('a', display_id=True)").ok
    ran = kernel.run("handle.update('b')")
    (update,) = [m["content"] for m in ran.messages if m["msg_type"] == "update_display_data"]
    assert update["data"]["text/plain"] == "'b'"
    assert update["transient"]["display_id"].startswith("worker-")


def test_an_image_formula_and_table(kernel: LiveKernel) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    png = (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
        + chunk(b"IEND", b"")
    )
    given = base64.b64encode(png).decode()
    ran = kernel.run(f"import base64\nfrom IPython.display import Image\nImage(base64.b64decode({given!r}))")
    assert ran.ok, ran.everything
    (shown,) = [m["content"]["data"] for m in ran.messages if m["msg_type"] == "execute_result"]
    assert "image/png" in shown
    ran = kernel.run("from IPython.display import Math\nMath(r'\\frac{1}{2}')")
    assert any("text/latex" in m["content"].get("data", {}) for m in ran.messages)
    ran = kernel.run("import pandas as pd\npd.DataFrame({'price': [1, 2]})")
    assert any("<table" in m["content"].get("data", {}).get("text/html", "") for m in ran.messages)


def test_history_is_searched_and_holds_no_secret(kernel: LiveKernel, project: Path) -> None:
    assert kernel.run("needle_in_the_hay = classify('xyz' + 'zy').map(str.upper)\nneedle_in_the_hay").ok
    found = answer(
        kernel, kernel.client.history(hist_access_type="search", pattern="*needle_in*", raw=True, output=True)
    )
    assert len(found["history"]) == 1
    assert "XYZZY" not in repr(found)
    assert answer(kernel, kernel.client.history(hist_access_type="search", pattern="*no such*"))["history"] == []


def test_the_default_limit_of_output_is_ten_mebibytes(kernel: LiveKernel) -> None:
    ran = kernel.run("for i in range(11):\n    print('x' * 1_048_575)")
    assert ran.ok
    assert 10_400_000 < len(ran.stdout) <= 10_485_760  # its other messages count, too
    assert "output cut: more than 10,485,760 bytes" in stderr(ran)
    assert kernel.run("print('next')").stdout == "next\n"


def test_awaiting_is_how_a_cell_waits(kernel: LiveKernel) -> None:
    assert kernel.run("import asyncio\nasync def three() -> int:\n    await asyncio.sleep(0)\n    return 3").ok
    assert kernel.run("await three() + 1").text == "4"
    both = kernel.run("await asyncio.gather(three(), three())")
    assert both.text == "[3, 3]"


def test_exit_ends_nothing(kernel: LiveKernel) -> None:
    assert kernel.run("exit()").codes == ["unsafe-feature"]
    assert kernel.run("raise SystemExit(3)").reply["status"] in ("ok", "error")
    assert kernel.run("1 + 1").text == "2"


def test_a_traceback_ends_at_the_cell(kernel: LiveKernel) -> None:
    ran = kernel.run("with request_file_system('.') as fs:\n    fs.access('missing.txt').read()")
    assert ran.reply["ename"] == "FileNotFoundError"
    shown = "\n".join(ran.reply["traceback"])
    assert "missing.txt" in shown
    assert "capkernel" not in shown, "how a cell asks is nobody's mistake"
    ran = kernel.run("def own() -> None:\n    raise ValueError('mine')\nown()")
    assert "in own" in re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(ran.reply["traceback"]))
