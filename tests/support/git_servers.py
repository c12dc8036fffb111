"""A git server for tests: bare repositories over smart HTTP, by git's own backend."""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class GitServer:
    """Serves the repositories below a folder on loopback. With a `token`, only those who send it may push."""

    def __init__(self, root: Path, token: str = "") -> None:
        self.root = root
        self.token = token
        self.user = "x"
        self.requests: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer._serve(self)

            def do_POST(self) -> None:
                outer._serve(self)

            def log_message(self, *parts: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def create(self, name: str) -> str:
        """Creates a bare repository and returns its URL."""
        path = self.root / f"{name}.git"
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(path)], check=True)
        subprocess.run(["git", "-C", str(path), "config", "http.receivepack", "true"], check=True)
        return f"http://127.0.0.1:{self.port}/{name}.git"

    def log(self, name: str) -> list[str]:
        """The subjects of the commits that were pushed, the latest first."""
        argv = ["git", "-C", str(self.root / f"{name}.git"), "log", "--format=%s", "main"]
        done = subprocess.run(argv, capture_output=True, text=True)
        return done.stdout.splitlines()

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, request: BaseHTTPRequestHandler) -> None:
        self.requests.append(f"{request.command} {request.path}")
        path, _, query = request.path.partition("?")
        body = _body(request)
        wanted = "Basic " + base64.b64encode(f"{self.user}:{self.token}".encode()).decode()
        pushing = "git-receive-pack" in request.path
        if self.token and pushing and request.headers.get("Authorization") != wanted:
            _answer(request, 401, [("WWW-Authenticate", 'Basic realm="git"')], b"Unauthorized\n")
            return
        env = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": request.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": request.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": request.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": request.headers.get("Git-Protocol", ""),
            "REMOTE_USER": self.user,
            "REMOTE_ADDR": "127.0.0.1",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=env, capture_output=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = [line.split(": ", 1) for line in head.decode().split("\r\n") if line]
        status = next((int(value.split()[0]) for name, value in fields if name == "Status"), 200)
        _answer(request, status, [(name, value) for name, value in fields if name != "Status"], content)


def _body(request: BaseHTTPRequestHandler) -> bytes:
    if request.headers.get("Transfer-Encoding", "").lower() != "chunked":
        return request.rfile.read(int(request.headers.get("Content-Length", "0")))
    pieces = []
    while size := int(request.rfile.readline().split(b";")[0], 16):
        pieces.append(request.rfile.read(size))
        request.rfile.readline()
    request.rfile.readline()
    return b"".join(pieces)


def _answer(request: BaseHTTPRequestHandler, status: int, fields: list[tuple[str, str]], body: bytes) -> None:
    request.send_response(status)
    for name, value in fields:
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


@contextmanager
def git_server(root: Path, token: str = "") -> Iterator[GitServer]:
    root.mkdir(parents=True, exist_ok=True)
    server = GitServer(root, token)
    thread = threading.Thread(target=server.serve, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()
