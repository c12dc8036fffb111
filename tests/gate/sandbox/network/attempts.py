"""Runs in a sandbox, and tries to reach servers that are not listed. Prints what came of each attempt.

`python attempts.py ALLOWED FORBIDDEN FORBIDDEN6`: ports on 127.0.0.1, the last one on ::1. The proxy allows
`127.0.0.1:ALLOWED`.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from collections.abc import Callable

ALLOWED, FORBIDDEN, FORBIDDEN6 = map(int, sys.argv[1:4])
PROXY = os.environ["http_proxy"].rpartition("/")[2]
LIBC = ctypes.CDLL(None, use_errno=True)
RESULTS: dict[str, str | None] = {}


def attempt(action: Callable[[], object]) -> None:
    try:
        RESULTS[action.__name__] = str(action())
    except (OSError, ValueError) as error:
        RESULTS[action.__name__] = None
        print(action.__name__, error, file=sys.stderr)


def through(data: bytes, *more: bytes) -> str:
    """What the proxy answers, and what comes after it."""
    host, _, port = PROXY.partition(":")
    with socket.create_connection((host, int(port)), 20) as it:
        it.sendall(data)
        said = it.recv(1 << 16)
        for piece in more:
            it.sendall(piece)
        while piece := it.recv(1 << 16):
            said += piece
    return said.decode("latin-1")


def talk(it: socket.socket, port: int, host: str = "127.0.0.1") -> str:
    it.settimeout(5)
    it.connect((host, port))
    it.sendall(b"GET /direct HTTP/1.1\r\nHost: x\r\n\r\n")
    return it.recv(1000).decode("latin-1")


@attempt
def connect() -> str:
    with socket.socket() as it:
        return talk(it, FORBIDDEN)


@attempt
def connect_to_the_allowed_server() -> str:
    with socket.socket() as it:
        return talk(it, ALLOWED)


@attempt
def connect_over_ipv6() -> str:
    with socket.socket(socket.AF_INET6) as it:
        return talk(it, FORBIDDEN6, "::1")


@attempt
def connect_elsewhere_after_the_proxy() -> str:
    with socket.socket() as it:
        host, _, port = PROXY.partition(":")
        it.connect((host, int(port)))
        LIBC.connect(it.fileno(), bytes(16), 16)  # AF_UNSPEC, which dissolves a connection
        return talk(it, FORBIDDEN)


def _address(port: int) -> bytes:
    return socket.AF_INET.to_bytes(2, sys.byteorder) + port.to_bytes(2, "big") + bytes((127, 0, 0, 1)) + bytes(8)


@attempt
def connect_while_sending() -> int:
    with socket.socket() as it:
        return it.sendto(b"fast", 0x20000000, ("127.0.0.1", FORBIDDEN))


@attempt
def dissolve_while_sending() -> int:
    with socket.socket() as it:
        LIBC.sendto(it.fileno(), b"fast", 4, 0x20000000, bytes(16), 16)
        return int(LIBC.sendto(it.fileno(), b"fast", 4, 0x20000000, _address(FORBIDDEN), 16))


@attempt
def connect_after_the_end() -> str:
    with socket.socket() as it:
        host, _, port = PROXY.partition(":")
        it.connect((host, int(port)))
        it.sendall(b"nonsense\r\n\r\n")
        while it.recv(1000):
            pass
        it.shutdown(socket.SHUT_RDWR)
        return talk(it, FORBIDDEN)


@attempt
def send_datagram() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as it:
        return it.sendto(b"lost", ("127.0.0.1", FORBIDDEN))


@attempt
def send_datagram_over_ipv6() -> int:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as it:
        return it.sendto(b"lost", ("::1", FORBIDDEN6))


@attempt
def open_a_raw_socket() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as it:
        return it.fileno()


@attempt
def connect_by_several_paths() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as it:
        return talk(it, FORBIDDEN)


@attempt
def connect_by_streams() -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132) as it:
        return talk(it, FORBIDDEN)


@attempt
def look_up_a_name() -> object:
    return socket.getaddrinfo("example.com", 443)


@attempt
def tunnel_to_an_address() -> str:
    return through(f"CONNECT 127.0.0.1:{FORBIDDEN} HTTP/1.1\r\n\r\n".encode())


@attempt
def tunnel_to_a_name() -> str:
    return through(f"CONNECT localhost:{FORBIDDEN} HTTP/1.1\r\n\r\n".encode())


@attempt
def tunnel_to_another_name_of_the_allowed_server() -> str:
    return through(f"CONNECT localhost:{ALLOWED} HTTP/1.1\r\n\r\n".encode())


@attempt
def tunnel_to_a_strange_address() -> str:
    return through(f"CONNECT 0x7f000001:{ALLOWED} HTTP/1.1\r\n\r\n".encode())


@attempt
def tunnel_without_tls() -> str:
    request = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
    return through(f"CONNECT 127.0.0.1:{ALLOWED} HTTP/1.1\r\n\r\n".encode(), request)


@attempt
def request_an_address() -> str:
    return through(f"GET http://127.0.0.1:{FORBIDDEN}/ HTTP/1.1\r\nHost: 127.0.0.1:{FORBIDDEN}\r\n\r\n".encode())


@attempt
def request_with_another_host() -> str:
    return through(f"GET http://127.0.0.1:{ALLOWED}/smuggled HTTP/1.1\r\nHost: 127.0.0.1:{FORBIDDEN}\r\n\r\n".encode())


@attempt
def request_without_a_host() -> str:
    return through(b"GET /smuggled HTTP/1.1\r\n\r\n")


@attempt
def request_twice_at_once() -> str:
    first = f"GET http://127.0.0.1:{ALLOWED}/first HTTP/1.1\r\n\r\n"
    return through(f"{first}GET http://127.0.0.1:{FORBIDDEN}/smuggled HTTP/1.1\r\nHost: other\r\n\r\n".encode())


@attempt
def request_what_is_allowed() -> str:
    return through(f"GET http://127.0.0.1:{ALLOWED}/wanted HTTP/1.1\r\nHost: 127.0.0.1:{ALLOWED}\r\n\r\n".encode())


print(json.dumps(RESULTS))
