"""The proxy's port in a network namespace that contains nothing else.

The first program in the namespace opens the port, hands it to us, and becomes the command. The socket stays in the
namespace in which it was made, so we accept the connections there although we are outside.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys

from cuebook.gate.sandbox.network.environment import PORT
from cuebook.gate.sandbox.network.proxy import Proxy

_OPENING = f"""
import os, signal, socket, sys
with socket.socket() as listening, socket.socket(fileno=int(sys.argv[1])) as outside:
    listening.bind(("127.0.0.1", {PORT}))
    listening.listen(128)
    socket.send_fds(outside, [b"port"], [listening.fileno()])
for one in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
    signal.signal(one, signal.SIG_DFL)
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{{sys.argv[2]}} could not be started ({{error}}).")
"""


def opening(argv: tuple[str, ...], descriptor: int) -> tuple[str, ...]:
    """The command, after the port is open. `descriptor` is a connected local socket that the process inherits."""
    return (os.path.realpath(sys.executable), "-I", "-S", "-c", _OPENING, str(descriptor), *argv)


def serve(proxy: Proxy, inside: socket.socket) -> None:
    """Serves the port as soon as it arrives, and closes the socket over which it does."""
    loop = asyncio.get_running_loop()
    inside.setblocking(False)

    def arrived() -> None:
        loop.remove_reader(inside)
        try:
            listening = _received(inside)
        finally:
            inside.close()
        if listening is not None:
            proxy.accept_from(listening)

    loop.add_reader(inside, arrived)


def _received(inside: socket.socket) -> socket.socket | None:
    """The port, or None if the process ended before it opened one. What arrives comes from inside, so it is checked."""
    try:
        _, descriptors, _, _ = socket.recv_fds(inside, 16, 1, socket.MSG_CMSG_CLOEXEC)
    except OSError:
        return None
    if not descriptors:
        return None
    try:
        made = socket.socket(fileno=descriptors[0])
    except OSError:
        os.close(descriptors[0])
        return None
    listens = made.family == socket.AF_INET and made.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    if not listens:
        made.close()
        return None
    return made
