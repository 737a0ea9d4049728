"""Landlock's structures, read paths, bubblewrap's options, environments, hints and the view from outside."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest

import capkernel
from capkernel.sandbox import (
    Profile,
    SandboxError,
    bubblewrap,
    clean_environment,
    default_read_paths,
    interpreter_argv,
    landlock,
    paths,
    verify,
)
from capkernel.sandbox.machine import hints_for
from capkernel.sandbox.outside import _problems

# --- Landlock --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("abi", "size"), [(1, 8), (2, 8), (3, 8), (4, 16), (5, 16), (6, 24), (7, 24), (9, 24)])
def test_the_rule_set_has_the_size_its_version_knows(abi: int, size: int) -> None:
    assert len(landlock.ruleset_attribute(abi)) == size


def test_rights_grow_with_the_version() -> None:
    assert landlock.handled_rights(1) == 0x1FFF
    assert landlock.handled_rights(2) == 0x3FFF
    assert landlock.handled_rights(3) == 0x7FFF
    assert landlock.handled_rights(4) == 0x7FFF
    assert landlock.handled_rights(5) == 0xFFFF
    assert landlock.handled_rights(8) == 0xFFFF
    assert landlock.handled_rights(9) == 0x1FFFF


def test_execution_is_granted_nowhere() -> None:
    assert landlock._READ & landlock.EXECUTE == 0
    assert landlock._SCRATCH & landlock.EXECUTE == 0


def test_the_running_kernel_takes_the_rule_set() -> None:
    abi = landlock.version()
    if abi == 0:
        pytest.skip("this kernel has no Landlock")
    for version in range(1, abi + 1):
        attribute = landlock.ruleset_attribute(version)
        from capkernel.sandbox import libc

        descriptor, error = libc.system_call(
            444, ctypes.create_string_buffer(attribute, len(attribute)), len(attribute), 0
        )
        assert error == 0, version
        os.close(descriptor)


# --- read paths
# --------------------------------------------------------------------------------------------------------


def test_the_interpreter_and_the_package_are_readable_and_nothing_of_the_users() -> None:
    found = default_read_paths()
    assert all(os.path.exists(path) for path in found)
    assert list(found) == sorted(found)

    def covered(path: str) -> bool:
        return any(paths.is_below(os.path.realpath(path), os.path.realpath(other)) for other in found)

    assert covered(os.__file__)
    assert covered(capkernel.__file__)
    assert covered(pytest.__file__)
    for place in (
        "/",
        "/etc",
        "/etc/passwd",
        "/proc",
        "/proc/self/environ",
        "/tmp",
        "/var",
        "/dev",
        os.path.expanduser("~"),
    ):
        assert not covered(place), place


def test_a_project_on_the_path_stays_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, library = tmp_path / "project", tmp_path / "other" / "site-packages"
    project.mkdir()
    library.mkdir(parents=True)
    before = default_read_paths()
    monkeypatch.setattr(sys, "path", [*sys.path, "", "relative", str(project), str(library)])
    assert set(default_read_paths()) - set(before) == {str(library)}


def test_a_checkout_on_the_path_opens_the_package_only(monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = os.path.dirname(paths.package_directory())
    if os.path.basename(checkout) in paths.LIBRARY_DIRECTORY_NAMES:
        pytest.skip("the package is installed, not a checkout")
    monkeypatch.setattr(sys, "path", [*sys.path, checkout])
    assert checkout not in default_read_paths()
    assert paths.package_directory() in default_read_paths()


def test_nested_paths_are_left_out() -> None:
    assert paths.without_nested(["/a/b", "/a", "/ab", "/a/b/c", "/a"]) == ["/a", "/ab"]


# --- bubblewrap
# ----------------------------------------------------------------------------------------------------------


def pairs(options: list[str], name: str) -> list[tuple[str, str]]:
    return [(options[at + 1], options[at + 2]) for at, word in enumerate(options) if word == name]


def test_the_mount_namespace_has_read_only_binds_and_one_scratch(tmp_path: Path) -> None:
    options = bubblewrap.arguments(
        Profile("worker", read=("/usr/share/zoneinfo",), scratch=str(tmp_path)),
        [sys.executable],
        cwd="/run/x",
        info_fd=7,
        user_namespace=True,
    )
    assert pairs(options, "--bind") == [(str(tmp_path), str(tmp_path))]
    assert {"--unshare-all", "--die-with-parent"} <= set(options)
    assert options[options.index("--cap-drop") + 1] == "ALL"
    assert options[options.index("--info-fd") + 1] == "7"
    assert options[options.index("--dir") : options.index("--dir") + 2] == ["--dir", "/run/x"]
    sources = [source for source, _ in pairs(options, "--ro-bind")]
    assert "/" not in sources
    assert not any(source.startswith(("/proc", "/dev")) for source in sources)
    assert os.path.expanduser("~") not in sources
    without = bubblewrap.arguments(Profile("worker"), [sys.executable], cwd="/", info_fd=None, user_namespace=False)
    assert not {"--unshare-all", "--unshare-user", "--unshare-user-try"} & set(without)
    assert {"--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"} <= set(without)
    for option in ("--share-net", "--dev-bind", "--cap-add", "--bind-try"):
        assert option not in options


def test_a_linked_interpreter_keeps_its_links(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    link, second = tmp_path / "bin" / "python", tmp_path / "bin" / "python3"
    second.symlink_to(os.path.realpath(sys.executable))
    link.symlink_to("python3")
    options = bubblewrap.arguments(Profile("worker"), [str(link)], cwd="/", info_fd=None, user_namespace=False)
    assert (os.readlink(link), str(link)) in pairs(options, "--symlink")
    assert (os.readlink(second), str(second)) in pairs(options, "--symlink")


def test_why_bubblewrap_does_not_work_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "find", lambda: None)
    assert "not installed" in bubblewrap._tried.__wrapped__()[0]
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(bubblewrap, "find", lambda: str(program))
    assert (
        bubblewrap._tried.__wrapped__()[0]
        == "bubblewrap does not work here: bwrap: setting up uid map: Permission denied"
    )


# --- environment and commands
# ------------------------------------------------------------------------------------------------


def test_the_environment_is_an_allow_list(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("TZ", "Europe/Paris")
    monkeypatch.setenv("LC_TIME", "x y; rm")
    for name in ("PATH", "HOME", "LC_SECRET", "PYTHONPATH", "MYPYPATH", "AWS_SECRET_ACCESS_KEY", "LD_PRELOAD"):
        monkeypatch.setenv(name, "/hostile")
    assert clean_environment({"MPLBACKEND": "agg"}) == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "de_DE.UTF-8",
        "TZ": "Europe/Paris",
        "MPLBACKEND": "agg",
    }


@pytest.mark.parametrize("name", ["PYTHONPATH", "pythonstartup", "MYPYPATH", "IPYTHONDIR", "LD_PRELOAD", "BASH_ENV"])
def test_a_variable_that_steers_programs_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        clean_environment({name: "x"})


def test_the_interpreter_runs_without_the_users_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert interpreter_argv("a.b", "c") == [sys.executable, "-P", "-s", "-E", "-m", "a.b", "c"]
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(SandboxError, match="not known"):
        interpreter_argv("a.b")


# --- from outside
# ------------------------------------------------------------------------------------------------------------

FINE = {
    "Seccomp": "2",
    "NoNewPrivs": "1",
    "Uid": "0\t0\t0\t0",
    "TracerPid": "0",
    "CapInh": "0000000000000000",
    "CapPrm": "0000000000000000",
    "CapEff": "0000000000000000",
    "CapBnd": "0000000000000000",
    "CapAmb": "0000000000000000",
}


def test_a_fine_status_has_no_problems() -> None:
    assert _problems(FINE) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("Seccomp", "0"),
        ("Seccomp", "1"),
        ("NoNewPrivs", "0"),
        ("CapEff", "1"),
        ("CapPrm", "1"),
        ("CapInh", "1"),
        ("CapAmb", "1"),
        ("CapBnd", "000001ffffffffff"),
        ("TracerPid", "12"),
        ("CapEff", "nonsense"),
    ],
)
def test_each_field_counts(field: str, value: str) -> None:
    assert len(_problems({**FINE, field: value})) == 1
    assert len(_problems({name: text for name, text in FINE.items() if name != field})) == (field != "TracerPid")


def test_the_bounding_set_counts_for_root_only() -> None:
    other = {**FINE, "Uid": "1000\t1000\t1000\t1000", "CapBnd": "000001ffffffffff"}
    assert _problems(other) == []


def test_a_process_that_is_not_there_is_a_problem() -> None:
    assert verify(2**22 + 1) == [f"process {2**22 + 1} is not there"]


# --- hints
# -------------------------------------------------------------------------------------------------------------------

BASE = {
    "landlock_abi": 7,
    "filtered": True,
    "bwrap_reason": "",
    "bwrap_found": True,
    "restricted": False,
    "container": False,
}


@pytest.mark.parametrize(
    ("platform", "release", "change", "word"),
    [
        ("linux", "6.8", {"bwrap_found": False, "bwrap_reason": "not installed"}, "apt install bubblewrap"),
        ("linux", "6.8", {"bwrap_reason": "uid map", "restricted": True}, "bwrap-userns-restrict"),
        ("linux", "6.8", {"bwrap_reason": "uid map", "container": True}, "systempaths=unconfined"),
        ("linux", "6.8", {"bwrap_reason": "uid map"}, "max_user_namespaces"),
        ("linux", "5.4", {"landlock_abi": 0}, "lsm=landlock"),
        ("linux", "5.10.16.3-microsoft-standard-WSL2", {"landlock_abi": 0}, "wsl --update"),
        ("linux", "6.8", {"filtered": False}, "x86_64 and aarch64"),
        ("darwin", "24", {}, "macOS; run the kernel in Linux, for example in a container: `docker run --rm -it"),
        ("win32", "11", {}, "WSL2: `wsl --install`"),
    ],
)
def test_a_lack_has_a_hint_with_a_command(platform: str, release: str, change: dict[str, object], word: str) -> None:
    hints = hints_for(platform, release, **{**BASE, **change})  # type: ignore[arg-type]
    assert len(hints) == 1
    assert word in hints[0]
    assert hints[0].count("`") in (0, 2, 4)  # a command, whole


def test_nothing_lacking_has_no_hint() -> None:
    assert hints_for("linux", "6.8", **BASE) == []  # type: ignore[arg-type]
