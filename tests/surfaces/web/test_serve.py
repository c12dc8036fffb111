"""`cuebook serve` as a separate process: its messages, its shutdown, and its state after a kill."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.command_line import TEA, CommandLine, finished
from tests.support.model_server import ModelServer
from tests.surfaces.web.served_app import Sse
from tests.surfaces.web.stream_reader import Reader

TWO = '# Two\n\n## STEP 1: A\n\nDo A.\n\n@output(a)\n\n## STEP 2: B\n\n@elicit(input, "What?")\n\nDo B.\n'


class Serving:
    """A `cuebook serve` process and a client that is signed in."""

    def __init__(self, cli: CommandLine, *args: str) -> None:
        self.process = cli.begin("serve", "--port", "0", *args)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, (line, self.process.stderr and self.process.stderr.read())
        self.link = found[0]
        self.client = httpx2.Client(base_url=self.link.partition("/sign-in")[0], timeout=30, trust_env=False)
        if "/sign-in" in self.link:
            assert self.client.get(self.link).status_code == 303

    def until(self, run: str, *statuses: str) -> dict[str, Any]:
        end = time.monotonic() + 40
        message: dict[str, Any] = {}
        while time.monotonic() < end:
            message = self.client.get(f"/api/runs/{run}").json()
            if message["status"] in statuses:
                return message
            time.sleep(0.05)
        raise AssertionError(message)

    def read(self, run: str, after: str = "", until: str = "") -> list[Sse]:
        """The stream from a position on, to its end or to an event of this name."""
        events: list[Sse] = []
        fields: dict[str, str] = {}
        with self.client.stream("GET", f"/api/runs/{run}/stream", headers={"Last-Event-ID": after}) as response:
            for line in response.iter_lines():
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "data" in fields:
                    events.append(Sse(fields["id"], fields["event"], json.loads(fields["data"])))
                    fields = {}
                    if events[-1].event == until:
                        break
        return events

    def end(self, how: int = signal.SIGINT) -> tuple[int, str]:
        self.client.close()
        self.process.send_signal(how)
        ran = finished(self.process)
        return ran.code, ran.err


@pytest.fixture
def servings(cli: CommandLine) -> Iterator[list[Serving]]:
    made: list[Serving] = []
    yield made
    for one in made:
        one.client.close()
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def test_a_run_survives_the_death_of_its_server(cli: CommandLine, server: ModelServer, servings: list[Serving]) -> None:
    cli.write("two.md", TWO)
    server.replies = ["First.", "First.", "Second."]
    server.hold_at = 1
    servings.append(first := Serving(cli))
    cookies = dict(first.client.cookies)
    run = first.client.post("/api/runs", json={"playbook": "two"}).json()["run"]
    assert server.holding.wait(20)
    begun = first.read(run, until="step-content")
    first.process.send_signal(signal.SIGKILL)
    first.process.communicate()
    server.release()
    servings.append(second := Serving(cli))
    message = second.until(run, "awaiting_input")
    assert message["outputs"] == {"1": "First."}
    with httpx2.Client(base_url=second.client.base_url, cookies=cookies, trust_env=False) as browser:
        assert browser.get("/api/runs").status_code == 200  # the old cookie is valid with the new server
    wait = message["waits"][0]["wait"]
    assert second.client.post(f"/api/waits/{wait}/answer", json={"value": "x"}).status_code == 200
    assert second.until(run, "completed")["outputs"]["2"] == "Second."
    events = second.client.get(f"/api/runs/{run}/events").json()["events"]
    asked = [event for event in events if event["event"] == "ModelAsked"]
    assert len(asked) == 3  # the call that was lost, and nothing else, was made again
    # A reader reconnects to the new server with half of a void text, and ends with the complete one.
    assert Reader(begun).tails["1"]
    for number, event in enumerate(begun):
        reader = Reader(begun[: number + 1] + second.read(run, event.id))
        assert reader.streamed == [("1", "First."), ("2", "Second.")]


def test_ctrl_c_ends_the_server_at_once_with_open_streams(
    cli: CommandLine, server: ModelServer, servings: list[Serving]
) -> None:
    cli.write("two.md", TWO)
    server.hold_at = 1
    servings.append(serving := Serving(cli))
    run = serving.client.post("/api/runs", json={"playbook": "two"}).json()["run"]
    assert server.holding.wait(20)
    ended: list[str] = []

    def read() -> None:
        cookies = dict(serving.client.cookies)
        with (
            httpx2.Client(base_url=serving.client.base_url, cookies=cookies, trust_env=False) as own,
            own.stream("GET", f"/api/runs/{run}/stream", timeout=30) as response,
        ):
            ended.append("".join(response.iter_text()))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    time.sleep(1)
    code, err = serving.end()
    for reader in readers:
        reader.join(10)
    assert code == 130
    assert "Traceback" not in err
    assert "stopped" in err
    assert len(ended) == 3
    server.release()


def test_ctrl_c_does_not_wait_for_idle_clients(cli: CommandLine, server: ModelServer, servings: list[Serving]) -> None:
    """Nor for a request that waits for a run; and ordinary events are not logged as errors."""
    cli.write("two.md", TWO)
    server.script = lambda request: "word " * 400_000
    servings.append(serving := Serving(cli))
    large = serving.client.post("/api/runs", json={"playbook": "two"}).json()["run"]
    serving.until(large, "awaiting_input")
    server.script = None
    server.hold_at = len(server.requests) + 1
    host, port = serving.client.base_url.host, serving.client.base_url.port
    assert port is not None
    cookie = "; ".join(f"{name}={value}" for name, value in serving.client.cookies.items())
    head = f"Host: {host}:{port}\r\nCookie: {cookie}\r\nContent-Type: application/json\r\n"
    sent = {
        "a reader": f"GET /api/runs/{large}/stream HTTP/1.1\r\n{head}\r\n",
        "a writer": f"POST /api/runs HTTP/1.1\r\n{head}Content-Length: 1000\r\n\r\n{{",
        "a run": f"POST /playbooks/runtime HTTP/1.1\r\n{head}Content-Length: 35\r\n\r\n"
        '{"action":"run","pipeline":"two"}  ',
    }
    opened = []
    for text in sent.values():
        opened.append(one := socket.socket())
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect((host, port))
        one.sendall(text.encode())
    assert server.holding.wait(20)
    time.sleep(0.5)
    code, err = serving.end()
    for one in opened:
        one.close()
    server.release()
    assert code == 130
    assert "Traceback" not in err
    assert "Cancel" not in err
    assert "stopped" in err


def test_a_run_of_the_command_line_is_shown_live(
    cli: CommandLine, server: ModelServer, servings: list[Serving]
) -> None:
    cli.write("two.md", TWO)
    server.hold_at = 1
    servings.append(serving := Serving(cli))
    process = cli.begin("run", "two.md", "--answer", "2=x")
    assert server.holding.wait(20)
    (row,) = serving.client.get("/api/runs").json()["runs"]
    assert row["status"] == "running"
    seen: list[str] = []

    def read() -> None:
        with serving.client.stream("GET", f"/api/runs/{row['run']}/stream", timeout=60) as response:
            seen.extend(line for line in response.iter_lines() if line.startswith("event:"))

    reader = threading.Thread(target=read)
    reader.start()
    server.release()
    assert finished(process).code == 0
    reader.join(20)
    assert seen[-1] == "event: status"
    assert seen.count("event: step-rendered") == 2


def test_a_run_that_was_left_to_a_server_is_picked_up(
    cli: CommandLine, server: ModelServer, servings: list[Serving]
) -> None:
    servings.append(Serving(cli))
    run = cli.call("run", cli.tea, "--detach").out.strip()
    assert servings[0].until(run, "completed", "failed")["status"] == "completed"
    assert len(server.requests) == 3


def test_another_machine_needs_a_token(cli: CommandLine) -> None:
    refused = cli.call("serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.code == 2
    assert "CUEBOOK_SERVE_TOKEN" in refused.err
    (cli.work / "short").write_text("abc\n")
    assert "shorter than" in cli.call("serve", "--host", "0.0.0.0", "--port", "0", "--token-file", "short").err


def test_with_a_token_other_machines_are_admitted_and_limited(cli: CommandLine, servings: list[Serving]) -> None:
    cli.environ["CUEBOOK_SERVE_TOKEN"] = "a-token-that-is-long-enough"
    cli.write("two.md", TWO)
    servings.append(serving := Serving(cli, "--host", "0.0.0.0"))
    headers = {"Authorization": "Bearer a-token-that-is-long-enough"}
    with httpx2.Client(base_url=serving.client.base_url, headers=headers, trust_env=False) as other:
        assert other.get("/api/runs").status_code == 200
        codes = [other.post("/api/runs", json={"playbook": "two"}).status_code for _ in range(21)]
    assert codes == [201] * 20 + [429]


def test_a_port_in_use_is_reported(cli: CommandLine, servings: list[Serving]) -> None:
    servings.append(serving := Serving(cli))
    port = str(serving.client.base_url.port)
    ran = cli.call("serve", "--port", port)
    assert ran.code == 2
    assert f"127.0.0.1:{port}" in ran.err
    assert "--port" in ran.err


def test_a_missing_folder_is_reported(cli: CommandLine) -> None:
    ran = cli.call("serve", "--folder", "nothing")
    assert (ran.code, "nothing is not a folder" in ran.err) == (2, True)


def test_folders_come_from_the_configuration(cli: CommandLine, servings: list[Serving]) -> None:
    for name in ("one", "two"):
        (cli.work / name).mkdir()
        cli.write(f"{name}/{name}.md", TWO.replace("Two", name.title()))
    with cli.config.open("a") as file:
        file.write(f'\n[serve]\nfolders = ["{cli.work}/one"]\n')
    servings.append(serving := Serving(cli))
    assert [one["id"] for one in serving.client.get("/api/playbooks").json()["playbooks"]] == ["one"]


def test_a_token_for_a_playbook_is_made_on_the_command_line(cli: CommandLine, servings: list[Serving]) -> None:
    cli.write("two.md", TWO)
    ran = cli.call("serve", "token", "two")
    assert ran.code == 0
    token = re.search(r"once: (\S+)", ran.out)
    assert token is not None
    servings.append(serving := Serving(cli))
    with httpx2.Client(base_url=serving.client.base_url, trust_env=False) as other:
        headers = {"Authorization": f"Bearer {token[1]}"}
        assert other.post("/api/playbooks/two/trigger", json={}, headers=headers).status_code == 202
    assert cli.call("serve", "token", "nothing").code == 2


def test_sigterm_lets_a_step_finish_and_leaves_the_rest_to_the_next_server(
    cli: CommandLine, server: ModelServer, servings: list[Serving]
) -> None:
    cli.write("three.md", TEA)
    server.replies = ["One."]
    server.hold_at = 1
    servings.append(first := Serving(cli))
    run = first.client.post("/api/runs", json={"playbook": "three"}).json()["run"]
    assert server.holding.wait(20)
    first.process.send_signal(signal.SIGTERM)
    end = time.monotonic() + 20
    while (ready := first.client.get("/readyz")).status_code == 200:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
    assert first.client.get(f"/api/runs/{run}").json()["status"] == "running"  # it still answers
    later = first.client.post("/api/runs", json={"playbook": "three"}).json()["run"]
    server.release()
    ended = finished(first.process)
    assert (ended.code, "Steps in progress may finish" in ended.err, "Traceback" in ended.err) == (0, True, False)
    assert len(server.requests) == 1  # the second step was left to others
    servings.append(second := Serving(cli))
    assert second.until(run, "completed")["outputs"]["1"] == "One."
    second.until(later, "completed")  # it was accepted, so it is not forgotten
    asked = [
        one for one in second.client.get(f"/api/runs/{run}/events").json()["events"] if one["event"] == "ModelAsked"
    ]
    assert len(asked) == 3


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_wait_for_a_step(
    cli: CommandLine, server: ModelServer, servings: list[Serving], how: signal.Signals
) -> None:
    cli.write("three.md", TEA)
    server.hold_at = 1
    servings.append(serving := Serving(cli))
    serving.client.post("/api/runs", json={"playbook": "three"})
    assert server.holding.wait(20)
    serving.process.send_signal(signal.SIGTERM)
    while serving.client.get("/readyz").status_code == 200:
        time.sleep(0.01)
    code, err = serving.end(how)
    server.release()
    assert (code, "Traceback" in err) == (130 if how is signal.SIGINT else 0, False)


@pytest.mark.parametrize("times", [1, 2])
def test_the_server_ends_by_a_signal(cli: CommandLine, servings: list[Serving], times: int) -> None:
    servings.append(serving := Serving(cli))
    for _ in range(1, times):
        serving.process.send_signal(signal.SIGTERM)
        time.sleep(0.02)  # while it is shutting down
    code, err = serving.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in err


def test_a_server_that_nobody_can_sign_in_to_says_so_in_its_log(cli: CommandLine) -> None:
    cli.environ |= {
        "CUEBOOK_OIDC_ISSUER": "http://127.0.0.1:1",
        "CUEBOOK_OIDC_CLIENT_ID": "cuebook",
        "CUEBOOK_OIDC_CLIENT_SECRET": "env:NOT_SET_HERE",
    }
    process = cli.begin("serve", "--port", "0")
    assert process.stderr is not None
    assert process.stdout is not None
    said = next(line for line in process.stderr if "Nobody can sign in" in line)
    address = process.stdout.readline().split()[-1]
    answer = httpx2.get(f"{address}healthz", trust_env=False)
    process.terminate()
    finished(process)
    assert "Nobody can sign in with http://127.0.0.1:1" in said
    assert "NOT_SET_HERE" in said
    assert answer.status_code == 200


SERVE_TOKEN = "a-token-that-is-long-enough"


@pytest.mark.parametrize(
    "served",
    [("--allow-host", "cuebook.example.com"), ("--host", "0.0.0.0"), ("public_url",), ("journal",)],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_the_log_of_a_server_for_others_has_no_link_that_signs_in(
    cli: CommandLine, tmp_path: Path, served: tuple[str, ...], form: str
) -> None:
    cli.environ["CUEBOOK_SERVE_TOKEN"] = SERVE_TOKEN
    words = ["serve", "--port", "0", "--log-format", form]
    if served[0].startswith("--"):
        words += served
    elif served == ("public_url",):
        with cli.config.open("a") as file:
            file.write('\n[serve]\npublic_url = "https://cuebook.example.com"\n')
    with (tmp_path / "journal").open("w+") as journal:  # what both streams go to, as in a unit or a container
        seen = os.fstat(journal.fileno())
        if served == ("journal",):
            cli.environ["JOURNAL_STREAM"] = f"{seen.st_dev}:{seen.st_ino}"
        process = subprocess.Popen(
            [sys.executable, "-m", "cuebook", *words], env=cli.environ, cwd=cli.work, stdout=journal, stderr=journal
        )
        end = time.monotonic() + 40
        while not (found := re.search(r"http://127\.0\.0\.1:\d+/", said := Path(journal.name).read_text())):
            assert process.poll() is None, said
            assert time.monotonic() < end, said
            time.sleep(0.05)
        headers = {"Authorization": f"Bearer {SERVE_TOKEN}"}
        assert httpx2.get(f"{found[0]}api/runs", headers=headers, trust_env=False).status_code == 200
        page = httpx2.get(f"{found[0]}sign-in", headers={"Accept": "text/html"}, trust_env=False).text
        assert ("Ask an admin of this server" in page, "printed when it was started" in page) == (True, False)
        process.terminate()
        assert process.wait(30) == 0
    said = Path(journal.name).read_text()
    assert "start=" not in said
    if form == "json":
        assert all(json.loads(line) for line in said.splitlines())
