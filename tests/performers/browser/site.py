"""A small web site on loopback, with everything that a page can do wrong, and a second one that nobody may reach."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

LOGIN = """<title>Sign in</title><h1>Sign in</h1>
<form method="post" action="/login"><input name="user" id="user"><input name="password" id="password" type="password">
<select name="role" id="role"><option value="a">A</option><option value="b">B</option></select>
<button id="go">Sign in</button></form>"""
ORDERS = """<title>Orders</title><ul id="orders"><li class="order"><b>1</b><i>ten</i></li><li class="order"><b>2</b><i>twenty</i></li></ul>
<a id="csv" href="/orders.csv">CSV</a> <a href="/text">text</a>"""


class Site:
    """Serves pages, and remembers every request as `METHOD path`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.hits: list[str] = []
        self.posted: list[dict[str, str]] = []
        self.bodies: list[str] = []
        self.pages: dict[str, str] = {"/": "<h1>Hello</h1>", "/login": LOGIN, "/orders": ORDERS}
        self.redirects: dict[str, str] = {}
        self.slow: dict[str, float] = {}
        self.echoes = False
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site._get(self)

            def do_POST(self) -> None:
                site._post(self)

            def log_message(self, *given: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._scheme = "http" if tls is None else "https"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"{self._scheme}://{host}:{self.port}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _get(self, request: BaseHTTPRequestHandler) -> None:
        path = urlsplit(request.path).path
        self.hits.append(f"GET {path}")
        time.sleep(self.slow.get(path, 0.0))
        if path in self.redirects:
            _answer(request, 302, b"", [("Location", self.redirects[path])])
        elif path == "/orders.csv":
            _answer(request, 200, b"id,total\n1,10\n", [("Content-Disposition", "attachment; filename=o.csv")])
        elif path == "/text":
            _answer(request, 200, b"plain", [("Content-Type", "text/plain")])
        elif path in self.pages:
            signed_in = "session=1" in request.headers.get("Cookie", "")
            body = self.pages[path].replace("{who}", "Ada" if signed_in else "nobody")
            _answer(request, 200, body.encode(), [("Content-Type", "text/html; charset=utf-8")])
        else:
            _answer(request, 404, b"no such page", [])

    def _post(self, request: BaseHTTPRequestHandler) -> None:
        path = urlsplit(request.path).path
        self.hits.append(f"POST {path}")
        body = request.rfile.read(int(request.headers.get("Content-Length", "0"))).decode()
        given = {name: values[0] for name, values in parse_qs(body).items()}
        self.posted.append(given)
        self.bodies.append(body)
        time.sleep(self.slow.get(f"POST {path}", 0.0))
        if self.echoes:
            said = given.get("password", "")
            page = (
                f"<title>{said}</title><style>u::after {{ content: attr(data-said) }}</style>"
                f"<p id=echo>You said <b>{said}</b> <u data-said='{said}'>x</u> <input placeholder='{said}'></p>"
            ).encode()
            _answer(request, 200, page, [("Content-Type", "text/html")])
        else:
            _answer(request, 303, b"", [("Location", "/orders"), ("Set-Cookie", "session=1; Path=/")])


def _answer(request: BaseHTTPRequestHandler, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
    try:
        request.send_response(status)
        for name, value in (*headers, ("Content-Length", str(len(body)))):
            request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body)
    except OSError:
        pass


@contextmanager
def site(tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    made = Site(tls)
    try:
        yield made
    finally:
        made.close()
