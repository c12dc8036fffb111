"""What is particular to the Postgres store: its clock, its notices, lost connections, and what it refuses to open."""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from unittest.mock import patch

import psycopg
import pytest

from cuebook.formats.database_url import DatabaseUrl
from cuebook.kernel.context import Text
from cuebook.kernel.errors import (
    BadInput,
    Busy,
    CuebookError,
    Fenced,
    NotFound,
    Refused,
    StoreDamaged,
    StoreError,
    StoreTooNew,
)
from cuebook.kernel.events import ArtifactMade, TextChunk, TextReset
from cuebook.kernel.journal import verify
from cuebook.kernel.ports import Notice
from cuebook.kernel.run import Signal
from cuebook.stores import leases
from cuebook.stores.postgres import PostgresStore, database
from cuebook.stores.postgres.database import Database, _LostInCommit, literal
from cuebook.stores.postgres.schema import MIGRATIONS
from cuebook.stores.rows import RUN
from tests.support.postgres import Server, server
from tests.support.programs import eventually
from tests.support.records import ELSEWHERE, RecordWriter, beat, claim, create, driven, kinds, wait_row
from tests.support.tcp_proxy import TcpProxy

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


@contextmanager
def expired_leases(url: str) -> Iterator[None]:
    """All leases have expired, and the database has been running for long."""
    execute(url, "UPDATE drivers SET lease = clock_timestamp() - interval '1 second'")
    with patch.object(leases, "LEASE", 0.0):
        yield


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
    with expired_leases(url):
        assert not await shared.alive("run")
        assert await shared.ready(0.0, "d2") == ["run"]
    await beat(shared, "d1", ELSEWHERE)
    assert await shared.alive("run"), "it is back, and no one has taken the run"
    with expired_leases(url):
        assert (await shared.claim("run", "d2", 0.0)).row.epoch == 2
    with pytest.raises(Fenced):
        await shared.append(late.batch(*driven()))


async def test_a_lease_that_expired_while_the_database_was_down_can_still_be_extended(
    url: str, shared: PostgresStore
) -> None:
    await create(shared)
    await claim(shared, driver="d1")
    await beat(shared, "d1", ELSEWHERE)
    execute(url, "UPDATE drivers SET lease = pg_postmaster_start_time() - interval '1 minute'")
    with patch.object(leases, "LEASE", 1e6):  # as if the database had just started
        assert await shared.alive("run")
        assert await shared.ready(0.0, "d2") == []
        with pytest.raises(Busy):
            await shared.claim("run", "d2", 0.0)
    with expired_leases(url):
        assert await shared.ready(0.0, "d2") == ["run"]
    await shared.retire("d1")
    with patch.object(leases, "LEASE", 1e6):
        assert await shared.ready(0.0, "d2") == ["run"], "a driver that left does not come back"


async def test_the_time_is_that_of_the_database(shared: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 0.0)
    (at,) = (await shared._all("SELECT extract(epoch FROM clock_timestamp())::float8", ()))[0]
    assert abs(shared.now() - at) < 5
    await shared.heartbeat("d1", 0.0)
    assert abs(shared.now() - at) < 5


async def test_an_answer_that_took_long_does_not_change_the_clock(shared: PostgresStore) -> None:
    """The database looked at its clock at an unknown moment of that time, for example before this process was stopped."""
    before = shared.now()
    shared._database.compare_clock(before - 3600, time.monotonic() - 7200)
    assert abs(shared.now() - before) < 5
    shared._database.compare_clock(before + 3600, time.monotonic())
    assert abs(shared.now() - before - 3600) < 5


async def test_a_process_that_only_looks_for_runs_follows_the_clock_of_the_database(shared: PostgresStore) -> None:
    """Its own clock does not run while its machine sleeps."""
    shared._database._offset -= 7200
    shared._database._compared -= 60
    behind = shared.now()
    await shared.ready(shared.now(), "d1")
    assert shared.now() - behind > 7000


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
    with expired_leases(url):
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


async def test_a_slot_is_taken_once_if_the_answer_to_the_commit_was_lost(
    shared: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared.heartbeat("d1", 0.0)
    transaction = shared._database.transaction
    lost = [True, True]

    @asynccontextmanager
    async def losing(connection: Any) -> AsyncIterator[Any]:
        async with transaction(connection) as made:
            yield made
        if lost:
            lost.pop()
            raise _LostInCommit from psycopg.OperationalError("the connection is lost")

    monkeypatch.setattr(shared._database, "transaction", losing)
    slot = await shared.take_slot("x", 1, "d1")
    assert slot is not None
    assert not lost
    assert await shared._all("SELECT id FROM slots", ()) == [(slot,)]
    lost.append(True)
    await shared.free_slot(slot)
    assert await shared._all("SELECT id FROM slots", ()) == []


async def test_a_process_that_is_stopped_in_a_transaction_loses_its_locks_and_tries_again(
    shared: PostgresStore,
) -> None:
    assert await shared._all("SHOW idle_in_transaction_session_timeout", ()) == [("5s",)]
    attempts: list[int] = []

    async def work(connection: Any) -> Any:
        async with shared._database.transaction(connection) as transaction:
            attempts.append(len(attempts))
            if len(attempts) == 1:
                await transaction.all("SELECT set_config('idle_in_transaction_session_timeout', '20', true)")
                await asyncio.sleep(0.1)
            return await transaction.one("SELECT 2")

    assert await shared._database.use(work) == (2,)
    assert len(attempts) == 2


async def test_a_session_that_was_cut_off_in_the_middle_of_a_round_trip_loses_its_locks(
    url: str, shared: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "_STUCK", 0.2)
    await create(shared)
    claimed: list[RecordWriter] = []

    async def claim_from_one_that_is_cut_off() -> None:
        async with await psycopg.AsyncConnection.connect(url) as cut_off, cut_off.pipeline():
            await cut_off.execute("SELECT 1 FROM runs WHERE id = 'run' FOR UPDATE")
            cut_off.pgconn.send_flush_request()  # so that it is carried out, without the end of a round trip
            cut_off.pgconn.flush()
            await eventually(lambda: locks(shared, cut_off.info.backend_pid))
            claimed.append(await claim(shared))

    with pytest.raises(psycopg.OperationalError):
        await claim_from_one_that_is_cut_off()
    assert claimed


async def locks(store: PostgresStore, pid: int) -> bool:
    """Whether this session holds the lock of a row."""
    query = (
        "SELECT 1 FROM pg_locks WHERE pid = %s AND relation = 'runs'::regclass AND mode = 'RowShareLock' AND granted"
    )
    return bool(await store._all(query, (pid,)))


async def test_a_synchronous_read_does_not_wait_forever(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "ANSWER", 0.2)
    proxy = TcpProxy(server().port)
    store = PostgresStore(url.replace(f":{server().port}/", f":{proxy.port}/"))
    try:
        digest = "0" * 64
        with pytest.raises(NotFound):
            store.text(digest)
        proxy.abandon()
        with pytest.raises(NotFound):
            store.text(digest)
    finally:
        await store.close()
        proxy.close()


async def test_an_append_after_lost_records_is_refused(url: str, shared: PostgresStore) -> None:
    """Without synchronous commits, a database that crashes loses its last commits; the journal must not get a hole."""
    await create(shared)
    writer = await claim(shared)
    for _ in range(3):
        await shared.append(writer.batch(*driven()))
    execute(url, "DELETE FROM records WHERE seq = 4")
    execute(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cuebook' AND pid <> pg_backend_pid()",
    )
    with pytest.raises(CuebookError, match="ends at record 3"):
        await shared.append(writer.batch(*driven()))
    assert [record.seq async for record in shared.records("run")] == [1, 2, 3]


# --- notices ----------------------------------------------------------------------------------------------


async def test_processes_that_share_a_store_hear_of_free_slots(shared: PostgresStore, other: PostgresStore) -> None:
    heard: list[Notice] = []
    await other.listen(heard.append)
    await shared.heartbeat("d1", 0.0)
    assert await shared.take_slot("tenant:ünder", 2, "d1") is not None
    slot = await shared.take_slot("tenant:ünder", 2, "d1")
    assert slot is not None
    await shared.free_slot(slot)
    await shared.free_slot(slot)
    await shared.retire("d1")
    await until(lambda: len([one for one in heard if one.kind == "slot"]) == 2)
    assert [one.slot for one in heard if one.kind == "slot"] == ["tenant:ünder", ""]


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


async def test_the_driver_of_a_run_hears_that_its_text_is_asked_for(
    shared: PostgresStore, other: PostgresStore
) -> None:
    heard: list[Notice] = []
    own: list[Notice] = []
    await other.listen(heard.append)
    await shared.listen(own.append)
    await shared.ask_for_text("run")
    await until(lambda: any(one.kind == "resend" for one in heard))
    assert [one.run for one in heard if one.kind == "resend"] == ["run"]
    await other.ask_for_text("other")
    await until(lambda: any(one.kind == "resend" for one in own))
    assert [one.run for one in own if one.kind == "resend"] == ["other"], "not its own request"


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


async def test_every_table_but_those_about_drivers_says_whose_data_it_has(url: str) -> None:
    store = PostgresStore(url)
    await store.close()
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT t.table_name, bool_or(c.column_name = 'tenant') FROM information_schema.tables t"
            " JOIN information_schema.columns c USING (table_schema, table_name)"
            " WHERE t.table_schema = current_schema() GROUP BY 1"
        ).fetchall()
    assert {table for table, has_tenant in rows if not has_tenant} == {"cuebook_schema", "drivers", "slots"}


_FIRST = RUN.partition(", workspace")[0]
"""The columns of the first version."""


async def test_a_store_of_the_first_version_is_migrated(url: str) -> None:
    """Runs get their workspace from their first record, forks from the run that they come from."""
    with psycopg.connect(url) as connection:
        connection.execute(literal(f"CREATE SCHEMA {url.rpartition('%3D')[2]}"))
        connection.execute(literal(MIGRATIONS[0]))
        connection.execute("CREATE TABLE cuebook_schema (version integer NOT NULL)")
        connection.execute("INSERT INTO cuebook_schema VALUES (1)")
        values = "'local', 'me', 'test', 1, 'p', 'n', 1, 1, 'pending', '', '', '', '{}', NULL"
        for run, parent in (("one", ""), ("two", "one"), ("three", "")):
            query = f"INSERT INTO runs ({_FIRST}) SELECT %s, {values}, %s, 2, 0, ''"
            connection.execute(literal(query), (run, parent))
        begun = b'{"is":"RunStarted","inputs":{},"settings":{"workspace":"/srv/x"}}'
        for run, body in (("one", begun), ("three", b"purged:abc")):
            connection.execute(
                "INSERT INTO records SELECT key, 1, 'local', '', 'RunStarted', '', %s, '' FROM runs WHERE id = %s",
                (body, run),
            )
    store = PostgresStore(url)
    found = {row.id: (row.workspace, row.needs) for row in await store.runs()}
    await store.close()
    assert found == {"one": ("/srv/x", ()), "two": ("/srv/x", ()), "three": ("", ())}


async def test_a_read_that_is_cancelled_while_it_waits_for_a_connection_ends(url: str) -> None:
    """Even if the connection comes at the same moment."""
    database = Database(DatabaseUrl(url), size=1)
    for rounds in range(12):
        held, free = asyncio.Event(), asyncio.Event()

        async def hold(_: Any, held: asyncio.Event = held, free: asyncio.Event = free) -> None:
            held.set()
            await free.wait()

        async def read() -> None:
            await database.read("SELECT 1", ())
            await asyncio.Event().wait()

        holding = asyncio.create_task(database.use(hold))
        await held.wait()
        reading = asyncio.create_task(read())
        await asyncio.sleep(0.01)
        free.set()
        for _ in range(rounds):
            await asyncio.sleep(0)
        reading.cancel()
        done, _ = await asyncio.wait([reading], timeout=10)
        assert done, f"the cancellation after {rounds} rounds of the loop was lost"
        assert reading.cancelled()
        await holding
    await database.close()


# --- connections that carry nothing ------------------------------------------------------------------------


@pytest.fixture
async def behind(url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[PostgresStore, TcpProxy]]:
    """A store whose connections go through a proxy, and answers that are not waited for long."""
    monkeypatch.setattr("cuebook.stores.postgres.database.ANSWER", 0.5)
    monkeypatch.setattr("cuebook.stores.postgres.bus._CHECK_EVERY", 0.2)
    monkeypatch.setattr("cuebook.stores.postgres.store._SHORTEST_ANSWER", 0.5)
    monkeypatch.setattr(leases, "LEASE", 1.0)
    proxy = TcpProxy(server().port)
    store = PostgresStore(url.replace(f"127.0.0.1:{server().port}/", f"{proxy.host}:{proxy.port}/"))
    yield store, proxy
    await store.close()
    proxy.close()


async def test_connections_that_carry_nothing_are_replaced(behind: tuple[PostgresStore, TcpProxy], url: str) -> None:
    store, proxy = behind
    heard: list[Notice] = []
    await store.listen(heard.append)
    await create(store)
    held = await claim(store, driver="d1")
    await store.append(held.batch(*driven()))
    proxy.abandon()
    await asyncio.gather(store.heartbeat("d1", 0.0), store.append(held.batch(*driven())), store.waits())
    assert [record.seq async for record in store.records("run")] == [1, 2, 3]
    other = PostgresStore(url)
    heard.clear()

    async def hears() -> bool:
        await other.signal(Signal("run", "message", {}, "me"))
        return any(notice.kind == "ready" for notice in heard)

    await eventually(hears)
    await other.close()


async def test_a_lease_that_expired_while_the_database_was_out_of_reach_can_still_be_extended(
    behind: tuple[PostgresStore, TcpProxy], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver may have been out of reach as well."""
    store, proxy = behind
    await create(store)
    await claim(store, driver="d1")
    await beat(store, "d1", ELSEWHERE)
    execute(url, "UPDATE drivers SET lease = clock_timestamp() - interval '1 second'")
    assert await store.ready(0.0, "d2") == ["run"]
    monkeypatch.setattr(leases, "LEASE", 1e5)
    execute(url, "UPDATE drivers SET lease = pg_postmaster_start_time() - interval '1 hour'")
    with patch("cuebook.stores.postgres.operations.leases.LEASE", 0.0):
        assert await store.ready(0.0, "d2") == ["run"]
    proxy.reset()
    assert await store.ready(0.0, "d2") == []
    with pytest.raises(Busy):
        await store.claim("run", "d2", 0.0)


async def test_the_notices_of_a_store_are_for_those_who_can_read_its_tables(url: str, shared: PostgresStore) -> None:
    """They contain replies. Anyone who may connect to the database can listen to a channel whose name is known."""
    channel = shared._database.channel
    assert re.fullmatch(r"cuebook_[0-9a-f]{32}", channel)
    with server().schema() as another:
        neighbour = PostgresStore(another)
        assert neighbour._database.channel != channel
        await neighbour.close()
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS spy")
        admin.execute("CREATE ROLE spy LOGIN")
        try:
            with psycopg.connect(url, autocommit=True, user="spy") as spy:
                (schema,) = admin.execute("SHOW search_path").fetchone() or ("",)
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    spy.execute(f'SELECT channel FROM "{schema.strip(chr(34))}".cuebook_schema')
                (seen,) = spy.execute(
                    "SELECT count(*) FROM pg_stat_activity WHERE query LIKE %s", (f"%{channel[:20]}%",)
                ).fetchone() or (1,)
                assert seen == 0
        finally:
            admin.execute("DROP ROLE spy")
