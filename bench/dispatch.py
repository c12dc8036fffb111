"""Workers on one Postgres database, alone and under Temporal: latency of an activation, memory of waiting runs, and how a load
of waiting effects scales with the number of workers. `python -m bench.dispatch worker OPTIONS` is one of these workers.

The effects are calls of a model that a server on this machine answers after five seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import psycopg

from cuebook.config import load
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.run import Settings
from cuebook.service.service import Service
from cuebook.service.worker import Worker, leave_to_workers
from cuebook.wiring.wiring import Wiring
from tests.support.temporal import Server as TemporalServer

ROOT = Path(__file__).resolve().parent.parent
AT_ONCE = 20
_WARM = 300
"""Runs before the first measurement of memory, which load modules and fill pools."""
SLEEP = 5.0
_CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
LOAD = "# Load\n\n" + "".join(f"## STEP {n}: S{n}\n\nSay {n}.\n\n" for n in range(1, 3))
QUICK = "# Quick\n\n## STEP 1: One\n\nSay it.\n"
ASKING = '# Asking\n\n## STEP 1: Ask\n\n@elicit(input, "What?")\n\nSay it.\n'


class SlowModel:
    """A model server that answers after `seconds` and remembers when it was asked."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.asked: list[float] = []

    @asynccontextmanager
    async def served(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=512)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
        self.asked.append(time.perf_counter())
        await asyncio.sleep(self.seconds)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        for delta, finish in (({"content": "Said."}, None), ({}, "stop")):
            chunk = {**_CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
            writer.write(f"data: {json.dumps(chunk)}\n\n".encode())
        writer.write(b"data: [DONE]\n\n")
        await writer.drain()
        writer.close()


class Place:
    """A database, a queue in Temporal (or none), a home and a workspace."""

    def __init__(self, folder: Path, url: str, model: str, address: str = "") -> None:
        self.url = url
        self.work = folder / secrets.token_hex(4)
        config = self.work / "home" / "cuebook"
        config.mkdir(parents=True)
        (config / "cuebook.toml").write_text(f'model = "slow/m"\n\n[providers.slow]\nbase_url = "{model}"\n')
        self.environ = {
            "XDG_CONFIG_HOME": str(self.work / "home"),
            "XDG_DATA_HOME": str(self.work / "home"),
            "BENCH_KEY": "k" * 64,
            "CUEBOOK_SIGNING_KEY": "env:BENCH_KEY",
            "CUEBOOK_STORE": url,
            "CUEBOOK_WORKER_AT_ONCE": str(AT_ONCE),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
            "NO_PROXY": "*",
        }
        if address:
            self.environ |= {"CUEBOOK_TEMPORAL_ADDRESS": address, "CUEBOOK_TEMPORAL_QUEUE": secrets.token_hex(4)}

    def wiring(self, **flags: Any) -> Wiring:
        with patch.dict(os.environ, self.environ):
            return Wiring(load(flags, folder=self.work))

    @asynccontextmanager
    async def service(self, **flags: Any) -> AsyncIterator[Service]:
        with patch.dict(os.environ, self.environ):
            service = self.wiring(**flags).service()
            try:
                yield service
            finally:
                await service.close()

    def settings(self) -> Settings:
        return self.wiring().settings()

    @contextmanager
    def workers(self, count: int) -> Iterator[list[subprocess.Popen[str]]]:
        """Worker processes that are ready, and start to take runs when a line is written to them."""
        made = [
            subprocess.Popen(
                [sys.executable, "-m", "bench.dispatch", "worker"],
                cwd=ROOT,
                env={**os.environ, **self.environ, "BENCH_WORK": str(self.work)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(count)
        ]
        try:
            for process in made:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            yield made
        finally:
            for process in made:
                process.terminate()
                process.communicate()


def go(workers: list[subprocess.Popen[str]]) -> None:
    for process in workers:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def resident(process: subprocess.Popen[str]) -> float:
    """The resident memory of a process, in MB."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


# --- the measurements ----------------------------------------------------------------------------------------


async def scaling(folder: Path, url: str, workers: int, runs: int, address: str = "") -> float:
    """Seconds in which workers finish a load that waits for them."""
    model = SlowModel(SLEEP)
    async with model.served() as where:
        place = Place(folder, url, where, address)
        playbook, settings = Playbook.from_text(LOAD, "load.md"), place.settings()
        with place.workers(workers) as made:
            async with place.service() as service:
                for _ in range(runs):
                    row = await service.start(playbook, {}, settings)
                    await leave_to_workers(service, row.id)
                await asyncio.sleep(0.5)
                started = time.perf_counter()
                go(made)
                await _until(url, "completed", runs)
                return time.perf_counter() - started


async def latencies(folder: Path, url: str, address: str, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds from a start, and from an answer, to the first effect on a worker."""
    model = SlowModel(0.0)
    async with model.served() as where:
        place = Place(folder, url, where, address)
        settings = place.settings()
        with place.workers(1) as made:
            go(made)
            async with place.service() as service:
                await service.connect()
                starts, answers = [], []
                for _ in range(rounds + 1):
                    began = time.perf_counter()
                    run = (await service.start(Playbook.from_text(QUICK, "quick.md"), {}, settings)).id
                    await service.drive(run)
                    starts.append(model.asked.pop() - began)
                    run = (await service.start(Playbook.from_text(ASKING, "asking.md"), {}, settings)).id
                    await service.drive(run)
                    (wait,) = await service.waits(run)
                    began = time.perf_counter()
                    await service.answer(wait.id, "this")
                    await service.drive(run)
                    answers.append(model.asked.pop() - began)
                return starts[1:], answers[1:]  # the first ones also load modules


async def waiting(folder: Path, url: str, address: str, runs: int, sample: int) -> tuple[float, float, float]:
    """Megabytes of a worker before and after there are this many waiting runs, and how many it brings to a wait per second.

    The worker brings a sample to their question through Temporal, each with a workflow that then waits. The others are
    brought there by this process, in the same store.
    """
    model = SlowModel(0.0)
    async with model.served() as where:
        place = Place(folder, url, where, address)
        settings, playbook = place.settings(), Playbook.from_text(ASKING, "asking.md")
        with place.workers(1) as made:
            go(made)
            async with place.service() as service:
                began, before = 0.0, 0.0
                for number in range(0, _WARM + sample, 50):
                    if number == _WARM:
                        await _until(url, "awaiting_input", number)
                        began, before = time.perf_counter(), resident(made[0])
                    await asyncio.gather(*(service.start(playbook, {}, settings) for _ in range(50)))
                    await _until(url, "awaiting_input", number - 200)
                await _until(url, "awaiting_input", _WARM + sample)
                rate = sample / (time.perf_counter() - began)
            del place.environ["CUEBOOK_TEMPORAL_ADDRESS"]
            async with place.service() as service:

                async def bring() -> None:
                    await service.take_up((await service.start(playbook, {}, settings)).id)

                for _ in range(0, runs - sample, 50):
                    await asyncio.gather(*(bring() for _ in range(50)))
                await _until(url, "awaiting_input", _WARM + runs)
            await asyncio.sleep(5.0)  # the worker has looked at the store since
            return before, resident(made[0]), rate


async def _until(url: str, status: str, count: int) -> None:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    try:
        while True:
            found = await connection.execute("SELECT count(*) FROM runs WHERE status = %s", (status,))
            (done,) = await found.fetchone() or (0,)
            if done >= count:
                return
            await asyncio.sleep(0.05)
    finally:
        await connection.close()


def measured(folder: Path, fresh: Any, say: Any, runs: int, held: int, sample: int, rounds: int) -> dict[str, Any]:
    """All figures. `fresh` is a context manager that returns the URL of an empty store."""
    found: dict[str, Any] = {}
    server = TemporalServer()
    try:
        for kind, address in (("Postgres", ""), ("Temporal", server.address)):
            for workers in (1, 2, 4):
                say(f"{runs} runs of 2 waiting effects, {workers} workers, {kind} ...")
                with fresh() as url:
                    found[f"{kind} {workers}"] = asyncio.run(scaling(folder, url, workers, runs, address))
        say("activation through Temporal ...")
        with fresh() as url:
            starts, answers = asyncio.run(latencies(folder, url, server.address, rounds))
        found["start"], found["answer"] = median(starts) * 1000, median(answers) * 1000
        say(f"{held:,} waiting runs ...")
        with fresh() as url:
            figures = asyncio.run(waiting(folder, url, server.address, held, sample))
            found["before"], found["after"], found["rate"] = figures
    finally:
        server.close()
    return found


# --- a worker ------------------------------------------------------------------------------------------------


async def _work() -> None:
    wiring = Wiring(load({}, folder=Path(os.environ["BENCH_WORK"])))
    service = wiring.service()
    worker: Any
    if service.dispatcher is None:
        worker = Worker(service, wiring.factory.workspace.path, at_once=AT_ONCE)
    else:
        await service.connect()
        worker = wiring.temporal_worker(service)
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stopped.set)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        await worker.open()
        await stopped.wait()
    finally:
        await worker.close()
        await service.close()


if __name__ == "__main__":
    asyncio.run(_work())
