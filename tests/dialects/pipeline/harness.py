"""Runs pipelines on the real engine: real processes in a sandbox, real requests, the real gate, and a SQLite file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cuebook.dialects.pipeline.model import Arg, Cli, Http, Pipeline, Step, StepRef, Words
from cuebook.dialects.pipeline.run.interpret import interpret
from cuebook.gate.sandbox import choose
from cuebook.kernel.effects import Program
from cuebook.kernel.events import Noted, StepFinished
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow, Settings
from cuebook.performers.mcp import McpServer, McpTools
from tests.gate.harness import LOCAL, GateHarness
from tests.performers.mcp.harness import BY_HAND, GOOD, Trusting

ANYTHING: dict[str, Any] = {
    "commands": {"allow": ["*"]},
    "tools": {"allow": ["*"]},
    "egress": {"allow": ["* http://127.0.0.1:*/*"]},
    "secrets": {"allow": ["*"]},
    "from_outside": "allow",
}
"""A policy that lets everything through that a test does, loopback included."""


class PipelineHarness(GateHarness):
    """A gate harness that runs one pipeline, with a clock that advances by itself."""

    def __init__(self, folder: Path, policy: Mapping[str, Any] | None = None, **more: Any) -> None:
        self._ahead = 0.0
        super().__init__(folder, ANYTHING if policy is None else policy, **more)
        self.pipeline = pipeline()

    @property
    def now(self) -> float:
        return time.time() + self._ahead

    @now.setter
    def now(self, value: float) -> None:
        self._ahead = value - time.time()

    async def start(
        self,
        *steps: Step,
        inputs: Mapping[str, Any] | None = None,
        args: Sequence[Arg] = (),
        options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> str:
        if steps:
            self.pipeline = pipeline(*steps, args=args)
        chosen = Settings(model="test/scripted", options=dict(options or {}), **settings)
        return (await self.service.start_program("pipeline", "pipeline.yml", inputs or {}, chosen, LOCAL)).id

    async def do(self, *steps: Step, **more: Any) -> RunRow:
        """Starts a run of these steps and drives it until it waits or ends."""
        return await self.service.drive(await self.start(*steps, **more))

    def _programs(
        self, row: RunRow, text: str, inputs: dict[str, Any], options: dict[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        return lambda state: interpret(self.pipeline, inputs, options, state)

    # --- looking ---

    async def entries(self, run: str) -> list[Entry]:
        return [entry async for entry in self.service.entries(run)]

    async def events(self, run: str, kind: type[Any]) -> list[Any]:
        return [entry.event for entry in await self.entries(run) if isinstance(entry.event, kind)]

    async def notes(self, run: str, name: str) -> list[dict[str, Any]]:
        return [note.data for note in await self.events(run, Noted) if note.name == name]

    async def outputs(self, run: str) -> dict[str, str]:
        """The output of each step, by its id."""
        finished = await self.events(run, StepFinished)
        return {event.label: str(event.output) for event in finished if event.output is not None}

    async def statuses(self, run: str) -> dict[str, str]:
        return {step.label: step.status for step in await self.store.steps(run)}

    def made(self, name: str) -> list[str]:
        """The lines of a file that commands wrote."""
        path = self.workspace / name
        return path.read_text().splitlines() if path.exists() else []


def good_server(folder: Path) -> dict[str, McpTools]:
    """A real tool server named `good`, approved by a person."""
    return _served(folder, McpServer("good", command=(sys.executable, GOOD)))


def by_hand(folder: Path, name: str) -> dict[str, McpTools]:
    """One of the misbehaving servers, named `s`."""
    return _served(folder, McpServer("s", command=(sys.executable, BY_HAND, name)))


def _served(folder: Path, server: McpServer) -> dict[str, McpTools]:
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    return {server.name: McpTools(server, sandbox=choose(), workspace=workspace, granted=Trusting(), reveal=str)}


# --- documents as values ---


def pipeline(*steps: Step, args: Sequence[Arg] = (), **more: Any) -> Pipeline:
    return Pipeline("test", "Test", steps or (cli("one", "true"),), args={arg.name: arg for arg in args}, **more)


def words(*parts: str | StepRef | Any) -> Words:
    return Words(tuple(parts), 3)


def ref(step: str, *path: str | int) -> StepRef:
    return StepRef(step, path)


def cli(id: str, *argv: Any, **more: Any) -> Step:
    return Step(id, Cli(tuple(one if isinstance(one, Words) else words(one) for one in argv)), **more)


def shell(id: str, script: str, **more: Any) -> Step:
    return cli(id, "sh", "-c", script, **more)


def python(id: str, code: str, *argv: Any, **more: Any) -> Step:
    return cli(id, sys.executable, "-I", "-S", "-c", code, *argv, **more)


def http(id: str, url: Any, method: str = "GET", *, more: Mapping[str, Any] | None = None, **fields: Any) -> Step:
    place = url if isinstance(url, Words) else words(url)
    return Step(id, Http(method, place, **(more or {})), **fields)
