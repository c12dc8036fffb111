"""Everything outside the shop that the demo needs, on one port of this machine: `services.py PORT FOLDER`.

- `/git/...`: the repositories in FOLDER/git, over git's smart HTTP protocol
- `/api/...`: as much of GitHub's API as a pull request needs; FOLDER/pulls.jsonl lists those that were opened
- `/v1/...`: the model of `engineer.py`, in OpenAI's protocol
"""

import json
import os
import re
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import engineer  # type: ignore[import-not-found]

PAUSE = float(os.environ.get("TRIAGE_PAUSE", "0"))
"""Seconds before each reply of the model, so that an audience can follow."""


class Services(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, port: int, folder: Path) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.folder = folder

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def pulls(self) -> list[dict[str, Any]]:
        file = self.folder / "pulls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def open_pull(self, asked: dict[str, Any]) -> dict[str, Any] | None:
        """Opens a pull request; None if the branch has one."""
        known = self.pulls()
        if any(pull["head"]["ref"] == asked["head"] for pull in known):
            return None
        number = len(known) + 1
        pull = {
            "number": number,
            "title": asked["title"],
            "body": asked.get("body", ""),
            "state": "open",
            "draft": False,
            "html_url": f"http://{self.host}/team/shop/pull/{number}",
            "head": {"ref": asked["head"], "sha": ""},
            "base": {"ref": asked.get("base", "main")},
            "user": {"login": "engineer"},
            "created_at": "2026-11-02T10:00:00Z",
        }
        with (self.folder / "pulls.jsonl").open("a") as file:
            file.write(json.dumps(pull) + "\n")
        return pull

    def note(self, line: str) -> None:
        """Notes what arrived: pushes and pull requests, in order."""
        with (self.folder / "received.log").open("a") as file:
            file.write(line + "\n")


class Handler(BaseHTTPRequestHandler):
    server: Services
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/git/"):
            self._git(b"")
        elif path == "/api/repos/team/shop/pulls":
            self._answer(200, self.server.pulls())
        else:
            self._answer(404, {"message": "Not Found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        if path.startswith("/git/"):
            self._git(body)
        elif path == "/v1/chat/completions":
            self._think(json.loads(body))
        elif path == "/api/repos/team/shop/pulls":
            pull = self.server.open_pull(json.loads(body))
            self.server.note("pull request")
            said = {"message": "Validation Failed", "errors": [{"message": "A pull request already exists"}]}
            self._answer(422 if pull is None else 201, said if pull is None else pull)
        else:
            self._answer(404, {"message": "Not Found"})

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, status: int, value: Any) -> None:
        self._send(status, {"Content-Type": "application/json"}, json.dumps(value).encode())

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _git(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.folder / "git"),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_CONFIG_NOSYSTEM": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path.removeprefix("/git"),
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REMOTE_ADDR": "127.0.0.1",
            "REMOTE_USER": "engineer",
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
        head, _, rest = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines() if ": " in line)
        status = int(headers.pop("Status", "200").split()[0])
        if path.endswith("/git-receive-pack") and status == 200:
            self.server.note("push")
        self._send(status, headers, rest)

    def _think(self, request: dict[str, Any]) -> None:
        time.sleep(PAUSE)
        move = engineer.move(request, self.server.host)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        if isinstance(move, str):
            for word in re.findall(r"\S+\s*", move):
                self._chunk({"content": word})
            self._chunk({}, "stop")
        else:
            name, arguments = move
            number = sum(1 for message in request["messages"] if message["role"] == "assistant")
            function = {"name": name, "arguments": json.dumps(arguments)}
            self._chunk(
                {"tool_calls": [{"index": 0, "id": f"call_{number}", "type": "function", "function": function}]}
            )
            self._chunk({}, "tool_calls")
        usage = {"prompt_tokens": len(json.dumps(request)) // 4, "completion_tokens": 40}
        self._event({"choices": [], "usage": {**usage, "total_tokens": sum(usage.values())}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> None:
        self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    def _event(self, value: dict[str, Any]) -> None:
        shown = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "engineer", **value}
        self.wfile.write(b"data: " + json.dumps(shown).encode() + b"\n\n")


if __name__ == "__main__":
    services = Services(int(sys.argv[1]), Path(sys.argv[2]))
    print(f"http://{services.host}", flush=True)
    try:
        services.serve_forever()
    except KeyboardInterrupt:
        pass
