"""Programs of every shape, with small real performers, for tests and their child processes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuebook.kernel.context import EMPTY, Text, digest_of
from cuebook.kernel.effects import (
    All,
    AskHuman,
    AskModel,
    Branch,
    Breakpoint,
    CallTool,
    Checkpoint,
    Effect,
    Now,
    Program,
    Random,
    RunPlaybook,
    Wait,
)
from cuebook.kernel.engine.children import ChildRequest, ChildStart
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.events import (
    PinnedPlaybook,
    Planned,
    PlannedStep,
    StepFinished,
    StepSkipped,
    StepStarted,
    ValueSet,
)
from cuebook.kernel.outcomes import AnyOutcome, Cancelled, EffectFailed, Failed, Reply, ToolResult, Usage
from cuebook.kernel.ports import Call, Outbox, Performer, Store
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.service import Service

Maker = Callable[[dict[str, Any]], Callable[[Any], Program[Any]]]

# --- performers that leave countable traces -------------------------------------------------


class LineTool:
    """Tools that append a line to a file: `append` succeeds, `fail` fails, `fail_once` fails the first time."""

    def __init__(self, path: Path) -> None:
        self.path = path

    async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
        line = str(effect.arguments.get("line", ""))
        if effect.tool == "fail":
            return Failed("tool_failed", f"the tool refused {line}")
        if effect.tool == "fail_once" and line not in self.lines():
            self._append(line)
            return Failed("tool_failed", f"the tool refused {line} once")
        self._append(line)
        return ToolResult({"lines": len(self.lines())} if effect.arguments.get("count") else line)

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def _append(self, line: str) -> None:
        with self.path.open("a") as file:
            file.write(f"{line}\n")


class EchoModel:
    """A model that repeats its prompt, word by word, and notes each call in a file."""

    def __init__(self, path: Path | None = None, cost: float | None = 0.001) -> None:
        self.path = path
        self.calls: list[AskModel] = []
        self.cost = cost

    async def perform(self, effect: AskModel, call: Call) -> AnyOutcome:
        self.calls.append(effect)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(f"{effect.prompt}\n")
        text = f"echo {effect.prompt}"
        for word in text.split(" "):
            if not call.emit(word if word == "echo" else f" {word}"):
                return Reply(Text(text), model="test/echo", finish="watch", usage=Usage(1, 1, cost=self.cost))
            await asyncio.sleep(0)
        usage = Usage(len(effect.prompt), len(text), cost=self.cost, origin="reported" if self.cost else "unknown")
        return Reply(Text(text), model="test/echo", usage=usage)


class Held:
    """A tool that blocks until it is released, to catch a run in the middle of an effect."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.go = asyncio.Event()
        self.performed = 0
        self.interrupted = 0

    async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
        self.entered.set()
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.interrupted += 1
            raise
        self.performed += 1
        return ToolResult("held")


# --- programs ------------------------------------------------------------------------------------------


def append(line: str, **options: Any) -> CallTool:
    return CallTool("append", {"line": line}, **options)


def counting(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """A loop of effects that cost one commit each."""

    def start(state: Any) -> Program[Any]:
        for _ in range(int(inputs.get("n", 3))):
            yield Now()
        return int(inputs.get("n", 3))

    return start


def everything(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """Model calls, side effects, a question and a branch: one of each."""

    def start(state: Any) -> Program[Any]:
        yield Planned((PlannedStep("1", "Draft"), PlannedStep("2", "Ask"), PlannedStep("3", "Send"), PlannedStep("4")))
        context = EMPTY.add("system", "Be brief.")
        yield StepStarted("1", "Draft")
        draft = yield AskModel("draft", context)
        context = context.add("system", draft.content)
        yield append("one")
        yield ValueSet("draft", draft.text)
        yield StepFinished("1", output=draft.content)
        yield Breakpoint("1")
        yield StepStarted("2", "Ask")
        answer = yield AskHuman("Go on?", "confirm")
        yield StepFinished("2", output=Text(answer.value))
        yield StepStarted("3", "Send")
        if answer.value == "yes":
            yield append("two")
            final = yield AskModel("final", context)
            yield append("three")
        else:
            final = yield AskModel("apology", context)
        moment = yield Now()
        yield Random()
        yield StepFinished("3", output=final.content)
        yield StepSkipped("4", reason="not needed")
        return {"draft": draft.text, "answer": answer.value, "final": final.text, "later": moment.at > 0}

    return start


def concurrent(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """Branches with side effects, model calls and questions inside, next to bare effects."""

    def worker(name: str, ask: bool) -> Branch:
        def start(state: Any) -> Program[Any]:
            yield StepStarted(f"w{name}")
            yield append(f"{name} one")
            reply = yield AskModel(f"{name} thinks")
            said = (yield AskHuman(f"{name}?")).value if ask else "-"
            yield append(f"{name} two")
            yield StepFinished(f"w{name}", output=reply.content)
            return [name, said]

        return Branch(start)

    def start(state: Any) -> Program[Any]:
        yield StepStarted("1", "Together")
        outcomes = yield All((worker("a", True), append("bare"), worker("b", False), worker("c", True)))
        yield StepFinished("1")
        yield StepStarted("2", "After")
        yield append("end")
        yield StepFinished("2")
        return [outcomes[0], outcomes[1].value, outcomes[2], outcomes[3]]

    return start


def checkpointed(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """A long loop that checkpoints after each round, with a side effect and, once, a question in it."""
    rounds = int(inputs.get("rounds", 3))

    def start(state: Any) -> Program[Any]:
        done = state or {"round": 0, "sum": 0}
        for number in range(done["round"], rounds):
            yield StepStarted("round")
            yield append(f"round {number}")
            if number == 1:
                yield AskHuman("More?")
            total = done["sum"] + number
            yield StepFinished("round")
            done = {"round": number + 1, "sum": total}
            yield Checkpoint(done)
        return done["sum"]

    return start


def nested(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """Calls within calls, steps within steps, and an `All` within an `All`."""

    def call(depth: int) -> Program[int]:
        yield StepStarted(f"d{depth}")
        yield append(f"down {depth}")
        below = (yield from call(depth - 1)) if depth else 0
        yield append(f"up {depth}")
        yield StepFinished(f"d{depth}")
        return below + 1

    def inner(state: Any) -> Program[Any]:
        return (yield All((Now(), append("inner"), Random())))[1].value

    def start(state: Any) -> Program[Any]:
        depth = yield from call(2)
        outcomes = yield All((Branch(inner), Branch(inner)))
        return [depth, *outcomes]

    return start


def failing(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """A step that does something, then calls a tool that fails the first time."""

    def start(state: Any) -> Program[Any]:
        yield Planned((PlannedStep("1"), PlannedStep("2"), PlannedStep("3")))
        for label in ("1", "2", "3"):
            yield StepStarted(label)
            yield append(f"step {label}")
            if label == "2":
                yield CallTool(str(inputs.get("tool", "fail_once")), {"line": "fragile"})
            yield StepFinished(label)
        return "done"

    return start


def undoing(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """Does something, waits, and undoes it when it is cancelled."""

    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        yield append("do")
        try:
            if inputs.get("hold"):
                yield CallTool("hold")
            else:
                yield AskHuman("Keep?")
        except Cancelled:
            yield append("undo")
            raise
        yield StepFinished("1")
        return "kept"

    return start


def waiting(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """Waits for a time, then for a message."""

    def start(state: Any) -> Program[Any]:
        yield Wait(seconds=float(inputs.get("seconds", 60)))
        message = yield Wait(channel="news", seconds=inputs.get("patience"))
        return type(message).__name__, getattr(message, "value", None)

    return start


def catching(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """Catches a failed effect, and reads failed branches as values."""

    def start(state: Any) -> Program[Any]:
        try:
            yield CallTool("fail", {"line": "x"})
            first = "no failure"
        except EffectFailed as error:
            first = error.failed.code
        outcomes = yield All((CallTool("fail", {"line": "y"}), append("fine")))
        return [first, outcomes[0].code, outcomes[1].value]

    return start


def calling(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """Runs another program as a child, with a branch beside it; `deep` adds a run in between."""

    def beside(state: Any) -> Program[Any]:
        yield append("beside")
        return (yield AskHuman("Beside?")).value

    def start(state: Any) -> Program[Any]:
        yield StepStarted("before")
        yield append("before")
        yield StepFinished("before")
        yield StepStarted("call")
        child = RunPlaybook("between" if inputs.get("deep") else str(inputs.get("child", "everything")))
        outcomes = yield All((child, Branch(beside))) if inputs.get("beside") else All((child,))
        if isinstance(outcomes[0], Failed):
            raise EffectFailed(outcomes[0])
        yield StepFinished("call", output=outcomes[0].text)
        yield StepStarted("after")
        yield append("after")
        yield StepFinished("after")
        return [outcomes[0].value, *outcomes[1:]]

    return start


def between(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """Runs a child, and is one itself."""

    def start(state: Any) -> Program[Any]:
        yield append("between")
        done = yield RunPlaybook("everything")
        return done.value

    return start


def holding(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """An effect that takes as long as a test wants, and one after it."""

    def start(state: Any) -> Program[Any]:
        yield StepStarted("1")
        yield CallTool("hold", reads_only=True)
        yield append("held")
        yield StepFinished("1")
        return "done"

    return start


def endless(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """Runs itself."""

    def start(state: Any) -> Program[Any]:
        return (yield RunPlaybook("endless")).value

    return start


PROGRAMS: dict[str, Maker] = {
    "calling": calling,
    "between": between,
    "holding": holding,
    "endless": endless,
    "counting": counting,
    "everything": everything,
    "concurrent": concurrent,
    "checkpointed": checkpointed,
    "nested": nested,
    "failing": failing,
    "undoing": undoing,
    "waiting": waiting,
    "catching": catching,
}


# --- putting it together ---------------------------------------------------------------------------------


def program_of(
    row: RunRow, text: str, inputs: dict[str, Any], options: dict[str, Any]
) -> Callable[[Any], Program[Any]]:
    return PROGRAMS[row.name](inputs)


def performers(folder: Path, **tools: Performer) -> dict[type[Effect], Performer]:
    return {
        CallTool: Tools(LineTool(folder / "lines"), tools),
        AskModel: EchoModel(folder / "asked"),
    }


class Tools:
    """Passes each tool call to its performer."""

    def __init__(self, default: LineTool, named: dict[str, Performer]) -> None:
        self.default = default
        self.named = named

    async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
        return await self.named.get(effect.tool, self.default).perform(effect, call)


def new_row(name: str, run: str = "run") -> RunRow:
    now = time.time()
    return RunRow(
        id=run,
        tenant="local",
        owner="me",
        dialect="test",
        interpreter=1,
        playbook=digest_of("text"),
        name=name,
        created=now,
        updated=now,
    )


async def begin(
    engine: Engine, name: str, run: str = "run", settings: Settings = Settings(), tenant: str = "local", **inputs: Any
) -> str:
    row = new_row(name, run)
    row.tenant = tenant
    uses, pinned = ({one: one for one in PINNED}, PINNED) if name == "calling" else (None, None)
    await engine.start(row, "text", inputs, settings, uses=uses, pinned=pinned)
    return run


PINNED = {one: PinnedPlaybook(one, "test", Text("text"), uses={one: one for one in PROGRAMS}) for one in PROGRAMS}
"""Every program may be the child of another."""


async def child_of(asked: ChildRequest) -> ChildStart | Failed:
    row = new_row(asked.playbook.name, asked.id)
    row.tenant, row.owner, row.caller = asked.parent.tenant, asked.parent.owner, asked.parent.id
    return ChildStart(row, "text", asked.inputs, asked.settings, asked.policy, asked.playbook.uses, asked.pinned)


def engine_on(store: Store, folder: Path, outboxes: tuple[Outbox, ...] = (), **tools: Any) -> Engine:
    made = performers(folder, **tools)
    return Engine(store, program_of, made, children=child_of, listen_every=0.02, outboxes=outboxes)


def service_on(store: Store, folder: Path, tenant_runs: int | None = None, **tools: Any) -> Service:
    return Service(store, performers(folder, **tools), programs=program_of, tenant_runs=tenant_runs, listen_every=0.02)


def lines(folder: Path, name: str = "lines") -> list[str]:
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


async def eventually(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Waits until the coroutine function returns a truthy value, and returns it; fails if that takes too long."""
    async with asyncio.timeout(seconds):
        while not (found := await condition()):
            await asyncio.sleep(0.01)
        return found


def kill_me() -> None:
    os.kill(os.getpid(), 9)
