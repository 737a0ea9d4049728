"""What refuses: the profiles as data. A profile says which errors of mypy stop a cell; our own rules always do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import mypy.build  # noqa: F401  (must be the first mypy module: the others import each other in a circle)
from mypy import errorcodes
from mypy.options import Options

ProfileName = Literal["strict", "standard", "relaxed"]


@dataclass(frozen=True)
class Profile:
    """`refusing`: mypy's codes that stop a cell, None for all. `silent`: codes that are not even shown."""

    name: ProfileName
    refusing: frozenset[str] | None
    silent: frozenset[str]
    honours_ignores: bool  # whether `# type: ignore` works for mypy's codes
    flags: frozenset[str] = field(default_factory=frozenset)
    enabled: frozenset[str] = field(default_factory=frozenset)  # codes of mypy that are off by default

    def refuses(self, code: str) -> bool:
        """Whether an error of mypy with this code stops the cell."""
        return self.refusing is None or code in self.refusing

    def cell_options(self, library: Options) -> Options:
        """mypy's options for cells."""
        options = library.apply_changes(dict.fromkeys(self.flags, True))
        options.enabled_error_codes = {errorcodes.error_codes[code] for code in self.enabled}
        options.disabled_error_codes = {errorcodes.TOP_LEVEL_AWAIT, errorcodes.ANNOTATION_UNCHECKED}
        return options


# Types wait for the next cell, so an empty container needs no annotation; `ignore_missing_imports` hides the rest.
_ALWAYS_SILENT = frozenset(("var-annotated", "import", "import-untyped", "import-not-found"))

STRICT = Profile(
    "strict",
    refusing=None,
    silent=frozenset(),
    honours_ignores=False,
    flags=frozenset(
        (
            "disallow_untyped_calls",
            "disallow_untyped_decorators",
            "disallow_untyped_defs",
            "disallow_incomplete_defs",
            "disallow_any_generics",
            "warn_return_any",
            "strict_equality",
            "extra_checks",
        )
    ),
    enabled=frozenset(("exhaustive-match", "possibly-undefined")),
)
STANDARD = Profile(
    "standard",
    refusing=frozenset(("call-arg", "assignment")),
    silent=_ALWAYS_SILENT,
    honours_ignores=True,
)
RELAXED = Profile("relaxed", refusing=frozenset(), silent=_ALWAYS_SILENT, honours_ignores=True)

PROFILES: dict[str, Profile] = {profile.name: profile for profile in (STRICT, STANDARD, RELAXED)}
