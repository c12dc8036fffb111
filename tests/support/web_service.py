"""A small web service on loopback: answers by a function, and keeps every request."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def line(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class WebService:
    """`answer` gets a request and returns a status and a value, which is sent as JSON."""

    def __init__(self, answer: Callable[[Received], tuple[int, Any]]) -> None:
        self.requests: list[Received] = []
        self.headers: dict[str, str] = {}
        """More headers of every response."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                received = Received(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
                outer.requests.append(received)
                status, value = answer(received)
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                for name, one in outer.headers.items():
                    self.send_header(name, one)
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = handle_any

            def log_message(self, *parts: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    @property
    def lines(self) -> list[str]:
        return [one.line for one in self.requests]


@contextmanager
def web_service(answer: Callable[[Received], tuple[int, Any]]) -> Iterator[WebService]:
    service = WebService(answer)
    thread = threading.Thread(target=service.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.server.shutdown()
        service.server.server_close()
        thread.join()
