"""`capkernel approve`: the person decides what running sessions wait for."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from capkernel.viewer.sessions import Session

OK, FAILED, USAGE = 0, 1, 2


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    approve = commands.add_parser("approve", help="decide what running sessions wait for")
    approve.add_argument(
        "session", nargs="?", help="the beginning of a session's name, its process id, or the notebook's directory"
    )
    approve.add_argument("--list", action="store_true", help="only say what waits; decide nothing")
    approve.add_argument("--deny-all", action="store_true", help="deny everything that waits now")
    approve.set_defaults(run=_approve)


def _approve(arguments: argparse.Namespace) -> int:
    from capkernel.viewer import approve_terminal, sessions
    from capkernel.viewer.link import LinkRefused
    from capkernel.viewer.terminal import is_terminal

    def find() -> list[sessions.Session]:
        running = sessions.running("approve")
        return running if arguments.session is None else sessions.chosen(running, arguments.session)

    if arguments.list:
        return _list(find())
    if not is_terminal():
        _say("decisions are typed in a terminal, and input or output is none; nothing was decided (see --list)")
        return USAGE
    if arguments.session is not None and not find():
        _say(f"{arguments.session}: none of the running sessions is called so; see `capkernel view --list`")
        return USAGE
    try:
        if arguments.deny_all:
            print(f"denied: {approve_terminal.deny_all(find())}")
            return OK
        approve_terminal.run(find)
    except (LinkRefused, OSError) as problem:
        _say(str(problem))
        return FAILED
    except KeyboardInterrupt:
        return OK
    return OK


def _list(found: list[Session]) -> int:
    from capkernel.viewer.approve_terminal import summary, waiting
    from capkernel.wire.shown_text import visible

    for session, questions in waiting(found):
        for question in questions.questions:
            print(f"{session.name[:8]}  {visible(session.directory)}  {summary(question)}")
            if question.reason:
                print(f'          the cell says: "{visible(question.reason)}"')
    return OK


def _say(text: str) -> None:
    print(text, file=sys.stderr)
