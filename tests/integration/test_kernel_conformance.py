"""The standard kernel suite, and what it leaves out, over the front and a locked worker."""

# ruff: noqa: RUF012  (the suite reads these class attributes)
from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import jupyter_kernel_test
from unchecked import install_spec


class TestConformance(jupyter_kernel_test.KernelTests):
    kernel_name = "unchecked"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples = ["import = 7q"]
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result = [
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
        {"code": "import asyncio\nawait asyncio.sleep(0.01)\n7", "result": "7"},
    ]
    code_display_data = [
        {"code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))", "mime": "text/html"},
        {"code": "import matplotlib.pyplot as plt\nplt.plot([1]);", "mime": "image/png"},
        {"code": "%matplotlib inline\nplt.plot([1]);", "mime": "image/png"},
    ]
    code_clear_output = "from IPython.display import clear_output; clear_output()"
    code_inspect_sample = "zip"
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")

    @classmethod
    def setUpClass(cls) -> None:
        cls._jupyter = tempfile.TemporaryDirectory()
        cls._before = os.environ.get("JUPYTER_PATH")
        os.environ["JUPYTER_PATH"] = cls._jupyter.name
        install_spec(Path(cls._jupyter.name))
        super().setUpClass()

    @classmethod
    def tearDownClass(cls) -> None:
        super().tearDownClass()
        if cls._before is None:
            del os.environ["JUPYTER_PATH"]
        else:
            os.environ["JUPYTER_PATH"] = cls._before
        cls._jupyter.cleanup()

    def test_kernel_info_promises_nothing_more(self) -> None:
        self.flush_channels()
        self.kc.kernel_info()
        info = self.kc.get_shell_msg(timeout=10)["content"]
        assert info["supported_features"] == []
        assert info["debugger"] is False
        assert info["implementation"] == "capkernel"

    def test_requests_we_do_not_have_are_refused(self) -> None:
        for kind in ("debug_request", "create_subshell_request", "list_subshell_request", "usage_request"):
            message = self.kc.session.msg(kind, {"type": "request", "command": "attach", "seq": 1, "arguments": {}})
            self.kc.control_channel.send(message)
            reply = self.kc.get_control_msg(timeout=10)
            assert reply["msg_type"] == kind.replace("request", "reply")
            assert reply["content"]["status"] == "error", kind

    def test_comms_are_empty_and_silent(self) -> None:
        self.flush_channels()
        self.kc.shell_channel.send(self.kc.session.msg("comm_open", {"comm_id": "x", "target_name": "t", "data": {}}))
        self.kc.comm_info()
        reply: dict[str, Any] = self.kc.get_shell_msg(timeout=10)
        assert reply["content"] == {"status": "ok", "comms": {}}

    def test_user_expressions_are_checked_and_evaluated(self) -> None:
        self.flush_channels()
        self.kc.execute("two = 2", user_expressions={"a": "two + 1", "b": "REFUSE", "c": "two = 3"})
        reply = self.get_non_kernel_info_reply(timeout=10)["content"]
        found = reply["user_expressions"]
        assert found["a"]["data"] == {"text/plain": "3"}
        assert found["b"]["ename"] == "CellRefused"
        assert found["c"]["ename"] == "NotEvaluated"

    def test_silent_cells_count_nothing(self) -> None:
        self.flush_channels()
        before = self.execute_helper("1")[0]["content"]["execution_count"]
        self.kc.execute("quiet = 5", silent=True)
        self.get_non_kernel_info_reply(timeout=10)
        self.kc.execute("quiet + 1", store_history=False)
        self.get_non_kernel_info_reply(timeout=10)
        self.flush_channels()
        reply, outputs = self.execute_helper("quiet")
        assert reply["content"]["execution_count"] == before + 1
        assert outputs[0]["content"]["data"]["text/plain"] == "5"
        assert outputs[0]["content"]["execution_count"] == before + 1


del jupyter_kernel_test.KernelTests.test_history  # replaced below: ours has no sessions of other days


def _test_history(self: Any) -> None:
    self.flush_channels()
    for code in ("12", "1 + 2"):
        self.execute_helper(code)
    for options in (
        {"hist_access_type": "tail", "n": 2},
        {"hist_access_type": "range", "session": 0, "start": 1, "stop": 9999},
        {"hist_access_type": "search", "pattern": "1*2", "unique": True},
    ):
        self.kc.history(raw=True, output=False, **options)
        found = [entry[2] for entry in self.kc.get_shell_msg(timeout=10)["content"]["history"]]
        assert "1 + 2" in found, options
        assert "no such cell" not in found


TestConformance.test_history = _test_history  # type: ignore[method-assign]
