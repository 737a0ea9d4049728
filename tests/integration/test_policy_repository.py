"""A repository that comes with a policy: real kernels grant nothing because of it, until the person has trusted it.

What each entry would do is first seen with the same text named by the operator, or trusted.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from live_kernel import LiveKernel, live_kernel

from capkernel.bridge.launch import kernel_manager
from capkernel.cli import main

OUTSIDE = "text-outside-of-the-project"


@dataclass
class Repository:
    project: Path
    outside: Path

    def policy(self) -> str:
        """Everything that this version has a key for, as wide as it goes."""
        return (
            f'profile = "relaxed"\n[files]\nroots = [".", "{self.outside}"]\nclassified_write = true\n'
            'unprotect = [".git"]\n[limits]\noutput_bytes = 1_000_000_000\n[sandbox]\nminimum = "none"\n'
        )


@pytest.fixture
def repository(project: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A cloned project; the user's own configuration and something else of theirs lie elsewhere."""
    outside = tmp_path_factory.mktemp("outside")
    (outside / "private.txt").write_text(OUTSIDE)
    (project / ".git").mkdir()
    (project / ".git" / "config").write_text("[core]\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    monkeypatch.delenv("CAPKERNEL_POLICY", raising=False)
    return Repository(project, outside)


def effects(kernel: LiveKernel, repository: Repository) -> tuple[dict[str, bool], str]:
    """Which of the wide entries have an effect in this session, and all that the first cell put out."""
    first = kernel.run("1 + 1")
    assert first.text == "2", first.everything
    found = {}
    ran = kernel.run(
        f"with request_file_system({str(repository.outside)!r}) as fs:\n    print(fs.access('private.txt').read())"
    )
    found["roots"] = OUTSIDE in ran.everything
    ran = kernel.run("with request_file_system('.') as fs:\n    fs.access('.git/config').write('[core]\\nhook = 1\\n')")
    found["unprotect"] = ran.ok
    assert ran.ok == ("hook" in (repository.project / ".git" / "config").read_text())
    ran = kernel.run(
        "with request_file_system('.') as fs:\n    v = fs.read_classified('.env')\n"
        "    fs.write_classified('secrets/key.txt', v)"
    )
    found["classified_write"] = ran.ok
    found["profile"] = kernel.run("x: int = 'text'").ok
    found["minimum"] = "WITHOUT isolation" in first.everything
    return found, first.everything


@pytest.mark.parametrize("how", ["named", "trusted", "untrusted", "changed since"])
def test_everything_wide_at_once(repository: Repository, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = repository.project / "capkernel.toml"
    file.write_text(repository.policy())
    named = file if how == "named" else None
    if how in ("trusted", "changed since"):
        assert main(["policy", "trust", str(file)]) == 0
        capsys.readouterr()
    if how == "changed since":
        file.write_text(file.read_text() + "\n")
    with live_kernel(repository.project, policy=named) as kernel:
        found, first = effects(kernel, repository)
    granted = how in ("named", "trusted")
    assert found == dict.fromkeys(found, granted)
    said = {"untrusted": "is not trusted, so it grants nothing", "changed since": "has changed since it was trusted"}
    if how in said:
        assert said[how] in first
        assert "capkernel policy trust capkernel.toml" in first
        assert str(repository.outside) not in first
    else:
        assert "grants nothing" not in first


def test_unknown_keys_and_hosts(repository: Repository) -> None:
    file = repository.project / "capkernel.toml"
    file.write_text(
        repository.policy() + '[surprise]\nx = 1\n[network]\nhosts = ["*"]\n[models.trusted]\n'
        'base_url = "http://127.0.0.1:1/"\nmodel = "hostile"\n[output]\nsecure_file = "data/out.txt"\n'
    )
    manager = kernel_manager(policy=file)  # named by the operator, a mistake is fatal, and said
    manager.start_kernel(cwd=str(repository.project), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        process = manager.provisioner.process  # type: ignore[union-attr]
        words = process.stderr.read().decode()
        assert process.wait(timeout=60) != 0
        assert f"{file}:10: unknown key 'surprise'" in words
    finally:
        manager.shutdown_kernel(now=True)
    with live_kernel(repository.project) as kernel:
        found, first = effects(kernel, repository)
        assert "mistake" in first
        assert "surprise" not in first
        assert not kernel.run("import urllib.request\nurllib.request.urlopen('http://127.0.0.1:1/')").ok
        assert "output.secure_file" in first
        assert "ignored" in first
        assert "hostile" not in first
        assert "127.0.0.1" not in first
        # Nothing is sent to the model that the repository names, and nothing goes into its file.
        secret = "with request_file_system('.') as fs:\n    s = fs.read_classified('.env')\nprint(s)\n"
        assert kernel.run(secret).ok
        for cell in ("chat(s)", "s.map(lambda t: chat(t))", "chat('x')"):
            assert kernel.run(cell).reply["ename"] == "CellRefused", cell
    assert not (repository.project / "data" / "out.txt").exists()
    assert found == dict.fromkeys(found, False)


def a_link(repository: Repository) -> None:
    (repository.outside / "wide.toml").write_text(repository.policy())
    (repository.project / "capkernel.toml").symlink_to(repository.outside / "wide.toml")
    assert "relaxed" in (repository.project / "capkernel.toml").read_text()


def a_pipe(repository: Repository) -> None:
    os.mkfifo(repository.project / "capkernel.toml")
    with pytest.raises(subprocess.TimeoutExpired):  # who simply reads it waits for ever
        subprocess.run(["cat", "capkernel.toml"], cwd=repository.project, timeout=1, check=False)


def fifty_megabytes(repository: Repository) -> None:
    text = repository.policy()
    (repository.project / "capkernel.toml").write_text("#" * 50_000_000 + "\n" + text)


def all_roots(repository: Repository) -> None:
    (repository.project / "capkernel.json").write_text('{"files": {"roots": ["/", "~/", ".."]}}')


@pytest.mark.parametrize("make", [a_link, a_pipe, fifty_megabytes, all_roots])
def test_what_is_no_policy(repository: Repository, make: Callable[[Repository], None]) -> None:
    make(repository)
    with live_kernel(repository.project) as kernel:
        found, first = effects(kernel, repository)
        assert not kernel.run("with request_file_system('/etc') as fs:\n    print(fs.access('hostname').read())").ok
        inside = kernel.run("with request_file_system('data') as fs:\n    print(fs.access('a.txt').read())")
        assert inside.stdout == "hello\n\n", inside.everything
    assert found == dict.fromkeys(found, False)
    assert "is not trusted" in first


def test_what_narrows_holds_at_once(repository: Repository) -> None:
    (repository.project / "data" / "salaries.csv").write_text("plain text")
    cell = "with request_file_system('data') as fs:\n    print(fs.access('salaries.csv').read())"
    with live_kernel(repository.project) as kernel:
        assert kernel.run(cell).stdout == "plain text\n"
        assert kernel.run("with request_file_system('.') as fs:\n    print(fs.access('data/a.txt').read())").ok
    (repository.project / "capkernel.toml").write_text(
        '[files]\nroots = ["data"]\nclassified = ["salaries.csv", "!.env"]\n[limits]\ncell_seconds = 2\n'
    )
    with live_kernel(repository.project) as kernel:
        ran = kernel.run(cell)
        assert ran.reply["ename"] == "CapabilityDenied"
        assert "it narrows files.classified, files.roots, limits.cell_seconds" in ran.everything
        assert not kernel.run("with request_file_system('.') as fs:\n    print(fs.access('data/a.txt').read())").ok
        assert not kernel.run("import time\ntime.sleep(20)").ok


def test_places_of_the_trusted_side_inside_of_a_root(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every directory of ours, of Jupyter's and of IPython's that the environment names lies in the notebook's own."""
    project = repository.project
    names = {
        "XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state", "XDG_DATA_HOME": "share", "XDG_RUNTIME_DIR": "run",
        "TMPDIR": "tmp", "JUPYTER_CONFIG_DIR": "jupyter", "JUPYTER_RUNTIME_DIR": "jruntime",
        "JUPYTER_DATA_DIR": "jdata",
        "JUPYTER_PATH": "jpath", "JUPYTER_CONFIG_PATH": "jconfig", "IPYTHONDIR": "ipython",
    }  # fmt: skip
    for variable, name in names.items():
        (project / name).mkdir(mode=0o700)
        monkeypatch.setenv(variable, str(project / name))
    monkeypatch.setattr(tempfile, "tempdir", str(project / "tmp"))  # where the manager puts the connection file
    configured = [project / name / "settings.py" for name in names.values() if name.startswith(("j", "i"))]
    for file in configured:
        file.write_text("old")
    named = project.parent / "named.toml"
    named.write_text(f'[files]\nroots = ["{project}"]\n')
    other = project / "deep"
    other.mkdir()
    (other / "capkernel.toml").write_text("old")
    with live_kernel(project, policy=named) as kernel:
        assert kernel.run("1").ok
        assert main(["policy", "trust", str(other / "capkernel.toml")]) == 2  # "old" is no policy
        capsys.readouterr()
        store = project / "config" / "capkernel" / "trust.json"
        store.parent.mkdir(exist_ok=True)
        store.write_text("old")
        session = next((project / "run" / "capkernel").glob("session-*"))
        audit = next((project / "state" / "capkernel" / "audit").glob("*.jsonl"))
        connection = Path(kernel.manager.connection_file)
        assert connection.is_relative_to(project)
        places = [
            *configured, store, session / "alive", audit, connection, other / "capkernel.toml",
        ]  # fmt: skip
        for place in places:
            place.read_bytes()  # anybody else can
            path = str(place.relative_to(project))
            for action in ("read()", "write('new')", "append('new')", "exists()"):
                ran = kernel.run(f"with request_file_system('.') as fs:\n    print(fs.access({path!r}).{action})")
                assert ran.reply.get("ename") == "CapabilityDenied", (path, action, ran.everything)
                assert "no file is granted here" in ran.everything, path
        ran = kernel.run("with request_file_system('.') as fs:\n    print(fs.access('data/a.txt').read())")
        assert ran.stdout == "hello\n\n", ran.everything
    assert (other / "capkernel.toml").read_text() == "old"
