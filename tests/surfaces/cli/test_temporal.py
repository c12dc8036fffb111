"""The command line with workers under Temporal: it starts and follows runs, and workers drive them."""

from __future__ import annotations

import json
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Iterator
from urllib.request import Request, urlopen

import psycopg
import pytest

import cuebook.wiring.dispatch
from cuebook.config import load
from cuebook.kernel.errors import BadInput
from cuebook.service.dispatch.temporal.connection import Server
from cuebook.wiring.wiring import Wiring
from tests.support.command_line import CommandLine, finished
from tests.support.model_server import ModelServer
from tests.support.postgres import server as database
from tests.support.pseudo_terminal import CTRL_C, TerminalSession
from tests.support.runtime import GATED
from tests.support.temporal import server as temporal
from tests.surfaces.mcp.clients import Served, over_stdio, token_of
from tests.surfaces.mcp.clients import words as words_of

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.needs("temporal")]

CANARY = "kanarie-4711-secret"


@pytest.fixture
def url() -> Iterator[str]:
    with database().schema() as found:
        yield found


@pytest.fixture
def team(cli: CommandLine, url: str) -> CommandLine:
    cli.environ |= {
        "CUEBOOK_STORE": url,
        "TEAM_KEY": "k" * 64,
        "CUEBOOK_SIGNING_KEY": "env:TEAM_KEY",
        "CUEBOOK_TEMPORAL_ADDRESS": temporal().address,
        "CUEBOOK_TEMPORAL_QUEUE": f"q{secrets.token_hex(4)}",
    }
    (cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
    cli.write("gated.yml", GATED)
    return cli


class Working:
    """A worker of the command line, which is asked to stop at the end."""

    def __init__(self, cli: CommandLine, *words: str) -> None:
        self.process = cli.begin("worker", *words)
        assert self.process.stderr is not None
        self.said = self.process.stderr.readline()

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        ran = finished(self.process)
        return ran.code, self.said + ran.err

    def __enter__(self) -> Working:
        return self

    def __exit__(self, *error: object) -> None:
        if self.process.poll() is None:
            self.stop()


def test_a_worker_drives_what_the_command_line_starts_and_decides(team: CommandLine, server: ModelServer) -> None:
    with Working(team) as worker:
        assert f"workspace:{team.work}" in worker.said
        ran = team.call("run", "gated.yml")
        assert ran.code == 3, ran.err
        (wait,) = team.call("inbox", "--json").object
        decided = team.call("decide", wait["wait"], "approve")
        assert decided.code == 0, decided.err
        assert "completed" in decided.err
        run = team.call("runs", "--json").object[0]["run"]
        driven = [one for one in team.call("events", run).out.splitlines() if " Driven " in one]
        assert len(driven) == 2
        assert team.call("audit", "--verify", run).code == 0
        server.hold_at = 1
        telling = team.begin("run", "tea.md", "--events")
        assert server.holding.wait(30)
        _until(telling, '"text":"Reply"')  # the text of the worker, while it is being written
        server.release()
        told = finished(telling)
        assert told.code == 0, told.err
        code, said = worker.stop()
        assert code == 0
        assert "stopped" in said
        assert "lost its connection" not in said
        lines = [line.split(" ", 2)[2] for line in said.splitlines() if run in line and " run." in line]
        events = [line.split(" ", 1)[0] for line in lines]
        assert events == ["run.driving", "run.waits", "run.released", "run.driving", "run.ended", "run.released"]
        assert 'result="awaiting approval"' in lines[2]
        assert "result=completed" in lines[5]


def test_a_worker_drives_a_child_inside_its_parent(team: CommandLine) -> None:
    team.write("parent.yml", "name: Parent\nsteps:\n  - {id: kid, playbook: gated.yml}\n")
    with Working(team):
        waiting = team.call("run", "parent.yml", "--json").object
        assert waiting["status"] == "awaiting_approval"
        child = waiting["waits"][0]["child"]["run"]
        assert team.call("decide", waiting["run"], "approve", "--json").object["status"] == "completed"
        assert team.call("show", child, "--json").object["status"] == "completed"


def test_at_a_terminal_the_questions_of_a_run_on_a_worker_are_asked(team: CommandLine) -> None:
    with Working(team), TerminalSession(team, "run", "gated.yml") as terminal:
        terminal.until('or "later"')
        terminal.type("approve\n")
        terminal.until("completed")
        assert terminal.ended() == 0


def test_without_a_worker_a_run_says_what_it_waits_for_and_can_be_left(team: CommandLine) -> None:
    with TerminalSession(team, "run", "gated.yml") as terminal:
        shown = terminal.until("starts one.")
        said = f"waits for a worker that offers workspace:{team.work};"
        assert said.replace(" ", "") in "".join(shown.split())  # the terminal breaks a long path
        terminal.type(CTRL_C)
        assert "continues on a worker" in " ".join(terminal.until("stops it.").split())
        assert terminal.ended() == 130


async def test_a_run_without_a_worker_says_so_in_the_terminal_and_to_an_assistant(team: CommandLine) -> None:
    run = team.call("run", "gated.yml", "--detach").out.strip()
    needed = f"a worker that offers workspace:{team.work}"
    assert f"waits for:  {needed}; `cuebook worker` starts one\n" in team.call("show", run).out
    assert team.call("show", run, "--json").object["waits_for"] == needed
    async with over_stdio(team) as client:
        message = await client.raw("get_playbook_execution", execution_id=run)
        assert message.structured_content["waits_for"] == needed
        assert f"It waits for {needed}. Then it continues on its own." in words_of(message)


def test_the_page_of_a_run_without_a_worker_says_so(team: CommandLine) -> None:
    run = team.call("run", "gated.yml", "--detach").out.strip()
    for shown in _pages(team, f"/runs/{run}", f"/api/runs/{run}"):
        assert f"a worker that offers workspace:{team.work}" in shown


def _pages(team: CommandLine, *paths: str) -> list[str]:
    token = token_of(team, "ann", "viewer")
    served = Served(team)
    try:
        asked = [Request(f"{served.address}{path}", headers={"Authorization": f"Bearer {token}"}) for path in paths]
        return [urlopen(one).read().decode() for one in asked]
    finally:
        served.kill()


def test_a_run_that_was_decided_but_has_no_worker_yet_is_not_asked_again(team: CommandLine) -> None:
    run = team.call("run", "gated.yml", "--detach").out.strip()
    with Working(team):
        _status(team, run, "awaiting_approval")
    deciding = team.begin("decide", run, "approve")
    while team.call("inbox", "--json").object:
        assert deciding.poll() is None
    deciding.kill()
    finished(deciding)
    shown = team.call("show", run).out
    assert "status:     decided\n" in shown
    assert re.search(rf"{run} .* decided ", team.call("runs").out)
    assert f"waits for:  a worker that offers workspace:{team.work}" in shown
    assert f"next:       cuebook resume {run}\n" in shown
    assert team.call("show", run, "--json").object["next"] == f"cuebook resume {run}"
    queue = team.environ["CUEBOOK_TEMPORAL_QUEUE"]
    team.environ["CUEBOOK_TEMPORAL_QUEUE"] += "x"  # which no worker has polled in the last minute
    (page,) = _pages(team, f"/runs/{run}")
    assert "what was answered or decided is stored" in page
    team.environ["CUEBOOK_TEMPORAL_QUEUE"] = queue
    with Working(team):
        resumed = team.call("resume", run)
        assert (resumed.code, "completed" in resumed.err) == (0, True), resumed.err


def test_a_run_whose_tenant_is_at_its_limit_says_so(team: CommandLine) -> None:
    team.environ["CUEBOOK_LIMITS_TENANT_RUNS"] = "1"
    team.write(
        "held.yml",
        "name: H\nsteps:\n  - {id: a, command: cli sh -c 'touch up; until test -e go; do sleep 0.05; done'}\n",
    )
    with Working(team):
        first = team.begin("run", "held.yml")
        while not (team.work / "up").exists():
            assert first.poll() is None
            time.sleep(0.02)
        with TerminalSession(team, "run", "held.yml") as second:
            second.until("waits: 1 of 1 runs of tenant local are being driven.")
            (team.work / "go").touch()
            second.until("completed")
            assert second.ended() == 0
        assert finished(first).code == 0


def test_a_server_shows_runs_that_workers_drive(team: CommandLine) -> None:
    serving = team.begin("serve", "--port", "0", "--temporal", temporal().address)
    try:
        assert serving.stdout is not None
        found = re.search(r"http://\S+", serving.stdout.readline())
        assert found is not None
        run = _started(team)
        assert team.call("show", run, "--json").object["status"] == "pending", "a server does not drive runs"
        with Working(team):
            _status(team, run, "awaiting_approval")
    finally:
        serving.send_signal(signal.SIGTERM)
        assert finished(serving).code == 0


def _started(team: CommandLine) -> str:
    """Starts a run in a process that is killed before it follows it."""
    process = team.begin("run", "gated.yml", "--events")
    assert process.stdout is not None
    run: str = json.loads(process.stdout.readline())["run"]
    process.kill()
    finished(process)
    return run


def _status(team: CommandLine, run: str, status: str) -> None:
    for _ in range(100):
        if team.call("show", run, "--json").object["status"] == status:
            return
    raise AssertionError(team.call("show", run).out)


def _until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    seen = ""
    while text not in seen:
        piece = process.stdout.read(1)
        assert piece, seen
        seen += piece


# --- what is refused -----------------------------------------------------------------------------------------


def test_an_unreachable_server_is_one_line_and_nothing_is_created(team: CommandLine, url: str) -> None:
    team.environ["CUEBOOK_TEMPORAL_ADDRESS"] = "127.0.0.1:1"
    for words in (("run", "gated.yml"), ("run", "gated.yml", "--detach"), ("worker",), ("serve", "--port", "0")):
        refused = team.call(*words)
        assert refused.code == 2, refused.err
        assert "Temporal at 127.0.0.1:1 cannot be reached: refused" in refused.err
        assert "temporal.address" in refused.err
        assert "Traceback" not in refused.err
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('cuebook_schema')").fetchone() == (None,)
    assert team.call("runs").code == 0, "what starts no run does not need it"
    assert team.call("users", "add", "ann", "--role", "admin").code == 0


def test_the_doctor_says_whether_temporal_and_the_database_can_be_reached(team: CommandLine) -> None:
    ran = team.call("doctor")
    assert ran.code == 0, ran.out
    assert f"temporal  {temporal().address} (ready)" in ran.out
    team.environ["CUEBOOK_TEMPORAL_ADDRESS"] = "127.0.0.1:1"
    ran = team.call("doctor", "--json")
    assert (ran.code, ran.object["ready"]) == (2, False)
    assert any("Temporal at 127.0.0.1:1 cannot be reached: refused" in one for one in ran.object["missing"])
    team.environ["CUEBOOK_STORE"] = "postgresql://x@127.0.0.1:1/x"
    ran = team.call("doctor")
    assert ran.code == 2
    assert "temporal  127.0.0.1:1 (cannot be used)" in ran.out
    assert "(cannot be used)\n" in next(line for line in ran.out.splitlines(True) if line.startswith("store "))


def test_wrong_settings_are_one_line(team: CommandLine) -> None:
    assert "--temporal: temporal.address must be HOST:PORT" in team.call("worker", "--temporal", "temporal").err
    named = team.call("worker", "--namespace", "nowhere")
    assert (named.code, "has no namespace 'nowhere'" in named.err) == (2, True)
    team.environ["CUEBOOK_TEMPORAL_TLS"] = "maybe"
    assert "must be true or false" in team.call("runs").err
    team.environ["CUEBOOK_TEMPORAL_TLS"] = "true"
    assert "cannot be reached: TLS failed" in team.call("run", "gated.yml").err
    team.environ |= {"CUEBOOK_TEMPORAL_TLS_CERT": "missing.pem"}
    assert "temporal.tls_cert needs temporal.tls_key" in team.call("run", "gated.yml").err
    team.environ |= {"CUEBOOK_TEMPORAL_TLS_KEY": "missing.pem"}
    assert "cannot read missing.pem" in team.call("run", "gated.yml").err


def test_a_file_as_the_store_is_refused(team: CommandLine) -> None:
    refused = team.call("run", "gated.yml", "--store", "runs.db")
    assert refused.code == 2
    assert "share a Postgres database, but the store is the file runs.db" in refused.err
    assert not (team.work / "runs.db").exists()


def test_a_project_file_cannot_choose_a_server(team: CommandLine) -> None:
    (team.work / "cuebook.toml").write_text('[temporal]\naddress = "evil.example:7233"\n')
    assert "a project file may not set 'temporal.address'" in team.call("runs").err


def test_a_missing_sdk_is_one_line_that_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuebook.wiring.dispatch, "find_spec", lambda name: None)
    monkeypatch.setenv("CUEBOOK_SIGNING_KEY", "env:TEAM_KEY")
    monkeypatch.setenv("TEAM_KEY", "k" * 64)
    with pytest.raises(BadInput, match="SDK is not installed") as caught:
        Wiring(load({"store": "postgresql://x@127.0.0.1/x", "temporal.address": "127.0.0.1:7233"})).service()
    assert ".whl[temporal]" in caught.value.fix


def test_an_api_key_is_never_shown(team: CommandLine) -> None:
    team.environ |= {"CUEBOOK_TEMPORAL_API_KEY": "env:CLOUD_KEY", "CLOUD_KEY": CANARY, "CUEBOOK_TEMPORAL_TLS": "false"}
    said = []
    with Working(team) as worker:
        commands = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
        assert CANARY not in commands
        said.append(team.call("run", "gated.yml"))
        assert CANARY not in worker.stop()[1]
    team.environ["CUEBOOK_TEMPORAL_TLS"] = "true"
    said += [team.call("run", "gated.yml"), team.call("--debug", "run", "gated.yml"), team.call("doctor")]
    team.environ["CLOUD_KEY"] = ""
    said.append(team.call("worker"))
    for one in said:
        assert CANARY not in one.out + one.err
    for file in team.home.rglob("*"):
        assert not file.is_file() or CANARY.encode() not in file.read_bytes()
    assert CANARY not in repr(Server("x:1", api_key=CANARY))
