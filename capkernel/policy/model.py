"""The policy file, typed: exactly the keys that something enforces.

A key that is not here is an error when it is written, so a policy never seems to say what nobody does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec

Profile = Literal["strict", "standard", "relaxed"]
SandboxLevel = Literal["full", "standard", "partial", "none"]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]
Megabytes = Annotated[int, msgspec.Meta(ge=256, le=2**20)]
Bytes = Annotated[int, msgspec.Meta(gt=0, le=2**40)]
Kept = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
SecretName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]


class Files(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[files]`. Paths are relative to the directory of the policy file; `~/` is the home directory.

    classified_write: "new" creates, and replaces what this session created; true replaces any classified file;
    false writes none. hide_classified_names: whether cells are told nothing of what lies under classified names, not
    even that it exists. memory: whether the session's files are in memory: one empty root, gone when it ends.
    unprotect: entries of `defaults.PROTECTED` that cells may write after all.
    """

    roots: tuple[str, ...] = (".",)
    classified: tuple[str, ...] = ()
    classified_write: Literal["new"] | bool = "new"
    hide_classified_names: bool = False
    memory: bool = False
    unprotect: tuple[str, ...] = ()


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[limits]`: wall seconds of a cell, of its check, of one pure function in the vault; MiB that cells and what they
    left may take, never more than most of the machine's (the default); bytes of a cell's output; seconds that a
    question waits for the person; classified values that are kept for the person when no cell can reach them."""

    cell_seconds: Seconds = 60.0
    checker_seconds: Seconds = 10.0
    map_seconds: Seconds = 30.0
    output_bytes: Bytes = 10_485_760
    cell_memory_mb: Megabytes = 2**20
    approval_seconds: Seconds = 120.0
    kept_values: Kept = 100


class Sandbox(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[sandbox]`: the lowest level at which a session starts. "none" allows a session without isolation."""

    minimum: SandboxLevel = "standard"


class Records(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[records]`: whether the code and the output of each execution are kept, redacted; bytes of one session's."""

    keep: bool = False
    max_bytes: Bytes = 67_108_864


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[output]`. secure_file: where printed and displayed classified values also go, in clear text; "" for nowhere.
    Relative to the policy file, or `~/`. active: whether outputs may act in the person's page: scripts, widgets, SVG.
    Neither is ever granted by an untrusted file."""

    secure_file: str = ""
    active: bool = False


class Viewer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[viewer]`. pairing: whether secrets are shown in a Jupyter page only after the person typed the code that the
    server printed. high: origins, in gitignore syntax, for which that holds always."""

    pairing: bool = False
    high: tuple[str, ...] = ()


class Approvals(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[approvals]`. ask: effects that wait for the person's decision (`approvable.COVERED`). declassify: whether a
    cell may ask the person to release a classified value at all."""

    ask: tuple[str, ...] = ()
    declassify: bool = True


class Secret(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[secrets.NAME]`. env: the environment variable that the kernel was started with."""

    env: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]


class PolicyFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a policy file says."""

    profile: Profile = "standard"
    files: Files = Files()
    limits: Limits = Limits()
    sandbox: Sandbox = Sandbox()
    records: Records = Records()
    output: Output = Output()
    approvals: Approvals = Approvals()
    secrets: dict[SecretName, Secret] = {}
    viewer: Viewer = Viewer()


@dataclass(frozen=True)
class PatternList:
    """Classified patterns of a file that is not the policy. They only add. base: where anchored ones start."""

    base: Path
    patterns: tuple[str, ...]


@dataclass(frozen=True)
class Policy:
    """What the operator allows, for one session.

    base_dir: the directory of the policy file, or of the notebook when there is none; what relative paths and
    anchored patterns start at. source: the file, or None. notice: why there are no roots, "" when there are some.
    added: classified patterns that untrusted files ask for, each list by itself: a negation in one says nothing about
    another.
    """

    profile: Profile
    files: Files
    limits: Limits
    sandbox: Sandbox
    base_dir: Path
    source: Path | None = None
    notice: str = ""
    added: tuple[PatternList, ...] = ()
    records: Records = field(default_factory=Records)
    output: Output = field(default_factory=Output)
    approvals: Approvals = field(default_factory=Approvals)
    secrets: dict[str, Secret] = field(default_factory=dict)
    viewer: Viewer = field(default_factory=Viewer)

    def root_paths(self) -> tuple[Path, ...]:
        """The roots as absolute paths, links not resolved."""
        return tuple(self.base_dir / expand_home(root) for root in self.files.roots)

    def secure_file(self) -> Path | None:
        """The person's secure output as an absolute path, links not resolved; None for none."""
        return self.base_dir / expand_home(self.output.secure_file) if self.output.secure_file else None


def expand_home(text: str) -> Path:
    """`~/x` below the home directory, anything else as it is."""
    return Path.home() / text[2:] if text.startswith("~/") else Path(text)
