"""What TACIT's suites assert of files, in cells of a real session: searches, walks, links, patterns of the policy.

Numbers: tests/parity/tacit.md. A behaviour is a cell and what it prints; a refusal, the error and words of its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from live_kernel import LiveKernel, live_kernel

SECRET = "heron-7713"
POLICY = """
profile = "standard"

[files]
roots = ["{project}"]
classified = ["{project}/vaulted", "{project}/sites/*/keys", "hush"]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("project")
    (place / "t" / "sub").mkdir(parents=True)
    (place / "t" / "a.txt").write_text("one\ntwo needle\nthree\n")
    (place / "t" / "b.py").write_text("needle = 1\n")
    (place / "t" / "sub" / "c.txt").write_text("needle again\n")
    (place / "t" / "hush").write_text(f"needle {SECRET}\n")
    (place / "sites" / "north").mkdir(parents=True)
    (place / "sites" / "north" / "keys").write_text(SECRET)
    outside = tmp_path_factory.mktemp("outside")
    (outside / "far.txt").write_text(f"needle {SECRET}\n")
    links = place / "links"
    links.mkdir()
    (links / "near.txt").write_text("needle near\n")
    (links / "in.txt").symlink_to("near.txt")
    (links / "out.txt").symlink_to(outside / "far.txt")
    (links / "outdir").symlink_to(outside)
    (links / "hanging").symlink_to(outside / "new.txt")
    (links / "loop").symlink_to("loop")
    (place / "outroot").symlink_to(outside)
    return place


@pytest.fixture(scope="module")
def kernel(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveKernel]:
    policy = tmp_path_factory.mktemp("policy") / "capkernel.toml"
    policy.write_text(POLICY.format(project=project))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        with live_kernel(project, policy=policy) as running:
            yield running


MASK, MASKED_NUMBER = "Classified[str](***)\n", "Classified[int](***)\n"
SEES = {  # number → body of the block, what it prints
    3: ("s = fs.read_classified('t/hush')\nprint(s.map(len), s.map(str.upper))", f"{MASKED_NUMBER[:-1]} {MASK}"),
    4: ("s = fs.read_classified('t/hush')\nprint(s.flat_map(lambda t: classify(t)))", MASK),
    5: ("s = fs.read_classified('t/hush')\nprint(s.map(lambda t: int(t)))", MASKED_NUMBER),
    6: ("s = fs.read_classified('t/hush')\nprint(s.flat_map(lambda t: classify(int(t))))", MASKED_NUMBER),
    8: ("print(fs.access('t/hush').is_classified, fs.access('vaulted/x/y').is_classified)", "True True\n"),
    9: ("print(fs.access('t/a.txt').is_classified)", "False\n"),
    19: (
        "fs.access('a.hush/hush').write_classified(classify('x'))\nprint(fs.access('a.hush/hush').read_classified())",
        MASK,
    ),
    20: ("s = fs.access('t/hush').read_classified()\nprint(s, s.map(lambda t: t + t))", f"{MASK[:-1]} {MASK}"),
    23: (
        "fs.write_classified('b.hush/hush', classify('x'))\nprint(fs.read_classified('b.hush/hush'))",
        MASK,
    ),
    24: (
        "fs.write_classified('c.hush/hush', classify('x'))\ns = fs.read_classified('c.hush/hush').map(str.upper)\n"
        "fs.write_classified('d.hush/hush', s)\nprint(s, fs.read_classified('d.hush/hush').map(str.lower))",
        f"{MASK[:-1]} {MASK}",
    ),
    25: (
        "e = fs.access('e.hush/hush')\nprint(e.exists)\ne.write_classified(classify('x'))\n"
        "print(e.exists, e.is_directory, e.name, e.path)",
        "False\nTrue False hush e.hush/hush\n",
    ),
    52: (
        "fs.access('t/w.txt').write('é\\nx')\nprint(fs.access('t/w.txt').read())\nfs.access('t/w.txt').delete()",
        "é\nx\n",
    ),
    53: (
        "e = fs.access('t/w.txt')\ne.write('one ')\ne.append('two')\nprint(e.read())\ne.delete()",
        "one two\n",
    ),
    58: ("print(fs.access('t/a.txt').read_lines())", "['one', 'two needle', 'three']\n"),
    55: (
        "new = fs.access('t/new.txt')\nnew.write('x')\nprint(new.exists)\nnew.delete()\nprint(new.exists)",
        "True\nFalse\n",
    ),
    59: ("for m in fs.grep('t/a.txt', 'need'): print(m.line_number, m.line)", "2 two needle\n"),
    60: (
        "for m in fs.grep_recursive('t', 'needle', '*.txt'): print(m.file, m.line_number)",
        "t/a.txt 2\nt/sub/c.txt 1\n",
    ),
    61: ("print(fs.find('t', '*.txt'))", "['t/a.txt', 't/sub/c.txt']\n"),
    62: (
        "for e in fs.access('t').walk(): print(e.path, e.is_directory)",
        "t/a.txt False\nt/b.py False\nt/hush False\nt/sub True\nt/sub/c.txt False\n",
    ),
    65: (
        "for text in [f'{m.file}: {m.line}' for m in fs.grep_recursive('t', 'needle', '*.py')]: print(text)",
        "t/b.py: needle = 1\n",
    ),
    68: ("print([m.file for m in fs.grep_recursive('t', 'needle')])", "['t/a.txt', 't/b.py', 't/sub/c.txt']\n"),
    99: (
        "print([e.name for e in fs.access('links').children])",
        "['in.txt', 'near.txt']\n",
    ),
    100: (
        "print([e.name for e in fs.access('links').walk() if e.name.startswith(('out', 'hang', 'loop'))])",
        "[]\n",
    ),
    101: (
        "print('in.txt' in [e.name for e in fs.access('links').children], fs.access('links/in.txt').read())",
        "True needle near\n\n",
    ),
    102: (
        "print([(m.file, m.line) for m in fs.grep_recursive('links', 'needle')])",
        "[('links/in.txt', 'needle near'), ('links/near.txt', 'needle near')]\n",
    ),
    103: ("print(fs.find('links', 'near*'))", "['links/near.txt']\n"),
    345: (
        "f = fs.access('t/round.txt')\nf.write('kept')\ntext = f.read()\nf.delete()\nprint(text, f.exists)",
        "kept False\n",
    ),
    348: ("print([m.line for m in fs.grep('t/a.txt', 'o')])", "['one', 'two needle']\n"),
    350: ("for path in [e.path for e in fs.access('t/sub').walk()]: print(path)", "t/sub/c.txt\n"),
    351: (
        "print([e.path for e in fs.access('t').walk() if not e.is_directory and e.name != 'hush'])",
        "['t/a.txt', 't/b.py', 't/sub/c.txt']\n",
    ),
    353: (
        "f = fs.access('t/more.txt')\nf.append('a')\nf.append('b')\nprint(f.read())\nf.delete()\nprint(f.exists)",
        "ab\nFalse\n",
    ),
    110: ("print('near.txt' in [e.name for e in fs.access('links').children])", "True\n"),
}


def in_a_block(body: str, root: str = ".") -> str:
    return f"with request_file_system({root!r}) as fs:\n" + "\n".join(f"    {line}" for line in body.split("\n"))


@pytest.mark.parametrize("number", SEES)
def test_a_cell_sees(kernel: LiveKernel, number: int) -> None:
    body, printed = SEES[number]
    ran = kernel.run(in_a_block(body))
    assert ran.ok, ran.everything
    assert ran.stdout == printed
    assert SECRET not in ran.everything


REFUSES = {  # number → root, body, error, words of its text
    10: (".", "fs.access('t/hush').read()", "CapabilityDenied", "classified"),
    11: (".", "fs.access('t/hush').write('x')", "CapabilityDenied", "classified"),
    12: (".", "fs.access('t/hush').read_bytes()", "CapabilityDenied", "classified"),
    13: (".", "fs.access('t/hush').read_lines()", "CapabilityDenied", "classified"),
    14: (".", "fs.access('t/hush').append('x')", "CapabilityDenied", "classified"),
    16: (".", "fs.access('vaulted').children", "CapabilityDenied", "classified"),
    18: (".", "fs.access('t/hush').size", "CapabilityDenied", "classified"),
    22: (".", "fs.access('t/a.txt').write_classified(classify('x'))", "CapabilityDenied", "not classified"),
    15: (".", "fs.access('t/hush').delete()", "CapabilityDenied", "classified"),
    17: (".", "fs.access('vaulted').walk()", "CapabilityDenied", "classified"),
    45: (".", "fs.access('vaulted/late.txt').read()", "CapabilityDenied", "classified"),
    46: (".", "fs.access('plain.txt').write('x')\nfs.access('vaulted/x').write('x')", "CapabilityDenied", "classified"),
    48: (".", "print(fs.access('sites/north/keys').read())", "CapabilityDenied", "classified"),
    49: (".", "print(fs.access('t/hush').read())", "CapabilityDenied", "classified"),
    50: (
        ".",
        "[found] = [e for e in fs.access('t').walk() if e.name == 'hush']\nprint(found.read())",
        "CapabilityDenied",
        "classified",
    ),
    69: (".", "fs.grep('t/hush', 'needle')", "CapabilityDenied", "classified"),
    96: ("outroot", "fs.find('.', '*')", "CapabilityDenied", "outside"),
    106: (".", "fs.access('links/hanging').append('x')", "CapabilityDenied", "leaves"),
    109: (".", "fs.access('links/loop').read()", "OSError", "symbolic links"),
}


@pytest.mark.parametrize("number", REFUSES)
def test_a_cell_is_refused(kernel: LiveKernel, project: Path, number: int) -> None:
    root, body, error, words = REFUSES[number]
    if number in (16, 17, 45, 46):
        (project / "vaulted").mkdir(exist_ok=True)  # it was not there when the session began
        (project / "vaulted" / "late.txt").write_text(SECRET)
    ran = kernel.run(in_a_block(body, root))
    assert ran.reply["status"] == "error"
    assert (ran.reply["ename"], words in ran.reply["evalue"]) == (error, True), ran.reply["evalue"]
    assert SECRET not in ran.everything
    if number == 46:
        assert (project / "plain.txt").read_text() == "x"
    if number == 106:
        assert not (project / "links" / "hanging").exists()
