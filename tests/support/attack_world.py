"""The place where attack programs run: a project with a secret in it, things outside of it, a server that listens."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from leaks import leaked
from loopback import Listener

VARIABLE = "CAPKERNEL_ATTACKS_TOKEN"


@dataclass
class World:
    """A project below `base`. Everything an attacker could gain is a random text of its own."""

    base: Path
    secret: str
    listener: Listener
    marks: dict[str, str] = field(
        default_factory=lambda: {
            name: f"{name}{secrets.token_hex(12)}" for name in ("marker", "outside", "sibling", "environment", "audit")
        }
    )

    untouched: dict[str, bytes | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in ("data", "data-private", "secrets/deep/er"):
            (self.project / folder).mkdir(parents=True)
        (self.base / "outside").mkdir()
        audit = self.base / "state" / "capkernel" / "audit"
        audit.mkdir(parents=True, mode=0o700)
        (audit / "0.jsonl").write_text(self.marks["audit"])
        self.outside.write_text(self.marks["outside"])
        (self.project / "data" / "marker.txt").write_text(self.marks["marker"])
        (self.project / "data-private" / "x.txt").write_text(self.marks["sibling"])
        (self.project / "data" / "other.py").write_text(f"print(open({str(self.outside)!r}).read())\n")
        canary = self.project / "secrets" / "canary.txt"
        canary.write_text(self.secret)
        (self.project / "secrets" / "deep" / "er" / "copy.txt").write_text(self.secret)
        os.link(canary, self.project / "data" / "hard.txt")
        os.symlink("../secrets/canary.txt", self.project / "data" / "soft.txt")
        os.symlink("secrets", self.project / "soft-dir")
        os.symlink("../outside", self.project / "link-out")
        os.symlink("../../outside/made.txt", self.project / "data" / "dangling.txt")
        os.symlink("/proc/self/environ", self.project / "data" / "environ.txt")
        (self.project / ".git" / "hooks").mkdir(parents=True)
        (self.project / ".git" / "config").write_text("[core]\n")
        self.untouched = self._guarded()

    @property
    def project(self) -> Path:
        return self.base / "project"

    @property
    def outside(self) -> Path:
        return self.base / "outside" / "marker.txt"

    def _guarded(self) -> dict[str, bytes | None]:
        """Files that no cell may change by a plain verb, None for those that are not there."""
        project, audit = self.project, self.base / "state" / "capkernel" / "audit" / "0.jsonl"
        files = [project / "secrets" / "canary.txt", project / "secrets" / "deep" / "er" / "copy.txt", self.outside,
                 project / ".git" / "config", project / ".git" / "hooks" / "pre-commit",
                 self.outside.with_name("made.txt"), project / "data-private" / "x.txt", audit]  # fmt: skip
        return {str(path): path.read_bytes() if path.is_file() else None for path in files}

    @property
    def names(self) -> dict[str, int | str]:
        """What every program finds in its session."""
        return {"PORT": self.listener.port, "OUTSIDE": str(self.outside), "PROJECT": str(self.project)}

    def setup(self) -> str:
        """The cell before a program in a kernel: the names, and the secret as `s`."""
        names = "".join(f"{name} = {value!r}\n" for name, value in self.names.items())
        return names + "with request_file_system('.') as fs:\n    s = fs.read_classified('secrets/canary.txt')\n"

    def left_behind(self, *more: Path) -> str:
        """Names and contents of all that lies in the project beside the secrets, and below `more`."""
        found = []
        for folder in (self.project, *more):
            for path in sorted(folder.rglob("*")):
                inside = path.relative_to(folder)
                found.append(str(inside))
                ours = inside.parts[:1] in (("secrets",), ("soft-dir",)) or inside.name in ("hard.txt", "soft.txt")
                if folder == self.project and (ours or inside.parts[0] in ("data", "data-private", "link-out")):
                    ours = ours or inside.name in ("marker.txt", "x.txt", "other.py")
                if not ours and path.is_file() and not path.is_symlink():
                    found.append(path.read_bytes().decode("utf-8", "replace"))
        return "\n".join(found)

    def tidy(self) -> None:
        """Take away what a program wrote."""
        for path in self.project.rglob("leak*"):
            if path.is_file():
                path.unlink()
            else:
                path.rmdir()

    def gained(self, text: str, knocks: int, behind: str) -> set[str]:
        """What of it is in a text that an attacker sees, and in what `left_behind` found."""
        found = {name for name, mark in self.marks.items() if mark in text}
        if leaked(self.secret, text):
            found.add("secret")
        if knocks:
            found.add("knock")
        if re.search(r"^(data/)?leak", behind, re.M):
            found.add("written")
        if self._guarded() != self.untouched:
            found.add("damaged")
        return found
