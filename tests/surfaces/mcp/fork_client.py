"""A program that MCP clients start instead of `cuebook`: it hands its streams to a server that the fork server forks,
forwards signals, and exits with that server's exit code.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys


def main() -> None:
    def passed_on(number: int, _: object) -> None:
        line.send(bytes([number]))

    with socket.socket(socket.AF_UNIX) as line:
        line.connect(sys.argv[1])
        asked = {"program": "cuebook", "args": sys.argv[2:], "folder": os.getcwd(), "environ": dict(os.environ)}
        body = json.dumps(asked).encode()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, passed_on)
        socket.send_fds(line, [len(body).to_bytes(8, "big")], [0, 1, 2])
        line.sendall(body)
        os.closerange(0, 3)  # they end with the server
        code = int(line.recv(16) or b"1")
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
