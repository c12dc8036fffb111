"""Two servers on one database: what one drives, the other shows while it happens, and what one is told, the other acts on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from cuebook.kernel.context import Text
from cuebook.kernel.effects import AskHuman, AskModel, Program
from cuebook.kernel.events import TextChunk, TextReset
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import Reply
from cuebook.kernel.ports import Call, Notice
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


class Reading:
    """What a reader on the other server sees of a run."""

    def __init__(self, service: Service, run: str, after: str = "0") -> None:
        self.seen: list[Any] = []
        self.task = asyncio.create_task(self._follow(service, run, after))

    async def _follow(self, service: Service, run: str, after: str) -> None:
        async for event in service.events(run, after, follow=True):
            self.seen.append(event)

    @property
    def chunks(self) -> list[TextChunk]:
        return [event for event in self.seen if isinstance(event, TextChunk)]

    @property
    def text(self) -> str:
        return "".join(chunk.text for chunk in self.chunks)

    async def shows(self, text: str) -> None:
        async def shown() -> bool:
            return self.text == text

        await eventually(shown)

    def has_no_holes(self, start: int = 0) -> bool:
        ends = [start, *(chunk.offset + len(chunk.text) for chunk in self.chunks)]
        return [chunk.offset for chunk in self.chunks] == ends[:-1]


async def under_way(pair: Pair, *pieces: str, said: int = 1) -> tuple[str, asyncio.Task[Any]]:
    """A run on the first server whose reply has begun; its first notices are gone."""
    await pair.here.stream.listen()
    pair.model.pieces = pieces
    run = await begin(pair.here._engine, "shared question")
    driving = asyncio.create_task(pair.here.drive(run))
    for _ in range(said):
        pair.model.next.release()
    await eventually(lambda: pair.model.has_said(said))
    await eventually(lambda: text_was_sent(pair))
    return run, driving


async def text_was_sent(pair: Pair) -> bool:
    sending = pair.here._store._bus._sending  # type: ignore[attr-defined]
    return sending is not None and sending.done()


async def finish(pair: Pair, driving: asyncio.Task[Any], *readings: Reading) -> None:
    for _ in range(len(pair.model.pieces) - pair.model.said + 1):
        pair.model.next.release()
    await driving
    for reading in readings:
        await reading.task


def count_requests(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    ask = pair.there._store.ask_for_text

    async def counted(run: str) -> None:
        asked.append(run)
        await ask(run)

    monkeypatch.setattr(pair.there._store, "ask_for_text", counted)
    return asked


def lose(pair: Pair, monkeypatch: pytest.MonkeyPatch, lost: Callable[[Notice], bool]) -> None:
    """Makes the second server miss notices."""
    hear = pair.there.stream._noticed
    monkeypatch.setattr(pair.there.stream, "_noticed", lambda notice: None if lost(notice) else hear(notice))


async def test_a_reader_who_comes_late_gets_the_text_from_its_beginning_at_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = count_requests(pair, monkeypatch)
    long = "é\x00" * 2_000
    run, driving = await under_way(pair, long, "upon ", "a time", said=2)
    late = Reading(pair.there, run)
    await late.shows(long + "upon ")
    later = Reading(pair.there, run)
    await later.shows(long + "upon ")
    assert not driving.done()
    assert asked == [run], "once for all its readers"
    await finish(pair, driving, late, later)
    assert late.text == later.text == long + "upon a time"
    assert late.has_no_holes()
    assert later.has_no_holes()
    assert asked == [run]
    assert pair.there.stream.flows == {}


async def test_a_request_that_came_before_the_driver_listened_is_answered(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, may_listen = count_requests(pair, monkeypatch), asyncio.Event()
    listen = pair.here._store.listen

    async def listens_later(heard: Callable[[Notice], None]) -> None:
        await may_listen.wait()
        await listen(heard)

    monkeypatch.setattr(pair.here._store, "listen", listens_later)
    run = await begin(pair.here._engine, "shared question")
    driving = asyncio.create_task(pair.here.drive(run))
    pair.model.next.release()
    await eventually(lambda: text_was_sent(pair))
    reading = Reading(pair.there, run)

    async def has_asked() -> bool:
        return bool(asked) and not pair.there.stream._texts._asking

    await eventually(has_asked)
    assert reading.text == ""
    may_listen.set()
    await reading.shows("Once ")
    assert not driving.done()
    await finish(pair, driving, reading)
    assert reading.text == "Once upon a time"


async def test_a_page_that_is_opened_late_has_the_text_from_its_beginning(pair: Pair) -> None:
    run, driving = await under_way(pair, "Once ", "upon ", "a time")
    (asked,) = pair.here.stream.flows[run]
    with pair.there.stream.watch(run) as feed:

        async def shown() -> bool:
            flow = feed.flow(asked)
            return flow is not None and flow.text == "Once "

        await eventually(shown)
        assert not driving.done()
        await finish(pair, driving)


@pytest.mark.parametrize(("offset", "rest"), [("", "Once upon "), (".3", "e upon "), (".10", "")])
async def test_a_reader_who_comes_back_to_another_server_gets_the_rest_of_the_text(
    pair: Pair, offset: str, rest: str
) -> None:
    run, driving = await under_way(pair, "Once ", "upon ", "a time", said=2)
    (asked,) = pair.here.stream.flows[run]
    back = Reading(pair.there, run, f"{asked}{offset}")
    await back.shows(rest)
    pair.model.next.release()
    await back.shows(rest + "a time")
    assert not driving.done()
    await finish(pair, driving, back)
    assert back.text == rest + "a time"
    assert back.has_no_holes(int(offset[1:] or 0))


@pytest.mark.parametrize("found_by", ["next text", "new connection"])
async def test_a_lost_notice_is_repaired_while_the_reply_streams(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, found_by: str
) -> None:
    monkeypatch.setattr("cuebook.service.shared_text._EVERY", 0.1)
    lost: list[Notice] = []

    def is_lost(notice: Notice) -> bool:
        if lost or notice.text != "upon ":
            return False
        lost.append(notice)
        return True

    lose(pair, monkeypatch, is_lost)
    asked = count_requests(pair, monkeypatch)
    run, driving = await under_way(pair, "Once ", "upon ", "a ", "time")
    reading = Reading(pair.there, run)
    await reading.shows("Once ")
    pair.model.next.release()

    async def missed() -> bool:
        return bool(lost)

    await eventually(missed)
    assert reading.text == "Once "
    if found_by == "next text":
        pair.model.next.release()
        await reading.shows("Once upon a ")
    else:
        pair.there.stream._noticed(Notice("records", ""))
        await reading.shows("Once upon ")
    assert not driving.done()
    await finish(pair, driving, reading)
    assert reading.text == "Once upon a time"
    assert reading.has_no_holes()
    assert asked == [run, run], "one request to begin with, and one for the gap"


async def test_requests_that_are_not_answered_are_at_most_one_per_interval(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuebook.service.shared_text._EVERY", 600.0)
    monkeypatch.setattr(pair.here.stream._texts, "asked", lambda run: None)
    asked = count_requests(pair, monkeypatch)
    gaps: list[Notice] = []

    def note_gap(notice: Notice) -> bool:
        if notice.kind == "text":
            gaps.append(notice)
        return False

    lose(pair, monkeypatch, note_gap)
    run, driving = await under_way(pair, "Once ", "upon ", "a ", "time")
    reading = Reading(pair.there, run)
    await eventually(lambda: listens(pair.there))
    for number in (1, 2):
        pair.model.next.release()

        async def noticed(number: int = number) -> bool:
            return len(gaps) == number

        await eventually(noticed)
    await finish(pair, driving, reading)
    assert asked == [run]


async def test_a_run_that_no_process_drives_is_not_asked_for(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = count_requests(pair, monkeypatch)
    run = await begin(pair.here._engine, "shared question")
    reading = Reading(pair.there, run)

    async def looked() -> bool:
        return bool(reading.seen) and not pair.there.stream._texts._asking

    await eventually(looked)
    driving = asyncio.create_task(pair.here.drive(run))
    pair.model.next.release()
    await reading.shows("Once ")
    await finish(pair, driving, reading)
    assert asked == []


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


async def test_a_slot_that_one_server_frees_is_taken_by_the_other_at_once(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuebook.kernel.engine.slots._SHORTEST", 600.0)
    monkeypatch.setattr("cuebook.kernel.engine.slots._LONGEST", 600.0)
    await pair.here.stream.listen()
    slot = await pair.there._engine.slots.take("provider:x", 1)
    assert slot is not None
    waits, took = asyncio.Event(), asyncio.Event()

    async def call() -> None:
        async with pair.here._engine.slots.hold("provider:x", 1, waits.set):
            took.set()

    calling = asyncio.create_task(call())
    await waits.wait()
    assert not took.is_set()
    await pair.there._engine.slots.free(slot)
    await calling


async def test_a_run_of_a_tenant_at_its_limit_is_driven_as_soon_as_another_server_has_room(pair: Pair) -> None:
    for service in (pair.here, pair.there):
        service._tenant_runs = 1
    slot = await pair.there.reserve("local")
    assert slot is not None
    worker = Worker(pair.here, "", every=600.0)
    await worker.open()
    run = await begin(pair.here._engine, "shared answer")
    await worker.take(run)

    async def passed_over() -> bool:
        return run in worker._tenants

    await eventually(passed_over)
    assert (await pair.here.row(run)).status == "pending"
    await pair.there.give_back(slot)

    async def driven() -> bool:
        return (await pair.there.row(run)).status == "awaiting_input"

    await eventually(driven)
    await worker.close()


class Restarting:
    """A model whose first attempt breaks off when it is released."""

    def __init__(self) -> None:
        self.next = asyncio.Semaphore(0)

    async def perform(self, effect: AskModel, call: Call) -> Reply:
        call.emit("Wrong ")
        await self.next.acquire()
        call.reset()
        call.emit("Right ")
        await self.next.acquire()
        call.emit("now")
        await self.next.acquire()
        return Reply(Text("Right now"))


@pytest.mark.parametrize("is_lost", [False, True], ids=["noticed", "lost"])
async def test_a_reply_that_begins_again_is_withdrawn_for_a_late_reader(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    model = Restarting()
    pair.here._engine.performers = {AskModel: model}
    lose(pair, monkeypatch, lambda notice: is_lost and notice.again)
    run = await begin(pair.here._engine, "shared question")
    driving = asyncio.create_task(pair.here.drive(run))

    async def begun() -> bool:
        return bool(pair.here.stream.flows.get(run))

    await eventually(begun)
    first = Reading(pair.there, run)
    await first.shows("Wrong ")
    model.next.release()
    await first.shows("Wrong Right ")
    second = Reading(pair.there, run)
    await second.shows("Right ")
    model.next.release()
    await second.shows("Right now")
    assert not driving.done()
    model.next.release()
    await driving
    await first.task
    await second.task
    shown = [
        event.text if isinstance(event, TextChunk) else None for event in first.seen if not isinstance(event, Entry)
    ]
    assert shown == ["Wrong ", None, "Right ", "now"]
    assert second.text == "Right now"


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
