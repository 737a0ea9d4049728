"""Behaviours that TACIT's suites assert, shown here where no other test shows them. Numbers: tests/parity/tacit.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_kernel import LiveKernel, live_kernel

from capkernel.policy import Files, Limits, PathRules, Policy, PolicyError, Sandbox, load_policy

PATTERNS = {  # number → pattern, path below the base, whether it is classified
    26: (".hidden", ".hidden", True),
    27: (".hidden", "home/.hidden/id", True),
    28: (".hidden", "hidden", False),
    29: (".envy.*", ".envy.local", True),
    30: (".envy.*", "config/.envy.production", True),
    31: (".envy.*", ".envy", False),
    32: ("config/vaulted", "config/vaulted", True),
    33: ("config/vaulted", "config/vaulted/key.txt", True),
    34: ("config/vaulted", "other/config/vaulted", False),
    35: ("**/vaulted", "vaulted", True),
    36: ("**/vaulted", "a/vaulted", True),
    37: ("**/vaulted", "a/b/vaulted/key.txt", True),
    38: ("**/vaulted", "not-vaulted", False),
    39: ("config/*/keys", "config/prod/keys", True),
    40: ("config/*/keys", "config/dev/keys/one.txt", True),
    41: ("config/*/keys", "config/keys", False),
    42: ("vaulted/", "vaulted", True),
    43: ("vaulted/", "vaulted/a/b.txt", True),
}


@pytest.mark.parametrize("number", PATTERNS)
def test_patterns(tmp_path: Path, number: int) -> None:
    pattern, path, expected = PATTERNS[number]
    rules = PathRules(Policy("standard", Files(classified=(pattern,)), Limits(), Sandbox(), tmp_path))
    assert rules.is_classified(str(tmp_path / path)) is expected


@pytest.mark.parametrize("pattern", ["", "/"])
def test_patterns_that_match_nothing_are_mistakes(tmp_path: Path, pattern: str) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(f'[files]\nclassified = ["{pattern}"]\n')
    with pytest.raises(PolicyError, match="classified"):
        load_policy(file)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with live_kernel(tmp_path_factory.mktemp("project")) as running:
            yield running


CELLS = {  # number → code, text of its last result or its prints, without the last line's end
    298: ("1 + 1", "2"),
    299: ("print('seen')", "seen"),
    300: ("a = 20\na + 22", "42"),
    301: ("def twice(n):\n    return 2 * n\ntwice(21)", "42"),
    303: ("sum(n * n for n in [1, 2, 3])", "14"),
    304: ("for n in [1, 2]:\n    print(n)", "1\n2"),
    305: ("sorted({'b': 2, 'a': 1}.values())", "[1, 2]"),
    307: ("import datetime\ndatetime.date(2024, 2, 29).isoformat()", "'2024-02-29'"),
    308: ("try:\n    n = int('x')\nexcept ValueError:\n    n = -1\nn", "-1"),
    313: ("class Box:\n    n = 1\n    def up(self):\n        return self.n + 1\nBox().up()", "2"),
    317: ("match (1, 2):\n    case (x, y):\n        print(x + y)", "3"),
    318: ("list(map(lambda n: n * 2, filter(lambda n: n > 1, [1, 2, 3])))", "[4, 6]"),
    319: ("[x * y for x in [1, 2] for y in [3, 4]]", "[3, 4, 6, 8]"),
}  # fmt: skip


@pytest.mark.parametrize("number", CELLS)
def test_cells_give_their_result(kernel: LiveKernel, number: int) -> None:
    code, expected = CELLS[number]
    ran = kernel.run(code)
    assert ran.ok, ran.everything
    assert expected in (ran.text, ran.stdout.strip())


def test_a_list_of_500_arrives_whole(kernel: LiveKernel) -> None:
    ran = kernel.run("print(list(range(500)))")
    assert ran.stdout.strip() == str(list(range(500)))


@pytest.mark.parametrize("code", ["", "   \n\t\n", "# nothing"])
def test_a_cell_of_nothing_is_fine(kernel: LiveKernel, code: str) -> None:
    ran = kernel.run(code)
    assert ran.ok
    assert ran.stdout == ran.text == ""


@pytest.mark.parametrize(
    "code",
    ["def f(n):\n    return n", "if True:\n    x = 1\nelse:\n    x = 2", "match 1:\n    case 1:\n        y = 1   "],
)
def test_a_cell_may_end_in_an_indented_block(kernel: LiveKernel, code: str) -> None:
    assert kernel.run(code).ok


def test_syntax_and_type_errors_run_nothing(kernel: LiveKernel) -> None:
    for code, kind in (("print('ran')\nx = (", "syntax"), ("print('ran')\nx: int = 'hello'", "assignment")):
        ran = kernel.run(code)
        assert ran.codes == [kind], ran.everything
        assert "ran\n" not in ran.stdout


def test_an_exception_is_no_refusal_and_its_trace_is_shown(kernel: LiveKernel) -> None:
    ran = kernel.run("before = 5\nraise ValueError('seen')")
    assert ran.codes == []
    assert ran.reply["ename"] == "ValueError"
    assert any("ValueError" in line and "seen" in line for line in ran.reply["traceback"])
    assert any("line 2" in line for line in ran.reply["traceback"])
    assert kernel.run("before").text == "5"  # what ran before it stays


def test_a_session_keeps_values_imports_and_functions(kernel: LiveKernel) -> None:
    assert kernel.run("kept = 42\nimport math\ndef inc(n: int) -> int:\n    return n + 1").ok
    assert kernel.run("kept * 2").text == "84"
    assert kernel.run("math.floor(2.5)").text == "2"
    assert kernel.run("inc(1)").text == "2"
    assert kernel.run("kept = open('x')").codes == ["ambient-authority"]
    assert kernel.run("kept").text == "42"  # a refused cell changed nothing


def test_two_sessions_are_apart(kernel: LiveKernel, tmp_path: Path) -> None:
    assert kernel.run("mine = 1").ok
    with live_kernel(tmp_path) as other:
        assert other.run("mine").codes == ["unbound-name"]
        assert other.run("mine = 2").ok
    assert kernel.run("mine").text == "1"  # and the end of the other is none of ours


def test_files_in_one_block(kernel: LiveKernel) -> None:
    ran = kernel.run(
        "with request_file_system('.') as fs:\n"
        "    f = fs.access('made/here.txt')\n"
        "    before = f.exists\n"
        "    f.write('one ')\n"
        "    f.append('two')\n"
        "    text = f.read()\n"
        "    lines = f.read_lines()\n"
        "    folder = fs.access('made')\n"
        "    inside = folder.is_directory\n"
        "    names = [entry.name for entry in folder.children]\n"
    )
    assert ran.ok, ran.everything
    assert (
        kernel.run("before, text, lines, inside, names").text == "(False, 'one two', ['one two'], True, ['here.txt'])"
    )


def test_leaving_the_root_is_an_error_at_run_time(kernel: LiveKernel) -> None:
    ran = kernel.run("with request_file_system('.') as fs:\n    fs.access('../outside.txt').read()")
    assert ran.codes == []
    assert ran.reply["ename"] == "CapabilityDenied"
