"""A program that has imported what `cuebook` imports, and forks a server for each `fork_client.py` that connects.

A new server takes more than a second to import what it needs, most of it the SDK, and these tests start a hundred.
A forked server is still a separate process, with the streams, folder, environment and arguments of its client. The
tests of the guide, and `connect_cold`, start real processes.
"""

from __future__ import annotations

import gc
import importlib
import os
import selectors
import signal
import socket
import sys
from contextlib import ExitStack
from typing import Any

from tests.support.fork_server_process import live, loaded, next_call

OTHERS = (
    "mcp.server.lowlevel.server",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)
"""Third-party modules that a server imports in addition to those of a run."""


def main() -> None:
    places = sys.path[sys.path.index(os.environ["PYTHONPATH"]) + 1 :]
    del sys.path[0]  # the folder of the tests; each call sets the entries before these
    kept = {name: os.environ.get(name) for name in loaded() - {"HOME"}}
    for name in OTHERS:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    with ExitStack() as opened:
        asked, streams = _Children(sys.argv[1], opened).wait()
    if asked is None:
        return
    assert kept.items() <= {**dict.fromkeys(kept), **asked["environ"]}.items(), "this needs a process of its own"
    live(asked, streams, places)


class _Children:
    """The forked servers, each with the connection to its client."""

    def __init__(self, path: str, opened: ExitStack) -> None:
        self._opened = opened
        self._lines: dict[int, socket.socket] = {}
        self._watched = opened.enter_context(selectors.PollSelector())
        self._listener = opened.enter_context(socket.socket(socket.AF_UNIX))
        self._listener.bind(path)
        self._listener.listen(16)
        self._ended, message = (opened.enter_context(one) for one in socket.socketpair())
        message.setblocking(False)
        signal.set_wakeup_fd(message.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # sent by the test run, which also closes stdin
        for one in (self._listener, self._ended, sys.stdin):
            self._watched.register(one, selectors.EVENT_READ)
        print("ready", flush=True)

    def wait(self) -> tuple[dict[str, Any] | None, list[int]]:
        """Returns in every child, with its role; and in the parent when the tests are over."""
        while True:
            for key, _ in self._watched.select():
                if key.fileobj is sys.stdin:
                    for child in self._lines:
                        os.kill(child, signal.SIGKILL)
                    return None, []
                if key.fileobj is self._ended:
                    self._ended.recv(4096)
                    self._reap()
                elif key.fileobj is self._listener:
                    line = self._opened.enter_context(self._listener.accept()[0])
                    asked, streams = next_call(line)
                    if asked is None:
                        continue
                    child = os.fork()
                    if not child:
                        signal.set_wakeup_fd(-1)
                        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                        signal.signal(signal.SIGINT, signal.default_int_handler)
                        return asked, streams
                    for stream in streams:
                        os.close(stream)
                    self._lines[child] = line
                    self._watched.register(line, selectors.EVENT_READ, child)
                elif key.data in self._lines:
                    self._pass_on(key.data)

    def _pass_on(self, child: int) -> None:
        """Forwards the signal that a client received; if the client was killed, kills the server."""
        number = self._lines[child].recv(1)
        if number:
            os.kill(child, number[0])
            return
        self._watched.unregister(self._lines[child])
        os.kill(child, signal.SIGKILL)

    def _reap(self) -> None:
        for child in list(self._lines):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                with self._lines.pop(child) as line:
                    if line in self._watched.get_map():
                        self._watched.unregister(line)
                        line.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
