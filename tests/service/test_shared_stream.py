"""Two servers on one database: what one drives, the other shows while it happens, and what one is told, the other acts on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskHuman, AskModel, Program
from cuebook.kernel.events import TextChunk, TextReset
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import Reply
from cuebook.kernel.ports import Call
from cuebook.service.service import Service
from cuebook.service.worker import Worker
from cuebook.stores.postgres import PostgresStore
from tests.service.test_service import Pieces
from tests.support.postgres import server
from tests.support.programs import PROGRAMS, begin, eventually, program_of

pytestmark = pytest.mark.needs("postgres")


def one_question(state: Any) -> Program[Any]:
    return (yield AskModel("?")).text


def one_answer(state: Any) -> Program[Any]:
    return (yield AskHuman("Well?")).value


PROGRAMS["shared question"] = lambda inputs: one_question
PROGRAMS["shared answer"] = lambda inputs: one_answer


class Pair:
    """Two services on one database."""

    def __init__(self, url: str) -> None:
        self.model = Pieces("Once ", "upon ", "a time")
        self.here = self._service(url)
        self.there = self._service(url)

    def _service(self, url: str) -> Service:
        store = PostgresStore(url)
        return Service(store, {AskModel: self.model}, programs=program_of, clock=store.now, listen_every=60.0)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    with server().schema() as url:
        made = Pair(url)
        yield made
        await made.here.close()
        await made.there.close()


async def test_text_is_seen_on_another_server_while_it_streams(pair: Pair) -> None:
    run = await begin(pair.here._engine, "shared question")
    seen: list[Entry | TextChunk | TextReset] = []

    async def follow() -> None:
        async for event in pair.there.events(run, "0", follow=True):
            seen.append(event)

    async def text() -> str:
        return "".join(event.text for event in seen if isinstance(event, TextChunk))

    reading = asyncio.create_task(follow())
    driving = asyncio.create_task(pair.here.drive(run))
    await eventually(lambda: listens(pair.there))
    for shown in ("Once ", "Once upon "):
        pair.model.next.release()

        async def arrived(shown: str = shown) -> bool:
            return await text() == shown

        await eventually(arrived)
    assert not driving.done()
    pair.model.next.release()
    pair.model.next.release()
    await driving
    await reading
    assert await text() == "Once upon a time"
    numbers = [event.seq for event in seen if isinstance(event, Entry)]
    assert numbers == list(range(1, len(numbers) + 1))
    assert pair.there.stream.flows == {}, "nothing is kept of a text that no one reads any more"


async def listens(service: Service) -> bool:
    return bool(service.stream._followed)


async def test_a_page_on_another_server_is_rung_for_records_and_text(pair: Pair) -> None:
    run = await begin(pair.here._engine, "shared question")
    with pair.there.stream.watch(run) as feed:
        await pair.there.stream.listen()
        driving = asyncio.create_task(pair.here.drive(run))
        for _ in range(4):
            pair.model.next.release()

        async def streamed() -> bool:
            return driving.done()

        await eventually(streamed)
        entries = [entry async for entry in feed.after(0)]

        async def complete() -> bool:
            return len([entry async for entry in feed.after(0)]) == len([1 async for _ in pair.here.entries(run)])

        await eventually(complete)
        assert entries


async def test_a_beginning_that_was_missed_is_shown_when_the_reply_is_complete(pair: Pair) -> None:
    run = await begin(pair.here._engine, "shared question")
    driving = asyncio.create_task(pair.here.drive(run))
    pair.model.next.release()
    await eventually(lambda: pair.model.has_said(1))
    await asyncio.sleep(0.2)  # its notice is gone
    seen: list[Any] = []

    async def follow() -> None:
        async for event in pair.there.events(run, "0", follow=True):
            seen.append(event)

    reading = asyncio.create_task(follow())
    await eventually(lambda: listens(pair.there))
    for _ in range(3):
        pair.model.next.release()
    await driving
    await reading
    texts = [event for event in seen if isinstance(event, TextChunk)]
    offsets = [event.offset for event in texts]
    assert offsets == [sum(len(one.text) for one in texts[:n]) for n in range(len(texts))], "never with a hole"


async def test_an_answer_given_on_one_server_is_acted_on_by_the_other_at_once(pair: Pair) -> None:
    worker = Worker(pair.here, "", every=600.0)
    await worker.open()
    run = await begin(pair.here._engine, "shared answer")
    await worker.take(run)

    async def waits() -> list[Any]:
        return await pair.there.waits(run)

    (wait,) = await eventually(waits)
    await pair.there._store.complete_wait(wait.id, {"value": "fine"}, "me", pair.there.clock())

    async def ended() -> bool:
        return (await pair.there.row(run)).status == "completed"

    await eventually(ended)
    await worker.close()


class Failing:
    """A model whose first attempt breaks off."""

    async def perform(self, effect: AskModel, call: Call) -> Reply:
        call.emit("Wrong ")
        await asyncio.sleep(0.2)
        call.reset()
        call.emit("Right")
        await asyncio.sleep(0.2)
        return Reply(Text("Right"))


async def test_a_reply_that_begins_again_is_withdrawn_on_the_other_server(pair: Pair) -> None:
    pair.here._engine.performers = {AskModel: Failing()}
    run = await begin(pair.here._engine, "shared question")
    seen: list[Any] = []

    async def follow() -> None:
        async for event in pair.there.events(run, "0", follow=True):
            seen.append(event)

    reading = asyncio.create_task(follow())
    await eventually(lambda: listens(pair.there))
    await asyncio.sleep(0.1)
    await pair.here.drive(run)
    await reading
    kinds = [type(event).__name__ for event in seen if not isinstance(event, Entry)]
    assert kinds == ["TextChunk", "TextReset", "TextChunk"]
