"""What `capkernel doctor` says of the secure output: where a session here would put it, or why it would not."""

from __future__ import annotations

import os
from pathlib import Path

from capkernel.broker.secure_file import problem_with_ambient, reachable
from capkernel.policy.errors import PolicyError
from capkernel.policy.model import Policy
from capkernel.policy.resolve import resolve_ambient
from capkernel.wire.shown_text import visible


def line_ambient(base: Path) -> str:
    """One line of visible text, for a session in the directory `base`.

    Ambient authority: reads the policy that holds there, and looks at the file it names.
    """
    policy = policy_ambient(base)
    if isinstance(policy, str):
        return f"secure output: not known, because {policy}"
    path = policy.secure_file()
    if path is None:
        return "secure output: none (the policy's output.secure_file names none)"
    why = problem_ambient(policy, base)
    if why:
        return f"secure output: {visible(str(path))} takes nothing: {why}"
    return f"secure output: {visible(str(path))} takes, in clear text, what cells show of classified values"


def policy_ambient(base: Path) -> Policy | str:
    """The policy of a session in the directory `base`, or why there is none, in visible text.

    Ambient authority: reads the environment and the policy that holds there.
    """
    named = os.environ.get("CAPKERNEL_POLICY") or None
    if named is not None and not os.path.isabs(named):
        return "CAPKERNEL_POLICY must be an absolute path"
    try:
        return resolve_ambient(base, named).policy
    except PolicyError as problem:
        return f"no session would start here: {visible(str(problem))}"


def problem_ambient(policy: Policy, base: Path | None) -> str:
    """Why the secure output of this policy would take nothing, or "". base: of the session, when it is known.

    Ambient authority: looks at the file by its name.
    """
    path = policy.secure_file()
    return "" if path is None else problem_with_ambient(path, reachable(policy, base))
