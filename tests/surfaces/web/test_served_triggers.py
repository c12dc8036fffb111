"""Two `cuebook serve` processes on one store: each event and each moment starts one run, which one of them drives to its end."""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
import threading
import time
from typing import Any

import httpx2

from tests.support.command_line import CommandLine
from tests.surfaces.web.test_serve import Serving

BOOK = """\
name: Note
args:
  what: {type: string, default: x}
steps:
  - id: say
    command: cli touch "done-${what}"
"""
SECRET = "a-long-shared-secret"


def runs_of(serving: Serving, trigger: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = serving.client.get("/api/runs", params={"trigger": trigger}).json()["runs"]
    return found


def until_completed(serving: Serving, trigger: str) -> None:
    end = time.monotonic() + 40
    while time.monotonic() < end:
        if any(one["status"] == "completed" for one in runs_of(serving, trigger)):
            return
        time.sleep(0.05)
    raise AssertionError(runs_of(serving, trigger))


def test_two_servers_fire_once(cli: CommandLine) -> None:
    cli.environ["SHARED"] = SECRET
    cli.write("note.yml", BOOK)
    (cli.work / "inbox").mkdir()
    (cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["touch *"]\n')
    for words in (
        ("secrets", "add", "shared", "env:SHARED"),
        ("schedule", "add", "note.yml", "--name", "timed", "--cron", "0 0 1 1 *", "--input", "what=timed"),
        ("trigger", "add", "note.yml", "--name", "hook", "--github", "--secret", "shared", "--map", "what=ref"),
        ("trigger", "add", "note.yml", "--name", "drop", "--files", "inbox", "--map", "what=name"),
        ("trigger", "add", "note.yml", "--name", "then", "--after", "other.yml"),
    ):
        added = cli.call(*words)
        assert added.code == 0, added.err
    cli.write("other.yml", "name: Other\nsteps:\n  - {id: a, command: cli true, effect: read}\n")
    with sqlite3.connect(cli.store) as store:  # its moment has just come
        store.execute(
            "UPDATE jobs SET due = ?, body = json_set(body, '$.next', ?) WHERE kind = 'schedule'",
            (time.time(), time.time() - 1),
        )
    servers = [Serving(cli), Serving(cli)]
    try:
        body = json.dumps({"ref": "main"}).encode()
        signed = {"X-Hub-Signature-256": f"sha256={hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()}"}
        senders = [threading.Thread(target=send, args=(one, body, signed)) for one in (*servers, *servers)]
        for sender in senders:
            sender.start()
        (cli.work / "inbox" / "a.csv").write_text("1")
        for sender in senders:
            sender.join()
        assert cli.call("run", "other.yml", "--no-ask").code == 0
        for trigger in ("schedule:timed", "webhook:hook", "files:drop", "after:then"):
            until_completed(servers[0], trigger)
            assert len(runs_of(servers[1], trigger)) == 1, trigger
    finally:
        ended = [one.end() for one in servers]
    assert [code for code, _ in ended] == [130, 130]
    assert {one.name for one in cli.work.glob("done-*")} == {"done-timed", "done-main", "done-a.csv", "done-x"}


def send(serving: Serving, body: bytes, headers: dict[str, str]) -> None:
    headers = {"Content-Type": "application/json", **headers}
    answer = httpx2.post(f"{serving.client.base_url}/hooks/hook", content=body, headers=headers, trust_env=False)
    assert answer.status_code == 202, answer.text
