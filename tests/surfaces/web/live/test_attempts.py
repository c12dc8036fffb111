"""While a provider fails and is tried again, the page, its stream, the events and the terminal say so at once."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.support.pseudo_terminal import TerminalSession
from tests.surfaces.cli.test_logs import serving

TWO = "# Two\n\n## STEP 1: A\n\nDo A.\n"


def test_a_page_and_the_streams_show_an_attempt_while_the_next_one_is_under_way(
    cli: CommandLine, server: ModelServer
) -> None:
    cli.write("two.md", TWO)
    server.replies = [500]
    server.hold_at = 2
    with serving(cli) as served:
        run = served.client.post("/api/runs", json={"playbook": "two"}).json()["run"]
        assert server.holding.wait(30)  # the second attempt has begun, and nothing is decided
        page = served.client.get(f"/runs/{run}").text
        assert "The model is called again, attempt 2 of 5" in page
        assert "HTTP 500" in page
        assert served.client.get(f"/api/runs/{run}").json()["status"] == "running"
        updates = served.read(run, until="step-content")
        assert any("attempt 2 of 5" in event.data.get("html", "") for event in updates)
        noted = until_noted(served.client, run)
        server.release()
        served.until(run, "completed")
        served.end()
    assert noted["name"] == "model_attempt"
    about = noted["data"]
    assert (about["number"], about["of"], about["model"], about["kind"]) == (2, 5, "test/echo-1", "server")


def until_noted(client: httpx2.Client, run: str) -> dict[str, Any]:
    """The first note in the JSON stream of a run that is under way."""
    headers = {"Accept": "text/event-stream"}
    with client.stream("GET", f"/api/runs/{run}/events", headers=headers) as response:
        for line in response.iter_lines():
            if line.startswith("data: ") and (event := json.loads(line[6:]))["event"] == "Noted":
                return dict(event["data"])
    raise AssertionError("the stream ended")


def test_the_status_line_shows_an_attempt_until_the_next_reply_begins(cli: CommandLine, server: ModelServer) -> None:
    server.replies = [500, "One.", "Two.", "Three."]
    with TerminalSession(cli, "run", "tea.md", width=120) as terminal:
        terminal.until("step 1 of 3 attempt 2 of 5: test failed (HTTP 500)")
        assert terminal.ended() == 0
        assert "attempt 2 of 5: test failed (HTTP 500)" in terminal.text, "it stays above the reply"
