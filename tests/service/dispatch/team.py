"""Processes that share a real Postgres database and a real Temporal server: a surface, and workers here or in processes."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from temporalio.client import WorkflowHandle

from cuebook.config import load
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.events import ENDED, Driven
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.dispatch import sweep
from cuebook.service.dispatch.temporal import workflow
from cuebook.service.dispatch.temporal.dispatcher import TemporalDispatcher, workflow_id
from cuebook.service.dispatch.temporal.worker import TemporalWorker
from cuebook.service.service import Service
from cuebook.stores import leases
from cuebook.wiring.wiring import Wiring
from tests.service.dispatch.pace import BEAT, LEASE
from tests.support.programs import eventually
from tests.support.temporal import Server, server

ROOT = Path(__file__).resolve().parents[3]
KEY = "k" * 64


class Team:
    """One store and one queue. Everything that it started is closed by `close`."""

    def __init__(self, folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = url
        self.queue = f"q{secrets.token_hex(4)}"
        self.temporal: Server = server()
        self.work = folder / "work"
        self.config = folder / "home" / "config" / "cuebook"
        for made in (self.work, self.config):
            made.mkdir(parents=True, exist_ok=True)
        (self.config / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
        for name in [name for name in os.environ if name.startswith("CUEBOOK_")]:
            monkeypatch.delenv(name)
        for name, value in {
            "HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder / "home" / "config"),
            "XDG_DATA_HOME": str(folder / "home" / "data"),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
            "TEAM_KEY": KEY,
            "CUEBOOK_SIGNING_KEY": "env:TEAM_KEY",
            "CUEBOOK_SYNCHRONOUS": "NORMAL",
            "NO_PROXY": "*",
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(workflow, "HEARTBEAT", BEAT)
        monkeypatch.setattr(leases, "LEASE", LEASE)
        monkeypatch.setattr(sweep, "EVERY", 0.5)
        monkeypatch.setattr(sweep, "GRACE", 0.3)
        monkeypatch.setattr(sweep, "AGAIN", 0.6)
        self._services: list[Service] = []
        self._workers: list[TemporalWorker] = []
        self.processes: list[subprocess.Popen[str]] = []
        self.wiring = self._wiring({}, None)
        self.service = self._service(self.wiring)

    @property
    def settings(self) -> dict[str, Any]:
        return {"store": self.url, "temporal.address": self.temporal.address, "temporal.queue": self.queue}

    @property
    def dispatcher(self) -> TemporalDispatcher:
        assert isinstance(self.service.dispatcher, TemporalDispatcher)
        return self.service.dispatcher

    def _wiring(self, more: dict[str, Any], folder: Path | None) -> Wiring:
        return Wiring(load({**self.settings, **more}, folder=folder or self.work))

    def _service(self, wiring: Wiring) -> Service:
        service = wiring.service()
        service._engine._heartbeat_every = LEASE / 4
        self._services.append(service)
        return service

    async def worker(self, folder: Path | None = None, **more: Any) -> TemporalWorker:
        """A worker in this process, with its own service."""
        wiring = self._wiring({name.replace("__", "."): value for name, value in more.items()}, folder)
        worker = wiring.temporal_worker(self._service(wiring))
        await worker.open()
        self._workers.append(worker)
        return worker

    def hire(self, host: str = "", lease: float = LEASE, beat: float = BEAT, **more: Any) -> subprocess.Popen[str]:
        """A worker in a process of its own."""
        options = {**self.settings, "lease": lease, "beat": beat, "host": host, **more}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.service.dispatch.worker_process", json.dumps(options)],
            cwd=self.work,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def serving(self) -> None:
        """Waits until all workers in processes of their own are up."""
        for process in self.processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "serving\n"

    async def start(self, text: str, service: Service | None = None, **inputs: Any) -> str:
        settings = Settings(workspace=self.wiring.factory.workspace.path, model=self.wiring.model)
        return (await (service or self.service).start(Playbook.from_text(text, "inline"), inputs, settings)).id

    async def until(self, run: str, holds: Callable[[RunRow], bool]) -> RunRow:
        async def looked() -> RunRow | None:
            row = await self.service.row(run)
            return row if holds(row) else None

        found: RunRow = await eventually(looked, 60)
        return found

    async def ended(self, run: str) -> str:
        return (await self.until(run, lambda row: row.status in ENDED)).status

    async def waits(self, run: str) -> Any:
        async def found() -> Any:
            return await self.service.waits(run)

        return await eventually(found, 60)

    async def drives(self, run: str) -> int:
        return len([1 async for entry in self.service.entries(run) if isinstance(entry.event, Driven)])

    def lines(self, name: str = "log") -> list[str]:
        path = self.work / name
        return path.read_text().splitlines() if path.exists() else []

    async def logged(self, count: int = 1) -> None:
        async def enough() -> bool:
            return len(self.lines()) >= count

        await eventually(enough, 60)

    def driver_of(self, run: str) -> subprocess.Popen[str]:
        """The worker process that holds the run."""
        with psycopg.connect(self.url) as database:
            query = "SELECT d.pid FROM runs r JOIN drivers d ON d.id = r.driver WHERE r.id = %s"
            (pid,) = database.execute(query, (run,)).fetchone() or (0,)
        return next(process for process in self.processes if process.pid == pid)

    async def workflow(self, run: str) -> WorkflowHandle[Any, Any]:
        client = await self.dispatcher.connection.client()
        return client.get_workflow_handle(workflow_id(run))

    async def workflow_status(self, run: str) -> str:
        described = await (await self.workflow(run)).describe()
        return described.status.name if described.status is not None else ""

    async def workflow_ends(self, run: str) -> str:
        async def over() -> str:
            status = await self.workflow_status(run)
            return "" if status == "RUNNING" else status

        ended: str = await eventually(over, 60)
        return ended

    async def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
        for worker in self._workers:
            await worker.close()
        for service in self._services:
            await service.close()
