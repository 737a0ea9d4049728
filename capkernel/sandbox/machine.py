"""What this machine offers for isolation, proved by a process that locks itself, in words for `capkernel doctor`."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from typing import Final

from . import bubblewrap, landlock, seccomp
from .launcher import clean_environment, interpreter_argv, launch
from .levels import Level, SandboxError, missing_for
from .profile import MAX_JSON, Profile, Report

_PROBE_SECONDS: Final = 60.0
_SWITCHED_OFF: Final = "switched off for this survey"


@dataclass(frozen=True)
class Survey:
    """`level` is what a probe process proved; `report` is its report, None when it failed (see `problem`)."""

    platform: str
    machine: str
    kernel: str
    landlock_abi: int
    seccomp: bool
    user_namespaces: str  # "" when they work, else why not
    bubblewrap: str  # "" when it works, else why not
    level: Level
    report: Report | None
    problem: str
    hints: tuple[str, ...]

    @property
    def missing(self) -> tuple[str, ...]:
        """The properties that the next higher level needs."""
        if self.level >= Level.FULL:
            return ()
        above = Level.FULL if self.level >= Level.STANDARD else Level.STANDARD
        return missing_for(above, self.report.properties if self.report else {})

    def lines(self) -> list[str]:
        """The survey as lines of text."""
        proved = sorted(name for name, value in (self.report.properties if self.report else {}).items() if value)
        lines = [
            f"sandbox level: {self.level.label} ({self.platform} {self.kernel} on {self.machine})",
            f"Landlock: {f'version {self.landlock_abi}' if self.landlock_abi else 'not available'}",
            f"system call filter: {'available' if self.seccomp else 'not available on this machine'}",
            f"user namespaces: {self.user_namespaces or 'work'}",
            f"bubblewrap: {self.bubblewrap or 'works'}",
            f"proved: {', '.join(proved) or 'nothing'}",
        ]
        if self.missing:
            lines.append(f"not proved: {', '.join(self.missing)}")
        if self.problem:
            lines.append(f"problem: {self.problem}")
        lines += [f"note: {note}" for note in (self.report.notes if self.report else ())]
        lines += [f"hint: {hint}" for hint in self.hints]
        return lines

    def to_json(self) -> str:
        """The survey as one JSON object."""
        return json.dumps({
            "platform": self.platform, "machine": self.machine, "kernel": self.kernel, "level": self.level.label,
            "landlock_abi": self.landlock_abi, "seccomp": self.seccomp, "user_namespaces": self.user_namespaces,
            "bubblewrap": self.bubblewrap, "properties": dict(self.report.properties) if self.report else {},
            "missing": list(self.missing), "problem": self.problem,
            "notes": list(self.report.notes) if self.report else [], "hints": list(self.hints),
        })  # fmt: skip


def survey(*, use_bwrap: bool | None = None) -> Survey:
    """Look at this machine and start one probe process. Takes about a tenth of a second; never raises."""
    reason = _SWITCHED_OFF if use_bwrap is False else bubblewrap.why_not()
    report, problem = _probe(wrapped=not reason) if sys.platform == "linux" else (None, "")
    abi, filtered, namespaces = landlock.version(), seccomp.current_architecture() is not None, _user_namespaces()
    level = report.level if report else Level.NONE
    system = platform.uname()
    return Survey(
        platform=sys.platform, machine=system.machine, kernel=system.release, landlock_abi=abi, seccomp=filtered,
        user_namespaces=namespaces, bubblewrap=reason, level=level, report=report, problem=problem,
        hints=tuple(hints_for(
            sys.platform, system.release, landlock_abi=abi, filtered=filtered, bwrap_reason=reason,
            bwrap_found=bubblewrap.find() is not None, restricted=_apparmor_restricts(), container=_in_container(),
        )),
    )  # fmt: skip


def hints_for(
    platform: str,
    release: str,
    *,
    landlock_abi: int,
    filtered: bool,
    bwrap_reason: str,
    bwrap_found: bool,
    restricted: bool,
    container: bool,
) -> list[str]:
    """What helps on this machine, each with the one command."""
    if platform == "darwin":
        return [
            "no OS isolation on macOS; run the kernel in Linux, for example in a container: "
            '`docker run --rm -it -v "$PWD:/work" -w /work python:3.12 bash`'
        ]
    if platform != "linux":
        return ["no OS isolation on Windows; use WSL2: `wsl --install`"]
    hints = []
    if landlock_abi == 0:
        if "microsoft" in release.lower():
            hints.append("Landlock needs a newer WSL2 kernel: `wsl --update`")
        else:
            hints.append(
                "Landlock needs Linux 5.13 or later with the module on; see `cat /sys/kernel/security/lsm`, and put "
                "`lsm=landlock,...` on the kernel's command line when it is not listed"
            )
    if not filtered:
        hints.append("the system call filter is written for 64-bit x86_64 and aarch64 only")
    if not bwrap_found:
        hints.append("for level full install bubblewrap: `sudo apt install bubblewrap` (or `dnf install bubblewrap`)")
    elif not bwrap_reason or bwrap_reason == _SWITCHED_OFF:
        pass
    elif restricted:
        hints.append(
            "Ubuntu 24.04 and later keep bubblewrap from namespaces; its AppArmor profile lets it: `sudo apt install "
            "apparmor-profiles && sudo install -m 644 /usr/share/apparmor/extra-profiles/bwrap-userns-restrict "
            "/etc/apparmor.d/ && sudo apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict`"
        )
    elif container:
        hints.append(
            "inside a container bubblewrap needs more rights than it usually has; level standard does not need it. For "
            "level full: `docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined ...`"
        )
    else:
        hints.append("unprivileged user namespaces may be off: `sudo sysctl user.max_user_namespaces=15000`")
    return hints


def _probe(*, wrapped: bool) -> tuple[Report | None, str]:
    profile = Profile("worker")
    read_end, write_end = os.pipe()
    try:
        try:
            child = launch(
                interpreter_argv("capkernel.sandbox.probe", profile.to_json(), "bwrap" if wrapped else "plain"),
                profile=profile, pass_fds=(), env=clean_environment(), cwd="/", stdout=write_end, stderr=write_end,
                use_bwrap=wrapped,
            )  # fmt: skip
        except SandboxError as error:
            return None, str(error)
        finally:
            os.close(write_end)
        try:
            child.wait(_PROBE_SECONDS)
            text = _read(read_end)
        except subprocess.TimeoutExpired:
            return None, "the probe process did not end"
        finally:
            child.terminate_hard()
    finally:
        os.close(read_end)
    try:
        return Report.from_json(text.strip()), ""
    except ValueError:
        return None, text.strip()[-500:] or "the probe process ended without a report"


def _read(descriptor: int) -> str:
    """Everything in the pipe of a process that has ended (its report is far smaller than a pipe's buffer)."""
    parts, size = [], 0
    while size < MAX_JSON:
        part = os.read(descriptor, 65536)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts).decode("utf-8", "replace")


def _user_namespaces() -> str:
    if sys.platform != "linux":
        return "not on this system"
    if _apparmor_restricts() and os.geteuid() != 0:
        return "restricted by AppArmor"
    try:
        with open("/proc/sys/user/max_user_namespaces", encoding="ascii") as limit:
            return "" if int(limit.read()) > 0 else "user.max_user_namespaces is 0"
    except (OSError, ValueError):
        return "not in this kernel"


def _apparmor_restricts() -> bool:
    try:
        with open("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", encoding="ascii") as flag:
            return flag.read().strip() == "1"
    except OSError:
        return False


def _in_container() -> bool:
    return any(os.path.exists(path) for path in ("/.dockerenv", "/run/.containerenv"))
