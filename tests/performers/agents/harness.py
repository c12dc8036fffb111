"""Runs playbooks whose model is the agent of the tests, with real parts: store, gate, sandbox and process."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.effects import AskModel
from cuebook.kernel.events import Noted, Performed, WaitOpened
from cuebook.kernel.journal import Entry
from cuebook.kernel.run import RunRow, WaitRow
from tests.support.runtime import RuntimeHarness

AGENT = Path(__file__).with_name("scripted_agent.py")


class AgentHarness(RuntimeHarness):
    agent = "test"

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, policy: str = "") -> None:
        super().__init__(folder, monkeypatch, policy)
        self.configure()

    def configure(self, mode: str = "", **fields: Any) -> None:
        """Writes the configuration of the agent `test`."""
        fields = {
            "command": [sys.executable, str(AGENT)],
            "readable": [str(AGENT.parent)],
            "env": {"AGENT_MODE": mode, **fields.pop("env", {})},
            "seconds": 30,
            **fields,
        }
        lines = [f"{name} = {_toml(value)}" for name, value in fields.items()]
        (self.config / "cuebook.toml").write_text("\n".join(["[agents.test]", *lines, ""]))

    def open(self, **flags: Any) -> AgentHarness:
        super().open(model=f"acp/{self.agent}", **flags)
        return self

    async def reopen(self, **flags: Any) -> None:
        """Continues in another process, as far as the store can tell."""
        await self.service.close()
        self.open(**flags)

    async def start(self, *script: str, text: str = "") -> RunRow:
        """A run of one step that gives the agent these lines."""
        lines = "\n".join(f"do: {line}" for line in script)
        playbook = Playbook.from_text(text or f"# Task\n\n## STEP 1: Work\n\nDo this:\n{lines}\n", "task")
        settings = self.wiring.settings(document=playbook.document)
        return await self.service.start(playbook, {}, settings)

    async def do(self, *script: str, text: str = "") -> RunRow:
        return await self.service.drive((await self.start(*script, text=text)).id)

    async def waits(self, run: RunRow) -> list[WaitRow]:
        return await self.service.waits(run=run.id)

    async def decide(self, run: RunRow, decision: Any, **more: Any) -> RunRow:
        """Decides on the one open wait, and continues the run."""
        (wait,) = await self.waits(run)
        await self.service.decide(wait.id, decision, **more)
        return await self.service.drive(run.id)

    async def entries(self, run: RunRow) -> list[Entry]:
        return [entry async for entry in self.service._engine.entries(run.id)]

    async def outcomes(self, run: RunRow) -> list[Any]:
        return [entry.event.outcome for entry in await self.entries(run) if isinstance(entry.event, Performed)]

    async def notes(self, run: RunRow, name: str) -> list[dict[str, Any]]:
        found = [entry.event for entry in await self.entries(run) if isinstance(entry.event, Noted)]
        return [one.data for one in found if one.name == name]

    async def asked(self, run: RunRow) -> list[WaitOpened]:
        return [entry.event for entry in await self.entries(run) if isinstance(entry.event, WaitOpened)]

    async def said(self, run: RunRow) -> str:
        return str((await self.outcomes(run))[-1].content) if run.status == "completed" else ""

    def agents_alive(self) -> int:
        """How many processes of agents this service keeps."""
        return sum(len(one._live) for one in self.wiring.factory._performers[AskModel]._agents.values())

    def prompts(self) -> list[str]:
        (found,) = (self.home / "data" / "cuebook" / "agents").glob("*/*/*/prompts.txt")
        return found.read_text().split("\n=====\n")[:-1]


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {_toml(one)}" for name, one in value.items()) + " }"
    return json.dumps(value)


async def until_exists(path: Path) -> None:
    while not _has_content(path):
        await asyncio.sleep(0.02)


def _has_content(path: Path) -> bool:
    return path.exists() and bool(path.read_text())
