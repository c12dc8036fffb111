"""A small local HTTP server that speaks the OpenAI protocol and counts its requests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ModelServer:
    """Answers every request with `reply`, or with the next of `replies`; can be made to pause."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.replies: list[str | int | dict[str, Any]] = []
        """Texts, an error status, or a tool to call with its arguments."""
        self.script: Callable[[dict[str, Any]], str] | None = None
        """Returns the reply to a request if `replies` is empty."""
        self.refusal = "refused by the test"
        """The message of an error status."""
        self.accepted: str | None = None
        """The only key that is accepted; None accepts all."""
        self.finish = "stop"
        """The finish reason of replies."""
        self.hold_at: int | None = None
        """The request, counted from 1, whose reply stops after its first word until it is released."""
        self.drop_at: int | None = None
        """The request, counted from 1, whose reply breaks off after its first word."""
        self.pause = 0.0
        """Seconds between the first word of a reply and the rest."""
        self.under_way = 0
        self.most_under_way = 0
        """The most requests that were answered at the same time."""
        self._counting = threading.Lock()
        self.holding = threading.Event()
        self._release = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                outer._answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def prompts(self) -> list[str]:
        return [str(request["messages"][-1]["content"]) for request in self.requests]

    def release(self) -> None:
        self.hold_at = None
        self._release.set()

    def close(self) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        length = int(handler.headers["content-length"])
        self._count(1)
        self.requests.append(json.loads(handler.rfile.read(length)))
        self.keys.append(handler.headers.get("authorization"))
        if self.accepted is not None and self.keys[-1] != f"Bearer {self.accepted}":
            self._refuse(handler, 401)
            return
        number = len(self.requests)
        reply = self.replies.pop(0) if self.replies else f"Reply number {number}."
        if self.script is not None:
            reply = self.script(self.requests[-1])
        try:
            if isinstance(reply, int):
                self._refuse(handler, reply)
            elif isinstance(reply, dict):
                self._call(handler, reply)
            else:
                self._stream(handler, reply, hold=number == self.hold_at, drop=number == self.drop_at)
        except OSError:
            pass  # the client disconnected, which some tests require

    def _count(self, change: int) -> None:
        with self._counting:
            self.under_way += change
            self.most_under_way = max(self.most_under_way, self.under_way)

    def _refuse(self, handler: BaseHTTPRequestHandler, status: int) -> None:
        self._count(-1)
        body = json.dumps({"error": {"message": self.refusal, "code": "x"}}).encode()
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def _call(self, handler: BaseHTTPRequestHandler, reply: dict[str, Any]) -> None:
        self._count(-1)
        self._begin(handler)
        function = {"name": reply["tool"], "arguments": json.dumps(reply["arguments"])}
        call = {"index": 0, "id": f"call_{len(self.requests)}", "type": "function", "function": function}
        self._send(handler, _delta(tool_calls=[call]))
        self._end(handler, "tool_calls")

    def _begin(self, handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()

    def _end(self, handler: BaseHTTPRequestHandler, finish: str) -> None:
        self._send(handler, _delta(finish=finish))
        counts = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        self._send(handler, {**_delta(), "choices": [], "usage": counts})
        handler.wfile.write(b"data: [DONE]\n\n")

    def _stream(self, handler: BaseHTTPRequestHandler, reply: str, *, hold: bool, drop: bool) -> None:
        self._begin(handler)
        first, _, rest = reply.partition(" ")
        self._send(handler, _delta(content=first))
        if hold:
            self.holding.set()
            self._release.wait(30)
        time.sleep(self.pause)
        self._count(-1)  # a client that has the rest may already be sending its next request
        if drop:
            return
        if rest:
            self._send(handler, _delta(content=f" {rest}"))
        self._end(handler, self.finish)

    def _send(self, handler: BaseHTTPRequestHandler, data: dict[str, Any]) -> None:
        handler.wfile.write(f"data: {json.dumps(data)}\n\n".encode())
        handler.wfile.flush()


def _delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": fields, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "echo-1", "choices": [choice]}
