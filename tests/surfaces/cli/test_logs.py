"""The logs of `cuebook serve` and `cuebook worker`: what they say, and what they never say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.support.command_line import CommandLine, finished
from tests.support.model_server import ModelServer
from tests.surfaces.web.test_serve import Serving

PIPELINE = """
name: pipes
args:
  word: {}
steps:
  - id: each
    for_each: [{name: canary-item-one}, {name: canary-item-two}]
    key: ${item.name}
    command: cli sh -c 'echo canary-output; echo canary-errors >&2'
    env: {WORD: "${word}", TOKEN: "env:CANARY"}
    effect: read
  - id: asked
    command: cli sh -c 'echo canary-denied'
    approval: required
  - id: fails
    command: cli sh -c 'echo canary-failure >&2; exit 3'
    effect: read
"""
BOOK = """
# Canaries

## INPUTS

- `word` (string): A word

## STEP 1: Say

Say canary-prompt and {{word}}.

## STEP 2: Ask

@elicit(input, "canary-question")

Say it again.
"""


@contextmanager
def serving(cli: CommandLine, *args: str) -> Iterator[Serving]:
    made = Serving(cli, *args)
    try:
        yield made
    finally:
        made.client.close()
        if made.process.poll() is None:
            made.process.kill()
            made.process.communicate()


def events_of(err: str) -> list[dict[str, Any]]:
    """The log, each line of which is an object."""
    return [json.loads(line) for line in err.splitlines()]


def named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event.get("event") == name]


def test_a_run_is_logged_from_its_start_to_its_end(cli: CommandLine, server: ModelServer) -> None:
    cli.write("book.md", BOOK)
    server.replies = [429, "One.", "Two."]
    with serving(cli, "--log-format", "json") as served:
        run = served.client.post("/api/runs", json={"playbook": "book", "inputs": {"word": "x"}}).json()["run"]
        wait = served.until(run, "awaiting_input")["waits"][0]["wait"]
        served.client.post(f"/api/waits/{wait}/answer", json={"value": "y"})
        served.until(run, "completed")
        code, err = served.end()
    assert code == 130
    events = events_of(err)
    ours = [event for event in events if event.get("run") == run]
    assert [event["event"] for event in ours] == [
        "run.started",
        "run.driving",
        "model.attempt",
        "wait.opened",
        "run.waits",
        "wait.decided",
        "run.driving",
        "run.ended",
    ]
    assert {event["playbook"] for event in ours if event["event"] != "wait.decided"} == {"book.md"}
    (attempt,) = named(events, "model.attempt")
    assert (attempt["model"], attempt["number"], attempt["of"], attempt["kind"]) == ("test/echo-1", 2, 5, "rate")
    assert attempt["step"] == "1"
    (decided,) = named(events, "wait.decided")
    assert (decided["kind"], decided["wait"], decided["by"]) == ("question", wait, "local")
    (ended,) = named(events, "run.ended")
    assert (ended["status"], ended["calls"], ended["tokens"], ended["by"]) == ("completed", 2, 30, "local")
    assert ended["unknown_costs"] == 2, "an unknown cost is not zero"
    assert [event["message"] for event in events if "message" in event][-1].startswith("stopped.")


def test_sign_ins_and_refusals_are_logged_with_who_and_from_where(cli: CommandLine) -> None:
    token = cli.call("users", "add", "vera", "--role", "viewer").out.split()[-1]
    with serving(cli, "--log-format", "json", "--access-log") as served:
        with httpx2.Client(base_url=served.client.base_url, trust_env=False) as guest:
            assert guest.post("/sign-in", data={"token": "wrong-token"}).status_code == 401
            assert guest.get("/api/runs", headers={"Authorization": "Bearer wrong-token"}).status_code == 401
            assert guest.get("/sign-in?start=wrong-token").status_code == 401
            assert guest.post("/mcp", headers={"Authorization": "Bearer wrong-token"}).status_code == 401
            assert guest.post("/sign-in", data={"token": token}).status_code == 303
            assert guest.post("/api/runs", json={"playbook": "tea"}).status_code == 403
            assert guest.post("/sign-out", json={}).status_code == 303
        _, err = served.end()
    events = events_of(err)
    accepted = [(one["by"], one["how"], one["client"]) for one in named(events, "sign_in.accepted")]
    assert accepted == [("local", "link", "127.0.0.1"), ("vera", "form", "127.0.0.1")]
    assert [one["how"] for one in named(events, "sign_in.refused")] == ["form", "token", "link", "token"]
    (forbidden,) = named(events, "request.forbidden")
    assert (forbidden["by"], forbidden["path"], forbidden["level"]) == ("vera", "/api/runs", "warning")
    assert [one["by"] for one in named(events, "sign_out")] == ["vera"]
    requests = [(one["method"], one["path"], one["status"]) for one in named(events, "request")]
    assert ("GET", "/sign-in", 401) in requests
    assert ("POST", "/api/runs", 403) in requests
    assert "wrong-token" not in err
    assert token not in err
    assert "start=" not in err


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_prompt_input_reply_answer_or_secret_is_ever_logged(
    cli: CommandLine, server: ModelServer, form: str
) -> None:
    """Not even at the lowest level, with every request logged, where everything fails and is tried again."""
    cli.environ["CANARY"] = "canary-secret-value"
    (cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n[secrets]\nallow = ["env:CANARY"]\n')
    cli.write("pipes.yml", PIPELINE)
    cli.write("book.md", BOOK)
    server.replies = [500, "canary-reply", 400]
    with serving(cli, "--log-format", form, "--log-level", "debug", "--access-log") as served:
        inputs = {"word": "canary-input"}
        book = served.client.post("/api/runs", json={"playbook": "book", "inputs": inputs}).json()["run"]
        wait = served.until(book, "awaiting_input")["waits"][0]["wait"]
        assert served.client.post(f"/api/waits/{wait}/answer", json={"value": "canary-answer"}).status_code == 200
        assert served.until(book, "failed")["error"]["message"]
        started = served.client.post("/api/runs", json={"playbook": "pipes", "inputs": inputs})
        assert started.status_code == 201, started.text
        pipes = started.json()["run"]
        wait = served.until(pipes, "awaiting_approval")["waits"][0]["wait"]
        denied = {"decision": "deny", "reason": "canary-reason"}
        assert served.client.post(f"/api/waits/{wait}/decide", json=denied).status_code == 200
        assert served.until(pipes, "cancelled", "failed")
        assert (
            served.client.post("/api/runs", json={"playbook": "book", "inputs": {"canary-name": 1}}).status_code == 422
        )
        served.client.post(f"/api/runs/{pipes}/cancel", json={"reason": "canary-why"})
        served.client.get("/api/runs?text=canary-query")
        _, err = served.end()
    assert "canary" not in err.lower().replace("canaries", "")
    for event in ("step.ended", "effect.ended", "model.attempt", "run.ended", "wait.decided", "request "):
        assert event.strip() in err, event
    assert "Traceback" not in err


def test_a_worker_logs_the_runs_that_it_drives(cli: CommandLine) -> None:
    (cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
    cli.write("short.yml", "name: S\nsteps:\n  - {id: a, command: cli true}\n")
    run = cli.call("run", "short.yml", "--detach").out.strip()
    process = cli.begin("worker", "--log-format", "json", "--log-level", "info")
    assert process.stderr is not None
    events: list[dict[str, Any]] = []
    while "run.released" not in [event.get("event") for event in events]:
        events.append(json.loads(process.stderr.readline()))
    process.terminate()
    ran = finished(process)
    assert ran.code == 0
    assert "offers" in events[0]["message"]
    assert [event["event"] for event in events[1:]] == ["run.driving", "run.ended", "run.released"]
    assert {event["run"] for event in events[1:]} == {run}
    assert (events[2]["playbook"], events[2]["status"], events[3]["result"]) == ("short.yml", "completed", "completed")
    assert all(json.loads(line) for line in ran.err.splitlines())


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--log-format", "xml"), "--log-format: log.format must be one of text, json"),
        (("--log-level", "all"), "debug"),
    ],
)
def test_an_unknown_format_or_level_is_refused(cli: CommandLine, args: tuple[str, str], said: str) -> None:
    for command in ("serve", "worker"):
        refused = cli.call(command, *args)
        assert (refused.code, said in refused.err) == (2, True), refused.err
