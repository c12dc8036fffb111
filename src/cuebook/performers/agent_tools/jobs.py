"""Background jobs: commands that keep running while a model works on, and their output.

A job belongs to the process that drives its run. It ends when the run waits, ends or is handed over, and when that
process is killed. Its output is kept in a file, with secrets masked, so that any later process on this machine can read
it and say how the job ended.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec

from cuebook.kernel.effects import RunCommand
from cuebook.kernel.outcomes import CommandResult, Failed
from cuebook.kernel.ports import Call
from cuebook.performers.agent_tools.tool import Acts
from cuebook.performers.files.decoding import decoded
from cuebook.performers.private_files import jobs_of

MOST_JOBS = 8
"""How many jobs of one run may run at the same time."""
LONGEST = 3_600.0
"""Seconds that a job may run if it has no time limit of its own."""
OUTPUT = 1 << 20
"""How many bytes of a job's output are kept: the last ones."""
_KEPT = 7 * 86_400.0
"""Seconds after which the output of an ended run's jobs is removed."""
_HELD = 1 << 16
"""How many bytes of an unfinished line are held back, because a secret in it may be incomplete."""

_ID = re.compile(r"bash_[0-9a-f]{8}", re.ASCII)

Status = Literal["running", "exited", "failed", "killed", "ended"]

_LEFT = "The run waited, ended or was continued by another process, which ends its background jobs."


class JobRecord(msgspec.Struct, omit_defaults=True):
    """A job as it is stored next to its output."""

    id: str
    command: str
    started: float
    status: Status = "running"
    exit_code: int = 0
    reason: str = ""
    """Why it ended, if it did not exit by itself."""
    finished: float = 0.0
    dropped: int = 0
    """How many bytes at the beginning of the output were removed."""

    def state(self) -> str:
        seconds = f"{max(0.0, (self.finished or time.time()) - self.started):.1f} s"
        match self.status:
            case "running":
                return f"running for {seconds}"
            case "exited":
                return f"exited with code {self.exit_code} after {seconds}"
            case "killed":
                return f"killed after {seconds}, as requested"
            case _:
                return f"ended: {self.reason}"


class Spool:
    """The files of one run's jobs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def output(self, job: str) -> Path:
        return self._folder / f"{job}.out"

    def make(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def load(self, job: str) -> JobRecord | None:
        try:
            return msgspec.json.decode((self._folder / f"{job}.json").read_bytes(), type=JobRecord)
        except (OSError, msgspec.DecodeError):
            return None

    def store(self, record: JobRecord) -> None:
        path = self._folder / f"{record.id}.json"
        draft = path.with_suffix(".new")
        draft.write_bytes(msgspec.json.encode(record))
        draft.replace(path)

    def known(self) -> list[str]:
        try:
            return sorted(path.stem for path in self._folder.glob("*.json"))
        except OSError:
            return []


class Job:
    """A job that this process runs."""

    def __init__(self, record: JobRecord, spool: Spool, masked: Callable[[Any], Any]) -> None:
        self.record = record
        self.task: asyncio.Task[None] | None = None
        self._spool, self._masked = spool, masked
        self._held = b""
        self._changed = asyncio.Event()
        self._path = spool.output(record.id)
        self._size = 0
        self._path.touch(mode=0o600)

    def take(self, data: bytes) -> None:
        """Adds output. Complete lines are masked and written at once."""
        self._held += data
        whole, line, rest = self._held.rpartition(b"\n")
        if not line and len(rest) > _HELD:
            whole, rest = rest, b""
        self._write(whole + line)
        self._held = rest

    def finish(self, status: Status, *, exit_code: int = 0, reason: str = "") -> None:
        self._write(self._held)
        self._held = b""
        self.record.status, self.record.exit_code, self.record.reason = status, exit_code, reason
        self.record.finished = time.time()
        self._spool.store(self.record)
        self._changed.set()

    async def more(self, seconds: float) -> None:
        """Waits for more output or for its end."""
        if self.record.status != "running":
            return
        self._changed.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    def _write(self, data: bytes) -> None:
        if not data:
            return
        text = self._masked(decoded(data)).encode("utf-8", "replace")
        with self._path.open("ab") as file:
            file.write(text)
        self._size += len(text)
        if self._size > 2 * OUTPUT:
            self._trim()
        self._changed.set()

    def _trim(self) -> None:
        kept = self._path.read_bytes()[-OUTPUT:].partition(b"\n")[2]
        self.record.dropped += self._size - len(kept)
        self._path.write_bytes(kept)
        self._size = len(kept)
        self._spool.store(self.record)


class Jobs:
    """The background jobs of all runs that this process drives."""

    def __init__(self, commands: Acts, folder: Path, clear: Callable[[], Awaitable[None]]) -> None:
        """`clear` kills the processes that a killed Cuebook left running."""
        self._commands, self._folder, self._clear = commands, folder, clear
        self._running: dict[str, dict[str, Job]] = {}
        """The jobs of each run."""
        self._read: dict[tuple[str, str], int] = {}
        """How much of each job's output was read: a position in all of its output."""
        self._swept = False

    async def start(self, effect: RunCommand, call: Call) -> JobRecord | Failed:
        """Starts a command; returns once its program has been started."""
        mine = self._running.setdefault(call.run, {})
        busy = [job.record.id for job in mine.values() if job.record.status == "running"]
        if len(busy) >= MOST_JOBS:
            fix = f"End one with KillBash: {', '.join(busy)}."
            return Failed("too_many_jobs", f"{len(busy)} background jobs of this run are running already.", fix=fix)
        self._sweep()
        spool = self._spool(call.run)
        spool.make()
        job = Job(JobRecord(job_id(call), effect.argv[-1], time.time()), spool, call.masked)
        started = asyncio.get_running_loop().create_future()
        job.task = asyncio.create_task(self._run(job, effect, call, started))
        mine[job.record.id] = job
        await asyncio.wait({started, job.task}, return_when=asyncio.FIRST_COMPLETED)
        if not started.done():
            del mine[job.record.id]
            return Failed(job.record.status, job.record.reason or "The command could not be started.")
        return job.record

    async def _run(self, job: Job, effect: RunCommand, call: Call, started: asyncio.Future[None]) -> None:
        async def begin() -> None:
            job.record.started = time.time()
            job._spool.store(job.record)
            if not started.done():
                started.set_result(None)

        limits = msgspec.structs.replace(call.limits, seconds=LONGEST if effect.timeout is None else effect.timeout)
        inner = msgspec.structs.replace(call, limits=limits, spent=0.0, begin=begin, output=job.take, warn=_unheard)
        try:
            outcome = await self._commands.perform(effect, inner)
        except asyncio.CancelledError:
            job.finish("ended", reason=_LEFT)
            raise
        except Exception as error:
            job.finish("failed", reason=f"{type(error).__name__}: {error}")
            return
        if isinstance(outcome, CommandResult):
            job.finish("exited", exit_code=outcome.exit_code)
        elif isinstance(outcome, Failed):
            job.finish("failed", reason=str(call.masked(outcome)))

    async def read(self, run: str, job: str, wait: float = 0.0) -> tuple[JobRecord, str, int] | Failed:
        """The state of a job, its output since it was last read, and how many bytes before that were dropped."""
        found = await self._find(run, job)
        if isinstance(found, Failed):
            return found
        live = self._running.get(run, {}).get(job)
        key, spool = (run, job), self._spool(run)
        if (
            live is not None
            and wait
            and spool.output(job).stat().st_size + live.record.dropped <= self._read.get(key, 0)
        ):
            await live.more(wait)
        record = found if live is None else live.record
        data = _bytes_of(spool.output(job))  # not in a thread: the job may write in the meantime
        begins = max(self._read.get(key, 0), record.dropped)
        lost = begins - self._read.get(key, 0)
        self._read[key] = record.dropped + len(data)
        return record, decoded(data[begins - record.dropped :]), lost

    async def kill(self, run: str, job: str) -> JobRecord | Failed:
        found = await self._find(run, job)
        live = self._running.get(run, {}).get(job)
        if isinstance(found, Failed) or live is None or live.record.status != "running":
            return found
        await self._end([live])
        live.finish("killed")
        return live.record

    async def leave(self, run: str) -> None:
        """Ends the jobs of a run that this process stops driving."""
        jobs = self._running.pop(run, {})
        await self._end([job for job in jobs.values() if job.record.status == "running"])
        for key in [key for key in self._read if key[0] == run]:
            del self._read[key]

    async def close(self) -> None:
        for run in list(self._running):
            await self.leave(run)

    async def _end(self, jobs: list[Job]) -> None:
        tasks = [job.task for job in jobs if job.task is not None and not job.task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _find(self, run: str, job: str) -> JobRecord | Failed:
        live = self._running.get(run, {}).get(job)
        if live is not None:
            return live.record
        spool = self._spool(run)
        # The id comes from a model: it must not lead to the files of another run.
        record = await asyncio.to_thread(spool.load, job) if _ID.fullmatch(job) else None
        if record is None:
            known = ", ".join(spool.known())
            there = f"There are: {known}." if known else "This run has none on this machine."
            return Failed("not_found", f"There is no background job {job[:80]!a}.", fix=there)
        if record.status == "running":  # its process was killed before it could say how the job ended
            await self._clear()
            record.status, record.reason, record.finished = "ended", _LEFT, record.started
            with suppress(OSError):
                record.finished = spool.output(job).stat().st_mtime
                spool.store(record)
        return record

    def _spool(self, run: str) -> Spool:
        return Spool(self._folder / jobs_of(run))

    def _sweep(self) -> None:
        """Removes the output of runs that had no job for a while, once per process."""
        if self._swept:
            return
        self._swept = True
        with suppress(OSError):
            for folder in self._folder.iterdir():
                if time.time() - folder.stat().st_mtime > _KEPT:
                    shutil.rmtree(folder, ignore_errors=True)


def job_id(call: Call) -> str:
    """The same for all attempts of a call."""
    return f"bash_{sha256(call.key.encode()).hexdigest()[:8]}"


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _unheard(code: str, message: str) -> None:
    """Warnings of a job come after its call has its outcome."""
