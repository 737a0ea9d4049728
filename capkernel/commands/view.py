"""`capkernel view`: the person sees the classified values of a running session."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capkernel.viewer.sessions import Session

OK, FAILED, USAGE = 0, 1, 2


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    view = commands.add_parser("view", help="see the secrets of a running session, yourself and nobody else")
    view.add_argument(
        "session", nargs="?", help="the beginning of a session's name, its process id, or the notebook's directory"
    )
    view.add_argument("--tty", action="store_true", help="in this terminal instead of a page in the browser")
    view.add_argument("--list", action="store_true", help="only say which sessions run")
    view.add_argument("--no-browser", action="store_true", help="print the link, open nothing")
    view.set_defaults(run=_view)


def _view(arguments: argparse.Namespace) -> int:
    from capkernel.viewer import sessions

    found = sessions.running("terminal")
    if arguments.session is not None:
        found = sessions.chosen(found, arguments.session)
        if not found:
            _say(f"{arguments.session}: none of the running sessions is called so; see `capkernel view --list`")
            return USAGE
    if arguments.list:
        for session in found:
            print(_line(session))
        return OK
    if not found:
        _say("no session of capkernel runs under this user: open a notebook with the capkernel kernel first")
        return FAILED
    return _in_terminal(found) if arguments.tty else _in_browser(arguments.session, open_it=not arguments.no_browser)


def _line(session: Session) -> str:
    from capkernel.wire.shown_text import visible

    started = time.strftime("%H:%M", time.localtime(session.started))
    return f"{session.name[:8]}  process {session.pid}  since {started}  {visible(session.directory)}"


# ── terminal ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _in_terminal(found: list[Session]) -> int:
    from capkernel.viewer import terminal
    from capkernel.viewer.link import LinkRefused

    if not terminal.is_terminal():
        _say("--tty shows secrets in a terminal only, and input or output is none; nothing was shown")
        return USAGE
    if len(found) > 1:
        _say("several sessions run; name one: capkernel view --tty NAME")
        for session in found:
            _say("  " + _line(session))
        return USAGE
    try:
        terminal.run(found[0])
    except (LinkRefused, OSError) as problem:
        _say(str(problem))
        return FAILED
    return OK


# ── page ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _in_browser(wanted: str | None, *, open_it: bool) -> int:
    from capkernel.viewer import sessions
    from capkernel.viewer.web import ViewerServer

    def find() -> list[Session]:
        running = sessions.running("page")
        return running if wanted is None else sessions.chosen(running, wanted)

    server = ViewerServer(find)
    serving = threading.Thread(target=server.serve, daemon=True)
    serving.start()
    try:
        with tempfile.TemporaryDirectory(prefix="capkernel-view-") as private:
            while True:
                link = server.link()
                print(f"viewer: {link}\nIt works once. Enter: a new link (the open tab ends). Ctrl-C: close.")
                sys.stdout.flush()
                if open_it:
                    _open(link, Path(private))
                if not sys.stdin.readline():
                    serving.join()  # no terminal to ask for another: until it is stopped
    except KeyboardInterrupt:
        print("viewer closed")
    finally:
        server.close()
    return OK


def _open(link: str, private: Path) -> None:
    """Through a file of mode 0600: the arguments of a process can be read by every user of the machine."""
    page = private / "open.html"
    page.unlink(missing_ok=True)
    fd = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as out:
        out.write(f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={link}">')
    webbrowser.open(page.as_uri())


def _say(text: str) -> None:
    print(text, file=sys.stderr)
