"""Limits on the calls to a provider, as one performer keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec
import pytest

from cuebook.kernel.effects import AskModel
from cuebook.kernel.engine.slots import DriverSlots
from cuebook.kernel.outcomes import Failed, Reply
from cuebook.performers.models import ModelError, ModelPerformer, ProviderConfig, Providers
from cuebook.performers.models.scripted import Line
from cuebook.stores.memory import MemoryStore
from cuebook.testing import Says, ScriptedModel
from tests.performers.models.calls import Observer, Sleeper
from tests.support.programs import eventually


class Desk:
    """A performer whose provider has limits."""

    def __init__(
        self, script: Iterable[Line], at_once: int | None = None, requests_per_minute: int | None = None
    ) -> None:
        self.model = ScriptedModel(script)
        config = ProviderConfig(base_url="http://x", at_once=at_once, requests_per_minute=requests_per_minute)
        providers = Providers(lambda name: None, {"lab": config}, models={"lab": self.model})
        self.store = MemoryStore()
        self.performer = ModelPerformer(providers, sleep=Sleeper())
        self.observers: list[Observer] = []
        self.slots = DriverSlots(self.store, "d1", self._beat)

    async def _beat(self) -> None:
        await self.store.heartbeat("d1", 0.0)

    def ask(self, timeout: float | None = None, observer: Observer | None = None) -> asyncio.Task[Reply | Failed]:
        observer = observer or Observer()
        self.observers.append(observer)
        call = msgspec.structs.replace(observer.call(model="lab/one"), slots=self.slots)
        return asyncio.create_task(self.performer.perform(AskModel(prompt="Well?", timeout=timeout), call))

    async def asked(self, count: int) -> None:
        async def reached() -> bool:
            return len(self.model.requests) >= count

        await eventually(reached)

    async def waiting(self, which: int) -> None:
        async def noted() -> bool:
            return bool(self.observers[which].notes)

        await eventually(noted)

    async def all_free(self) -> None:
        async def free() -> bool:
            return not self.store._slots

        await eventually(free)


async def test_no_more_calls_than_allowed_are_under_way_and_the_others_say_that_they_wait() -> None:
    going = asyncio.Event()
    desk = Desk([Says("one", wait_for=going), Says("two", wait_for=going), "three", "four"], at_once=2)
    tasks = [desk.ask() for _ in range(4)]
    await desk.waiting(2)
    await desk.waiting(3)
    assert len(desk.model.requests) == 2
    assert [observer.notes for observer in desk.observers] == [
        [],
        [],
        [("model_waiting", {"provider": "lab", "at_once": 2})],
        [("model_waiting", {"provider": "lab", "at_once": 2})],
    ]
    going.set()
    replies = await asyncio.gather(*tasks)
    assert [isinstance(reply, Reply) and reply.text for reply in replies] == ["one", "two", "three", "four"]
    assert [name for name, _ in desk.observers[3].notes] == ["model_waiting", "model_waited"]
    await desk.all_free()


async def test_waiting_counts_neither_as_the_providers_time_nor_against_the_timeout() -> None:
    going = asyncio.Event()
    desk = Desk([Says("one", wait_for=going), "two"], at_once=1)
    first = desk.ask()
    await desk.asked(1)
    second = desk.ask(timeout=0.2)
    await desk.waiting(1)
    await asyncio.sleep(0.4)
    going.set()
    assert isinstance(await first, Reply)
    reply = await second
    assert isinstance(reply, Reply)
    (_, waited) = desk.observers[1].notes[1]
    assert reply.seconds < waited["seconds"]


async def test_the_timeout_still_applies_to_the_call_itself() -> None:
    desk = Desk([Says("one", wait_for=asyncio.Event())], at_once=1)
    failed = await desk.ask(timeout=0.05)
    assert isinstance(failed, Failed)
    assert failed.code == "timeout"
    await desk.all_free()


async def test_a_call_that_waits_can_be_cancelled() -> None:
    going = asyncio.Event()
    desk = Desk([Says("one", wait_for=going)], at_once=1)
    first = desk.ask()
    await desk.asked(1)
    second = desk.ask()
    await desk.waiting(1)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    going.set()
    assert isinstance(await first, Reply)
    assert len(desk.model.requests) == 1
    await desk.all_free()


async def test_a_call_that_is_cancelled_fails_or_is_stopped_frees_its_slot() -> None:
    forever = asyncio.Event()
    script: list[Line] = [Says("one", wait_for=forever), ModelError("auth", "No."), "stop here, please", "last"]
    desk = Desk(script, at_once=1)
    cancelled = desk.ask()
    await desk.asked(1)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert isinstance(await desk.ask(), Failed)
    stopped = await desk.ask(observer=Observer(until=lambda shown: "stop" in shown))
    assert isinstance(stopped, Reply)
    assert stopped.finish == "watch"
    assert isinstance(await desk.ask(), Reply)
    await desk.all_free()


async def test_an_attempt_that_is_repeated_frees_its_slot_in_the_meantime() -> None:
    desk = Desk([ModelError("overloaded", "busy"), "ok"], at_once=1)
    taken: list[int] = []

    async def sleep(seconds: float) -> None:
        await desk.all_free()
        taken.append(len(desk.store._slots))

    desk.performer._sleep = sleep
    assert isinstance(await desk.ask(), Reply)
    assert taken == [0]


async def test_no_more_calls_than_allowed_begin_within_a_minute() -> None:
    desk = Desk(["one", "two", "three"], requests_per_minute=2)
    assert isinstance(await desk.ask(), Reply)
    assert isinstance(await desk.ask(), Reply)
    third = desk.ask()
    await desk.waiting(2)
    assert desk.observers[2].notes == [("model_waiting", {"provider": "lab", "requests_per_minute": 2})]
    desk.store._slots.clear()  # as if the minute were over
    desk.slots.heard("")
    assert isinstance(await third, Reply)


async def test_without_a_limit_the_store_is_never_asked() -> None:
    desk = Desk(["one"])
    await desk.store.close()
    desk.store.take_slot = None  # type: ignore[method-assign, assignment]
    assert isinstance(await desk.ask(), Reply)
