"""The one line of mypy whose insides the checker uses, and what to say when another is installed.

Rule 1: nothing of mypy is imported here. Another mypy may not even import, and the kernel asks, too.
"""

from __future__ import annotations

import sys
from importlib import metadata

SUPPORTED = "2.4."


def installed() -> str:
    """The version of the installed mypy, "" when there is none."""
    try:
        return metadata.version("mypy")
    except metadata.PackageNotFoundError:
        return ""


def problem(found: str | None = None) -> str:
    """What is installed, what is needed, and the command that helps; "" when all is well."""
    version = installed() if found is None else found
    if version.startswith(SUPPORTED):
        return ""
    said = f"mypy {version} is installed" if version else "mypy is not installed"
    return f"capkernel needs mypy {SUPPORTED}*, and {said}. Run: {sys.executable} -m pip install 'mypy=={SUPPORTED}*'"
