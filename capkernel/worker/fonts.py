"""A process that lets matplotlib make its list of fonts, in its scratch directory, and ends. Locked like a worker."""

from __future__ import annotations

import argparse
import sys

from capkernel.sandbox import Profile, SandboxError, lock_down


def main() -> None:
    parser = argparse.ArgumentParser(prog="capkernel.worker.fonts", allow_abbrev=False)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--inside", choices=("plain", "bwrap"), required=True)
    arguments = parser.parse_args()
    try:
        lock_down(Profile.from_json(arguments.profile), inside_bwrap=arguments.inside == "bwrap")
    except (SandboxError, ValueError) as problem:
        sys.exit(f"capkernel fonts: {problem}")
    import matplotlib.font_manager  # noqa: F401  # makes the list on import


if __name__ == "__main__":
    main()
