"""A TCP proxy that can be cut: connections are reset and refused, or stay open and carry nothing."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

_RESET = struct.pack("ii", 1, 0)
"""For SO_LINGER: closing the socket sends a reset."""


class TcpProxy:
    """Forwards connections to a port of this machine."""

    def __init__(self, target: int, host: str = "127.0.0.1") -> None:
        """`host` is the address that it listens on."""
        self._target = target
        self.host = host
        self._flows = threading.Event()
        self._flows.set()
        self._abandoned: list[threading.Event] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.port = 0
        self._listen()

    def cut(self) -> None:
        """Resets all connections and refuses new ones."""
        self._refuse()
        self.reset()

    def reset(self) -> None:
        """Resets all connections."""
        with self._lock:
            open_ones, self._sockets = self._sockets, []
        for one in open_ones:
            with suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def freeze(self) -> None:
        """Carries nothing more. Connections stay open, and new ones are accepted."""
        self._flows.clear()

    def abandon(self) -> None:
        """Carries nothing more on the open connections, which stay open. New ones work."""
        self._flows.clear()
        self._abandoned.append(self._flows)
        self._flows = threading.Event()
        self._flows.set()

    def heal(self) -> None:
        """Carries everything again, including what was sent in the meantime, except on abandoned connections."""
        self._flows.set()
        if self._listener.fileno() < 0:
            self._listen()

    def close(self) -> None:
        for flows in (*self._abandoned, self._flows):
            flows.set()
        self.cut()
        for thread in self._threads:
            thread.join()

    # --- inside ---

    def _listen(self) -> None:
        self._listener = socket.create_server((self.host, self.port))
        self.port = int(self._listener.getsockname()[1])
        self._begin(self._accept, self._listener)

    def _refuse(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def _begin(self, work: object, *given: object) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            with self._lock:
                self._sockets += [near, far]
            self._begin(self._forward, near, far, self._flows)
            self._begin(self._forward, far, near, self._flows)

    def _forward(self, source: socket.socket, target: socket.socket, flows: threading.Event) -> None:
        with suppress(OSError):
            while True:
                data = source.recv(65536)
                flows.wait()
                if not data:
                    break
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
