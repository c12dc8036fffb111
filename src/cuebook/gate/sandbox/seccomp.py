"""The system calls that confined processes are refused, as filters that the kernel understands.

Namespaces already keep a process in bubblewrap from files, processes and the network. What is left are doors that no
namespace closes: the hypervisor's sockets, the keyrings of the session, and parts of the kernel that have often been
broken into. Landlock has filters of its own; what they cannot say is added here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
from functools import cache

_LOAD, _EQUAL, _AT_LEAST, _ANY_OF, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERROR, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000

_NEW_NAMESPACES = 0x7E020000
_TERMINAL_INPUT = (0x5412, 0x541C)
"""Requests that put characters into a terminal as if they had been typed."""
_FILE_ATTRIBUTES = (
    *(0x40086602, 0x40046602, 0x401C5820),  # FS_IOC_SETFLAGS, the same of 32 bits, FS_IOC_FSSETXATTR
    *(0x40087602, 0x40086604, 0x40806685),  # FS_IOC_SETVERSION, EXT4_IOC_SETVERSION, FS_IOC_ENABLE_VERITY
    *(0x800C6613, 0x40047211),  # FS_IOC_SET_ENCRYPTION_POLICY, FAT_IOCTL_SET_ATTRIBUTES
)
"""Requests that change the attributes of a file, for which it is enough to have opened it for reading."""
_FAMILIES = (socket.AF_INET, socket.AF_INET6, 16)
"""16 is netlink, by which a process learns the addresses of the machine it is on."""

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
CHANGES_OF_ATTRIBUTES = (
    *("fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "utimensat", "file_setattr"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
    *(("chmod", "chown", "lchown", "utime", "utimes", "futimesat") if platform.machine() == "x86_64" else ()),
)
"""Calls that change mode, owner, times or attributes of a file. They take a path, which Landlock does not check."""
_CLONE3 = 435
_CALLS = {"x86_64": {"clone": 56, "socket": 41, "ioctl": 16}, "aarch64": {"clone": 220, "socket": 198, "ioctl": 29}}


@cache
def filter_for(network: bool) -> bytes | None:
    """The filter for this machine, or None for a machine whose numbers are not known here.

    Where the network is the machine's own, so are the sockets without a path that its programs listen on: then a
    process gets no local sockets at all, except for connected pairs.
    """
    machine = platform.machine()
    if machine not in _MACHINES:
        return None
    calls, own = _CALLS[machine], () if network else (socket.AF_UNIX,)
    code = _beginning(machine)
    for number in sorted(_REFUSED[machine].values()):
        code += _if(_EQUAL, number, _error(errno.EPERM))
    # Its arguments lie in memory, where no filter can read them; C libraries fall back to `clone`.
    code += _if(_EQUAL, _CLONE3, _error(errno.ENOSYS))
    code += _for_call(calls["clone"], 0, _if(_ANY_OF, _NEW_NAMESPACES, _error(errno.EPERM)))
    code += _for_call(calls["ioctl"], 1, _refusals(_TERMINAL_INPUT))
    known = [step for family in (*_FAMILIES, *own) for step in _if(_EQUAL, family, _ALLOW)]
    code += _for_call(calls["socket"], 0, [*known, _step(_RETURN, _error(errno.EAFNOSUPPORT))])
    return b"".join([*code, _step(_RETURN, _ALLOW)])


def keep_attributes() -> None:
    """From now on, this thread and its children cannot change the attributes of a file by `ioctl`, nor make system calls of
    another architecture, which other filters may misread. Does nothing on a machine whose call numbers are not known
    here.
    """
    machine = platform.machine()
    if machine not in _MACHINES:
        return
    refused = _for_call(_CALLS[machine]["ioctl"], 1, _refusals(_FILE_ATTRIBUTES))
    code = b"".join([*_beginning(machine), *refused, _step(_RETURN, _ALLOW)])
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // len(_step(0, 0)), ctypes.addressof(held))
    libc = ctypes.CDLL(None, use_errno=True)
    one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)
    if libc.prctl(_NO_NEW_PRIVILEGES, one, none, none, none) or libc.prctl(_SET_FILTER, _BY_PROGRAM, program):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_NO_NEW_PRIVILEGES, _SET_FILTER, _BY_PROGRAM = 38, 22, ctypes.c_ulong(2)


def _beginning(machine: str) -> list[bytes]:
    """Ends a process that calls in the way of another machine; what follows is about the number of a call of this one."""
    code = [_step(_LOAD, _ARCHITECTURE), *_unless(_EQUAL, _MACHINES[machine], _KILL), _step(_LOAD, _NUMBER)]
    return [*code, *(_if(_AT_LEAST, _X32, _error(errno.ENOSYS)) if machine == "x86_64" else ())]


def _refusals(values: tuple[int, ...]) -> list[bytes]:
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
    """Steps about one argument of one call; what they leave undecided is allowed."""
    low = _ARGUMENTS + 8 * argument  # both machines keep the low half first
    body = [_step(_LOAD, low), *then, _step(_RETURN, _ALLOW)]
    return [_step(_EQUAL, number, 0, len(body)), *body]
