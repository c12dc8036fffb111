"""A harness for the gate: a real store, workspace, sandbox and performers, and programs that act through them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from cuebook.gate.gate import Gate
from cuebook.gate.limits import Ceilings
from cuebook.gate.policy import Layer, Policy, bundle_from, names_host
from cuebook.gate.redaction import SecretRedactor
from cuebook.gate.sandbox import choose, clear
from cuebook.gate.secrets import Vault
from cuebook.kernel.effects import AskModel, CallTool, Effect, Program, ReadSource, RunCommand, SendHttp
from cuebook.kernel.events import StepFinished, StepStarted
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow, Settings, WaitRow
from cuebook.performers.agent_tools import agent_tools
from cuebook.performers.commands import CommandPerformer
from cuebook.performers.http.performer import HttpPerformer
from cuebook.performers.mcp import McpServer
from cuebook.performers.sources import SourcePerformer
from cuebook.performers.tools.toolbox import Tool, Toolbox, ToolServer
from cuebook.service.service import Principal, Service
from cuebook.stores.sqlite import SqliteStore

LOCAL = Principal()
CEILINGS = Ceilings()

BOOK = "# Book\n\n## STEP 1: Do\n\nDo it.\n"

Make = Callable[[dict[str, Any]], Program[Any]]


def doing(*effects: Effect) -> Make:
    """A program that performs these effects, one step each, and returns their outcomes."""

    def make(inputs: dict[str, Any]) -> Program[Any]:
        outcomes = []
        for number, effect in enumerate(effects, start=1):
            yield StepStarted(str(number))
            outcomes.append((yield effect))
            yield StepFinished(str(number))
        return [str(outcome) for outcome in outcomes]

    return make


class GateHarness:
    def __init__(
        self,
        folder: Path,
        policy: Mapping[str, Any] | None = None,
        *,
        make: Make | None = None,
        environ: Mapping[str, str] | None = None,
        names: Mapping[str, str] | None = None,
        tools: Iterable[Tool] = (),
        servers: Mapping[str, ToolServer] | None = None,
        model: Any = None,
        store: Store | None = None,
        ceilings: Ceilings = CEILINGS,
    ) -> None:
        self.folder = folder
        self.workspace = folder / "workspace"
        self.workspace.mkdir(exist_ok=True)
        self.make = make or doing()
        self.now = 1_000_000.0
        self.layers: tuple[Layer, ...] = ()
        self.allow(policy or {})
        self.redactor = SecretRedactor()
        self.vault = Vault(
            environ=environ or {}, keyring=lambda name: None, names=lambda: dict(names or {}), redactor=self.redactor
        )
        self.store = store or SqliteStore(folder / "runs.db", synchronous="NORMAL")
        self.sandbox = choose("auto", self._private)
        self.commands = CommandPerformer(self.sandbox, self.workspace, private=self._private)
        self.http = HttpPerformer(private=self._private)
        self.tools = Toolbox([*agent_tools(self.workspace, commands=self.commands, http=self.http), *tools], servers)
        self.sources = SourcePerformer(
            http=self.http, roots=[self.workspace], prompts=[self.workspace / "prompts"], tools=self.tools.specs
        )
        performers: dict[type[Effect], Any] = {
            RunCommand: self.commands,
            SendHttp: self.http,
            CallTool: self.tools,
            ReadSource: self.sources,
            **self._more_performers(),
        }
        self.gate = Gate(
            performers,
            self.store,
            self._today,
            self.vault,
            redactor=self.redactor,
            ceilings=ceilings,
            clock=lambda: self.now,
        )
        if model is not None:
            performers[AskModel] = model
        self.service = Service(
            self.store,
            performers,
            gate=self.gate,
            redactor=self.redactor,
            today=self._today,
            key_file=folder / "key",
            programs=self._programs,
            clock=lambda: self.now,
            clear=clear,
        )

    def allow(self, policy: Mapping[str, Any]) -> None:
        """Changes today's policy."""
        self.layers = (Layer("user", "policy.toml", bundle_from(policy), may_allow=True),)

    async def run(self, *effects: Effect, who: Principal = LOCAL, **inputs: Any) -> RunRow:
        """Starts a run of these effects (or of the harness's program) and drives it."""
        if effects:
            self.make = doing(*effects)
        row = await self.service.start_program(BOOK, "book.md", {}, Settings(model="test/echo"), who)
        return await self.service.drive(row.id)

    async def wait(self, run: str) -> WaitRow:
        (wait,) = await self.store.waits(run=run)
        return wait

    async def decide(self, run: str, decision: Any, who: Principal = LOCAL, **more: Any) -> RunRow:
        wait = await self.wait(run)
        await self.service.decide(wait.id, decision, who, **more)
        return await self.service.drive(run)

    async def later(self, seconds: float, run: str) -> RunRow:
        """Lets time pass, then does everything that is due for the run."""
        self.now += seconds
        await self.store.expire(self.now)
        return await self.service.drive(run)

    async def result(self, run: str) -> Any:
        return (await self.service.view(run)).result

    async def close(self) -> None:
        await self.tools.close()
        await self.service.close()

    def _programs(
        self, row: RunRow, text: str, inputs: dict[str, Any], options: dict[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        return lambda state: self.make(inputs)

    def _more_performers(self) -> dict[type[Effect], Any]:
        return {}

    def _private(self, host: str, port: int) -> bool:
        return names_host([Policy(self.layers)], host, port)

    async def _today(self, tenant: str) -> Policy:
        return Policy(self.layers)


def bytes_below(folder: Path) -> bytes:
    """Everything that was written below a folder."""
    found = []
    for place, _, files in os.walk(folder):
        for name in files:
            found.append((Path(place) / name).read_bytes())
    return b"\n".join(found)


async def settled(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Waits until something holds; a test fails if it never does."""
    for _ in range(int(seconds / 0.05)):
        if condition():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come to pass")


__all__ = ["BOOK", "GateHarness", "McpServer", "bytes_below", "doing", "settled"]
