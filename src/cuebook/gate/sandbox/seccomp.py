"""Seccomp filters that deny certain system calls to confined processes.

Namespaces already keep a process in bubblewrap away from files, other processes and the network. The filter blocks what
namespaces do not: the hypervisor's sockets, the session's keyrings, and parts of the kernel that have often been
exploited. A process in Landlock has no namespaces of its own, so its filter blocks more.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
from collections.abc import Mapping, Sequence
from functools import cache

from cuebook.gate.sandbox.limits import TAG

_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _ERROR, _KILL, _NOTIFY = 0x7FFF0000, 0x00050000, 0x80000000, 0x7FC00000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000

_NEW_NAMESPACES = 0x7E020000
_SIBLING = 0x8000
"""CLONE_PARENT: the new process would be our child instead of a descendant of the watched process."""
_KIND = 0xF
"""The bits of a socket's type that are not flags."""
_CONNECTED = (socket.SOCK_STREAM, 5)
"""5 is SOCK_SEQPACKET, which Python does not define on every system."""
_TERMINAL_INPUT = (0x5412, 0x541C)
"""Requests that put characters into a terminal as if they had been typed."""
_FILE_ATTRIBUTES = (
    *(0x40086602, 0x40046602, 0x401C5820),  # FS_IOC_SETFLAGS, its 32-bit version, FS_IOC_FSSETXATTR
    *(0x40087602, 0x40086604, 0x40806685),  # FS_IOC_SETVERSION, EXT4_IOC_SETVERSION, FS_IOC_ENABLE_VERITY
    *(0x800C6613, 0x40047211),  # FS_IOC_SET_ENCRYPTION_POLICY, FAT_IOCTL_SET_ATTRIBUTES
)
"""Requests that change the attributes of a file that may have been opened only for reading."""
_SUBVOLUMES = (
    *(0x50009401, 0x50009417, 0x5000940E, 0x50009418),  # BTRFS_IOC_SNAP_CREATE, SUBVOL_CREATE, each in two versions
    *(0x5000940F, 0x5000943F, 0x4008941A, 0xC0C89425),  # BTRFS_IOC_SNAP_DESTROY in two, SUBVOL_SETFLAGS, SET_RECEIVED
)
"""Requests that create, remove or change btrfs subvolumes, given any descriptor of the folder around them."""
_FAMILIES = (socket.AF_INET, socket.AF_INET6, 16)
"""16 is netlink, through which a process learns the machine's addresses."""

_MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SAME = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "mount_setattr": 442, "open_tree_attr": 467,
}  # fmt: skip
_REFUSED: dict[str, dict[str, int]] = {
    "x86_64": {
        "modify_ldt": 154, "pivot_root": 155, "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164,
        "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "iopl": 172, "ioperm": 173,
        "init_module": 175, "delete_module": 176, "quotactl": 179, "nfsservctl": 180, "syslog": 103,
        "lookup_dcookie": 212, "clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249,
        "keyctl": 250, "unshare": 272, "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303,
        "open_by_handle_at": 304, "clock_adjtime": 305, "setns": 308, "finit_module": 313, "kexec_file_load": 320,
        "bpf": 321, "userfaultfd": 323, **_SAME,
    },
    "aarch64": {
        "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "nfsservctl": 42, "chroot": 51,
        "quotactl": 60, "acct": 89, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106,
        "clock_settime": 112, "syslog": 116, "reboot": 142, "settimeofday": 170, "adjtimex": 171, "add_key": 217,
        "request_key": 218, "keyctl": 219, "swapon": 224, "swapoff": 225, "perf_event_open": 241,
        "fanotify_init": 262, "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268,
        "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294, **_SAME,
    },
}  # fmt: skip
_SHARED: dict[str, dict[str, int]] = {
    "x86_64": {
        "shmget": 29, "shmat": 30, "shmctl": 31, "shmdt": 67, "semget": 64, "semop": 65, "semctl": 66,
        "semtimedop": 220, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71, "mq_open": 240, "mq_unlink": 241,
        "setpriority": 141, "ioprio_set": 251, "process_madvise": 440, "file_setattr": 469,
    },
    "aarch64": {
        "shmget": 194, "shmat": 196, "shmctl": 195, "shmdt": 197, "semget": 190, "semop": 193, "semctl": 191,
        "semtimedop": 192, "msgget": 186, "msgsnd": 189, "msgrcv": 188, "msgctl": 187, "mq_open": 180, "mq_unlink": 181,
        "setpriority": 140, "ioprio_set": 30, "process_madvise": 440, "file_setattr": 469,
    },
}  # fmt: skip
"""Calls that access resources shared by all of a user's processes. Landlock does not check them."""
_OF_A_PROCESS: dict[str, dict[str, int]] = {
    "x86_64": {
        "prlimit64": 302, "sched_setaffinity": 203, "sched_setattr": 314, "sched_setparam": 142,
        "sched_setscheduler": 144, "migrate_pages": 256, "move_pages": 279,
    },
    "aarch64": {
        "prlimit64": 261, "sched_setaffinity": 122, "sched_setattr": 274, "sched_setparam": 118,
        "sched_setscheduler": 119, "migrate_pages": 238, "move_pages": 239,
    },
}  # fmt: skip
"""Calls that change the process whose PID is the first argument, 0 for the caller. Without a filter, a process could change
our limits and priorities, and RLIMIT_CPU kills as surely as a signal.
"""
_ATTRIBUTES: dict[str, dict[str, int]] = {
    "x86_64": {
        "chmod": 90, "fchmod": 91, "fchmodat": 268, "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260,
        "utime": 132, "utimes": 235, "futimesat": 261, "utimensat": 280, "setxattr": 188, "lsetxattr": 189,
        "fsetxattr": 190, "removexattr": 197, "lremovexattr": 198, "fremovexattr": 199,
        "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466,
    },
    "aarch64": {
        "fchmod": 52, "fchmodat": 53, "fchown": 55, "fchownat": 54, "utimensat": 88, "setxattr": 5, "lsetxattr": 6,
        "fsetxattr": 7, "removexattr": 14, "lremovexattr": 15, "fremovexattr": 16,
        "fchmodat2": 452, "setxattrat": 463, "removexattrat": 466,
    },
}  # fmt: skip
"""Calls that change the mode, owner, times or attributes of a file. Landlock does not check them."""
_CLONE3 = 435
_SOCKETS: dict[str, dict[str, int]] = {
    "x86_64": {"connect": 42, "bind": 49, "listen": 50, "sendto": 44, "sendmsg": 46, "sendmmsg": 307},
    "aarch64": {"connect": 203, "bind": 200, "listen": 201, "sendto": 206, "sendmsg": 211, "sendmmsg": 269},
}
_FLAGS_OF_SENDING = {"sendto": 3, "sendmsg": 2, "sendmmsg": 3}
_FASTOPEN = 0x20000000
"""MSG_FASTOPEN: connects while it sends."""
_INSTALL = {"x86_64": 317, "aarch64": 277}
_CALLS = {
    "x86_64": {"clone": 56, "socket": 41, "socketpair": 53, "ioctl": 16, "prlimit64": 302, "setrlimit": 160},
    "aarch64": {"clone": 220, "socket": 198, "socketpair": 199, "ioctl": 29, "prlimit64": 261, "setrlimit": 164},
}


@cache
def filter_for(exposed: bool) -> bytes | None:
    """The filter for this machine, or None if its system call numbers are unknown.

    A process that is `exposed` could also reach the sockets of other programs: those without a path if it shares the
    machine's network, or those among the paths that it may read. It therefore gets no local sockets at all, except for
    connected pairs.
    """
    machine = platform.machine()
    if machine not in _MACHINES:
        return None
    families = _FAMILIES if exposed else (*_FAMILIES, socket.AF_UNIX)
    return _filter(machine, refused=_REFUSED[machine], families=families, ioctls=_TERMINAL_INPUT, clone=_NEW_NAMESPACES)


@cache
def filter_for_landlock(*, network: bool, reads_only: bool, proxied: bool = False, idle: bool = False) -> bytes | None:
    """The filter for a process that shares all namespaces with us, or None as above. If it is `proxied`, its sockets come
    from us: see `network.sockets`. So do its local sockets, if it gets `idle` ones.

    It blocks local sockets, because Landlock does not restrict connections to sockets that have a path.
    """
    machine = platform.machine()
    if machine not in _MACHINES:
        return None
    refused = {**_REFUSED[machine], **_SHARED[machine], **(_ATTRIBUTES[machine] if reads_only else {})}
    return _filter(
        machine,
        refused=refused,
        families=_FAMILIES if network else (),
        ioctls=(*_TERMINAL_INPUT, *_FILE_ATTRIBUTES, *_SUBVOLUMES),
        clone=_NEW_NAMESPACES | _SIBLING,
        more=_own_process_only(machine),
        sockets=_sockets_from_us(machine, idle=idle) if proxied else None,
    )


def _filter(
    machine: str,
    *,
    refused: Mapping[str, int],
    families: Sequence[int],
    ioctls: Sequence[int],
    clone: int,
    more: Sequence[bytes] = (),
    sockets: Sequence[bytes] | None = None,
) -> bytes:
    calls = _CALLS[machine]
    code = _beginning(machine)
    for number in sorted(refused.values()):
        code += _if(_EQUAL, number, _error(errno.EPERM))
    # The arguments of `clone3` are in memory, where no filter can read them; C libraries fall back to `clone`.
    code += _if(_EQUAL, _CLONE3, _error(errno.ENOSYS))
    code += _for_call(calls["clone"], 0, _if(_ANY_OF, clone, _error(errno.EPERM)))
    code += _for_call(calls["ioctl"], 1, _refusals(ioctls))
    known = [step for family in families for step in _if(_EQUAL, family, _ALLOW)]
    code += sockets or _for_call(calls["socket"], 0, [*known, _step(_RETURN, _error(errno.EAFNOSUPPORT))])
    if socket.AF_UNIX not in families:
        # A datagram socket of a pair can send to any address. Stream and seqpacket sockets stay connected.
        lasting = [step for kind in _CONNECTED for step in _if(_EQUAL, kind, _ALLOW)]
        others = _step(_RETURN, _error(errno.EPERM))
        code += _for_call(calls["socketpair"], 1, [_step(_AND, _KIND), *lasting, others])
    return b"".join([*code, *more, _step(_RETURN, _ALLOW)])


def _sockets_from_us(machine: str, *, idle: bool) -> list[bytes]:
    """Passes requests for TCP sockets to us and denies all others. Such a socket is connected already and stays so. An
    `idle` local socket is, too, so it can be neither named nor listened on, but the process is made to believe so.
    """
    calls, refused = _SOCKETS[machine], _error(errno.EAFNOSUPPORT)
    kind = [_step(_LOAD, _ARGUMENTS + 8), _step(_AND, _KIND)]
    local = [*kind, *_if(_EQUAL, socket.SOCK_STREAM, _NOTIFY), _step(_RETURN, refused)]
    code = _for_call(
        _CALLS[machine]["socket"],
        0,
        [
            *([_step(_EQUAL, socket.AF_UNIX, 0, len(local)), *local] if idle else []),
            *_unless(_EQUAL, socket.AF_INET, refused),
            *(*kind, *_unless(_EQUAL, socket.SOCK_STREAM, refused)),
            *(_step(_LOAD, _ARGUMENTS + 16), *_if(_EQUAL, 0, _NOTIFY), *_if(_EQUAL, socket.IPPROTO_TCP, _NOTIFY)),
            _step(_RETURN, refused),
        ],
    )
    code += _if(_EQUAL, calls["connect"], _error(0))
    for name in ("bind", "listen"):
        code += _if(_EQUAL, calls[name], _error(0 if idle else errno.EPERM))
    for name, argument in _FLAGS_OF_SENDING.items():
        code += _for_call(calls[name], argument, _if(_ANY_OF, _FASTOPEN, _error(errno.EPERM)))
    return code


def _own_process_only(machine: str) -> list[bytes]:
    """Denies changing other processes, and the limit that identifies a process's command."""
    calls = _CALLS[machine]
    code = _for_call(calls["setrlimit"], 0, _if(_EQUAL, TAG, _error(errno.EPERM)))
    for number in sorted(_OF_A_PROCESS[machine].values()):
        other = _unless(_EQUAL, 0, _error(errno.EPERM))
        code += _for_call(number, 0, [*other, *_keep_tag()] if number == calls["prlimit64"] else other)
    return code


def _keep_tag() -> list[bytes]:
    """Denies `prlimit64` for the tag if it sets a new value, that is, if its third argument is not null."""
    sets = [
        step
        for half in (0, 4)
        for step in (_step(_LOAD, _ARGUMENTS + 8 * 2 + half), *_unless(_EQUAL, 0, _error(errno.EPERM)))
    ]
    return [_step(_LOAD, _ARGUMENTS + 8), _step(_EQUAL, TAG, 0, len(sets)), *sets]


def install(code: bytes, *, notifies: bool = False) -> int:
    """Applies a filter to this thread and everything it starts. The filter cannot be removed. Returns the descriptor from
    which we read its notifications, if it has any; otherwise -1.
    """
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // len(_step(0, 0)), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    if notifies:
        number = ctypes.c_long(_INSTALL[platform.machine()])
        descriptor: int = libc.syscall(number, ctypes.c_ulong(1), _LISTENING, program)
    else:
        descriptor = -1
    if descriptor < 0 and (notifies or libc.prctl(_SET_FILTER, _BY_PROGRAM, program)):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return descriptor


_SET_FILTER, _BY_PROGRAM = 22, ctypes.c_ulong(2)
_LISTENING = ctypes.c_ulong(1 << 3 | 1 << 5)
"""With a descriptor for notifications, and only a signal that kills interrupts a call that we are answering."""


def _beginning(machine: str) -> list[bytes]:
    """Kills a process that makes system calls for another architecture, then loads the number of the system call."""
    code = [_step(_LOAD, _ARCHITECTURE), *_unless(_EQUAL, _MACHINES[machine], _KILL), _step(_LOAD, _NUMBER)]
    return [*code, *(_if(_AT_LEAST, _X32, _error(errno.ENOSYS)) if machine == "x86_64" else ())]


def _refusals(values: Sequence[int]) -> list[bytes]:
    return [step for value in values for step in _if(_EQUAL, value, _error(errno.EPERM))]


def _error(number: int) -> int:
    return _ERROR | number


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _if(test: int, value: int, result: int) -> list[bytes]:
    return [_step(test, value, 0, 1), _step(_RETURN, result)]


def _unless(test: int, value: int, result: int) -> list[bytes]:
    return [_step(test, value, 1, 0), _step(_RETURN, result)]


def _for_call(number: int, argument: int, then: list[bytes]) -> list[bytes]:
    """Steps that check one argument of one system call; calls that pass the checks are allowed."""
    low = _ARGUMENTS + 8 * argument  # both architectures are little-endian
    body = [_step(_LOAD, low), *then, _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, number, 0, len(body)), *body]
