"""A run is driven only where its workspace, its interpreter and the capabilities for its next effect are offered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.capabilities import Offer, moved
from cuebook.kernel.effects import All, AskHuman, Branch, CallTool, Effect, Program
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.errors import Busy, TooNew
from cuebook.kernel.events import Driven, Moved, Suspended
from cuebook.kernel.fold.replay import Recorded
from cuebook.kernel.outcomes import AnyOutcome, ToolResult
from cuebook.kernel.ports import Call, Performer, Store
from cuebook.kernel.run import Settings, Signal
from tests.support.programs import Held, append, begin, eventually, lines, new_row, performers


def _note(path: Path) -> None:
    with path.open("a") as file:
        file.write("browsed\n")


class Browser:
    """A tool performer that needs a browser for the tool `browse`."""

    def __init__(self, folder: Path) -> None:
        self._plain = performers(folder)[CallTool]

    def needs(self, effect: CallTool, settings: Settings) -> tuple[str, ...]:
        return ("browser",) if effect.tool == "browse" else ()

    async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
        if effect.tool == "browse":
            _note(Path(str(effect.arguments["file"])))
            return ToolResult("seen")
        return await self._plain.perform(effect, call)


def browsing(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    def start(state: Any) -> Program[Any]:
        yield append("before")
        yield CallTool("browse", {"file": inputs["file"]})
        yield append("after")
        return "done"

    return start


def branching(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
    """A branch that asks a person, next to one that needs a browser."""

    def asking(state: Any) -> Program[Any]:
        return (yield AskHuman("Go on?")).value

    def start(state: Any) -> Program[Any]:
        answers = yield All((Branch(asking), Branch(lambda state: browsing(inputs)(state))))
        return list(answers)

    return start


def engine_of(store: Store, folder: Path, *capabilities: str, program: Any = browsing, **more: Any) -> Engine:
    store.shared = True  # type: ignore[misc] # as if other machines could use it
    offer = more.pop("offer", Offer((), lambda: capabilities))
    made = lambda row, text, inputs, options: program(inputs)  # noqa: E731
    tools: dict[type[Effect], Performer] = {CallTool: more.pop("tool", None) or Browser(folder)}
    return Engine(store, made, tools, offer=offer, listen_every=0.02, clock=store.now, **more)


async def started(engine: Engine, place: Path, **settings: Any) -> str:
    return await begin(engine, "browsing", settings=Settings(**settings), file=str(place / "browsed"))


async def test_a_run_is_handed_over_at_the_effect_that_needs_another_machine(store: Store, tmp_path: Path) -> None:
    plain, able = engine_of(store, tmp_path), engine_of(store, tmp_path, "browser", machine="able")
    run = await started(plain, tmp_path)
    row = await plain.drive(run)
    assert (row.status, row.reason, row.needs) == ("paused", "needs", ("browser",))
    assert lines(tmp_path) == ["before"]
    assert await store.ready(store.now(), plain.driver, offer=plain.offer) == []
    assert await store.ready(store.now(), able.driver, offer=able.offer) == [run]
    assert await store.undriven(store.now()) == []  # it waits for a machine, not for a user
    row = await able.drive(run)
    assert (row.status, row.needs) == ("completed", ())
    assert lines(tmp_path) == ["before", "after"]
    assert lines(tmp_path, "browsed") == ["browsed"]
    assert (await plain.verify(run)).broken_at is None
    drives = [entry.event.machine async for entry in able.entries(run) if isinstance(entry.event, Driven)]
    assert drives == ["", "able"]


async def test_a_run_that_was_given_up_still_waits_for_the_capability(store: Store, tmp_path: Path) -> None:
    plain, able = engine_of(store, tmp_path), engine_of(store, tmp_path, "browser")
    run = await started(plain, tmp_path)
    await plain.drive(run)
    claim = await store.claim(run, able.driver, store.now())
    await able._give_up(claim)
    assert await store.ready(store.now(), able.driver, offer=able.offer) == [run]


async def test_a_process_without_the_capability_that_drives_it_anyway_hands_it_over_again(
    store: Store, tmp_path: Path
) -> None:
    plain = engine_of(store, tmp_path)
    run = await started(plain, tmp_path)
    await plain.drive(run)
    row = await plain.drive(run)
    assert (row.reason, row.needs) == ("needs", ("browser",))
    assert lines(tmp_path) == ["before"]


async def test_a_cancelled_run_ends_where_the_capability_is_missing(store: Store, tmp_path: Path) -> None:
    plain = engine_of(store, tmp_path)
    run = await started(plain, tmp_path)
    await plain.drive(run)
    await store.signal(Signal(run, "cancel", {}, "ann"))
    assert await store.ready(store.now(), plain.driver, offer=plain.offer) == [run]
    row = await plain.drive(run)
    assert (row.status, row.needs) == ("cancelled", ())


async def test_a_cancel_reaches_a_branch_that_waits_for_a_capability(store: Store, tmp_path: Path) -> None:
    held = Held()

    def both(inputs: dict[str, Any]) -> Callable[[Any], Program[Any]]:
        def start(state: Any) -> Program[Any]:
            yield All((Branch(lambda state: browsing(inputs)(state)), CallTool("held", {})))

        return start

    class Mixed(Browser):
        async def perform(self, effect: CallTool, call: Call) -> AnyOutcome:
            if effect.tool == "held":
                return await held.perform(effect, call)
            return await super().perform(effect, call)

    engine = engine_of(store, tmp_path, program=both, tool=Mixed(tmp_path))
    run = await started(engine, tmp_path)
    driving = asyncio.create_task(engine.drive(run))
    await held.entered.wait()
    await eventually(lambda: _is_true(lines(tmp_path) == ["before"]))
    await store.signal(Signal(run, "cancel", {}, "ann"))
    await engine.hear(run)
    assert (await driving).status == "cancelled"
    assert lines(tmp_path, "browsed") == []


async def _is_true(value: bool) -> bool:
    return value


async def test_another_branch_may_wait_for_a_person_at_the_same_time(store: Store, tmp_path: Path) -> None:
    plain = engine_of(store, tmp_path, program=branching)
    able = engine_of(store, tmp_path, "browser", program=branching)
    run = await started(plain, tmp_path)
    row = await plain.drive(run)
    assert (row.status, row.needs) == ("awaiting_input", ("browser",))
    row = await able.drive(run)
    assert (row.status, row.needs) == ("awaiting_input", ())
    assert lines(tmp_path) == ["before", "after"]
    (wait,) = await store.waits(run=run)
    await store.complete_wait(wait.id, {"value": "yes"}, "ann", store.now())
    assert (await plain.drive(run)).status == "completed"
    suspended = [entry.event async for entry in plain.entries(run) if isinstance(entry.event, Suspended)]
    assert [one.needs for one in suspended] == [("browser",), ()]


async def test_where_nothing_is_shared_nothing_is_handed_over(store: Store, tmp_path: Path) -> None:
    engine = engine_of(store, tmp_path)
    store.shared = False  # type: ignore[misc]
    alone = Engine(store, engine.programs, engine.performers, offer=engine.offer)
    assert (await alone.drive(await started(alone, tmp_path))).status == "completed"


async def test_a_run_of_a_newer_interpreter_is_never_claimed(store: Store, tmp_path: Path) -> None:
    old = engine_of(store, tmp_path, offer=Offer((), lambda: ("browser",), lambda dialect: 1))
    new = engine_of(store, tmp_path, offer=Offer((), lambda: ("browser",), lambda dialect: 2))
    row = new_row("browsing")
    row.interpreter = 2
    await new.start(row, "text", {"file": str(tmp_path / "browsed")}, Settings())
    assert await store.ready(store.now(), old.driver, offer=old.offer) == []
    with pytest.raises(TooNew, match="newer Cuebook: it needs version 2 of 'test', and this one has 1"):
        await old.drive(row.id)
    assert (await store.run(row.id)).epoch == 0
    assert await store.ready(store.now(), new.driver, offer=new.offer) == [row.id]
    assert (await new.drive(row.id)).status == "completed"


async def test_ready_lists_the_runs_of_the_offered_workspaces(store: Store, tmp_path: Path) -> None:
    engine = engine_of(store, tmp_path)
    for run, settings in {
        "anywhere": Settings(),
        "here": Settings(workspace="/srv/here"),
        "there": Settings(workspace="/srv/there"),
        "labelled": Settings(workspace="/srv/there", workspace_label="shop"),
    }.items():
        await begin(engine, "browsing", run, settings, file="")
    now = store.now()
    assert await store.ready(now, "d", offer=Offer(("/srv/here",))) == ["anywhere", "here"]
    assert await store.ready(now, "d", offer=Offer(("/srv/here", "shop"))) == ["anywhere", "here", "labelled"]
    assert await store.ready(now, "d", offer=Offer()) == ["anywhere"]
    assert len(await store.ready(now, "d")) == 4


async def test_a_moved_run_belongs_to_its_new_folder(store: Store, tmp_path: Path) -> None:
    engine = engine_of(store, tmp_path, "browser")
    run = await started(engine, tmp_path, workspace="/srv/old", folder="/srv/old/books")
    await engine.move(run, Moved("/srv/new", "", "/srv/new/books", "ann"))
    row = await store.run(run)
    assert (row.workspace, row.driver) == ("/srv/new", "")
    assert await store.ready(store.now(), "d", offer=Offer(("/srv/new",), lambda: ("browser",))) == [run]
    settings = (await _recorded(engine, run)).settings
    assert (settings.workspace, settings.folder) == ("/srv/new", "/srv/new/books")
    assert (await engine.drive(run)).status == "completed"
    assert (await engine.verify(run)).broken_at is None


async def test_a_decision_that_came_before_the_move_is_not_lost(store: Store, tmp_path: Path) -> None:
    engine = engine_of(store, tmp_path, "browser", program=branching)
    run = await started(engine, tmp_path, workspace="/srv/old")
    await engine.drive(run)
    (wait,) = await store.waits(run=run)
    await store.complete_wait(wait.id, {"value": "yes"}, "ann", store.now())
    await engine.move(run, Moved("/srv/new"))
    assert await store.ready(store.now(), "d", offer=Offer(("/srv/new",))) == [run]


async def test_the_time_between_an_interruption_and_a_move_does_not_count(store: Store, tmp_path: Path) -> None:
    held = Held()
    engine = engine_of(store, tmp_path, tool=held)
    run = await started(engine, tmp_path)
    driving = asyncio.create_task(engine.drive(run))
    await held.entered.wait()
    driving.cancel()
    await asyncio.wait([driving])
    engine.clock = lambda: store.now() + 3600
    await engine.move(run, Moved("/srv/new"))
    engine.clock = store.now
    verdict = await engine.verify(run)
    assert (verdict.broken_at, verdict.problem) == (None, "")
    assert (await store.run(run)).totals.seconds < 3600


async def test_a_run_that_is_being_driven_cannot_be_moved(store: Store, tmp_path: Path) -> None:
    here, there = engine_of(store, tmp_path), engine_of(store, tmp_path)
    run = await started(here, tmp_path)
    await there._beat()
    await store.claim(run, there.driver, store.now())
    with pytest.raises(Busy):
        await here.move(run, Moved("/srv/new"))


async def test_a_labelled_workspace_is_the_folder_of_the_machine_that_drives(store: Store, tmp_path: Path) -> None:
    engine = engine_of(store, tmp_path, offer=Offer(("/data/shop", "shop")))
    given = Settings(workspace="/srv/shop", workspace_label="shop", folder="/srv/shop/books")
    placed = engine.placed(given)
    assert (placed.workspace, placed.folder) == ("/data/shop", "/data/shop/books")
    assert engine.placed(Settings(workspace="/srv/shop")) == Settings(workspace="/srv/shop")


@pytest.mark.parametrize(
    ("folder", "expected"),
    [("/a", "/b"), ("/a/c", "/b/c"), ("/ab", "/ab"), ("/else", "/else"), ("", "")],
)
def test_only_folders_inside_a_workspace_move_with_it(folder: str, expected: str) -> None:
    assert moved(folder, "/a", "/b") == expected


async def _recorded(engine: Engine, run: str) -> Recorded:
    return Recorded([entry async for entry in engine.entries(run)], 0)
