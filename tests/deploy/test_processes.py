"""The processes of compose.yaml share a load, answer probes, and hand over a run when they are stopped one after another."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import psycopg
import pytest

from tests.deploy.files import ROOT
from tests.deploy.processes import SECRETS, Composition, Process, read_only_root
from tests.deploy.test_compose import drop_databases, make_databases
from tests.support import postgres, temporal
from tests.support.command_line import TEA, CommandLine
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.needs("postgres")


@pytest.fixture(params=["postgres", pytest.param("temporal", marks=pytest.mark.needs("temporal"))])
def composition(request: pytest.FixtureRequest, cli: CommandLine) -> Iterator[Composition]:
    """Processes that share the work through Postgres alone, or through Temporal as well."""
    server = postgres.server()
    made = Composition(cli, server, make_namespace() if request.param == "temporal" else "")
    try:
        make_databases(server, SECRETS)
        yield made
    finally:
        made.stop()
        drop_databases(server)


def driver_of(run: str, processes: list[Process]) -> Process | None:
    """The process that drives a run."""
    with psycopg.connect(postgres.server().url(database="cuebook")) as connection:
        found = connection.execute(
            "SELECT d.pid FROM cuebook.runs r JOIN cuebook.drivers d ON d.id = r.driver WHERE r.id = %s", (run,)
        ).fetchone()
    return next((one for one in processes if found is not None and one.pid == found[0]), None)


class Gate:
    """Holds back each reply of a model until it is let through."""

    def __init__(self, server: ModelServer) -> None:
        self._entered, self._go = threading.Semaphore(0), threading.Semaphore(0)
        server.script = self._reply

    def _reply(self, request: dict[str, Any]) -> str:
        self._entered.release()
        self._go.acquire(timeout=40)
        return "Done."

    def wait(self) -> None:
        assert self._entered.acquire(timeout=40)

    def let_through(self) -> None:
        self._go.release()


def make_namespace() -> str:
    """Runs the script that creates the namespace; returns the address of the server."""
    found = temporal.program()
    assert found is not None
    environ = {
        "PATH": f"{found.parent}:/usr/bin:/bin",
        "TEMPORAL_ADDRESS": temporal.server().address,
        "TEMPORAL_NAMESPACE": "cuebook",
    }
    for _ in range(2):  # the second time, it exists
        subprocess.run(["sh", str(ROOT / "deploy/compose/temporal-namespace.sh")], env=environ, check=True)
    return temporal.server().address


def test_a_run_moves_on_each_time_its_process_is_stopped(
    cli: CommandLine, server: ModelServer, composition: Composition
) -> None:
    """Each process that drives runs performs one of three steps, and no step is performed twice. Where that is possible,
    their file system is read-only, as in their containers.
    """
    cli.write("three.md", TEA)
    around = read_only_root(cli.work.parent, cli.work.name)
    processes = composition.start("web", around)
    web = processes[0]
    web.until("/readyz", 200)
    processes += composition.start("worker", around)
    for one in processes:
        one.until("/readyz", 200)
        assert one.probe("/healthz")[0] == 200
    client = httpx2.Client(
        base_url=web.address,
        headers={"Authorization": f"Bearer {SECRETS['CUEBOOK_SERVE_TOKEN']}"},
        timeout=30,
        trust_env=False,
    )
    gate = Gate(server)
    run: str = client.post("/api/runs", json={"playbook": "three"}).json()["run"]
    client.close()
    stopped: list[str] = []
    for _ in range(1 if composition.temporal else 2):  # with Temporal, the web server drives no run
        gate.wait()
        driving = driver_of(run, processes)
        assert driving is not None
        driving.process.send_signal(signal.SIGTERM)
        assert "shutting down" in driving.until("/readyz", 503)
        assert driving.probe("/healthz")[0] == 200
        gate.let_through()
        ended = driving.ended()
        assert (ended.code, "Traceback" in ended.err) == (0, False), ended.err
        assert not [secret for secret in SECRETS.values() if secret in ended.out + ended.err]
        stopped.append(driving.name)
        processes.remove(driving)
    for _ in range(3 - len(stopped)):
        gate.wait()
        gate.let_through()
    shown = until_completed(composition, run)
    assert len(set(stopped)) == len(stopped)
    assert len(server.requests) == 3  # each step once, although each process was stopped in the middle of one
    assert [step["status"] for step in shown["steps"]] == ["completed"] * 3
    for last in processes:
        last.process.send_signal(signal.SIGTERM)
        assert last.ended().code == 0
    assert composition.call("audit", "--verify", run).code == 0


def until_completed(composition: Composition, run: str) -> dict[str, Any]:
    end = time.monotonic() + 40
    while True:
        shown: dict[str, Any] = composition.call("show", run, "--json").object
        if shown["status"] == "completed":
            return shown
        assert time.monotonic() < end, shown
