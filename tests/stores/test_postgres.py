"""What is particular to the Postgres store: its clock, its notices, lost connections, and what it refuses to open."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest

from cuebook.kernel.context import Text
from cuebook.kernel.errors import BadInput, Busy, Fenced, Refused, StoreDamaged, StoreError, StoreTooNew
from cuebook.kernel.events import ArtifactMade, TextChunk, TextReset
from cuebook.kernel.journal import verify
from cuebook.kernel.ports import Notice
from cuebook.kernel.run import Signal
from cuebook.stores.postgres import PostgresStore
from tests.support.postgres import Server, server
from tests.support.records import ELSEWHERE, RecordWriter, beat, claim, create, driven, kinds, wait_row

pytestmark = pytest.mark.needs("postgres")


@pytest.fixture
def url() -> Iterator[str]:
    with server().schema() as found:
        yield found


@pytest.fixture
async def shared(url: str) -> AsyncIterator[PostgresStore]:
    made = PostgresStore(url)
    yield made
    await made.close()


@pytest.fixture
async def other(url: str, shared: PostgresStore) -> AsyncIterator[PostgresStore]:
    """The same store, as another process has it."""
    made = PostgresStore(url)
    yield made
    await made.close()


def execute(url: str, query: str, *values: Any) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(query, values)


# --- leases -----------------------------------------------------------------------------------------------


async def test_a_lease_on_another_machine_holds_until_it_expires_by_the_clock_of_the_database(
    url: str, shared: PostgresStore
) -> None:
    await create(shared)
    late = await claim(shared, driver="d1")
    await beat(shared, "d1", ELSEWHERE)
    for now in (-7200.0, 0.0, 7200.0, 1e9):
        assert await shared.ready(now, "d2") == []
        assert await shared.undriven(now) == []
        with pytest.raises(Busy, match="on another machine"):
            await shared.claim("run", "d2", now)
    execute(url, "UPDATE drivers SET lease = clock_timestamp() - interval '1 second'")
    assert not await shared.alive("run")
    assert await shared.ready(0.0, "d2") == ["run"]
    await beat(shared, "d1", ELSEWHERE)
    assert await shared.alive("run"), "it is back, and no one has taken the run"
    execute(url, "UPDATE drivers SET lease = clock_timestamp() - interval '1 second'")
    assert (await shared.claim("run", "d2", 0.0)).row.epoch == 2
    with pytest.raises(Fenced):
        await shared.append(late.batch(*driven()))


async def test_the_time_is_that_of_the_database(shared: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 0.0)
    (at,) = (await shared._all("SELECT extract(epoch FROM clock_timestamp())::float8", ()))[0]
    assert abs(shared.now() - at) < 5
    await shared.heartbeat("d1", 0.0)
    assert abs(shared.now() - at) < 5


async def test_a_retry_whose_sender_went_silent_can_be_sent_again(url: str, shared: PostgresStore) -> None:
    await create(shared)
    writer = await claim(shared)
    await shared.release(writer.batch(*driven()), unless_news=False)
    execute(url, "UPDATE runs SET status = 'failed'")
    await shared.signal(Signal("run", "retry", {}, "you"))
    await claim(shared)
    await beat(shared, "d1", ELSEWHERE)
    with pytest.raises(Refused, match="retried"):
        await shared.signal(Signal("run", "retry", {}, "you"))
    execute(url, "UPDATE drivers SET lease = clock_timestamp() - interval '1 second'")
    await shared.signal(Signal("run", "retry", {"whole_step": True}, "you"))
    assert [one.payload for one in (await shared.news("run")).signals] == [{"whole_step": True}]


# --- writing ----------------------------------------------------------------------------------------------


async def test_characters_that_postgres_does_not_take_are_kept(shared: PostgresStore) -> None:
    odd = "a\x00b\ud7ff\U0001f600" * 2000
    await create(shared)
    writer = await claim(shared)
    batch = writer.batch(ArtifactMade(Text(odd)))
    await shared.append(batch)
    (digest,) = batch.texts or {}
    assert shared.text(digest) == odd


async def test_a_batch_that_cannot_be_stored_fails_alone(shared: PostgresStore) -> None:
    writers = []
    for number in range(5):
        await create(shared, f"run{number}")
        writers.append(await claim(shared, f"run{number}"))
    bad = writers[2].batch(*driven())
    bad.opened = [wait_row("w\x00", "run2")]
    bad.plain = False
    batches = [bad if number == 2 else writer.batch(*driven()) for number, writer in enumerate(writers)]
    results = await asyncio.gather(*(shared.append(batch) for batch in batches), return_exceptions=True)
    assert [type(result) for result in results] == [type(None), type(None), StoreError, type(None), type(None)]
    assert [len(await kinds(shared, f"run{number}")) for number in range(5)] == [2, 2, 1, 2, 2]


async def test_many_runs_append_at_once_from_two_processes(shared: PostgresStore, other: PostgresStore) -> None:
    async def work(store: PostgresStore, run: str) -> None:
        await create(store, run)
        writer = await claim(store, run, driver=f"driver of {run}")
        for _ in range(10):
            await store.append(writer.batch(*driven(), ArtifactMade(Text("the same long text" * 500))))
        await store.release(writer.batch(*driven()), unless_news=False)

    await asyncio.gather(
        *(work(store, f"{name}{n}") for name, store in (("a", shared), ("b", other)) for n in range(20))
    )
    for name in "ab":
        for number in range(20):
            whole = await shared.whole(f"{name}{number}")
            assert len(whole.records) == 22
            assert verify(whole.records).broken_at is None


# --- lost connections -------------------------------------------------------------------------------------


async def test_what_is_appended_while_the_database_restarts_is_there_once() -> None:
    own = Server()
    try:
        store = PostgresStore(own.url())
        writers = []
        for number in range(10):
            await create(store, f"run{number}")
            writers.append(await claim(store, f"run{number}"))

        async def work(writer: RecordWriter) -> None:
            for _ in range(60):
                await store.append(writer.batch(*driven()))
                await asyncio.sleep(0.01)

        working = asyncio.gather(*map(work, writers))
        for how in (signal.SIGINT, signal.SIGQUIT):
            await asyncio.sleep(0.15)
            own.stop(how)
            await asyncio.sleep(0.1)
            await asyncio.to_thread(own.start)
        await working
        for number in range(10):
            whole = await store.whole(f"run{number}")
            assert [record.seq for record in whole.records] == list(range(1, 62))
            assert verify(whole.records).broken_at is None
        await store.close()
    finally:
        own.close()


async def test_a_commit_whose_answer_was_lost_is_not_repeated(
    shared: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(shared)
    writer = await claim(shared)
    attempt = shared._appends._attempt
    lost = [True]

    async def attempted(appends: Any) -> None:
        await attempt(appends)
        if lost.pop() if lost else False:
            raise psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(shared._appends, "_attempt", attempted)
    await shared.append(writer.batch(*driven()))
    await shared.append(writer.batch(*driven()))
    assert [record.seq async for record in shared.records("run")] == [1, 2, 3]


# --- notices ----------------------------------------------------------------------------------------------


async def test_processes_that_share_a_store_hear_of_each_other(shared: PostgresStore, other: PostgresStore) -> None:
    heard: list[Notice] = []
    await other.listen(heard.append)
    await shared.listen(lambda notice: None)
    await create(shared)
    writer = await claim(shared)
    await shared.append(writer.batch(*driven(), opened=[wait_row()]))
    await shared.complete_wait("w", {"value": "yes"}, "me", 0.0)
    for offset, text in ((0, "Hello "), (6, "world"), (11, "é\x00" * 3000)):
        shared.share(TextChunk("run", 2, "1", offset, text))
    shared.share(TextReset("run", 2, "1"))
    shared.share(TextChunk("run", 2, "1", 0, "Again"))
    await until(lambda: any(one.text == "Again" for one in heard))
    named = [one for one in heard if one.sender]
    assert {one.kind for one in named if one.run == "run"} == {"ready", "records", "text"}
    assert max(one.seq for one in named if one.kind == "records") == 2
    texts = [one for one in named if one.kind == "text"]
    first = "".join(one.text for one in texts[: next(n for n, one in enumerate(texts) if one.again)])
    assert first == "Hello world" + "é\x00" * 3000
    assert [one.offset for one in texts][:2] == [0, texts[0].offset + len(texts[0].text)]


async def test_notices_are_heard_again_after_a_restart() -> None:
    own = Server()
    try:
        one, two = PostgresStore(own.url()), PostgresStore(own.url())
        heard: list[Notice] = []
        await two.listen(heard.append)
        await create(one, "before")
        await until(lambda: any(notice.run == "before" for notice in heard))
        await asyncio.to_thread(own.restart)
        heard.clear()
        await until(lambda: bool(heard))
        assert heard[0].run == "", "something may have been missed"
        await create(one, "after")
        await until(lambda: any(notice.run == "after" for notice in heard))
        await one.close()
        await two.close()
    finally:
        own.close()


async def until(holds: Any) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


# --- opening ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["postgresql://", "postgresql:///", "postgres://host", "postgresql://host:port/x", "postgresql://[::1/x"],
)
def test_a_url_that_cannot_be_used_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(BadInput, match="not a valid Postgres URL") as caught:
        PostgresStore(url)
    assert "db.example.com" in caught.value.fix


CANARY = "kanarie-0815-xyz"


@pytest.mark.parametrize(
    "make",
    [
        lambda port: f"postgresql://me:{CANARY}@127.0.0.1:1/x",
        lambda port: f"postgresql://me:{CANARY}@127.0.0.1:{port}/nothere",
        lambda port: f"postgresql://me:{CANARY}@127.0.0.1:{port}/postgres?options=-cnonsense%3D1",
        lambda port: f"postgresql://127.0.0.1:{port}/postgres?user=nobody&password={CANARY}",
        lambda port: f"postgresql://me:{CANARY}@127.0.0.1:{port}/postgres?sslmode={CANARY}x&nonsense={CANARY}",
    ],
)
def test_no_error_shows_the_password(make: Any) -> None:
    with pytest.raises((StoreError, BadInput)) as caught:
        PostgresStore(make(server().port))
    shown = f"{caught.value} {caught.value.fix} {caught.value!r} {caught.value.__cause__} {caught.value.__context__!r}"
    assert CANARY not in str(caught.value) + caught.value.fix
    assert CANARY not in repr(caught.value), shown


def test_a_newer_store_and_tables_of_another_program_are_refused(url: str) -> None:
    execute(url, "CREATE SCHEMA IF NOT EXISTS " + url.rpartition("%3D")[2])
    execute(url, "CREATE TABLE runs (mine text)")
    with pytest.raises(StoreDamaged, match="another program"):
        PostgresStore(url)
    execute(url, "DROP TABLE runs")
    asyncio.run(PostgresStore(url).close())
    execute(url, "UPDATE cuebook_schema SET version = version + 1")
    with pytest.raises(StoreTooNew, match="Upgrade"):
        PostgresStore(url)


def test_a_look_creates_nothing(url: str) -> None:
    from cuebook.formats.database_url import DatabaseUrl
    from cuebook.stores.postgres.inspection import Inspection

    looked = Inspection(DatabaseUrl(url))
    assert (looked.exists, looked.version, looked.problem, looked.kept("local", "user")) == (False, None, "", {})
    looked.close()
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('cuebook_schema')").fetchone() == (None,)


async def test_servers_that_start_at_once_create_the_tables_once(url: str) -> None:
    stores = await asyncio.gather(*(asyncio.to_thread(PostgresStore, url) for _ in range(6)))
    await create(stores[0])
    assert [len(await store.runs()) for store in stores] == [1] * 6
    for store in stores:
        await store.close()


async def test_more_readers_than_connections_wait_their_turn(shared: PostgresStore) -> None:
    await create(shared)
    rows = await asyncio.gather(*(shared.run("run") for _ in range(200)))
    assert {row.id for row in rows} == {"run"}
