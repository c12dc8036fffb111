"""What is counted from the events of runs, and what a scrape of it says."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.kernel.context import Text
from cuebook.kernel.errors import StoreError
from cuebook.kernel.events import (
    AnyEvent,
    Driven,
    ModelAsked,
    Noted,
    Performed,
    RunFinished,
    RunStarted,
    StepFinished,
    WaitClosed,
    WaitOpened,
)
from cuebook.kernel.journal import Entry, Place
from cuebook.kernel.outcomes import CommandResult, Failed, Reply, Usage
from cuebook.kernel.ports import Job, Store, Tally
from cuebook.kernel.run import RunRow
from cuebook.service.insight.meters import MOST_PLAYBOOKS, Meters
from cuebook.service.insight.metrics import Metrics, time_commits
from cuebook.stores.memory import MemoryStore
from tests.service.insight.scraped import Scraped
from tests.support.programs import new_row
from tests.support.records import claim, create


class Watched:
    """Meters that see events by hand."""

    def __init__(self, store: Store | None = None) -> None:
        self.row: RunRow | None = new_row("hand", "r1")
        self.row.name = "tea.md"
        self.meters = Meters(lambda run: self.row)
        self.store = store or MemoryStore()
        self.metrics = Metrics(self.meters, self.store, "1.2.3")

    def see(self, *events: AnyEvent, at: float = 0.0, attempt: int = 1) -> None:
        for event in events:
            self.meters.see(Entry("r1", 1, at, Place("", "s", 1, 0, attempt), event))

    async def scraped(self) -> Scraped:
        return Scraped((await self.metrics.text()).decode())


def asked(**more: Any) -> ModelAsked:
    return ModelAsked("lab/small", "", Text("Say it."), "AskModel", **more)


def reply(usage: Usage) -> Performed:
    return Performed(Reply(Text("Said."), model="lab/small", usage=usage), "AskModel")


async def test_a_run_is_counted_from_its_start_to_its_end() -> None:
    watched = Watched()
    watched.see(RunStarted(inputs={}, run="r1", name="tea.md", trigger="schedule:nightly"), Driven("d1"))
    watched.see(asked(), at=10.0)
    watched.see(reply(Usage(100, 20, 30, 5, cost=0.25, origin="reported")), at=12.0)
    watched.see(Performed(CommandResult(0), "RunCommand ls"), Performed(Failed("timeout", "Late."), "RunCommand ls"))
    watched.see(StepFinished("s", seconds=2.0), StepFinished("t", "failed"))
    watched.see(WaitOpened("w1", "approval", "May I?", "a"), WaitClosed("w1", "answered", "approval"))
    watched.see(RunFinished("completed"))
    scraped = await watched.scraped()
    assert scraped.value("cuebook_runs_started_total", playbook="tea.md", trigger="schedule") == 1
    assert scraped.value("cuebook_runs_ended_total", playbook="tea.md", status="completed") == 1
    assert scraped.value("cuebook_drives_total") == 1
    assert scraped.value("cuebook_effects_total", kind="AskModel", outcome="done") == 1
    assert scraped.value("cuebook_effects_total", kind="RunCommand", outcome="failed") == 1
    assert scraped.value("cuebook_effect_seconds_sum", kind="AskModel") == 2.0
    assert scraped.value("cuebook_effect_seconds_bucket", kind="AskModel", le="1.0") == 0
    assert scraped.value("cuebook_effect_seconds_bucket", kind="AskModel", le="2.5") == 1
    assert scraped.value("cuebook_steps_total", status="failed") == 1
    assert scraped.value("cuebook_model_tokens_total", model="lab/small", type="input") == 100
    assert scraped.value("cuebook_model_tokens_total", type="reasoning") == 5
    assert scraped.value("cuebook_model_cost_dollars_total", model="lab/small") == 0.25
    assert scraped.value("cuebook_model_unknown_costs_total") is None
    assert scraped.value("cuebook_waits_closed_total", kind="approval", how="answered") == 1
    assert scraped.documented


async def test_an_unknown_cost_is_counted_apart_and_never_as_zero() -> None:
    watched = Watched()
    watched.see(asked(), reply(Usage(1, 1)))
    watched.see(asked(), attempt=2)  # the outcome of the first attempt was lost
    watched.see(asked(free=True), attempt=2)
    scraped = await watched.scraped()
    assert scraped.value("cuebook_model_unknown_costs_total", model="lab/small") == 2
    assert scraped.value("cuebook_model_cost_dollars_total") is None


async def test_the_tokens_of_a_refused_reply_count() -> None:
    watched = Watched()
    used = {"usage": {"input": 7, "output": 3, "cost": 0.5}, "model": "lab/small"}
    watched.see(asked(), Performed(Failed("model_refused", "No.", details=used), "AskModel"))
    scraped = await watched.scraped()
    assert scraped.value("cuebook_model_tokens_total", model="lab/small") == 10
    assert scraped.value("cuebook_effects_total", kind="AskModel", outcome="failed") == 1


async def test_attempts_are_counted_by_provider_and_reason() -> None:
    watched = Watched()
    about = {"number": 2, "of": 5, "reason": "Busy.", "kind": "overloaded", "model": "lab/small"}
    watched.see(Noted("model_attempt", about), Noted("model_fallback", {"model": "lab/small", "to": "b/c"}))
    watched.see(Noted("model_waiting", {"provider": "lab", "at_once": 2}), Noted("anything", {"model": "x/y"}))
    scraped = await watched.scraped()
    assert scraped.value("cuebook_model_attempts_failed_total", provider="lab", reason="overloaded") == 1
    assert scraped.value("cuebook_model_fallbacks_total", provider="lab") == 1
    assert scraped.value("cuebook_model_calls_limited_total", provider="lab") == 1


async def test_labels_have_few_values_and_never_a_run_or_a_person() -> None:
    watched = Watched()
    for number in range(3 * MOST_PLAYBOOKS):
        event = RunStarted(inputs={}, run=f"run-{number}", owner="ada", tenant="acme", name=f"book-{number}.md")
        watched.see(event)
    text = (await watched.metrics.text()).decode()
    scraped = Scraped(text)
    assert len(scraped.labels("playbook")) == MOST_PLAYBOOKS + 1
    assert scraped.value("cuebook_runs_started_total", playbook="other") == 2 * MOST_PLAYBOOKS
    assert not [word for word in ("run-", "ada", "acme") if word in text]


async def test_a_name_cannot_break_the_format() -> None:
    watched = Watched()
    name = 'a"} 1\ncuebook_made_up 7\\'
    watched.see(RunStarted(inputs={}, run="r1", name=name))
    scraped = await watched.scraped()
    assert scraped.labels("playbook") == {name}
    assert scraped.value("cuebook_made_up") is None


async def test_the_store_and_the_process_are_measured(store: Store) -> None:
    watched = Watched(store)
    time_commits(store, watched.meters)
    await create(store, "r1")
    await create(store, "r2")
    writer = await claim(store, "r1")
    await store.append(writer.batch(Driven("d1")))
    await store.put_job(Job(tenant="local", kind="schedule", name="one", due=store.now() - 60))
    scraped = await watched.scraped()
    assert scraped.value("cuebook_store_up") == 1
    assert scraped.value("cuebook_runs", status="pending") in (1, 2)
    assert scraped.value("cuebook_runs", status="failed") == 0, "a status without runs is there, for alerts"
    assert scraped.value("cuebook_runs_queued") == 1
    assert scraped.value("cuebook_jobs_due", kind="schedule") == 1
    assert (scraped.value("cuebook_jobs_late_seconds", kind="schedule") or 0) >= 60
    assert scraped.value("cuebook_store_commit_seconds_count") == 1
    assert scraped.value("cuebook_info", version="1.2.3") == 1
    assert scraped.value("process_resident_memory_bytes")


async def test_a_store_that_does_not_answer_is_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()

    async def tally(now: float) -> Tally:
        raise StoreError("It is locked.")

    monkeypatch.setattr(watched.store, "tally", tally)
    watched.see(Driven("d1"))
    scraped = await watched.scraped()
    assert scraped.value("cuebook_store_up") == 0
    assert scraped.value("cuebook_runs") is None
    assert scraped.value("cuebook_drives_total") == 1


async def test_many_scrapes_count_the_store_once(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    counted: list[float] = []
    tally = watched.store.tally

    async def noticed(now: float) -> Tally:
        counted.append(now)
        return await tally(now)

    monkeypatch.setattr(watched.store, "tally", noticed)
    for _ in range(5):
        await watched.metrics.text()
    assert len(counted) == 1
