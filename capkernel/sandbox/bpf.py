"""A small assembler from rules about system calls to a classic BPF program for seccomp.

Rule 1: every program first checks the architecture (kill on mismatch: `int 0x80` on x86_64) and refuses x32 numbers.
Rule 2: what no rule names gets the default action; a rule without a matching condition gets it too (or `otherwise`).
Rule 3: a condition that *refuses* must look only at the bits the kernel looks at, or a caller could set the others to
get past it; so conditions on `int` arguments compare the low 32 bits only.

The program is linear: two instructions for each unconditional rule. The kernel (5.11 and later) caches unconditional
verdicts in a bitmap, so order has no cost at run time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from . import syscalls
from .levels import SandboxError

ALLOW: Final = 0x7FFF0000
KILL_PROCESS: Final = 0x80000000
_ERRNO: Final = 0x00050000

_LOAD_WORD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_AND: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
_JUMP_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K

# struct seccomp_data { int nr; u32 arch; u64 instruction_pointer; u64 args[6]; }, little endian on both machines
_OFFSET_NUMBER: Final = 0
_OFFSET_ARCHITECTURE: Final = 4
_OFFSET_ARGUMENTS: Final = 16

_LOW: Final = 0xFFFFFFFF
X32_BIT: Final = 0x40000000
MAX_INSTRUCTIONS: Final = 4096
_MAX_JUMP: Final = 255


def errno_action(number: int) -> int:
    """The action that makes a call return -1 with this errno, or return 0 without being made when it is 0."""
    if not 0 <= number <= 0xFFF:
        raise ValueError("errno out of range")
    return _ERRNO | number


@dataclass(frozen=True)
class Architecture:
    """A machine: its name as in uname(2), its AUDIT_ARCH value and its table of call numbers."""

    name: str
    audit: int
    numbers: Mapping[str, int]
    has_x32: bool


ARCHITECTURES: Final[tuple[Architecture, ...]] = (
    Architecture("x86_64", 0xC000003E, syscalls.X86_64, has_x32=True),
    Architecture("aarch64", 0xC00000B7, syscalls.AARCH64, has_x32=False),
)


@dataclass(frozen=True)
class Condition:
    """True when `(argument & mask) == value`. `wide` compares all 64 bits, otherwise the low 32 only."""

    argument: int
    value: int
    mask: int | None = None  # None: every bit of the width
    wide: bool = False

    def __post_init__(self) -> None:
        limit = (1 << 64) - 1 if self.wide else _LOW
        if not 0 <= self.argument <= 5 or not 0 <= self.value <= limit or not 0 <= self.bits <= limit:
            raise ValueError("condition out of range")
        if self.value & ~self.bits:
            raise ValueError("condition can never hold")

    @property
    def bits(self) -> int:
        """The mask as a number."""
        if self.mask is not None:
            return self.mask
        return (1 << 64) - 1 if self.wide else _LOW


@dataclass(frozen=True)
class Rule:
    """Action for one call: `action` when any of the alternatives in `when` holds entirely, else `otherwise`.

    `otherwise` None is the default action of the program. An empty alternative always holds.
    """

    name: str
    action: int = ALLOW
    when: tuple[tuple[Condition, ...], ...] = ((),)
    otherwise: int | None = None


@dataclass(frozen=True)
class Instruction:
    """struct sock_filter."""

    code: int
    if_true: int
    if_false: int
    operand: int

    def pack(self) -> bytes:
        return struct.pack("<HBBI", self.code, self.if_true, self.if_false, self.operand)


def assemble(rules: Iterable[Rule], architecture: Architecture, default: int) -> list[Instruction]:
    """The program for these rules. A rule whose call the architecture does not have is left out (aarch64 has no
    `open`).

    Raises SandboxError for two rules about one call, or a program that the kernel would refuse for its length.
    """
    program = [
        Instruction(_LOAD_WORD, 0, 0, _OFFSET_ARCHITECTURE),
        Instruction(_JUMP_EQUAL, 1, 0, architecture.audit),
        Instruction(_RETURN, 0, 0, KILL_PROCESS),
        Instruction(_LOAD_WORD, 0, 0, _OFFSET_NUMBER),
    ]
    if architecture.has_x32:
        program.append(Instruction(_JUMP_AT_LEAST, 0, 1, X32_BIT))
        program.append(Instruction(_RETURN, 0, 0, errno_action(1)))
    seen: set[str] = set()
    for rule in rules:
        if rule.name in seen:
            raise SandboxError(f"sandbox: two rules for system call {rule.name}")
        seen.add(rule.name)
        number = architecture.numbers.get(rule.name)
        if number is None:
            continue
        body = _body(rule, default)
        if len(body) > _MAX_JUMP:
            raise SandboxError(f"sandbox: too many conditions for system call {rule.name}")
        program.append(Instruction(_JUMP_EQUAL, 0, len(body), number))
        program.extend(body)
    program.append(Instruction(_RETURN, 0, 0, default))
    if len(program) > MAX_INSTRUCTIONS:
        raise SandboxError("sandbox: the system call filter is too long")
    return program


def pack(program: Iterable[Instruction]) -> bytes:
    """The program as the array of struct sock_filter that the kernel reads."""
    return b"".join(instruction.pack() for instruction in program)


def _body(rule: Rule, default: int) -> list[Instruction]:
    """Instructions that decide one call; they end in a return, for the accumulator no longer holds the number."""
    body: list[Instruction] = []
    for alternative in rule.when:
        tests: list[tuple[list[Instruction], int]] = [part for item in alternative for part in _halves(item)]
        size = sum(len(loads) + 1 for loads, _ in tests) + 1
        done = 0
        for loads, value in tests:
            done += len(loads) + 1
            body.extend(loads)
            body.append(Instruction(_JUMP_EQUAL, 0, size - done, value))
        body.append(Instruction(_RETURN, 0, 0, rule.action))
        if not alternative:
            return body
    body.append(Instruction(_RETURN, 0, 0, default if rule.otherwise is None else rule.otherwise))
    return body


def _halves(condition: Condition) -> list[tuple[list[Instruction], int]]:
    """The comparisons of 32 bits that make up a condition: (instructions that load and mask, value)."""
    offset = _OFFSET_ARGUMENTS + 8 * condition.argument
    parts = [(offset, condition.bits & _LOW, condition.value & _LOW)]
    if condition.wide:
        parts.append((offset + 4, condition.bits >> 32, condition.value >> 32))
    tests = []
    for position, mask, value in parts:
        loads = [Instruction(_LOAD_WORD, 0, 0, position)]
        if mask != _LOW:
            loads.append(Instruction(_AND, 0, 0, mask))
        tests.append((loads, value))
    return tests
