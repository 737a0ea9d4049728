"""The filter as a program: a simulator of the kernel's BPF machine runs it for both architectures, without installing
it.
"""

from __future__ import annotations

import errno
import functools
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capkernel.sandbox import bpf, seccomp, syscalls
from capkernel.sandbox.bpf import ALLOW, ARCHITECTURES, KILL_PROCESS, Architecture, Condition, Rule, errno_action
from capkernel.sandbox.levels import SandboxError

X86, ARM = ARCHITECTURES
PID = 4711
EPERM, ENOSYS, PRETEND = errno_action(errno.EPERM), errno_action(errno.ENOSYS), errno_action(0)
WORDS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2, PID, 0x1200011, 0x3D0F00, 2**32, 2**63]))


def simulate(program: bytes, number: int, audit: int, arguments: tuple[int, ...] = ()) -> int:
    """The verdict of the kernel's BPF machine (Documentation/networking/filter.rst) for one call."""
    words = (*arguments, *([0] * (6 - len(arguments))))
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, audit, 0, *words)
    code = [struct.unpack_from("<HBBI", program, offset) for offset in range(0, len(program), 8)]
    accumulator, position = 0, 0
    while True:
        operation, if_true, if_false, operand = code[position]
        position += 1
        if operation == 0x20:
            accumulator = struct.unpack_from("<I", data, operand)[0]
        elif operation == 0x54:
            accumulator &= operand
        elif operation == 0x15:
            position += if_true if accumulator == operand else if_false
        elif operation == 0x35:
            position += if_true if accumulator >= operand else if_false
        elif operation == 0x06:
            return int(operand)
        else:
            raise AssertionError(f"unknown operation {operation:#x}")


@functools.cache
def compiled(machine: str, allow_fork: bool, scratch: bool, job: bool) -> bytes:
    architecture = next(item for item in ARCHITECTURES if item.name == machine)
    if job:
        return seccomp.compile_deny_fork(architecture, PID)
    return seccomp.compile_lock(architecture, PID, allow_fork=allow_fork, scratch=scratch)


def verdict(
    machine: Architecture, name: str, *arguments: int, allow_fork: bool = False, scratch: bool = True, job: bool = False
) -> int:
    program = compiled(machine.name, allow_fork, scratch, job)
    return simulate(program, machine.numbers[name], machine.audit, arguments)


@pytest.mark.parametrize("machine", ARCHITECTURES, ids=lambda machine: machine.name)
class TestLock:
    def test_another_architecture_is_killed(self, machine: Architecture) -> None:
        program = seccomp.compile_lock(machine, PID, allow_fork=False, scratch=True)
        for audit in (0x40000003, 0x40000028, 0, X86.audit if machine is ARM else ARM.audit):
            assert simulate(program, machine.numbers["read"], audit) == KILL_PROCESS

    def test_an_unknown_number_is_refused(self, machine: Architecture) -> None:
        program = seccomp.compile_lock(machine, PID, allow_fork=False, scratch=True)
        for number in (1000, 2**31 - 1, 0xFFFFFFFF):
            assert simulate(program, number, machine.audit) == EPERM

    def test_every_x32_number_is_refused(self, machine: Architecture) -> None:
        program = seccomp.compile_lock(machine, PID, allow_fork=False, scratch=True)
        for number in machine.numbers.values():
            assert simulate(program, 0x40000000 | number, machine.audit) == EPERM

    @pytest.mark.parametrize(
        "name", ["read", "write", "mmap", "futex", "exit_group", "newfstatat", "recvmsg", "getpid"]
    )
    def test_everyday_calls_are_allowed(self, machine: Architecture, name: str) -> None:
        assert verdict(machine, name) == ALLOW

    @pytest.mark.parametrize(
        "name",
        [
            "execve",
            "execveat",
            "socket",
            "connect",
            "bind",
            "ptrace",
            "process_vm_readv",
            "bpf",
            "io_uring_setup",
            "unshare",
            "setns",
            "mount",
            "keyctl",
            "add_key",
            "memfd_create",
            "pidfd_open",
            "tkill",
            "rt_sigqueueinfo",
            "chdir",
            "fchdir",
            "truncate",
            "linkat",
            "symlinkat",
            "mknodat",
            "fchownat",
            "sendmmsg",
            "userfaultfd",
            "shmget",
            "mq_open",
            "kcmp",
            "perf_event_open",
            "setuid",
            "chroot",
            "personality",
            "name_to_handle_at",
            "setpriority",
            "setsid",
            "setpgid",
            "inotify_init1",
            "landlock_restrict_self",
            "seccomp",
            "wait4",
            "splice",
            "vmsplice",
            "timer_create",
        ],
    )
    def test_what_the_list_does_not_name_is_refused(self, machine: Architecture, name: str) -> None:
        assert verdict(machine, name) == EPERM

    def test_chmod_and_utime_say_yes_and_do_nothing(self, machine: Architecture) -> None:
        for name in ("fchmod", "fchmodat", "fchmodat2", "utimensat"):
            assert verdict(machine, name, 3, 0o777) == PRETEND
        assert verdict(machine, "listxattr") == errno_action(errno.ENOTSUP)

    def test_clone3_and_openat2_fall_back(self, machine: Architecture) -> None:
        assert verdict(machine, "clone3") == ENOSYS
        assert verdict(machine, "openat2") == ENOSYS

    @settings(deadline=None)
    @given(flags=st.one_of(WORDS, st.integers(0, 2**25)))
    def test_clone_makes_threads_only(self, machine: Architecture, flags: int) -> None:
        assert verdict(machine, "clone", flags) == (ALLOW if flags in seccomp.THREAD_FLAGS else EPERM)

    @settings(deadline=None)
    @given(flags=st.one_of(WORDS, st.sampled_from([0x1200011, 0x1200011 | 0x10000000, 0x1200011 | 1 << 40, 17])))
    def test_with_fork_clone_takes_exactly_the_flags_of_fork(self, machine: Architecture, flags: int) -> None:
        granted = flags in (seccomp.FORK_FLAGS, *seccomp.THREAD_FLAGS)
        assert verdict(machine, "clone", flags, allow_fork=True) == (ALLOW if granted else EPERM)

    @settings(deadline=None)
    @given(flags=st.integers(0, 2**64 - 1))
    def test_open_refuses_what_gets_past_landlock(self, machine: Architecture, flags: int) -> None:
        seen = flags & 0xFFFFFFFF  # the kernel looks at an int
        hostile = seen & 3 == 3 or seen & (3 | 0o1000) == 0o1000 or seen & 0o10000000 != 0
        assert verdict(machine, "openat", 0, 0, flags) == (EPERM if hostile else ALLOW)

    @settings(deadline=None)
    @given(domain=WORDS, kind=WORDS)
    def test_socketpair_is_a_unix_stream_only(self, machine: Architecture, domain: int, kind: int) -> None:
        low = kind & 0xFFFFFFFF
        granted = domain & 0xFFFFFFFF == 1 and low & ~0o2004000 == 1
        assert verdict(machine, "socketpair", domain, kind) == (ALLOW if granted else EPERM)

    @pytest.mark.parametrize("kind", [2, 3, 4, 5, 2 | 0o4000, 2 | 0o2000000, 5 | 0o2004000])
    def test_socketpair_of_another_kind_is_refused(self, machine: Architecture, kind: int) -> None:
        assert verdict(machine, "socketpair", 1, kind) == EPERM

    @settings(deadline=None)
    @given(address=WORDS)
    def test_sendto_has_no_destination(self, machine: Architecture, address: int) -> None:
        assert verdict(machine, "sendto", 3, 0, 0, 0, address, 16) == (EPERM if address else ALLOW)

    @settings(deadline=None)
    @given(target=WORDS)
    def test_signals_reach_the_process_itself_only(self, machine: Architecture, target: int) -> None:
        expected = ALLOW if target & 0xFFFFFFFF == PID else EPERM
        assert verdict(machine, "kill", target, 0) == expected
        assert verdict(machine, "tgkill", target, 1, 0) == expected

    @pytest.mark.parametrize("target", [-1, 0, 1, -PID])
    def test_signals_reach_no_group(self, machine: Architecture, target: int) -> None:
        assert verdict(machine, "kill", target & (2**64 - 1), 0) == EPERM

    @settings(deadline=None)
    @given(target=WORDS, new=WORDS)
    def test_limits_are_read_of_itself_only(self, machine: Architecture, target: int, new: int) -> None:
        own = target & 0xFFFFFFFF in (0, PID)
        assert verdict(machine, "prlimit64", target, 7, new, 0) == (ALLOW if own and new == 0 else EPERM)

    def test_a_forking_process_may_set_its_own_limits(self, machine: Architecture) -> None:
        assert verdict(machine, "prlimit64", 0, 7, 12345, 0, allow_fork=True) == ALLOW
        assert verdict(machine, "prlimit64", 1, 7, 12345, 0, allow_fork=True) == EPERM

    @pytest.mark.parametrize(
        "name", ["getsid", "getpgid", "sched_getaffinity", "sched_setaffinity", "sched_getscheduler"]
    )
    @settings(deadline=None)
    @given(target=WORDS)
    def test_calls_with_a_process_id_take_the_own_one(self, machine: Architecture, name: str, target: int) -> None:
        assert verdict(machine, name, target) == (ALLOW if target & 0xFFFFFFFF in (0, PID) else EPERM)

    @settings(deadline=None)
    @given(option=st.one_of(WORDS, st.integers(0, 2000)))
    def test_closed_lists_of_options(self, machine: Architecture, option: int) -> None:
        low = option & 0xFFFFFFFF
        assert (verdict(machine, "ioctl", 0, option) == ALLOW) == (low in seccomp._IOCTL)
        assert (verdict(machine, "fcntl", 0, option) == ALLOW) == (low in seccomp._FCNTL)
        assert (verdict(machine, "prctl", option) == ALLOW) == (low in seccomp._PRCTL)

    def test_no_option_that_signals_relaxes_or_outlives(self, machine: Architecture) -> None:
        for command in (8, 10, 15, 1024, 1026):  # F_SETOWN F_SETSIG F_SETOWN_EX F_SETLEASE F_NOTIFY
            assert verdict(machine, "fcntl", 0, command) == EPERM
        for option in (
            1,
            4,
            22,
            24,
            26,
            38,
            47,
            0x59616D61,
        ):  # PDEATHSIG DUMPABLE SECCOMP CAPBSET TSC NNP AMBIENT PTRACER
            assert verdict(machine, "prctl", option) == EPERM
        for request in (0x5412, 0x8901, 0x5452, 0x541C):  # TIOCSTI FIOSETOWN FIOASYNC TIOCLINUX
            assert verdict(machine, "ioctl", 0, request) == EPERM

    def test_a_forking_process_may_die_with_its_parent_but_not_outlive_it(self, machine: Architecture) -> None:
        assert verdict(machine, "prctl", 1, 9, allow_fork=True) == ALLOW
        assert verdict(machine, "prctl", 1, 0, allow_fork=True) == EPERM
        assert verdict(machine, "prctl", 1, 9) == EPERM

    def test_without_scratch_no_path_is_changed(self, machine: Architecture) -> None:
        for name in ("unlinkat", "mkdirat", "renameat2", "fallocate", "flock"):
            assert verdict(machine, name, scratch=True) == ALLOW
            assert verdict(machine, name, scratch=False) == EPERM

    def test_a_job_makes_threads_only_and_signals_itself_only(self, machine: Architecture) -> None:
        assert verdict(machine, "clone", seccomp.FORK_FLAGS, job=True) == EPERM
        assert verdict(machine, "clone", seccomp.THREAD_FLAGS[0], job=True) == ALLOW
        assert verdict(machine, "kill", PID, job=True) == ALLOW
        assert verdict(machine, "kill", PID - 1, job=True) == EPERM
        assert verdict(machine, "seccomp", 1, 0, job=True) == EPERM
        assert verdict(machine, "prctl", 22, job=True) == EPERM
        assert verdict(machine, "prctl", 15, job=True) == ALLOW
        assert verdict(machine, "read", job=True) == ALLOW

    def test_every_allowed_name_has_a_number(self, machine: Architecture) -> None:
        """A name with a typing error would silently be refused."""
        known = set(X86.numbers) | set(ARM.numbers)
        rules = seccomp.lock_rules(PID, allow_fork=True, scratch=True) + seccomp.deny_fork_rules(PID)
        assert {rule.name for rule in rules} <= known


class TestAssembler:
    @settings(max_examples=200, deadline=None)
    @given(
        rules=st.lists(
            st.tuples(
                st.sampled_from(sorted(syscalls.X86_64)[:12]),
                st.lists(
                    st.lists(
                        st.tuples(st.integers(0, 5), st.integers(0, 3), st.booleans()).map(
                            lambda item: Condition(item[0], item[1], mask=3, wide=item[2])
                        ),
                        max_size=3,
                    ).map(tuple),
                    min_size=1,
                    max_size=3,
                ).map(tuple),
            ),
            unique_by=lambda item: item[0],
        ),
        name=st.sampled_from(sorted(syscalls.X86_64)[:12]),
        arguments=st.tuples(*[st.integers(0, 7)] * 6),
    )
    def test_a_program_decides_as_its_rules_say(
        self, rules: list[tuple[str, tuple[tuple[Condition, ...], ...]]], name: str, arguments: tuple[int, ...]
    ) -> None:
        program = bpf.pack(bpf.assemble([Rule(rule, when=when) for rule, when in rules], X86, EPERM))
        alternatives = dict(rules).get(name, ())
        expected = any(
            all(arguments[item.argument] & item.bits == item.value for item in alternative)
            for alternative in alternatives
        )
        assert simulate(program, X86.numbers[name], X86.audit, arguments) == (ALLOW if expected else EPERM)

    def test_wide_conditions_see_the_upper_half_and_others_do_not(self) -> None:
        for wide, expected in ((True, EPERM), (False, ALLOW)):
            program = bpf.pack(bpf.assemble([Rule("read", when=((Condition(0, 5, wide=wide),),))], X86, EPERM))
            assert simulate(program, 0, X86.audit, (5,)) == ALLOW
            assert simulate(program, 0, X86.audit, (5 | 1 << 40,)) == expected

    def test_two_rules_for_one_call_are_an_error(self) -> None:
        with pytest.raises(SandboxError, match="two rules"):
            bpf.assemble([Rule("read"), Rule("read")], X86, EPERM)

    def test_a_condition_that_can_never_hold_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="never hold"):
            Condition(0, 4, mask=3)
        with pytest.raises(ValueError, match="out of range"):
            Condition(6, 0)

    def test_too_many_conditions_are_an_error(self) -> None:
        with pytest.raises(SandboxError, match="too many conditions"):
            bpf.assemble([Rule("ioctl", when=tuple((Condition(1, n),) for n in range(200)))], X86, EPERM)


HEADERS = {
    "x86_64": [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")],
    "aarch64": [Path("/usr/include/asm-generic/unistd.h")],
}


@pytest.mark.parametrize("machine", ARCHITECTURES, ids=lambda machine: machine.name)
def test_numbers_are_those_of_the_installed_headers(machine: Architecture) -> None:
    header = next((path for path in HEADERS[machine.name] if path.exists()), None)
    if header is None:
        pytest.skip("the kernel's headers are not installed")
    text = header.read_text()
    defined = dict(re.findall(r"#define (__NR\w+)\s+(\w+)", text))

    def number(name: str) -> int | None:
        value = defined.get(f"__NR_{name}")
        value = defined.get(value, value) if value else None
        return int(value) if value and value.isdigit() else None

    checked = {name: number(name) for name in machine.numbers if number(name) is not None}
    assert len(checked) > 200
    assert {name: machine.numbers[name] for name in checked} == checked


def test_calls_from_403_on_have_one_number() -> None:
    for name in set(X86.numbers) & set(ARM.numbers):
        if X86.numbers[name] >= 403 or ARM.numbers[name] >= 403:
            assert X86.numbers[name] == ARM.numbers[name], name
