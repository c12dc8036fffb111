"""A shop for the demo: `shop.py PORT FOLDER` serves a page with the price in FOLDER/shop-price, and writes its orders."""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

FOLDER = Path(sys.argv[2])
PAGE = """<!doctype html><title>Teapots</title><h1>A teapot</h1><p>Price: <b id="price">{price}</b></p>
<form method="post"><label>Name <input id="name" name="name"></label> <button id="order">Order</button></form>"""


class Shop(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer(PAGE.format(price=(FOLDER / "shop-price").read_text().strip()))

    def do_POST(self) -> None:
        given = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        with open(FOLDER / "orders", "a") as orders:
            orders.write(f"a teapot for {given['name'][0]}\n")
        self._answer("<!doctype html><title>Ordered</title><h1>Thank you</h1>")

    def _answer(self, page: str) -> None:
        body = page.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


with HTTPServer(("127.0.0.1", int(sys.argv[1])), Shop) as server:
    print(f"http://127.0.0.1:{server.server_port}/", flush=True)
    server.serve_forever()
