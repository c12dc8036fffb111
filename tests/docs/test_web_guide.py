"""The guide to the web app: its playbooks have no findings, its tables are true, and its commands work."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time
from typing import Any

import pytest

from cuebook.config import load
from cuebook.dialects.markdown.check import check as check_markdown
from cuebook.dialects.pipeline.check import check as check_pipeline
from cuebook.gate.roles import ROLES
from cuebook.surfaces.web.app import ENDPOINTS
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, blocks
from tests.support.model_server import ModelServer
from tests.surfaces.web.api.test_openapi import described
from tests.surfaces.web.served_app import Sse
from tests.surfaces.web.stream_reader import Reader
from tests.surfaces.web.test_serve import Serving

GUIDE = DOCS / "guides" / "web.md"
BLOCKS = blocks(GUIDE)
BOOKS = {
    "reply.playbook.md": next(one.text for one in BLOCKS if one.language == "markdown"),
    "note.yml": next(one.text for one in BLOCKS if one.language == "yaml"),
}
COMMANDS = [line for block in BLOCKS if block.language == "sh" for line in block.text.splitlines()]
SETTINGS = [line for line in COMMANDS if re.match(r"\w+=", line)]
REPLY = "It is on its *endpoint*.\n\nOn every one."
PRINTED = "http://127.0.0.1:8765"
"""The URL of the server in the guide."""


def rows(columns: int) -> list[list[str]]:
    """The rows of the guide's tables with this many columns, without the marks for code."""
    lines = [line for line in GUIDE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    cells = [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if len(row) == columns]


EVENTS = {name: data.split(", ") for name, data, _ in rows(3) if " " not in name}


@pytest.mark.parametrize("name", BOOKS)
def test_nothing_is_wrong_with_a_playbook_of_the_guide(name: str) -> None:
    check = check_markdown if name.endswith(".md") else check_pipeline
    assert [one for one in check(BOOKS[name], name) if one.severity != "note"] == []


def test_the_guide_lists_every_route_and_its_role() -> None:
    told = {name: who for name, who, _ in rows(3) if " " in name}
    plain = [
        endpoint
        for endpoint in ENDPOINTS
        if endpoint.path.startswith("/api/")
        or endpoint.path in ("/healthz", "/readyz", "/metrics", "/playbooks/runtime")
    ]
    words = {"trigger": "its token", "metrics": "admin, or the token for it"}
    assert told == {
        f"{endpoint.method} {endpoint.path}": words.get(endpoint.needs, endpoint.needs) for endpoint in plain
    }


def test_the_guide_has_the_roles_and_the_events() -> None:
    assert [name for name, _ in rows(2)] == list(ROLES)
    words = described()["paths"]["/api/runs/{id}/stream"]["get"]["description"]
    assert list(EVENTS) == re.findall(r"`([a-z-]+) \{", words)


class Terminal:
    """A person who types the guide's commands, with a server and a browser."""

    def __init__(self, cli: CommandLine, serving: Serving) -> None:
        self._desk = cli
        self._serving = serving
        self._decided: set[str] = set()
        self.names: dict[str, str] = {}
        """The values for the words in capitals."""
        home = cli.home / "curl"
        home.mkdir()
        (home / ".curlrc").write_text("silent\nshow-error\nfail-with-body\nmax-time = 60\n")
        self._environ = {**cli.environ, "CURL_HOME": str(home)}

    def begin(self, command: str) -> subprocess.Popen[str]:
        script = "\n".join([*SETTINGS, command])
        for name, value in {PRINTED: str(self._serving.client.base_url).rstrip("/"), **self.names}.items():
            script = script.replace(name, value)
        pipe = subprocess.PIPE
        return subprocess.Popen(
            ["sh", "-c", script], cwd=self._desk.work, env=self._environ, stdout=pipe, stderr=pipe, text=True
        )

    def curls(self, command: str) -> str:
        """The output of a command, once its run has ended or waits."""
        if re.search(r"/(answer|decide|resume)\b", command):
            self._decided.add(self.names["WAIT"])
        said = finished(self.begin(command))
        self._settle()
        return said

    def _settle(self) -> None:
        end = time.monotonic() + 40
        while not self._rests():
            assert time.monotonic() < end, self.names
            time.sleep(0.05)

    def _rests(self) -> bool:
        """Whether the newest run has ended or has an undecided wait; the names then refer to it."""
        listed = [one["run"] for one in self._serving.client.get("/api/runs").json()["runs"]]
        if not listed:
            return True
        run: dict[str, Any] = self._serving.client.get(f"/api/runs/{listed[0]}").json()
        waits = [one["wait"] for one in run["waits"] if one["wait"] not in self._decided]
        self.names |= {"RUN": listed[0], "OTHER": (listed * 2)[1], "WAIT": "".join(waits)}
        return run["status"] == "completed" or bool(waits)


def finished(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=70)
    assert process.returncode == 0, (process.args, out, err)
    return out


def events_of(streamed: str) -> list[Sse]:
    fields = [
        dict(line.split(": ", 1) for line in one.splitlines()) for one in streamed.split("\n\n") if "data: " in one
    ]
    return [Sse(one["id"], one["event"], json.loads(one["data"])) for one in fields]


@pytest.mark.needs("curl")
@pytest.mark.timeout(300)  # dozens of processes
def test_every_command_of_the_guide_does_what_it_says(cli: CommandLine, server: ModelServer) -> None:
    server.script = lambda request: "question" if "one word" in str(request["messages"][-1]) else REPLY
    (cli.work / "playbooks").mkdir()
    for name, text in BOOKS.items():
        cli.write(f"playbooks/{name}", text)
    cli.write("server-token.txt", "a-token-of-the-server-itself\n")
    servings: list[Serving] = []
    try:
        _type_all(cli, servings)
    finally:
        for one in servings:
            one.client.close()
            one.process.kill()
            one.process.communicate()


def _type_all(cli: CommandLine, servings: list[Serving]) -> None:
    first, *rest = [line for line in COMMANDS if line not in SETTINGS]
    servings.append(serving := Serving(cli, *shlex.split(first)[2:]))
    terminal = Terminal(cli, serving)
    said: dict[str, str] = {}
    watching: list[subprocess.Popen[str]] = []
    seen: list[Sse] = []
    for command in rest:
        words = shlex.split(command, comments=True)
        if words[0] == "curl":
            if "-N" in words and not watching:
                watching.append(terminal.begin(command))
                continue
            if "EVENT" in command:
                seen = events_of(finished(watching[0]))
                terminal.names["EVENT"] = seen[len(seen) // 2].id
            said[command] = terminal.curls(command)
        elif words[1] == "serve" and "token" not in words:
            servings.append(Serving(cli, *words[2:]))
        else:
            ran = cli.call(*words[1:])
            assert ran.code == 0, ran.err
            for name, about in (("TOKEN", " ada "), ("TRIGGER", " token ")):
                if about in command:
                    terminal.names[name] = ran.out.partition("once: ")[2].split()[0]
    _check(cli, serving, said, seen)
    again = next(one for one in rest if "Idempotency-Key" in one)
    before = len(serving.client.get("/api/runs").json()["runs"])
    assert json.loads(terminal.curls(again))["run"] == json.loads(said[again])["run"]
    assert len(serving.client.get("/api/runs").json()["runs"]) == before


def _check(cli: CommandLine, serving: Serving, said: dict[str, str], seen: list[Sse]) -> None:
    def of(part: str) -> Any:
        return json.loads(next(out for command, out in said.items() if part in command))

    assert {one["id"] for one in of("/api/playbooks")["playbooks"]} == {"reply", "note"}
    assert of("/answer")["state"] == "answered"
    assert [path.read_text() for path in cli.work.glob("reply-*.md")] == [REPLY]
    rest = events_of(next(out for command, out in said.items() if "EVENT" in command))
    assert Reader(rest).seen == Reader(seen[len(seen) // 2 + 1 :]).seen
    assert of("/diff/")["values"]["tone"] == ["plain", "warm"]
    assert "tee note.txt" in of("what would be done")["approval"]["preview"]["command"]
    assert (cli.work / "note.txt").read_text() == "Call back at ten."
    assert of("/trigger")["status"] == "queued"
    assert of("/playbooks/runtime")["status"] == "needs_approval"
    told = [
        event
        for row in serving.client.get("/api/runs").json()["runs"]
        for event in serving.read(row["run"], until="" if row["status"] == "completed" else "step-update")
    ]
    assert {event.event for event in told} == set(EVENTS)
    for event in told:
        assert sorted(event.data) == sorted(EVENTS[event.event])


def test_what_the_guide_says_about_defaults_is_so(cli: CommandLine) -> None:
    said = GUIDE.read_text(encoding="utf-8").partition("## What is not protected")[2]
    config = load(environ=cli.environ, folder=cli.work)
    assert ("By default, users see each other's runs" in said) == (config.get("access.runs") == "all")
    limits = cli.call("budget", "list", "--json").object
    assert ("By default, nothing\n  limits the total" in said) == (limits == [])
    for page in ("identity.md#who-sees-which-runs", "budgets.md"):
        assert f"]({page})" in said, "what is off by default has a guide"
