"""Run inside a sandbox: tries every way out that is known here, and prints what came of each as JSON.

An attempt that raises was held. Whatever it gives back is printed, so that a secret which was read shows.
Arguments: the folder outside, a process outside, and the ports of two servers there (TCP, IPv6).
"""

# It runs with whatever Python is in the sandbox and without anything of ours.
from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

OUTSIDE, TARGET, PORT, PORT6 = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
SECRET = f"{OUTSIDE}/secret"
X86 = os.uname().machine == "x86_64"
libc = ctypes.CDLL(None, use_errno=True)
attempts: dict[str, Callable[[], Any]] = {}


def attempt(function: Callable[[], Any]) -> Callable[[], Any]:
    attempts[function.__name__] = function
    return function


def check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def call(x86: int, arm: int, *arguments: Any) -> int:
    return check(libc.syscall(x86 if X86 else arm, *arguments))


def content(path: str) -> str:
    with open(path, "rb") as file:
        return file.read(1000).decode("latin-1")


def own(name: str) -> str:
    with open(name, "w") as file:
        file.write("mine")
    return name


# --- reading ---


@attempt
def read_directly() -> Any:
    return content(SECRET)


@attempt
def read_by_symlink() -> Any:
    os.symlink(SECRET, "link")
    return content("link")


@attempt
def read_by_relative_path() -> Any:
    return content(os.path.relpath(SECRET))


@attempt
def read_by_hard_link() -> Any:
    os.link(SECRET, "hard")
    return content("hard")


@attempt
def read_after_moving_it_in() -> Any:
    os.rename(f"{OUTSIDE}/movable", "moved")
    return content("moved")


@attempt
def read_by_own_root() -> Any:
    return content(f"/proc/self/root{SECRET}")


@attempt
def read_by_root_of_another() -> Any:
    return content(f"/proc/{TARGET}/root{SECRET}")


@attempt
def read_by_folder_of_another() -> Any:
    return content(f"/proc/{TARGET}/cwd/secret")


@attempt
def read_by_descriptor_of_another() -> Any:
    return [content(f"/proc/{TARGET}/fd/{name}") for name in os.listdir(f"/proc/{TARGET}/fd")]


@attempt
def read_by_own_descriptor() -> Any:
    folder = os.open(OUTSIDE, os.O_PATH)
    return content(f"/proc/self/fd/{folder}/secret")


@attempt
def read_in_a_folder_held_open() -> Any:
    folder = os.open(OUTSIDE, os.O_RDONLY)
    return os.read(os.open("secret", os.O_RDONLY, dir_fd=folder), 100).decode()


@attempt
def read_inherited_descriptors() -> Any:
    found = []
    for number in range(3, 1000):
        try:
            found.append(os.pread(number, 100, 0).decode("latin-1"))
        except OSError:
            continue
    return found


@attempt
def read_by_handle() -> Any:
    handle = ctypes.create_string_buffer(b"\x80\0\0\0", 200)
    call(303, 264, -100, SECRET.encode(), handle, ctypes.create_string_buffer(8), 0)
    folder = os.open("/", os.O_RDONLY)
    return os.read(call(304, 265, folder, handle, 0), 100).decode()


@attempt
def read_after_mounting_it() -> Any:
    os.mkdir("mount")
    check(libc.mount(OUTSIDE.encode(), b"mount", b"none", 4096, None))
    return content("mount/secret")


@attempt
def read_after_leaving_the_root() -> Any:
    os.mkdir("jail")
    os.chroot("jail")
    for _ in range(50):
        os.chdir("..")
    os.chroot(".")
    return content(SECRET)


@attempt
def read_in_a_namespace_of_ones_own() -> Any:
    call(272, 97, 0x10000000 | 0x20000)
    check(libc.mount(b"none", b"/", None, 0x44000, None))
    return content(SECRET)


@attempt
def enter_the_namespace_of_another() -> Any:
    check(libc.setns(os.open(f"/proc/{TARGET}/ns/mnt", os.O_RDONLY), 0))
    return content(SECRET)


@attempt
def list_folder() -> Any:
    return os.listdir(OUTSIDE)


@attempt
def list_home() -> Any:
    return [name for name in os.listdir(os.path.expanduser("~root")) if name.startswith(".ssh")] or 1 / 0


@attempt
def read_shadow() -> Any:
    return content("/etc/shadow")


@attempt
def read_environment_of_another() -> Any:
    return content(f"/proc/{TARGET}/environ")


@attempt
def read_environment_of_parent() -> Any:
    return content(f"/proc/{os.getppid()}/environ")


@attempt
def read_arguments_of_another() -> Any:
    return content(f"/proc/{TARGET}/cmdline")


@attempt
def open_memory_of_another() -> Any:
    return os.open(f"/proc/{TARGET}/mem", os.O_RDWR)


@attempt
def open_the_disk() -> Any:
    os.mknod("disk", 0o60600, os.stat(sys.executable).st_dev)
    return os.open("disk", os.O_RDONLY)


@attempt
def open_kernel_messages() -> Any:
    os.mknod("messages", 0o20600, os.makedev(1, 11))
    return os.open("messages", os.O_RDONLY)


@attempt
def open_the_terminal() -> Any:
    return [os.open(path, os.O_RDWR) for path in ("/dev/tty", "/dev/ptmx", "/dev/console")]


@attempt
def own_environment() -> Any:
    return [f"{name}={value}" for name, value in os.environ.items()]


@attempt
def read_by_a_program_from_memory() -> Any:
    """A program that is in no folder has the same rights."""
    with open("/bin/cat", "rb") as file:
        program = os.memfd_create("program", 0)
        os.write(program, file.read())
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.dup2(writing, 1)
        os.execve(program, ["cat", SECRET], {})
    os.close(writing)
    os.waitpid(child, 0)
    return os.read(reading, 100).decode()


# --- writing ---


@attempt
def write_directly() -> Any:
    with open(SECRET, "a") as file:
        file.write("changed")


@attempt
def truncate() -> Any:
    os.truncate(SECRET, 0)


@attempt
def create() -> Any:
    own(f"{OUTSIDE}/created")


@attempt
def make_folder() -> Any:
    os.mkdir(f"{OUTSIDE}/folder")


@attempt
def remove() -> Any:
    os.unlink(f"{OUTSIDE}/removable")


@attempt
def move_out() -> Any:
    os.rename(own("mine1"), f"{OUTSIDE}/moved")


@attempt
def exchange() -> Any:
    check(libc.renameat2(-100, own("mine2").encode(), -100, SECRET.encode(), 2))


@attempt
def link_out() -> Any:
    os.link(own("mine3"), f"{OUTSIDE}/linked")


@attempt
def symlink_out() -> Any:
    os.symlink("/", f"{OUTSIDE}/symlinked")


@attempt
def write_by_symlink() -> Any:
    os.symlink(SECRET, "link2")
    with open("link2", "a") as file:
        file.write("changed")


@attempt
def write_by_own_root() -> Any:
    own(f"/proc/self/root{OUTSIDE}/rooted")


@attempt
def write_by_root_of_another() -> Any:
    own(f"/proc/{TARGET}/root{OUTSIDE}/rooted")


@attempt
def write_system_settings() -> Any:
    return os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)


@attempt
def open_the_emergency_switch() -> Any:
    return os.open("/proc/sysrq-trigger", os.O_WRONLY)


@attempt
def write_programs() -> Any:
    return os.open("/usr/bin/env", os.O_WRONLY)


@attempt
def make_node_outside() -> Any:
    os.mkfifo(f"{OUTSIDE}/fifo")


# --- what belongs to a file besides its content ---


@attempt
def change_permissions() -> Any:
    os.chmod(SECRET, 0o777)


@attempt
def change_owner() -> Any:
    os.chown(SECRET, 1, 1)


@attempt
def change_times() -> Any:
    os.utime(SECRET, (1, 1))


@attempt
def change_attributes() -> Any:
    os.setxattr(SECRET, "user.cuebook", b"1")


# --- the network ---


def stream(family: int, protocol: int, address: Any) -> None:
    with socket.socket(family, socket.SOCK_STREAM, protocol) as it:
        it.settimeout(3)
        it.connect(address)
        it.sendall(b"out")


@attempt
def tcp() -> Any:
    stream(socket.AF_INET, 0, ("127.0.0.1", PORT))


@attempt
def tcp6() -> Any:
    stream(socket.AF_INET6, 0, ("::1", PORT6))


@attempt
def tcp_by_mapped_address() -> Any:
    stream(socket.AF_INET6, 0, ("::ffff:127.0.0.1", PORT))


@attempt
def mptcp() -> Any:
    stream(socket.AF_INET, 262, ("127.0.0.1", PORT))


@attempt
def sctp() -> Any:
    stream(socket.AF_INET, 132, ("127.0.0.1", PORT))


def first_packet(protocol: int) -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol) as it:
        it.settimeout(3)
        return it.sendto(b"out", 0x20000000, ("127.0.0.1", PORT))


@attempt
def tcp_with_the_first_packet() -> Any:
    first_packet(0)


@attempt
def mptcp_with_the_first_packet() -> Any:
    first_packet(262)


@attempt
def tcp_with_the_first_packet_of_a_message() -> Any:
    with socket.socket() as it:
        it.settimeout(3)
        it.sendmsg([b"out"], [], 0x20000000, ("127.0.0.1", PORT))


@attempt
def tcp_connecting_late() -> Any:
    with socket.socket() as it:
        it.settimeout(3)
        it.setsockopt(socket.IPPROTO_TCP, 30, 1)
        it.connect(("127.0.0.1", PORT))
        it.sendall(b"out")


@attempt
def udp() -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
        it.sendto(b"out", ("127.0.0.1", PORT))


@attempt
def udp_connected() -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
        it.connect(("127.0.0.1", PORT))
        it.send(b"out")


@attempt
def udp_by_message() -> Any:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
        it.sendmsg([b"out"], [], 0, ("127.0.0.1", PORT))


@attempt
def unix_socket() -> Any:
    stream(socket.AF_UNIX, 0, f"{OUTSIDE}/socket")


@attempt
def unix_socket_by_symlink() -> Any:
    os.symlink(f"{OUTSIDE}/socket", "socket")
    stream(socket.AF_UNIX, 0, "socket")


@attempt
def unix_datagram() -> Any:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as it:
        it.sendto(b"out", f"{OUTSIDE}/datagrams")


@attempt
def abstract_socket() -> Any:
    stream(socket.AF_UNIX, 0, f"\0cuebook-{TARGET}")


@attempt
def abstract_datagram() -> Any:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as it:
        it.sendto(b"out", f"\0cuebook-datagrams-{TARGET}")


def by_a_pair(kind: int, address: str) -> None:
    one, _other = socket.socketpair(socket.AF_UNIX, kind)
    with one:
        one.sendto(b"out", address)


@attempt
def unix_datagram_by_a_pair() -> Any:
    by_a_pair(socket.SOCK_DGRAM, f"{OUTSIDE}/datagrams")


@attempt
def unix_datagram_by_a_raw_pair() -> Any:
    by_a_pair(socket.SOCK_RAW, f"{OUTSIDE}/datagrams")


@attempt
def abstract_datagram_by_a_pair() -> Any:
    by_a_pair(socket.SOCK_DGRAM, f"\0cuebook-datagrams-{TARGET}")


@attempt
def unix_datagram_by_a_pair_connected_anew() -> Any:
    one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one:
        one.connect(f"{OUTSIDE}/datagrams")
        one.send(b"out")


@attempt
def unix_socket_by_a_pair_connected_anew() -> Any:
    one, _other = socket.socketpair()
    with one:
        one.connect(f"{OUTSIDE}/socket")
        one.send(b"out")


@attempt
def raw_socket() -> Any:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)


@attempt
def packet_socket() -> Any:
    socket.socket(17, socket.SOCK_RAW)


@attempt
def hypervisor_socket() -> Any:
    socket.socket(40, socket.SOCK_STREAM)


# --- other processes ---


@attempt
def signal_another() -> Any:
    os.kill(TARGET, signal.SIGTERM)


@attempt
def signal_another_by_descriptor() -> Any:
    signal.pidfd_send_signal(os.pidfd_open(TARGET), signal.SIGTERM)


@attempt
def signal_group_of_another() -> Any:
    os.killpg(TARGET, signal.SIGTERM)


@attempt
def trace_another() -> Any:
    check(libc.ptrace(0x4206, TARGET, 0, 0))


@attempt
def take_descriptor_of_another() -> Any:
    return os.pread(call(438, 438, os.pidfd_open(TARGET), 3, 0), 100, 0).decode()


@attempt
def read_memory_of_another() -> Any:
    class Piece(ctypes.Structure):
        _fields_ = [("start", ctypes.c_void_p), ("length", ctypes.c_size_t)]

    buffer = ctypes.create_string_buffer(8)
    here, there = Piece(ctypes.addressof(buffer), 8), Piece(0x400000, 8)
    call(310, 270, TARGET, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)


@attempt
def set_limits_of_another() -> Any:
    resource.prlimit(TARGET, resource.RLIMIT_CPU, (1, 1))


@attempt
def set_priority_of_another() -> Any:
    os.setpriority(os.PRIO_PROCESS, TARGET, 19)


@attempt
def bind_another_to_a_processor() -> Any:
    os.sched_setaffinity(TARGET, {0})


@attempt
def see_limits_of_another() -> Any:
    return resource.prlimit(TARGET, resource.RLIMIT_CPU)


@attempt
def open_shared_memory_of_another() -> Any:
    return call(29, 194, TARGET, 0, 0)


@attempt
def become_a_sibling() -> Any:
    """A child of our own parent, which nothing below us leads to."""
    child = call(56, 220, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    return child


@attempt
def type_into_the_terminal() -> Any:
    fcntl.ioctl(os.open("/dev/tty", os.O_RDWR), 0x5412, b"x")


# --- the kernel ---


@attempt
def read_keyring() -> Any:
    return call(250, 219, 0, -3, 0)


@attempt
def add_key() -> Any:
    return call(248, 217, b"user", b"cuebook-test", b"x", 1, -3)


@attempt
def load_program_into_the_kernel() -> Any:
    return call(321, 280, 5, ctypes.create_string_buffer(128), 128)


@attempt
def ring() -> Any:
    return call(425, 425, 4, ctypes.create_string_buffer(256))


@attempt
def handle_page_faults() -> Any:
    return call(323, 282, 0)


@attempt
def count_events() -> Any:
    return call(298, 241, ctypes.create_string_buffer(b"\1\0\0\0\x80\0\0\0", 128), 0, -1, -1, 0)


@attempt
def new_user_namespace() -> Any:
    return call(272, 97, 0x10000000)


@attempt
def new_namespace_by_clone() -> Any:
    child = call(56, 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    return child


@attempt
def raise_own_limits() -> Any:
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
    resource.setrlimit(resource.RLIMIT_CPU, (100_000, 100_000))


def main() -> None:
    results: dict[str, str | None] = {}
    for name, function in attempts.items():
        try:
            results[name] = repr(function())
        except Exception as error:
            results[name] = None
            print(f"{name}: {error}", file=sys.stderr)
    print(json.dumps(results))


main()
