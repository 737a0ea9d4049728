"""What of a cell's output reaches a client, through a real worker and the firewall."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_kernel import Ran
from unchecked import UncheckedKernel, unchecked_kernel


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UncheckedKernel]:
    with unchecked_kernel(tmp_path_factory.mktemp("outputs"), "--output-bytes", "20000000") as started:
        yield started


def bundles(ran: Ran) -> list[dict[str, object]]:
    return [message["content"]["data"] for message in ran.messages if "data" in message["content"]]


def stderr(ran: Ran) -> str:
    return "".join(
        m["content"]["text"] for m in ran.messages if m["msg_type"] == "stream" and m["content"]["name"] == "stderr"
    )


def test_streams_keep_their_order(kernel: UncheckedKernel) -> None:
    ran = kernel.run("import sys\nfor i in range(3):\n    print(i); print('e', i, file=sys.stderr)")
    assert ran.stdout == "0\n1\n2\n"
    assert stderr(ran) == "e 0\ne 1\ne 2\n"


def test_progress_is_shown_while_the_cell_runs(kernel: UncheckedKernel) -> None:
    kernel.client.execute("print('early')\ninput('? ')", allow_stdin=True)
    while True:
        message = kernel.client.get_iopub_msg(timeout=5)
        if message["msg_type"] == "stream":
            assert message["content"]["text"] == "early\n"
            break
    assert kernel.client.get_stdin_msg(timeout=10)["content"]["prompt"] == "the cell asks: ? "  # it has not ended
    kernel.client.input("")
    kernel.client.get_shell_msg(timeout=10)


def test_a_traceback_names_the_cell_and_shows_its_line(kernel: UncheckedKernel) -> None:
    ran = kernel.run("def f():\n    return 1 / 0\nf()")
    count = ran.reply["execution_count"]
    text = "".join(ran.reply["traceback"])
    assert ran.reply["ename"] == "ZeroDivisionError"
    assert f"In[{count}]" in text
    assert "engine_info" not in ran.reply
    assert [m["content"]["ename"] for m in ran.messages if m["msg_type"] == "error"] == ["ZeroDivisionError"]


def test_a_frame_is_a_table_without_styles(kernel: UncheckedKernel) -> None:
    shown = bundles(kernel.run("import pandas as pd\npd.DataFrame({'a': [1]})"))[0]
    html = str(shown["text/html"])
    assert "<table" in html
    assert "<td>1</td>" in html
    assert "style" not in html
    assert "class" not in html


def test_a_plot_is_shown_at_the_end_of_the_cell(kernel: UncheckedKernel) -> None:
    ran = kernel.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nprint('after')")
    assert [m["msg_type"] for m in ran.messages if m["msg_type"] in ("stream", "display_data")] == [
        "stream",
        "display_data",
    ]
    assert str(bundles(ran)[-1]["image/png"]).startswith("iVBORw0KGgo")


ACTIVE = [
    ("HTML('<img src=x onerror=fetch(1)>ok')", ("<img", "onerror")),
    ("HTML('<script>alert(1)</script>ok')", ("<script", "alert")),
    ("HTML('<button data-commandlinker-command=\"kernelmenu:restart\">ok</button>')", ("commandlinker", "<button")),
    ("HTML('<a href=\"javascript:alert(1)\">ok</a>')", ("javascript", "href")),
    ("HTML('<iframe srcdoc=\"x\"></iframe>ok')", ("iframe", "srcdoc")),
    ("HTML('<form action=\"//h\"><input name=a></form>ok')", ("<form", "<input")),
    ('HTML(\'<b id="x" class="y" style="z" name="n">ok</b>\')', ("id=", "class=", "style=", "name=")),
]


@pytest.mark.parametrize(("code", "gone"), ACTIVE)
def test_active_html_is_disarmed(kernel: UncheckedKernel, code: str, gone: tuple[str, ...]) -> None:
    # First that the attack is one: IPython itself passes it on as it is.
    from IPython.core.formatters import DisplayFormatter
    from IPython.display import HTML

    plain, _ = DisplayFormatter().format(eval(code, {"HTML": HTML}))
    assert all(part in plain["text/html"] for part in gone)
    shown = bundles(kernel.run(f"from IPython.display import HTML\n{code}"))[0]
    html = str(shown.get("text/html", ""))
    assert "ok" in html
    assert not [part for part in gone if part in html]


@pytest.mark.parametrize(
    ("mime", "value"),
    [
        ("application/javascript", "'alert(1)'"),
        ("image/svg+xml", "'<svg onload=alert(1)>'"),
        ("application/vnd.jupyter.widget-view+json", "{'model_id': 'x', 'version_major': 2, 'version_minor': 0}"),
        ("application/vnd.capkernel.diagnostics+json", "{'version': 1, 'diagnostics': []}"),
        ("text/vnd.mermaid", "'graph'"),
        ("application/vnd.plotly.v1+json", "{}"),
        ("image/png", "'not base64 <script>'"),
        ("image/png", "'PHN2Zz4='"),
        ("text/latex", "r'\\href{javascript:alert(1)}{x}'"),
    ],
)
def test_other_kinds_do_not_pass_but_their_text_does(kernel: UncheckedKernel, mime: str, value: str) -> None:
    ran = kernel.run(
        f"from IPython.display import display\ndisplay({{'text/plain': 'T', {mime!r}: {value}}}, raw=True)"
    )
    assert ran.ok
    assert bundles(ran) == [{"text/plain": "T"}]


def test_plain_kinds_pass(kernel: UncheckedKernel) -> None:
    ran = kernel.run(
        "from IPython.display import display\n"
        "display({'text/plain': 'T', 'application/json': {'a': [1, None]}, 'text/latex': r'$\\frac{1}{2}$'}, raw=True)"
    )
    assert bundles(ran) == [{"text/plain": "T", "application/json": {"a": [1, None]}, "text/latex": r"$\frac{1}{2}$"}]


def test_markdown_is_shown_as_its_source(kernel: UncheckedKernel) -> None:
    assert bundles(kernel.run("from IPython.display import Markdown\nMarkdown('# hi <img src=x>')")) == [
        {"text/plain": "# hi <img src=x>"}
    ]


def test_display_ids_are_the_workers_own(kernel: UncheckedKernel) -> None:
    ran = kernel.run("from IPython.display import display\nh = display('a', display_id='mine')\nh.update('b')")
    kinds = [(m["msg_type"], m["content"]["transient"]) for m in ran.messages if "transient" in m["content"]]
    assert kinds == [
        ("display_data", {"display_id": "worker-mine"}),
        ("update_display_data", {"display_id": "worker-mine"}),
    ]


def test_clear_output_passes(kernel: UncheckedKernel) -> None:
    ran = kernel.run("from IPython.display import clear_output\nclear_output(wait=True)")
    assert [m["content"] for m in ran.messages if m["msg_type"] == "clear_output"] == [{"wait": True}]


def test_lone_surrogates_and_terminal_commands(kernel: UncheckedKernel) -> None:
    ran = kernel.run("print('a\\ud800b \\x1b[31mred\\x1b[0m \\x1b]0;title\\x07 \\x1b[2J.')")
    assert ran.ok
    assert "\x1b[31mred\x1b[0m" in ran.stdout
    assert "title" not in ran.stdout
    assert "\x1b[2J" not in ran.stdout
    failed = kernel.run("raise Exception(chr(0xd8ff))")
    assert failed.reply["ename"] == "Exception"
    assert kernel.run("1 + 1").text == "2"


def test_bytes_to_stdout_are_decoded_with_replacement(kernel: UncheckedKernel) -> None:
    ran = kernel.run("import sys\nsys.stdout.buffer.write(b'caf\\xc3\\xa9 \\xff.')")
    assert "café \ufffd." in ran.stdout


def test_what_c_code_prints_arrives(kernel: UncheckedKernel) -> None:
    ran = kernel.run("import ctypes\n_ = ctypes.CDLL(None).puts(b'from C')")
    assert "from C" in ran.stdout


def test_a_long_line_is_whole(kernel: UncheckedKernel) -> None:
    ran = kernel.run("print('x' * 10_000_000)")
    assert len(ran.stdout) == 10_000_001


def test_a_thread_prints_into_the_latest_cell(kernel: UncheckedKernel) -> None:
    kernel.run(
        "import threading\ngo, done = threading.Event(), threading.Event()\n"
        "def late():\n    go.wait()\n    print('late')\n    done.set()\n"
        "threading.Thread(target=late).start()"
    )
    ran = kernel.run("go.set()\nif not done.wait(30): raise TimeoutError")
    assert ran.stdout == "late\n"


def test_deep_and_odd_outputs_do_not_end_the_worker(kernel: UncheckedKernel) -> None:
    ran = kernel.run(
        "from IPython.display import display\n"
        "deep = []\nfor _ in range(3000): deep = [deep]\n"
        "try:\n    display({'text/plain': 'T', 'application/json': deep}, raw=True)\nexcept RecursionError:\n    pass\n"
        "display({'text/plain': 'T', 'application/json': {'x': float('nan'), 'y': 10**30}}, raw=True)"
    )
    assert ran.reply["status"] in ("ok", "error")
    assert kernel.run("1 + 1").text == "2"


def test_output_is_cut_at_the_limit(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path, "--output-bytes", "100000") as kernel:
        ran = kernel.run("for i in range(100_000): print('OK', i)")
        assert ran.ok
        assert 90_000 < len(ran.stdout) <= 100_000
        assert stderr(ran).count("output cut: more than 100,000 bytes") == 1
        assert kernel.run("print('next')").stdout == "next\n"
        shown = kernel.run("from IPython.display import display\nfor i in range(2000): display(i)")
        assert len(bundles(shown)) <= 100_000 / 256


def test_an_output_too_big_for_the_link_is_said_not_deadly(kernel: UncheckedKernel) -> None:
    kernel.run("mark = 1")
    ran = kernel.run("from IPython.display import display\ndisplay({'text/plain': 'x' * 17_000_000}, raw=True)")
    assert ran.ok
    assert "not shown" in stderr(ran)
    failed = kernel.run("raise ValueError('x' * 17_000_000)")
    assert failed.reply["status"] == "error"
    assert kernel.run("mark").text == "1"


def published(code: str) -> str:
    """A cell that sends messages of its own making, past IPython, as code that took the worker over can."""
    return f"from capkernel.wire.worker import Published\nchannel = get_ipython().kernel.channel\n{code}"


def test_nothing_of_the_worker_gets_into_a_cell_that_is_judged_or_was_refused(kernel: UncheckedKernel) -> None:
    flood = published(
        "import threading, time\n"
        "stop = []\n"
        "def flood(request):\n"
        "    while not stop:\n"
        "        for ahead in range(-1, 3):\n"
        "            channel.send(Published(request + ahead, 'stream', {'name': 'stdout', 'text': 'FORGED'}))\n"
        "            channel.send(Published(request + ahead, 'clear_output', {'wait': False}))\n"
        "        time.sleep(0.001)\n"
        "request = int(get_ipython().kernel.get_parent()['header']['msg_id'])\n"
        "threading.Thread(target=flood, args=(request + 1,), daemon=True).start()\n"
    )
    assert kernel.run(flood).ok
    refused = kernel.run("REFUSE  # SLOWLY")
    accepted = kernel.run("import time; time.sleep(0.2); stop.append(1)")
    # The flood is real: the cell that the worker has in hand gets it.
    assert "FORGED" in accepted.stdout
    assert refused.codes == ["unsafe-feature"]
    assert [m["msg_type"] for m in refused.messages if m["msg_type"] not in ("status", "execute_input")] == [
        "display_data",
        "error",
    ]


def test_an_exception_named_as_a_refusal_is_not_one(kernel: UncheckedKernel) -> None:
    ran = kernel.run("class CellRefused(Exception): pass\nraise CellRefused('nothing ran')")
    assert ran.reply["ename"] == "cell.CellRefused"
    assert [m["content"]["ename"] for m in ran.messages if m["msg_type"] == "error"] == ["cell.CellRefused"]
    assert kernel.run("REFUSE").reply["ename"] == "CellRefused"


def test_payloads_that_act_on_the_front_end_do_not_pass(kernel: UncheckedKernel) -> None:
    ran = kernel.run(
        "p = get_ipython().payload_manager\n"
        "for source in ('set_next_input', 'edit_magic', 'ask_exit', 'load'):\n"
        "    p.write_payload({'source': source, 'text': 'x', 'replace': True, 'keepkernel': False}, single=False)\n"
        "data = {'text/html': '<script>x</script>', 'text/plain': 'P'}\n"
        "p.write_payload({'source': 'page', 'start': 0, 'data': data}, single=False)\n"
    )
    assert ran.reply["payload"] == [{"source": "page", "data": {"text/plain": "P"}, "start": 0}]


def test_comms_pass_in_neither_direction(kernel: UncheckedKernel) -> None:
    ran = kernel.run(
        "from ipykernel.comm import Comm\n"
        "got = []\n"
        "comm = Comm(target_name='t', data={'a': 1}, comm_id='known')\n"
        "comm.on_msg(got.append)\n"
        "comm.send({'b': 2})\n"
        "def target(comm, message): got.append(message)\n"
        "get_ipython().kernel.comm_manager.register_target('t', target)\n"
    )
    assert ran.ok, ran.everything
    assert not [m for m in ran.messages if m["msg_type"].startswith("comm")]
    client = kernel.client
    for kind, content in (
        ("comm_open", {"comm_id": "c", "target_name": "t", "data": {}}),
        ("comm_msg", {"comm_id": "known", "data": {"x": 1}}),
        ("comm_close", {"comm_id": "known", "data": {}}),
    ):
        client.shell_channel.send(client.session.msg(kind, content))
    assert kernel.run("got").text == "[]"
    request = client.session.msg("comm_info_request", {"target_name": "t"})
    client.shell_channel.send(request)
    reply = client.get_shell_msg(timeout=10)
    assert reply["parent_header"]["msg_id"] == request["header"]["msg_id"]
    assert reply["content"] == {"status": "ok", "comms": {}}


def test_many_prints_are_few_messages(kernel: UncheckedKernel) -> None:
    ran = kernel.run("for i in range(20_000): print(i)")
    assert ran.stdout == "".join(f"{i}\n" for i in range(20_000))
    assert sum(m["msg_type"] == "stream" for m in ran.messages) < 200


def test_a_flood_of_clearings_is_bounded_and_the_kernel_answers(tmp_path: Path) -> None:
    with unchecked_kernel(tmp_path, "--output-bytes", "100000") as kernel:
        ran = kernel.run("from IPython.display import clear_output\nfor i in range(20_000): clear_output(wait=True)")
        assert ran.ok
        assert sum(m["msg_type"] == "clear_output" for m in ran.messages) <= 100_000 / 256
        assert "output cut" in stderr(ran)
        assert kernel.run("print('next')").stdout == "next\n"


def test_a_progress_bar_returns_to_the_start_of_its_line(kernel: UncheckedKernel) -> None:
    ran = kernel.run("import sys\nfor i in range(3): print(f'\\r{i}0% |##\\b\\b', end='', file=sys.stderr)")
    assert stderr(ran) == "\r00% |##\b\b\r10% |##\b\b\r20% |##\b\b"
