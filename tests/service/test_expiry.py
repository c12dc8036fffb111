"""Runs whose waits have expired are ended only if that certainly performs nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cuebook.kernel.effects import AskHuman, CallTool, Program
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings
from cuebook.service.waits.expiry import settle
from tests.support.programs import PROGRAMS, begin, lines, performers


def engine_at(store: Store, folder: Path, now: list[float], program: Callable[..., Any] | None = None) -> Engine:
    return Engine(
        store,
        lambda row, text, inputs, options: (lambda _: program()) if program else PROGRAMS[row.name](inputs),
        performers(folder),
        clock=lambda: now[0],
    )


def with_a_substitute() -> Program[str]:
    try:
        answer = yield AskHuman("Go on?", "confirm")
    except EffectFailed:
        yield CallTool("append", {"line": "instead"})
        return "instead"
    return str(answer)


async def test_a_run_that_can_only_end_is_ended(store: Store, tmp_path: Path) -> None:
    now = [1000.0]
    engine = engine_at(store, tmp_path, now)
    await engine.drive(await begin(engine, "everything", settings=Settings(pause_expiry=60)))
    await settle(engine)
    assert (await store.run("run")).status == "awaiting_input", "its time is not over"
    written = lines(tmp_path)
    now[0] += 60
    await settle(engine)
    assert (await store.run("run")).status == "expired"
    assert lines(tmp_path) == written
    await engine.close()


async def test_a_run_that_was_already_marked_expired_is_ended_too(store: Store, tmp_path: Path) -> None:
    now = [1000.0]
    engine = engine_at(store, tmp_path, now)
    await engine.drive(await begin(engine, "everything", settings=Settings(pause_expiry=60)))
    now[0] += 60
    assert await store.expire(now[0], "another") == []
    assert await store.expire(now[0], "run") == ["run"]
    await settle(engine)
    assert (await store.run("run")).status == "expired"
    await engine.close()


async def test_a_program_that_would_continue_is_left_alone(store: Store, tmp_path: Path) -> None:
    now = [1000.0]
    engine = engine_at(store, tmp_path, now, with_a_substitute)
    await engine.drive(await begin(engine, "everything", settings=Settings(pause_expiry=60)))
    assert (await store.run("run")).status == "awaiting_input"
    now[0] += 60
    await settle(engine)
    assert (await store.run("run")).status == "awaiting_input"
    assert lines(tmp_path) == []
    await engine.close()


async def test_a_run_that_waits_for_a_timer_is_left_alone(store: Store, tmp_path: Path) -> None:
    now = [1000.0]
    engine = engine_at(store, tmp_path, now)
    await engine.drive(await begin(engine, "waiting", seconds=60))
    now[0] += 61
    await settle(engine)
    assert (await store.run("run")).status == "paused"
    await engine.close()
