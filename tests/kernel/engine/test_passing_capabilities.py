"""A run waits for what comes and goes, such as the connection of a node, with every store; its other work goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.capabilities import Offer, in_words, of_tenant
from cuebook.kernel.effects import All, AskHuman, Branch, CallNode, CallTool, Effect, Program
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.outcomes import UNANSWERED, AnyOutcome, Failed, ToolResult
from cuebook.kernel.ports import Awaiting, Call, Performer, Recalling, Store
from cuebook.kernel.run import Settings
from tests.support.programs import append, begin, lines, performers

NODE = CallNode("door", "open", node="shop")
FOUND: dict[str, AnyOutcome | None] = {
    "used": ToolResult("opened before"),
    "performed": None,
    "asked about": Failed("lost", "The node was restarted.", details={UNANSWERED: True}),
}


class Door:
    """A performer of calls to nodes, which knows what became of an earlier attempt."""

    def __init__(self, found: AnyOutcome | None = None) -> None:
        self.found = found
        self.opened = 0
        self.hangs = False
        self.begun = asyncio.Event()
        self.intents: list[int] = []
        self.told: list[tuple[str, int]] = []

    def needs(self, effect: CallNode, settings: Settings) -> tuple[str, ...]:
        return ("node:shop",)

    def patience(self, effect: CallNode) -> float | None:
        return effect.timeout

    async def missing(self, effect: CallNode, run: str, seconds: float) -> Failed:
        return Failed("node_absent", f"Not here within {seconds:g} s.")

    async def perform(self, effect: CallNode, call: Call) -> AnyOutcome:
        self.opened += 1
        self.intents.append(call.intent)
        if self.hangs:
            self.begun.set()
            await asyncio.Event().wait()
        return ToolResult("opened")

    async def recall(self, effect: CallNode, call: Call) -> AnyOutcome | None:
        self.intents.append(call.intent)
        return self.found

    def recorded(self, run: str, intent: int) -> None:
        self.told.append((run, intent))


def engine_of(store: Store, folder: Path, here: set[str], start: Callable[[Any], Program[Any]], door: Door) -> Engine:
    made: dict[type[Effect], Performer] = {CallTool: performers(folder)[CallTool], CallNode: door}
    offer = Offer((), connected=lambda: here)
    return Engine(store, lambda row, text, inputs, options: start, made, offer=offer, clock=store.now)


def one(effect: CallNode) -> Callable[[Any], Program[Any]]:
    def start(state: Any) -> Program[Any]:
        return str((yield effect).value)

    return start


async def ready(engine: Engine, store: Store, later: float = 0.0) -> list[str]:
    return await store.ready(store.now() + later, engine.driver, offer=engine.offer)


async def test_a_run_is_due_where_the_node_is_connected_and_nowhere_else(store: Store, tmp_path: Path) -> None:
    assert isinstance(Door(), Awaiting)
    assert isinstance(Door(), Recalling)
    here: set[str] = set()
    door = Door()
    engine = engine_of(store, tmp_path, here, one(NODE), door)
    run = await begin(engine, "opening", settings=Settings())
    row = await engine.drive(run)
    assert (row.status, row.reason, row.needs) == ("paused", "needs", ("node:shop",))
    assert await store.waits(run=run) == []
    assert await ready(engine, store) == []
    here.add("node:barn")
    assert await ready(engine, store) == []
    here.add("node:shop")
    assert await ready(engine, store) == [run]
    assert (await engine.drive(run)).status == "completed"
    assert door.told == [(run, door.intents[0])]
    assert await ready(engine, store) == []


async def test_a_limited_wait_ends_by_itself_and_outlives_the_process(store: Store, tmp_path: Path) -> None:
    here: set[str] = set()
    limited = CallNode("door", "open", node="shop", timeout=30)
    engine = engine_of(store, tmp_path, here, one(limited), Door())
    run = await begin(engine, "opening", settings=Settings())
    await engine.drive(run)
    (wait,) = await store.waits(run=run)
    assert (wait.kind, wait.prompt) == ("needs", "Waits for node shop to connect.")
    assert wait.expires == pytest.approx(wait.opened + 30)
    other = engine_of(store, tmp_path, set(), one(limited), Door())
    assert await ready(other, store) == []
    await store.expire(wait.opened + 31)
    assert await ready(other, store) == [run]  # although the node is not connected there
    row = await other.drive(run)
    assert row.error is not None
    assert (row.status, row.error.code) == ("failed", "node_absent")


async def test_other_branches_are_driven_without_the_node(store: Store, tmp_path: Path) -> None:
    def asking(state: Any) -> Program[Any]:
        yield AskHuman("Go on?")
        yield append("went on")

    def start(state: Any) -> Program[Any]:
        yield All((Branch(one(NODE)), Branch(asking)))
        return "done"

    here: set[str] = set()
    engine = engine_of(store, tmp_path, here, start, Door())
    run = await begin(engine, "both", settings=Settings())
    row = await engine.drive(run)
    assert (row.status, row.needs) == ("awaiting_input", ("node:shop",))
    assert await ready(engine, store) == []
    (wait,) = await store.waits(run=run)
    await store.complete_wait(wait.id, {"value": "yes"}, "ann", store.now())
    assert await ready(engine, store) == [run]
    row = await engine.drive(run)
    assert (row.status, row.reason, lines(tmp_path)) == ("paused", "needs", ["went on"])
    assert await ready(engine, store) == []
    here.add("node:shop")
    assert (await engine.drive(run)).status == "completed"


@pytest.mark.parametrize("becomes", FOUND)
async def test_what_a_lost_process_began_is_asked_for_before_a_person_is(
    store: Store, tmp_path: Path, becomes: str
) -> None:
    door = Door(FOUND[becomes])
    door.hangs = True
    engine = engine_of(store, tmp_path, {"node:shop"}, one(NODE), door)
    run = await begin(engine, "opening", settings=Settings())
    driving = asyncio.create_task(engine.drive(run))
    await door.begun.wait()
    driving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driving
    door.hangs = False
    again = engine_of(store, tmp_path, {"node:shop"}, one(NODE), door)
    row = await again.drive(run)
    assert door.intents[1] == door.intents[0]
    if becomes == "asked about":
        (wait,) = await store.waits(run=run)
        assert (wait.kind, door.opened) == ("in_doubt", 1)
        assert wait.prompt.startswith("The node was restarted. It is not known whether this happened")
    else:
        assert (row.status, door.opened) == ("completed", 1 if becomes == "used" else 2)
        assert door.told == [(run, door.intents[-1])]


def test_the_words_for_what_a_run_waits_for() -> None:
    assert in_words(["sandbox", "node:shop"]) == "a worker that offers sandbox and node shop to connect"
    assert in_words([of_tenant("nodes:door", "other")]) == "a node that offers door to connect"
    assert of_tenant("node:shop", "local") == "node:shop"
    assert of_tenant("sandbox", "other") == "sandbox"
