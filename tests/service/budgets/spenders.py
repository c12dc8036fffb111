"""Services whose model costs what a test says, with a clock that the test sets."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from cuebook.gate.roles import Principal
from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskModel, CallTool, Effect, Program
from cuebook.kernel.events import StepFinished, StepStarted
from cuebook.kernel.outcomes import AnyOutcome, Failed, Reply, Usage
from cuebook.kernel.ports import Call, Estimate, Job, Performer, Store
from cuebook.kernel.run import Settings
from cuebook.service.service import Service
from tests.support.programs import PROGRAMS, LineTool, child_of, new_row, program_of

ADMIN = Principal("boss")


class Priced:
    """A model whose calls use 10 + 40 tokens and may use 10 + 90, and cost what a test says."""

    def __init__(self, cost: float | None = 1.0, most: float | None = 2.0) -> None:
        self.cost = cost
        self.most = most
        self.calls: list[str] = []
        self.before: Callable[[], Any] | None = None
        """Called while a call is in progress."""

    def estimate(self, effect: AskModel, settings: Settings) -> Estimate:
        return Estimate(10, 90, self.most)

    async def perform(self, effect: AskModel, call: Call) -> AnyOutcome:
        self.calls.append(f"{call.run} {effect.prompt}")
        if self.before is not None:
            await self.before()
        if effect.prompt == "refused":
            return Failed("model_error", "The provider refused the request.")
        return Reply(Text("fine"), model="lab/one", usage=Usage(10, 40, 4, 20, self.cost))


class Clock:
    """A clock that a test sets."""

    def __init__(self, at: str = "2026-03-10 12:00", zone: str = "UTC") -> None:
        self.zone = ZoneInfo(zone)
        self.now = 0.0
        self.set(at)

    def set(self, at: str) -> None:
        self.now = datetime.fromisoformat(at).replace(tzinfo=self.zone).timestamp()

    def __call__(self) -> float:
        self.now += 0.001
        return self.now


def talking(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """Asks a model several times."""

    def start(state: Any) -> Program[Any]:
        for number in range(int(inputs.get("n", 1))):
            yield AskModel(str(inputs.get("prompt", number)), model=inputs.get("model"))
        return "done"

    return start


PROGRAMS["talking"] = talking


class Noting(Service):
    """A service that remembers its notices."""

    told: list[Job]

    async def notify(self, notice: Job) -> None:
        self.told.append(notice)


def spender(store: Store, folder: Path, model: Performer, clock: Clock | None = None, zone: str = "UTC") -> Noting:
    performers: dict[type[Effect], Performer] = {AskModel: model, CallTool: LineTool(folder / "lines")}
    made = Noting(store, performers, programs=program_of, listen_every=0.02, time_zone=zone, clock=clock or time.time)
    made._engine.children = child_of
    made.told = []
    close = store.close

    async def close_both() -> None:
        await made._engine.close()
        await close()

    store.close = close_both  # type: ignore[method-assign]
    return made


async def spend(service: Service, run: str, owner: str = "ann", name: str = "talking", **inputs: Any) -> str:
    """Starts a run and drives it; returns its status."""
    row = new_row(name, run)
    row.owner = owner
    settings = Settings(model="lab/one", **inputs.pop("settings", {}))
    from tests.support.programs import PINNED

    uses, pinned = ({one: one for one in PINNED}, PINNED) if name == "calling" else (None, None)
    await service._engine.start(row, "text", inputs, settings, uses=uses, pinned=pinned)
    done = await service._engine.drive(run)
    return f"{done.status} {done.reason}".strip()


def failing_after_a_call(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """A step that asks a model, then calls a tool that fails the first time."""

    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        yield AskModel("hello")
        yield CallTool("fail_once", {"line": "fragile"})
        yield StepFinished("1")
        return "done"

    return start


PROGRAMS["failing after a call"] = failing_after_a_call
