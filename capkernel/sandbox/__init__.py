"""OS isolation of the worker, the vault keeper and the vault runner.

`launch` starts a process from the kernel, `lock_down` closes it from inside and proves it, `verify` looks at it from
outside, `survey` tells what this machine offers. Standard library only: this is imported in a child before it is
locked.
"""

from .launcher import Child, clean_environment, expected_level, interpreter_argv, launch, prefers_bwrap
from .levels import Level, SandboxError, missing_for
from .lockdown import lock_down
from .machine import Survey, survey
from .outside import verify
from .paths import default_read_paths
from .profile import Profile, Report
from .seccomp import deny_fork

__all__ = [
    "Child", "Level", "Profile", "Report", "SandboxError", "Survey", "clean_environment", "default_read_paths",
    "deny_fork", "expected_level", "interpreter_argv", "launch", "lock_down", "missing_for", "prefers_bwrap", "survey",
    "verify",
]  # fmt: skip
