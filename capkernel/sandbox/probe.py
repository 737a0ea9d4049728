"""A process that locks itself, prints its report and ends: `survey` starts it to have the level proved."""

from __future__ import annotations

import sys

from .levels import SandboxError
from .lockdown import lock_down
from .profile import Profile


def main(arguments: list[str]) -> int:
    """Arguments: the profile as JSON, then "bwrap" or "plain". Prints the report as JSON."""
    if len(arguments) != 2 or arguments[1] not in ("bwrap", "plain"):
        sys.stderr.write("usage: probe PROFILE_JSON bwrap|plain\n")
        return 2
    try:
        report = lock_down(Profile.from_json(arguments[0]), inside_bwrap=arguments[1] == "bwrap")
    except (SandboxError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(report.to_json() + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
