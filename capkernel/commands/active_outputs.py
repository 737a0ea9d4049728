"""What `capkernel doctor` says of outputs that act in the page."""

from __future__ import annotations

from pathlib import Path

from capkernel.commands.secure_output import policy_ambient


def line_ambient(base: Path) -> str:
    """One line, for a session in the directory `base`.

    Ambient authority: reads the policy that holds there.
    """
    policy = policy_ambient(base)
    if isinstance(policy, str):
        return f"active outputs: not known, because {policy}"
    if policy.output.active:
        return (
            "active outputs: ON (output.active): a script in an output acts as you in the Jupyter page; secrets are "
            "not shown in that page, `capkernel view` shows them"
        )
    return "active outputs: off (output.active): widgets and scripts in outputs are shown as text"
