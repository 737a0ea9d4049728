"""The `capkernel` command: install, run, check, lab, doctor, policy, audit, explain, view, approve, repl."""

from __future__ import annotations

import argparse
import importlib.resources
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.text import Text

from capkernel.commands import approve, audit, repl, view
from capkernel.commands import check as check_command
from capkernel.commands import policy as policy_command
from capkernel.diagnostics.codes import CODES
from capkernel.diagnostics.pages import page
from capkernel.version import __version__

if TYPE_CHECKING:  # the notebook machinery takes a second to import, and `explain` does not need it
    from nbformat.notebooknode import NotebookNode

    from capkernel.bridge.run import CellResult, Watcher

OK, FAILED, USAGE = 0, 1, 2
PROFILES = ("strict", "standard", "relaxed")

_out = Console(highlight=False, soft_wrap=True)
_err = Console(stderr=True, highlight=False, soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 fine, 1 something failed that should not have, 2 bad usage or nothing could be started."""
    arguments = _parser().parse_args(argv)
    try:
        result: int = arguments.run(arguments)
    except KeyboardInterrupt:
        _err.print("stopped")
        return 130
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="capkernel", description="A Jupyter kernel where every cell is a proposal.")
    parser.add_argument("--version", action="version", version=f"capkernel {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    install = commands.add_parser("install", help="make the kernel known to Jupyter and build the checker's cache")
    where = install.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user (default)")
    where.add_argument("--sys-prefix", action="store_true", help="in this Python environment")
    install.set_defaults(run=_install)

    run = commands.add_parser("run", help="run a notebook through the kernel and save the executed copy")
    run.add_argument("notebook", type=Path)
    run.add_argument("--out", type=Path, help="where to save (default: NAME.executed.ipynb beside it)")
    run.add_argument("--policy", type=Path, help="policy file; default: what docs/policy.md lists as defaults")
    run.add_argument("--profile", choices=PROFILES, help="how much of the type checker refuses")
    run.set_defaults(run=_run)

    check_command.add_parser(commands)

    lab = commands.add_parser("lab", help="open JupyterLab with this kernel chosen")
    lab.add_argument("notebook", type=Path, nargs="?")
    lab.add_argument("rest", nargs=argparse.REMAINDER, help="further arguments for jupyter lab, after --")
    lab.set_defaults(run=_lab)

    doctor = commands.add_parser("doctor", help="what protects a session on this machine, and what is missing")
    doctor.add_argument("--json", action="store_true")
    doctor.set_defaults(run=_doctor)

    policy_command.add_parser(commands)
    audit.add_parser(commands)

    explain = commands.add_parser("explain", help="what a diagnostic code means")
    explain.add_argument("code", nargs="?")
    explain.set_defaults(run=_explain)
    view.add_parser(commands)
    approve.add_parser(commands)
    repl.add_parser(commands)
    return parser


# ── install ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _install(arguments: argparse.Namespace) -> int:
    from jupyter_client.kernelspec import KernelSpecManager

    from capkernel.bridge.launch import KERNEL_NAME, kernel_argv
    from capkernel.checker.cache import build_cache
    from capkernel.checker.pinned import problem
    from capkernel.commands import jupyter_page

    wrong = problem()
    if wrong:
        _err.print(escape(wrong))
        return FAILED
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / KERNEL_NAME
        shutil.copytree(_kernelspec_files(), source)
        spec = json.loads((source / "kernel.json").read_text())
        spec["argv"] = kernel_argv()  # this interpreter by its absolute path, whatever `python` is in the server
        if not arguments.sys_prefix or not jupyter_page.provisioner_registered():
            # Servers of other environments read it, too, and refuse a kernelspec whose provisioner they do not have.
            del spec["metadata"]["kernel_provisioner"]
            _out.print(
                "secrets are shown in the Jupyter page only with pip install and --sys-prefix, where the server is"
            )
        (source / "kernel.json").write_text(json.dumps(spec, indent=1))
        try:
            place = KernelSpecManager().install_kernel_spec(
                str(source),
                KERNEL_NAME,
                user=not arguments.sys_prefix,
                prefix=sys.prefix if arguments.sys_prefix else None,
            )
        except OSError as failure:
            _err.print(f"the kernelspec cannot be installed: {failure}")
            return FAILED
    _out.print(f"kernelspec: {place}")
    build_cache(lambda line: _out.print(escape(line)))
    _out.print("checker's cache: ready")
    return OK


def _kernelspec_files() -> Path:
    shipped = Path(str(importlib.resources.files("capkernel") / "kernelspec"))
    return shipped if shipped.is_dir() else Path(__file__).resolve().parent.parent / "kernelspec"


# ── run ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _run(arguments: argparse.Namespace) -> int:
    from capkernel.bridge.run import NotebookError, read_notebook, run_notebook, write_notebook

    path: Path = arguments.notebook
    out: Path = arguments.out or path.with_suffix(".executed.ipynb")
    if not out.parent.is_dir():
        _err.print(f"{out}: the folder {out.parent} does not exist; make it first")
        return USAGE
    if arguments.policy is not None and not arguments.policy.is_file():
        _err.print(f"{arguments.policy}: there is no such policy file")
        return USAGE
    printer = _RunPrinter()
    try:
        notebook = read_notebook(path)
        results = run_notebook(
            notebook, path.resolve().parent, printer.watcher(), policy=arguments.policy, profile=arguments.profile
        )
    except NotebookError as problem:
        _err.print(escape(str(problem)))
        return USAGE
    write_notebook(notebook, out)
    surprises = [result for result in results if not result.expected]
    expected_failures = sum(result.expected and result.outcome != "ok" for result in results)
    _out.rule(style="dim")
    total = results[0].count if results else 0
    _out.print(
        f"{len(results)} of {total} cells, {expected_failures} refused or raising as expected, saved {escape(str(out))}"
    )
    for result in surprises:
        _err.print(f"[bold red]cell {result.index}[/]: {escape(result.why)}")
    return FAILED if surprises else OK


class _RunPrinter:
    """Streams a run to the terminal: a progress line per cell, its outputs as they come."""

    def watcher(self) -> Watcher:
        from capkernel.bridge.run import Watcher

        return Watcher(self._started, self._output, self._finished)

    def _started(self, index: int, count: int, cell: NotebookNode) -> None:
        first = next((line for line in cell.source.splitlines() if line.strip()), "")
        _out.print(f"[bold cyan]\\[{index}/{count}][/] [dim]{escape(first[:100])}[/]")

    def _output(self, output: NotebookNode) -> None:
        kind = output.output_type
        if kind == "stream":
            _out.print(Text.from_ansi(output.text.rstrip("\n")))
        elif kind == "error":
            if output.ename == "CellRefused":
                return  # the diagnostics, shown just before, say it in full
            _out.print(Text.from_ansi("\n".join(output.traceback)))
        else:
            data = output.data
            shown = data.get("text/plain", "")
            pictures = [mime for mime in data if mime.startswith("image/")]
            _out.print(Text.from_ansi(shown + (f"  ({', '.join(pictures)})" if pictures else "")))

    def _finished(self, result: CellResult) -> None:
        outcome, expected = result.outcome, result.expected
        mark = {"ok": "[green]ok[/]", "refused": "[yellow]refused[/]", "error": "[yellow]raised[/]"}[outcome]
        note = "" if outcome == "ok" else (" as expected" if expected else " [bold red]unexpectedly[/]")
        _out.print(f"      {mark}{note} [dim]{result.seconds:.2f} s[/]")


# ── lab ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _lab(arguments: argparse.Namespace) -> int:
    from capkernel.bridge.launch import KERNEL_NAME

    try:
        version("jupyterlab")
    except PackageNotFoundError:
        _err.print("JupyterLab is not installed here; run: pip install 'capkernel\\[lab]'")
        return USAGE
    notebook: Path | None = arguments.notebook
    if notebook is not None and not notebook.is_file():
        _err.print(f"{notebook}: there is no such notebook")
        return USAGE
    command = [sys.executable, "-m", "jupyterlab", f"--MultiKernelManager.default_kernel_name={KERNEL_NAME}"]
    command.append("--ServerApp.jpserver_extensions=capkernel.viewer.jupyter=True")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    command += [argument for argument in arguments.rest if argument != "--"]
    if notebook is not None:
        command.append(str(notebook))
    os.execv(command[0], command)  # noqa: S606


# ── doctor, explain ──────────────────────────────────────────────────────────────────────────────────────────────────


def _doctor(arguments: argparse.Namespace) -> int:
    from capkernel.checker.pinned import installed, problem
    from capkernel.commands import active_outputs, jupyter_page, secure_output, tracked
    from capkernel.sandbox import Level, survey

    found, secure = survey(), secure_output.line_ambient(Path.cwd())
    active, in_page = active_outputs.line_ambient(Path.cwd()), jupyter_page.line_ambient()
    in_git, wrong = tracked.lines_ambient(Path.cwd()), problem()
    mypy = wrong or f"checker: mypy {installed()}"
    if arguments.json:
        said = {
            "secure_output": secure,
            "active_outputs": active,
            "jupyter_page": in_page,
            "checker": mypy,
            "git": in_git,
        }
        print(json.dumps({**json.loads(found.to_json()), **said}))
    else:
        for line in [*found.lines(), secure, active, in_page, mypy, *in_git]:
            _out.print(escape(line))
    return OK if found.level >= Level.STANDARD and not wrong else FAILED


def _explain(arguments: argparse.Namespace) -> int:
    if arguments.code is None:
        for code in CODES.values():
            _out.print(f"[bold]{code.name}[/]  {escape(code.title)}")
        return OK
    known = CODES.get(arguments.code)
    if known is None:
        import difflib

        near = difflib.get_close_matches(arguments.code, CODES, n=1)
        hint = f"; did you mean {near[0]}?" if near else "; `capkernel explain` lists them"
        _err.print(f"{escape(arguments.code)}: not a code of capkernel{hint} (mypy's own codes are documented by mypy)")
        return USAGE
    from rich.markdown import Markdown

    text = page(known.name)
    if sys.stdout.isatty():
        _out.print(Markdown(text))
    else:
        print(text)
    return OK


if __name__ == "__main__":
    sys.exit(main())
