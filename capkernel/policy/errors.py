"""What is wrong with a policy, and where."""

from __future__ import annotations

from pathlib import Path


class PolicyError(Exception):
    """A policy that must not be used. Nothing of it holds; the session does not start.

    file: the policy file. line: 1-based, or None. problem: what is wrong and what to do.
    """

    def __init__(self, file: Path, line: int | None, problem: str) -> None:
        self.file = file
        self.line = line
        self.problem = problem
        super().__init__(f"{file}:{line}: {problem}" if line is not None else f"{file}: {problem}")
