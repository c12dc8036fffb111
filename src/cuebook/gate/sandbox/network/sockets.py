"""The sockets of a process in Landlock, which shares our network: each is a connection to its proxy from the beginning.

Landlock can restrict connections to a port, but not to an address. So the process makes no socket itself: the kernel
passes each request for one to us (seccomp's user notification), and we put a connection into the process that we made.
Its filter turns `connect` into a call that does nothing and succeeds. A local socket, if it may have any, is one end of a
pair whose other end stays silent.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import struct

from cuebook.gate.sandbox.network.proxy import Proxy

_RECEIVE, _ANSWER, _PUT = 0xC0502100, 0xC0182101, 0x40182103
_REQUEST_BYTES = 80
_FAMILY_AT, _KIND_AT = 16 + 16, 16 + 16 + 8
"""Where a request has the first two arguments of its call."""
_MOST_IDLE = 8
"""How many local sockets a process gets."""
_PUT_AND_ANSWER = 2
_STRANGERS = 16
"""How many connections from elsewhere are turned away, until a connection is given up."""


class Sockets:
    """Answers the requests of one process until it is closed. It belongs to the event loop in which it was created."""

    def __init__(self, requests: int, proxy: Proxy) -> None:
        """`requests` is the descriptor of the filter, which is closed in the end."""
        self._requests = requests
        self._proxy = proxy
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._silent: list[socket.socket] = []
        """The other ends of local sockets. A closed one would be an event."""
        self._loop.add_reader(requests, self._requested)

    def close(self) -> None:
        """Closes all connections. From here on the process gets no socket. May be called more than once."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._requests)
            os.close(self._requests)
            for one in self._silent:
                one.close()
            self._proxy.close()

    def _requested(self) -> None:
        request = bytearray(_REQUEST_BYTES)
        try:
            fcntl.ioctl(self._requests, _RECEIVE, request)
        except OSError as error:
            if error.errno != errno.ENOENT:  # a process that was killed while it asked; otherwise, all are gone
                self.close()
            return
        (number,) = struct.unpack_from("=Q", request)
        (family,), (kind,) = (struct.unpack_from("=Q", request, at) for at in (_FAMILY_AT, _KIND_AT))
        local = family == socket.AF_UNIX
        try:
            if len(self._silent) >= _MOST_IDLE if local else self._proxy.full:
                raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
            inside, outside = socket.socketpair() if local else connected_pair()
        except OSError as error:
            self._tell(_ANSWER, struct.pack("=QqiI", number, 0, -(error.errno or errno.ENFILE), 0))
            return
        with inside:
            inside.setblocking(not kind & socket.SOCK_NONBLOCK)
            flags = os.O_CLOEXEC if kind & socket.SOCK_CLOEXEC else 0
            put = self._tell(_PUT, struct.pack("=QIIII", number, _PUT_AND_ANSWER, inside.fileno(), 0, flags))
        if put and local:
            self._silent.append(outside)
        elif put:
            self._proxy.serve(outside)
        else:
            outside.close()

    def _tell(self, what: int, data: bytes) -> bool:
        try:
            fcntl.ioctl(self._requests, what, data)
        except OSError:  # the process is gone, or has no descriptor left
            return False
        return True


def connected_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection on this machine. No other process can have got hold of either."""
    with socket.create_server(("127.0.0.1", 0), backlog=_STRANGERS) as listening:
        listening.settimeout(1.0)
        one = socket.create_connection(listening.getsockname(), timeout=1.0)
        for _ in range(_STRANGERS):
            other, origin = listening.accept()
            if origin == one.getsockname():
                return one, other
            other.close()
        one.close()
    raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))
