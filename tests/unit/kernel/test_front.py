"""The small parts of the front: cell texts, history, the clean start, the runtime directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from IPython.core import inputtransformer2
from jupyter_client.session import msg_header

from capkernel.kernel import runtime_dir
from capkernel.kernel.__main__ import clean_environment, configured_places
from capkernel.kernel.cell_text import CellRefused, CellTexts, help_wanted
from capkernel.kernel.kernel import _is_plain
from capkernel.kernel.records import History

TEXTS = CellTexts()


@pytest.mark.parametrize(
    ("header", "plain"),
    [
        (msg_header("1", "execute_request", "person", "s"), True),
        ({"msg_id": "1", "subshell_id": None}, True),
        ({"msg_id": "1", "username": "Zoë"}, False),  # slower, and works
        ({"msg_id": "1", "username": "\ud800"}, False),  # no message can have such a parent
        ({"msg_id": "1", "\ud800": "x"}, False),
        ({"msg_id": "1", "date": float("nan")}, False),
        ({"msg_id": "1", "more": {"deep": "\ud800"}}, False),
    ],
)
def test_plain_headers(header: dict[str, Any], plain: bool) -> None:
    assert _is_plain(header) is plain


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("x = 1", "x = 1\n"),
        ("", "\n"),
        (">>> x = 1\n... y = 2", "x = 1\ny = 2\n"),
        ("In [3]: x = 1", "x = 1\n"),
        ("    x = 1\n    y = 2", "x = 1\ny = 2\n"),
        ("%matplotlib inline", "get_ipython().run_line_magic('matplotlib', 'inline')\n"),
        ("!ls", "get_ipython().system('ls')\n"),
        ("x = (", "x = (\n"),
    ],
)
def test_one_text(raw: str, text: str) -> None:
    assert TEXTS.checked_text(raw, 1) == text


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (">>> >>> x", "unstable-text"),
        ("In [1]: In [2]: x", "unstable-text"),
        ("x = '\ud800'", "syntax"),
        ("x = 1\0", "syntax"),
        ("x" * 300_000, "too-much-work"),
        # The transformer reads the whole cell again for each of these lines.
        ("!a\n" * 40_000, "too-much-work"),
        ("a = %b\n" * 30_000, "too-much-work"),
        ("a.b?\n" * 30_000, "too-much-work"),
        (";\n" * 100_000, "too-much-work"),
        ("!a\n" * 501, "too-much-work"),  # more passes than it makes, however short they are
    ],
)
def test_refused_texts(raw: str, code: str) -> None:
    with pytest.raises(CellRefused) as caught:
        TEXTS.checked_text(raw, 4)
    assert caught.value.diagnostic.code == code
    assert caught.value.diagnostic.cell == 4


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("zip?", ("zip", 0)),
        ("?zip", ("zip", 0)),
        ("a.b.c??", ("a.b.c", 1)),
        ("zip?\nx", None),
        ("x = zip?", ("zip", 0)),  # as IPython reads it
        ("*a*?", None),
        ("f()?", None),
        ("%time?", None),
        ("get_ipython().run_line_magic('pinfo', 'a b')", None),
        ("get_ipython().run_line_magic('pinfo', 'a'); x", None),
        ("get_ipython().run_line_magic('pinfox', 'a')", None),
    ],
)
def test_a_cell_that_only_asks_for_help(raw: str, wanted: tuple[str, int] | None) -> None:
    assert help_wanted(TEXTS.checked_text(raw, 1)) == wanted


@pytest.mark.parametrize("raw", ["x = 1\n" * 30_000, "!a\n" * 200, "(" * 100_000, "\n" * 80_000, "x = \\\n" * 20_000])
def test_long_texts_that_are_read(raw: str) -> None:
    assert TEXTS.checked_text(raw, 1)


def test_the_transformer_cannot_be_made_to_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it reads of a cell, all passes together, is bounded; without the bound it is not."""
    read = 0
    tokens = inputtransformer2.make_tokens_by_line

    class ReadOn(Exception):
        pass

    def counted(lines: list[str]) -> object:
        nonlocal read
        read += sum(map(len, lines))
        if read > 1_200_000:
            raise ReadOn
        return tokens(lines)

    monkeypatch.setattr(inputtransformer2, "make_tokens_by_line", counted)
    hostile = "!a\n" * 10_000
    with pytest.raises(CellRefused):
        TEXTS.checked_text(hostile, 1)
    read = 0
    with pytest.raises(ReadOn):
        inputtransformer2.TransformerManager().transform_cell(hostile)


def test_completeness() -> None:
    assert TEXTS.completeness("x = 1") == ("complete", None)
    assert TEXTS.completeness("def f():") == ("incomplete", 4)
    assert TEXTS.completeness("x = = 1")[0] == "invalid"
    # Nested too deep to be compiled (by Python 3.11 and 3.12): there is an answer all the same.
    assert TEXTS.completeness("a" + ".b" * 5000)[0] in ("unknown", "invalid", "complete")
    assert TEXTS.completeness("!a\n" * 10_000) == ("unknown", None)
    assert TEXTS.completeness("x\n" * 100_000) == ("unknown", None)


def test_history() -> None:
    history = History()
    for number, code in enumerate(("a", "b", "a", "c"), start=1):
        history.add(number, code, code + "\n")
    assert history.find("tail", n=2) == [(0, 3, "a"), (0, 4, "c")]
    assert history.find("range", start=2, stop=4) == [(0, 2, "b"), (0, 3, "a")]
    assert history.find("range", session=-1, start=0) == []
    assert history.find("search", pattern="a", unique=True) == [(0, 3, "a")]
    assert history.find("search", pattern="a" + "*" * 999) == history.find("search", pattern="a")
    assert history.find("search", pattern="a" + "*" * 1000) == [], "too long to be matched on the kernel's loop"
    assert history.find("search", pattern="a", raw=False) == [(0, 1, "a\n"), (0, 3, "a\n")]
    assert history.find("tail", n=1, output=True) == [(0, 4, ("c", None))]
    assert history.find("tail", n=0) == []
    assert history.find("other") == []


def test_the_environment_is_an_allow_list() -> None:
    kept = clean_environment(
        {
            "HOME": "/h",
            "LANG": "C",
            "LC_TIME": "C.UTF-8",
            "LC_SECRET": "sk-a\nb",
            "TZ": "UTC",
            "JPY_PARENT_PID": "1",
            "OPENAI_API_KEY": "k",
            "PYTHONPATH": "/x",
            "PYTHONSTARTUP": "x",
            "LD_PRELOAD": "x",
            "MYPYPATH": "x",
            "PATH": "/evil",
            "IPYTHONDIR": "x",
            "JUPYTER_CONFIG_DIR": "x",
            "MPLBACKEND": "x",
            "CAPKERNEL_POLICY": "/p",
        }
    )
    assert kept == {
        "HOME": "/h",
        "LANG": "C",
        "LC_TIME": "C.UTF-8",
        "TZ": "UTC",
        "JPY_PARENT_PID": "1",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
    }


def test_a_policy_in_the_environment_must_be_absolute(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-s", "-E", "-m", "capkernel.kernel", "-f", "connection.json"],
        cwd=tmp_path,
        env={"CAPKERNEL_POLICY": "capkernel.toml", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode != 0
    assert "CAPKERNEL_POLICY must be an absolute path" in done.stderr


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "run"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
    return place / "capkernel"


def test_a_session_directory_is_private_and_removed(runtime: Path) -> None:
    made, lock = runtime_dir.make()
    assert Path(made).parent == runtime
    assert os.stat(made).st_mode & 0o777 == 0o700
    again, other = runtime_dir.make()
    assert os.path.isdir(made)  # it lives: the sweep leaves it alone
    os.close(lock)
    third, last = runtime_dir.make()
    assert not os.path.exists(made)  # now it is nobody's
    for descriptor in (other, last):
        os.close(descriptor)
    runtime_dir.remove(again)
    runtime_dir.remove(third)
    assert list(runtime.iterdir()) == []


def test_a_directory_that_others_may_write_is_not_used(runtime: Path) -> None:
    runtime.mkdir(mode=0o700)
    runtime.chmod(0o777)
    with pytest.raises(PermissionError):
        runtime_dir.make()


def test_a_link_in_its_place_is_not_followed(runtime: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    runtime.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        runtime_dir.make()


def test_where_the_users_jupyter_and_ipython_are_configured_is_noted() -> None:
    environment = {
        "JUPYTER_CONFIG_DIR": "/a",
        "JUPYTER_PATH": "/b:relative::/a",
        "IPYTHONDIR": "~/ipy",
        "HOME": "/home/me",
        "OTHER": "/x",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", "/home/me")
        assert configured_places(environment, "/base") == ["/a", "/b", "/base/relative", "/home/me/ipy"]
        assert configured_places({}, "/base") == []
        with pytest.raises(SystemExit, match="more than"):
            configured_places({"JUPYTER_PATH": ":".join(f"/{number}" for number in range(100))}, "/base")
