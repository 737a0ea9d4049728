"""Where capabilities and secrets may go in a cell: the capture checker.

Judged after mypy, on Python's own tree. `CaptureSession` keeps what later cells need.
"""

from capkernel.checker.captures.session import CaptureSession, CaptureVerdict, Facts

__all__ = ["CaptureSession", "CaptureVerdict", "Facts"]
