"""Seccomp: a Linux process gives up system calls that a solution does not need.

A filter, a small program in the kernel, sees the number and the arguments of each system call. Those that are refused
fail with EPERM, which Python raises as a PermissionError. The filter holds for the process and its future children, and
cannot be removed. No privileges are needed. See seccomp(2).
"""

import ctypes
import errno
import os
import platform
from collections.abc import Mapping
from typing import NamedTuple

AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The kernel's number of each supported architecture."""
_ARCHITECTURES = tuple(AUDIT_ARCHITECTURE)

SystemCalls = Mapping[str, tuple[int | None, int | None]]
"""System calls with their numbers on x86_64 and aarch64; None if the architecture does not have it."""
REFUSED: SystemCalls = {
    # programs and the network
    "execve": (59, 221), "execveat": (322, 281), "socket": (41, 198), "io_uring_setup": (425, 425),
    # other processes: their memory, files and signals
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    # modes, owners, times and, before Linux 6.2, sizes of files, which Landlock does not cover
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "truncate": (76, 45), "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    # memory that counts for no limit
    "memfd_create": (319, 279), "shmget": (29, 194), "msgget": (68, 186),
    # parts of the kernel that a solution has no use for
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219),
}  # fmt: skip
"""System calls that a solution is refused."""
ONLY_FOR_SELF: dict[str, tuple[int, int]] = {"kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261)}
"""System calls whose first argument is a process, which must be the process itself."""

X32_CALLS = 0x40000000
"""Numbers from here on are system calls of another mode of x86_64."""
LOAD, JUMP_IF_EQUAL, JUMP_IF_AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
CALL_NUMBER, ARCHITECTURE, FIRST_ARGUMENT = 0, 4, 16
"""Offsets in the kernel's description of a system call. The architectures are little-endian."""
PR_SET_SECCOMP, FILTER_MODE = 22, 2


class Instruction(NamedTuple):
    """An instruction of the filter. The jumps are the numbers of instructions to skip."""

    code: int
    if_true: int
    if_false: int
    operand: int


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("if_true", ctypes.c_uint8),
        ("if_false", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction)))


def restrict_system_calls(refused: SystemCalls = REFUSED) -> None:
    """Refuse this process and its children system calls; an OSError if that is impossible.

    The caller must have set `no_new_privs`.
    """
    instructions = filter_program(platform.machine(), os.getpid(), refused)
    array = (_Instruction * len(instructions))(*(_Instruction(*instruction) for instruction in instructions))
    program = _Program(len(instructions), array)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, FILTER_MODE, ctypes.byref(program), 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def filter_program(machine: str, pid: int, refused: SystemCalls = REFUSED) -> list[Instruction]:
    """The filter for a process on an architecture; an OSError if the architecture is not supported."""
    if machine not in AUDIT_ARCHITECTURE:
        raise OSError(errno.ENOSYS, f"no filter for system calls on {machine}")
    column = _ARCHITECTURES.index(machine)
    refuse, allow = Instruction(RETURN, 0, 0, REFUSE), Instruction(RETURN, 0, 0, ALLOW)
    program = [
        Instruction(LOAD, 0, 0, ARCHITECTURE),
        Instruction(JUMP_IF_EQUAL, 1, 0, AUDIT_ARCHITECTURE[machine]),
        refuse,
        Instruction(LOAD, 0, 0, CALL_NUMBER),
        Instruction(JUMP_IF_AT_LEAST, 0, 1, X32_CALLS),
        refuse,
    ]
    for numbers in refused.values():
        if (number := numbers[column]) is not None:
            program += [Instruction(JUMP_IF_EQUAL, 0, 1, number), refuse]
    for name, own_numbers in ONLY_FOR_SELF.items():
        is_self = [Instruction(JUMP_IF_EQUAL, 2, 0, 0)] if name == "prlimit64" else []  # 0 means the process itself
        body = [
            Instruction(LOAD, 0, 0, FIRST_ARGUMENT),
            *is_self,
            Instruction(JUMP_IF_EQUAL, 1, 0, pid),
            refuse,
            allow,
        ]
        program += [Instruction(JUMP_IF_EQUAL, 0, len(body), own_numbers[column]), *body]
    return [*program, allow]
