"""The real parts of a session, put together from the policy. The one place that knows all of them.

Rule 1: there is no way to leave a part out from here: every session has its checker, broker and vault.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec.structs import replace as replace_struct

from capkernel.broker.audit import AuditLog
from capkernel.broker.broker import Broker
from capkernel.broker.secure_file import SecureFile, SecureFileUnusable, open_ambient, reachable
from capkernel.broker.secure_output import SecureOutput, off
from capkernel.checker.client import CheckerClient
from capkernel.kernel import font_cache, runtime_dir
from capkernel.kernel.checker_spawn import CheckerSpawner
from capkernel.kernel.classified_bundle import ClassifiedBundles
from capkernel.kernel.launcher import Launcher
from capkernel.kernel.memory_root import MemoryRoot
from capkernel.kernel.page_reveal import PageReveal
from capkernel.kernel.ports import CheckerPort
from capkernel.kernel.recorder import Recorder
from capkernel.kernel.settings import ACTIVE_OUTPUTS, Settings
from capkernel.kernel.supervisor import Parts
from capkernel.kernel.view import ViewServer
from capkernel.kernel.worker_spawn import WorkerSpawner, memory_limit
from capkernel.policy.excluded import Exclusions
from capkernel.policy.model import Limits as PolicyLimits
from capkernel.policy.model import Policy
from capkernel.policy.resolve import resolve_ambient
from capkernel.sandbox import Level
from capkernel.vault.client import VaultClient
from capkernel.vault.launch import keeper_profile, runner_profile, spawners
from capkernel.wire.vault import Limits

_STRICTNESS = ("strict", "standard", "relaxed")


@dataclass
class Assembly:
    """A policy and a place, and the parts made from them. Construct with `read`."""

    policy: Policy
    base: Path  # the notebook's directory
    runtime: Path
    notices: tuple[str, ...] = ()
    session: str = field(default_factory=lambda: uuid.uuid4().hex)  # in the audit and the records
    excluded: tuple[tuple[str, str], ...] = ()  # path and what it is, beyond what this process sees by itself
    launcher: Launcher | None = None  # a Jupyter server that can show values in its page
    news: list[str] = field(default_factory=list)  # lines for the person, told with the next cell
    given: dict[str, int] = field(default_factory=dict)  # secrets of the policy, and descriptors of them
    _lost: Callable[[str], None] = field(default=lambda _why: None)
    _progress: Callable[[str], None] = field(default=lambda _line: None)

    @classmethod
    def read(
        cls,
        *,
        base: str,
        runtime: str,
        policy: str | None,
        profile: str | None,
        excluded: Iterable[tuple[str, str]] = (),
        launcher: Launcher | None = None,
    ) -> Assembly:
        """Read the policy. Raises PolicyError; a launcher's profile may only be stricter than the policy's."""
        resolved = resolve_ambient(base, policy)
        said = resolved.policy
        notices = resolved.notices
        if profile is not None and _STRICTNESS.index(profile) < _STRICTNESS.index(said.profile):
            said = replace(said, profile=profile)  # type: ignore[arg-type]
        elif profile is not None and profile != said.profile:
            notices += (
                f"--profile {profile} is wider than the policy's {said.profile}, which holds; the operator may set "
                f'`profile = "{profile}"`',
            )
        places = [*excluded, *((str(file), "a policy file") for file in resolved.files)]
        places += [(runtime, "the runtime directory"), (runtime_dir.parent_directory(), "the runtime directory")]
        return cls(said, Path(base), Path(runtime), notices, excluded=tuple(places), launcher=launcher)

    def settings(self) -> Settings:
        """What the kernel itself needs to know. Raises RecordsUnavailable."""
        notices = [*([self.policy.notice] if self.policy.notice else []), *self.notices]
        if self._minimum() is Level.NONE:
            notices.append("the policy allows sessions WITHOUT isolation: native code in a cell may reach your files")
        if self.policy.output.active:
            notices.append(ACTIVE_OUTPUTS)
        limits = self.policy.limits
        later = (font_cache.build,) if font_cache.missing() else ()
        records = self.policy.records
        recorder = Recorder.open_ambient(self.session, records.max_bytes) if records.keep else None
        return Settings(
            limits.output_bytes, limits.cell_seconds, tuple(notices), later, self.news, recorder,
            cell_memory_mb=limits.cell_memory_mb, profile=self.policy.profile,
            active_outputs=self.policy.output.active,
        )  # fmt: skip

    def parts(self) -> Parts:
        """Everything, not started."""
        vault_directory = self.runtime / "vault"
        vault_directory.mkdir(mode=0o700)
        keeper, runner = spawners(keeper_profile(), runner_profile(), cwd=str(vault_directory))
        secure = self._secure_file()  # made before the exclusions, which know files by their inode
        vault = VaultClient(
            spawn_keeper=keeper, spawn_runner=runner, limits=vault_limits(self.policy.limits),
            on_lost=lambda why: self._lost(why), secure_output=None if secure is None else secure.fd,
        )  # fmt: skip
        audit = AuditLog.open_ambient(self.session)
        named = self.policy.secure_file()
        private = [] if named is None else [(str(named), "the secure output")]
        places = [*self.excluded, *private]
        if self.policy.files.memory:
            memory = MemoryRoot.make()
            exclusions = Exclusions.ambient(self.policy.source, places, granted=str(memory.path))
            policy = memory.granted_by(self.policy)
            broker = Broker(policy, memory.path, vault, audit, exclusions, memory.room, self.given)
            broker.at_end.append(memory.close)
        else:
            exclusions = Exclusions.ambient(self.policy.source, places)
            broker = Broker(self.policy, self.base, vault, audit, exclusions, given=self.given)
        if secure is not None:
            broker.posts.secure_output = SecureOutput(secure, vault, audit, broker.ledger, self.news.append)
        return Parts(
            spawn_worker=WorkerSpawner(
                self.runtime, self.policy.limits.cell_memory_mb, active_outputs=self.policy.output.active
            ),
            make_checker=self._checker,
            broker=broker,
            vault=vault,
            minimum=self._minimum(),
            listen=self._listen,
            view=ViewServer(
                self.runtime,
                self.base,
                broker,
                vault,
                audit,
                broker.approvals,
                page=PageReveal(self.launcher, self.policy),
            ),
            approvals=broker.approvals,
            classified=ClassifiedBundles(broker.ledger, vault.origins),
        )

    def _listen(self, lost: Callable[[str], None], progress: Callable[[str], None]) -> None:
        self._lost, self._progress = lost, progress

    def _checker(self) -> CheckerPort:
        return CheckerClient(
            CheckerSpawner(self.runtime), profile=self.policy.profile,
            wall_seconds=self.policy.limits.checker_seconds, progress=lambda line: self._progress(line),
        )  # fmt: skip

    def _secure_file(self) -> SecureFile | None:
        path = self.policy.secure_file()
        if path is None:
            return None
        try:
            return open_ambient(path, reachable(self.policy, self.base))
        except SecureFileUnusable as problem:
            self.news.append(off(str(problem)))
            return None

    def _minimum(self) -> Level:
        return Level.parse(self.policy.sandbox.minimum)


def vault_limits(said: PolicyLimits) -> Limits:
    """At most a quarter of the machine's memory: a value beyond it is poison, and the others live on."""
    usual = Limits(job_seconds=said.map_seconds, kept_values=said.kept_values)
    memory = memory_limit()
    return usual if memory is None else replace_struct(usual, total_bytes=min(usual.total_bytes, memory // 3))
