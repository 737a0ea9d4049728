"""The keeper as a process: `python -m capkernel.vault.keeper_main --fd N --profile JSON --wall bwrap|plain`."""

from __future__ import annotations

import sys

from capkernel.vault.startup import begin


def main(arguments: list[str]) -> None:
    """Returns when the kernel closes the control link or breaks its protocol."""
    link, report = begin("keeper", arguments)

    from capkernel.vault.keeper_loop import serve

    serve(link, report)


if __name__ == "__main__":
    main(sys.argv[1:])
