"""`/metrics` of a server and of a worker: what it says, and who may read it."""

from __future__ import annotations

import json

import httpx2

from tests.service.insight.scraped import Scraped
from tests.support.command_line import CommandLine, finished
from tests.support.model_server import ModelServer
from tests.support.postgres import free_port
from tests.surfaces.cli.test_logs import BOOK, serving

TOKEN = "scrape-me-" + "x" * 30


def test_a_server_counts_what_its_runs_do(cli: CommandLine, server: ModelServer) -> None:
    cli.write("book.md", BOOK)
    server.replies = [429, "One.", "Two."]
    with serving(cli) as served:
        run = served.client.post("/api/runs", json={"playbook": "book", "inputs": {"word": "x"}}).json()["run"]
        wait = served.until(run, "awaiting_input")["waits"][0]["wait"]
        waiting = Scraped(served.client.get("/metrics").text)
        served.client.post(f"/api/waits/{wait}/answer", json={"value": "y"})
        served.until(run, "completed")
        answer = served.client.get("/metrics")
        served.end()
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert waiting.value("cuebook_runs", status="awaiting_input") == 1
    assert waiting.value("cuebook_waits", kind="question") == 1
    scraped = Scraped(answer.text)
    assert scraped.value("cuebook_runs_started_total", playbook="book.md", trigger="") == 1
    assert scraped.value("cuebook_runs_ended_total", playbook="book.md", status="completed") == 1
    assert scraped.value("cuebook_model_attempts_failed_total", provider="test", reason="rate") == 1
    assert scraped.value("cuebook_model_tokens_total", model="test/echo-1") == 30
    assert scraped.value("cuebook_model_unknown_costs_total", model="test/echo-1") == 2
    assert scraped.value("cuebook_log_events_total", event="sign_in.accepted") == 1
    assert (scraped.value("cuebook_store_commit_seconds_count") or 0) > 5
    assert run not in answer.text


def test_only_an_admin_or_the_token_for_metrics_reads_them(cli: CommandLine) -> None:
    cli.environ["SCRAPE"] = TOKEN
    with cli.config.open("a") as file:
        file.write('\n[metrics]\ntoken = "env:SCRAPE"\n')
    tokens = {role: cli.call("users", "add", role, "--role", role).out.split()[-1] for role in ("admin", "approver")}

    def with_(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    with (
        serving(cli, "--log-format", "json") as served,
        httpx2.Client(base_url=served.client.base_url, trust_env=False) as guest,
    ):
        assert guest.get("/metrics").status_code == 401
        assert guest.get("/metrics", headers=with_("wrong")).status_code == 401
        assert guest.get("/metrics", headers=with_(tokens["approver"])).status_code == 403
        assert guest.get("/metrics", headers=with_(tokens["admin"])).status_code == 200
        assert guest.get("/metrics", headers=with_(TOKEN)).status_code == 200
        assert guest.get("/api/runs", headers=with_(TOKEN)).status_code == 401, "it is good for nothing else"
        assert guest.get("/", headers=with_(TOKEN)).status_code == 401
        _, err = served.end()
    assert TOKEN not in err


def test_a_worker_serves_them_at_an_address_of_their_own(cli: CommandLine) -> None:
    (cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
    cli.write("short.yml", "name: S\nsteps:\n  - {id: a, command: cli true}\n")
    cli.call("run", "short.yml", "--detach")
    address = f"127.0.0.1:{free_port()}"
    process = cli.begin("worker", "--metrics", address, "--log-format", "json")
    assert process.stderr is not None
    while json.loads(process.stderr.readline()).get("event") != "run.released":
        pass
    with httpx2.Client(base_url=f"http://{address}", trust_env=False) as client:
        scraped = Scraped(client.get("/metrics").text)
        assert client.get("/healthz").status_code == 404
        assert client.post("/metrics").status_code == 405
    process.terminate()
    assert finished(process).code == 0
    assert scraped.value("cuebook_drives_total") == 1
    assert scraped.value("cuebook_effects_total", kind="RunCommand", outcome="done") == 1
    assert scraped.value("cuebook_runs", status="completed") == 1
    assert scraped.value("cuebook_runs_started_total") is None, "another process started it"


def test_an_address_that_is_taken_is_one_line(cli: CommandLine) -> None:
    with serving(cli, "--metrics", (address := f"127.0.0.1:{free_port()}")):
        refused = cli.call("worker", "--metrics", address)
    assert refused.code == 2
    assert f"Cannot listen on {address}" in refused.err
    assert "--metrics" in refused.err
