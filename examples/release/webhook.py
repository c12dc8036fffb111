"""A webhook to try the release with: `webhook.py PORT FILE` writes each accepted request to FILE, as a line of JSON.

A repeated request with the same Idempotency-Key gets the same response, and is not accepted a second time, even after a
restart, since the keys are in FILE.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any


class Webhook(HTTPServer):
    def __init__(self, port: int, file: Path) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.file = file

    def accepted(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    def accept(self, key: str, body: dict[str, Any]) -> None:
        if key not in [one["key"] for one in self.accepted()]:
            with self.file.open("a") as file:
                file.write(json.dumps({"key": key, **body}) + "\n")

    def announced(self, tag: str) -> int:
        """How many times this tag was announced."""
        return len([one for one in self.accepted() if one["tag"] == tag])


class Handler(BaseHTTPRequestHandler):
    server: Webhook

    def do_POST(self) -> None:
        key = self.headers.get("Idempotency-Key", "")
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if not key or "tag" not in body:
            self.answer(400, {"accepted": False, "why": "an Idempotency-Key and a tag are required"})
            return
        self.server.accept(key, body)
        self.answer(201, {"accepted": True, "tag": body["tag"]})

    def do_GET(self) -> None:
        tag = self.path.rpartition("/")[2]
        announced = self.server.announced(tag)
        self.answer(200 if announced else 404, {"tag": tag, "announced": announced})

    def answer(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    webhook = Webhook(int(sys.argv[1]), Path(sys.argv[2]))
    print(f"http://127.0.0.1:{webhook.server_port}/releases", flush=True)
    try:
        webhook.serve_forever()
    except KeyboardInterrupt:
        pass
