"""Budgets of people and playbooks: what fits is done, and what does not fit waits, in one process and in several."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cuebook.gate.roles import NotAllowed, Principal
from cuebook.kernel.effects import AskModel
from cuebook.kernel.engine import allowance
from cuebook.kernel.errors import BadInput, NotFound, Refused
from cuebook.kernel.ports import Estimate, Store
from cuebook.kernel.run import Settings, WaitRow
from cuebook.service.worker import Worker
from tests.service.budgets.spenders import ADMIN, Clock, Noting, Priced, spend, spender
from tests.support.shared_stores import SharedStore, open_shared

PAUSED = "paused budget"


class Exact(Priced):
    """A model whose calls use the maximum."""

    def estimate(self, effect: AskModel, settings: Settings) -> Estimate:
        return Estimate(10, 40, self.most)


async def pause(store: Store) -> WaitRow:
    (wait,) = await store.waits(kinds=("budget",))
    return wait


async def drive(service: Noting, run: str) -> str:
    row = await service._engine.drive(run)
    return f"{row.status} {row.reason}".strip()


async def test_a_run_waits_when_the_most_a_call_may_cost_no_longer_fits(store: Store, tmp_path: Path) -> None:
    model = Priced(cost=1.0, most=2.0)
    service = spender(store, tmp_path, model, Clock())
    await service.budgets.set("person:ann", {"day": 3.5}, ADMIN)
    assert await spend(service, "run", n=4) == PAUSED
    assert len(model.calls) == 2
    wait = await pause(store)
    assert wait.prompt == (
        "The budget 'person:ann' is spent: ann used $2.0000 of $3.5000 on 2026-03-10. The next call may use up to"
        " $2.0000. The run continues at 2026-03-11 00:00 UTC."
    )
    ends = service.calendar.end("day", "2026-03-10")
    assert (wait.details["budget"], wait.details["until"]) == ("person:ann", ends)
    assert wait.expires is not None
    assert ends <= wait.expires < ends + 1
    assert await spend(service, "other", owner="bob", n=4) == "completed"


async def test_the_first_budget_limits_the_next_call_at_once(store: Store, tmp_path: Path) -> None:
    service = spender(store, tmp_path, Priced(), Clock())
    assert await spend(service, "before") == "completed"
    await service.budgets.set("all", {"day": 1.0}, ADMIN)
    assert await spend(service, "run") == PAUSED


async def test_a_call_that_is_larger_than_the_whole_limit_is_not_promised_to_fit_later(
    store: Store, tmp_path: Path
) -> None:
    clock = Clock()
    service = spender(store, tmp_path, Priced(cost=1.0, most=2.0), clock)
    await service.budgets.set("person:ann", {"day": 1.5}, ADMIN)
    assert await spend(service, "run") == PAUSED
    said = (
        "The next call may use up to $2.0000, which never fits in the budget 'person:ann' of $1.5000 a day. Waiting does"
        " not change that: raise it with `cuebook budget set --person 'ann'`, or let this run continue with"
        " `cuebook budget allow`."
    )
    assert (await pause(store)).prompt == said
    clock.set("2026-03-11 00:00")
    await service.expire()
    assert await drive(service, "run") == PAUSED
    assert (await pause(store)).prompt == said
    await service.budgets.set("person:ann", {"day": 2.0}, ADMIN)
    assert await drive(service, "run") == "completed"


async def test_it_continues_when_the_day_is_over_and_not_before(store: Store, tmp_path: Path) -> None:
    clock = Clock()
    service = spender(store, tmp_path, Priced(), clock)
    await service.budgets.set("all", {"day": 2.0}, ADMIN)
    assert await spend(service, "run", n=2) == PAUSED
    assert await drive(service, "run") == PAUSED
    clock.set("2026-03-11 00:00")
    await service.expire()
    assert await drive(service, "run") == "completed"


async def test_a_worker_continues_it_when_the_day_is_over(store: Store, tmp_path: Path) -> None:
    clock = Clock()
    service = spender(store, tmp_path, Priced(), clock)
    await service.budgets.set("all", {"day": 2.0}, ADMIN)
    assert await spend(service, "run", n=2) == PAUSED
    worker = Worker(service, "", every=0.02)
    await worker.open()
    clock.set("2026-03-11 00:01")
    async with asyncio.timeout(20):
        while (await store.run("run")).status != "completed":
            await asyncio.sleep(0.01)
    await worker.close()


async def test_a_month_ends_in_its_own_time_zone(store: Store, tmp_path: Path) -> None:
    clock = Clock("2026-03-31 23:30", "Europe/Berlin")
    service = spender(store, tmp_path, Priced(), clock, "Europe/Berlin")
    await service.budgets.set("all", {"month": 2.0}, ADMIN)
    assert await spend(service, "run", n=2) == PAUSED
    assert (await pause(store)).prompt.endswith("The run continues at 2026-04-01 00:00 Europe/Berlin.")
    clock.set("2026-04-01 00:01")
    await service.expire()
    assert await drive(service, "run") == "completed"
    (state,) = await service.budgets.listed(ADMIN)
    assert (state.limits[0].name, state.limits[0].used.cost) == ("2026-04", 1.0)


async def test_a_larger_budget_continues_the_runs_that_waited_for_it(store: Store, tmp_path: Path) -> None:
    service = spender(store, tmp_path, Priced(), Clock())
    await service.budgets.set("person:*", {"day": 2.0}, ADMIN)
    assert await spend(service, "ann", n=2) == PAUSED
    assert await spend(service, "bob", owner="bob", n=2) == PAUSED
    assert (await service.budgets.paused(ADMIN)) == {"person:*": ["ann", "bob"]}
    assert (await service.budgets.set("person:*", {"day": 1.0}, ADMIN))[1] == []
    assert (await service.budgets.set("person:bob", {"day": 9.0}, ADMIN))[1] == ["bob"]  # `*` no longer means bob
    assert await drive(service, "bob") == "completed"
    assert (await service.budgets.set("person:*", {"day": 9.0}, ADMIN))[1] == ["ann"]
    assert await drive(service, "ann") == "completed"


async def test_removing_a_budget_continues_its_runs(store: Store, tmp_path: Path) -> None:
    service = spender(store, tmp_path, Priced(), Clock())
    await service.budgets.set("playbook:talking", {"day_tokens": 120}, ADMIN)
    assert await spend(service, "run", n=2) == PAUSED
    assert "50 of 120 tokens on 2026-03-10. The next call may use up to 100 tokens." in (await pause(store)).prompt
    assert await service.budgets.remove("playbook:talking", ADMIN) == ["run"]
    assert await drive(service, "run") == "completed"
    with pytest.raises(NotFound, match="no budget 'playbook:talking'"):
        await service.budgets.remove("playbook:talking", ADMIN)


async def test_an_approver_lets_one_run_go_on_and_its_use_still_counts(store: Store, tmp_path: Path) -> None:
    clock, approver = Clock(), Principal("eve", roles=frozenset({"approver"}))
    service = spender(store, tmp_path, Priced(), clock)
    await service.budgets.set("all", {"day": 2.0}, ADMIN)
    assert await spend(service, "run", n=3) == PAUSED
    with pytest.raises(NotAllowed, match="requires the role approver"):
        await service.budgets.allow("run", Principal("ann", roles=frozenset({"runner"})))
    (release,) = await service.budgets.allow("run", approver, reason="the demo")
    assert (release.budget, release.until) == ("all", service.calendar.end("day", "2026-03-10"))
    assert await drive(service, "run") == "completed"
    (state,) = await service.budgets.listed(ADMIN)
    assert state.limits[0].used.cost == 3.0
    assert await spend(service, "other") == PAUSED
    with pytest.raises(Refused, match="does not wait for a budget"):
        await service.budgets.allow("run", approver)
    acts = [one.act for one in await service.admin_audit.acts(ADMIN)]
    assert [(act.what, act.subject, act.by) for act in acts] == [
        ("budget.set", "all", "boss"), ("budget.allow", "all", "eve")
    ]  # fmt: skip
    assert acts[1].details["reason"] == "the demo"


async def test_what_another_process_allows_or_raises_holds_at_once(shared_store: SharedStore, tmp_path: Path) -> None:
    other = open_shared(tmp_path)
    service, elsewhere = (spender(one, tmp_path, Priced(), Clock()) for one in (shared_store, other))
    await service.budgets.set("all", {"day": 1.0}, ADMIN)
    assert await spend(service, "allowed", n=2) == PAUSED
    assert await spend(service, "raised", n=2) == PAUSED
    await elsewhere.budgets.allow("allowed", ADMIN)
    assert await drive(service, "allowed") == "completed"
    await elsewhere.budgets.set("all", {"day": 9.0}, ADMIN)
    assert await drive(service, "raised") == "completed"
    await other.close()


async def test_a_process_for_which_it_is_still_yesterday_is_counted_in_the_month(
    shared_store: SharedStore, tmp_path: Path
) -> None:
    other, early, late = open_shared(tmp_path), Clock("2026-03-10 23:59"), Clock("2026-03-11 00:00")
    model = Priced(cost=1.0, most=1.0)
    service, behind = spender(shared_store, tmp_path, model, late), spender(other, tmp_path, model, early)
    await service.budgets.set("all", {"month": 2.0}, ADMIN)
    assert await spend(service, "first") == "completed"
    assert await spend(behind, "second") == "completed"
    assert await spend(service, "third") == PAUSED
    await other.close()


async def test_a_release_is_over_with_the_period(store: Store, tmp_path: Path) -> None:
    clock = Clock()
    service = spender(store, tmp_path, Priced(), clock)
    await service.budgets.set("all", {"day": 2.0}, ADMIN)
    assert await spend(service, "run", n=4) == PAUSED
    await service.budgets.allow("run", ADMIN)
    clock.set("2026-03-11 09:00")
    assert await drive(service, "run") == PAUSED  # one call fits on the next day
    assert (await pause(store)).prompt.startswith(
        "The budget 'all' is spent: All runs used $1.0000 of $2.0000 on 2026-03-11"
    )


@pytest.mark.parametrize("limit", [{"day": 10.0}, {"day_tokens": 500}])
async def test_runs_at_once_in_several_processes_never_use_more(
    shared_store: SharedStore, tmp_path: Path, limit: dict[str, Any]
) -> None:
    """Each call uses its maximum, so that any call too many would exceed the budget."""
    stores = [shared_store, open_shared(tmp_path), open_shared(tmp_path)]
    models = [Exact(cost=2.0, most=2.0) for _ in stores]
    services = [spender(one, tmp_path, model) for one, model in zip(stores, models, strict=True)]
    await services[0].budgets.set("all", limit, ADMIN)
    statuses = await asyncio.gather(
        *(spend(services[number % 3], f"run{number}", n=2, owner=f"p{number}") for number in range(9))
    )
    (state,) = await services[0].budgets.listed(ADMIN)
    used = state.limits[0].used
    assert (used.cost, used.tokens) == ((10.0, 250) if "day" in limit else (20.0, 500))
    assert abs(used.held) < 1e-9
    assert sum(len(model.calls) for model in models) == used.calls
    assert PAUSED in statuses
    for one in stores[1:]:
        await one.close()


async def test_what_is_left_while_calls_are_in_progress_is_waited_for(store: Store, tmp_path: Path) -> None:
    """A call does not pause the run if only what is set aside for another stands in its way."""
    model, asked, answer = Priced(cost=1.0, most=2.0), asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        asked.set()
        await answer.wait()

    model.before = slowly
    service = spender(store, tmp_path, model, Clock())
    await service.budgets.set("all", {"day": 3.0}, ADMIN)
    first = asyncio.create_task(spend(service, "first"))
    await asked.wait()
    second = asyncio.create_task(spend(service, "second"))
    while not await store.runs():
        await asyncio.sleep(0)
    answer.set()
    assert {*await asyncio.gather(first, second)} == {"completed"}


async def test_a_paused_run_continues_when_a_call_used_less_than_was_set_aside(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allowance, "PATIENCE", 0.0)
    model, asked, answer = Priced(cost=1.0, most=2.0), asyncio.Event(), asyncio.Event()

    async def slowly() -> None:
        asked.set()
        await answer.wait()

    model.before = slowly
    service = spender(store, tmp_path, model, Clock())
    await service.budgets.set("all", {"day": 3.5}, ADMIN)
    first = asyncio.create_task(spend(service, "first"))
    await asked.wait()
    assert [await spend(service, name) for name in ("second", "third")] == [PAUSED, PAUSED]
    answer.set()
    assert await first == "completed"
    assert [wait.run for wait in await store.waits(kinds=("budget",))] == ["third"]
    assert await drive(service, "second") == "completed"
    assert [wait.run for wait in await store.waits(kinds=("budget",))] == ["third"]  # 2 are used, and it may need 2


async def test_a_lost_call_stays_set_aside_and_unknown(
    shared_store: SharedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was killed while it was in progress: nobody knows what it cost, and it never counts as nothing."""
    monkeypatch.setattr(allowance, "PATIENCE", 0.0)
    model, asked = Priced(cost=1.0, most=2.0), asyncio.Event()

    async def forever() -> None:
        asked.set()
        await asyncio.Event().wait()

    model.before = forever
    service = spender(shared_store, tmp_path, model, Clock())
    await service.budgets.set("all", {"day": 3.5}, ADMIN)
    driving = asyncio.create_task(spend(service, "run"))
    await asked.wait()
    driving.cancel()
    await asyncio.gather(driving, return_exceptions=True)
    model.before = None
    assert await drive(service, "run") == PAUSED
    wait = await pause(shared_store)
    assert "All runs used $0 and up to $2.0000 of unknown cost of $3.5000" in wait.prompt
    (state,) = await service.budgets.listed(ADMIN)
    assert (state.limits[0].money_left, state.limits[0].used.unknown_costs) == (1.5, 1)


async def test_a_model_without_a_price_is_not_called_under_a_limit_of_money(store: Store, tmp_path: Path) -> None:
    model = Priced(cost=None, most=None)
    service = spender(store, tmp_path, model, Clock())
    await service.budgets.set("all", {"day": 2.0}, ADMIN)
    assert await spend(service, "run", n=2) == PAUSED
    assert (await pause(store)).prompt == (
        "The budget 'all' limits the money of all runs, and the price of lab/one is unknown."
    )
    assert model.calls == []
    assert (await service.budgets.set("all", {"unknown_cost": True}, ADMIN))[1] == ["run"]
    assert await drive(service, "run") == "completed"
    (state,) = await service.budgets.listed(ADMIN)
    assert (state.limits[0].used.cost, state.limits[0].used.unknown_costs) == (0.0, 2)


async def test_a_model_that_costs_nothing_is_only_limited_by_tokens(store: Store, tmp_path: Path) -> None:
    service = spender(store, tmp_path, Priced(cost=0.0, most=0.0), Clock())
    await service.budgets.set("all", {"day": 0.0}, ADMIN)
    assert await spend(service, "run", n=3) == "completed"
    await service.budgets.set("all", {"day": None, "day_tokens": 170}, ADMIN)
    assert await spend(service, "next", n=3) == PAUSED


async def test_marks_notify_once_in_each_period(store: Store, tmp_path: Path) -> None:
    clock = Clock()
    service = spender(store, tmp_path, Priced(), clock)
    await service.budgets.set("person:ann", {"day": 4.0, "soft": 0.5}, ADMIN)
    assert await spend(service, "run", n=4) == PAUSED
    assert await spend(service, "again") == PAUSED
    said = [(job.body["what"], job.body["owner"], job.body["text"]) for job in service.told]
    assert said[0] == ("budget", "ann", "ann used $2.0000 of $4.0000 on 2026-03-10.")
    assert said[1][2].endswith("Run run is paused.")
    assert len(said) == 2
    clock.set("2026-03-11 08:00")
    assert await spend(service, "tomorrow", n=2) == "completed"
    assert [job.body["text"] for job in service.told][2:] == ["ann used $2.0000 of $4.0000 on 2026-03-11."]


async def test_a_paused_run_is_cancelled_or_deleted_like_any_other(store: Store, tmp_path: Path) -> None:
    service = spender(store, tmp_path, Priced(), Clock())
    await service.budgets.set("all", {"day": 2.0}, ADMIN)
    assert await spend(service, "run", n=2) == PAUSED
    await service.cancel("run", who=ADMIN)
    assert (await drive(service, "run")).startswith("cancelled")
    await service.retention.delete("run", ADMIN)
    (state,) = await service.budgets.listed(ADMIN)
    assert state.limits[0].used.cost == 1.0


async def test_a_deleted_run_and_an_erased_person_leave_no_permissions_and_no_marks(
    store: Store, tmp_path: Path
) -> None:
    service = spender(store, tmp_path, Priced(), Clock())
    await service.budgets.set("person:*", {"day": 2.0, "soft": 0.1}, ADMIN)
    for owner in ("ann", "joann"):
        assert await spend(service, owner, owner=owner, n=2) == PAUSED
        await service.budgets.allow(owner, ADMIN, reason="the demo")
        assert await drive(service, owner) == "completed"
    await service.retention.delete("joann", ADMIN)
    assert [name.split()[0] for name in await store.kept("local", "budget_release")] == ["ann"]
    await service.retention.erase(ADMIN, owner="ann")
    assert await store.kept("local", "budget_release") == {}
    marks = await store.kept("local", "budget_mark")
    assert sorted(marks) == ["person:* joann day hard", "person:* joann day soft"]


async def test_before_a_run_its_person_hears_that_a_budget_is_spent(store: Store, tmp_path: Path) -> None:
    ann = Principal("ann", roles=frozenset({"runner"}))
    service = spender(store, tmp_path, Priced(), Clock())
    await service.budgets.set("playbook:talking", {"month": 1.0}, ADMIN)
    assert await service.budgets.warnings("talking", ann) == []
    await spend(service, "run", settings={})
    await service.budgets.set("playbook:talking", {"month": 2.0}, ADMIN)
    await drive(service, "run")
    await service.budgets.set("playbook:talking", {"month": 1.0}, ADMIN)
    assert await service.budgets.warnings("talking", ann) == [
        "The budget 'playbook:talking' is spent: The playbook talking used $1.0000 of $1.0000 in 2026-03."
        " Model calls that cost money wait until 2026-04-01 00:00 UTC."
    ]
    assert await service.budgets.warnings("other", ann) == []


async def test_people_see_their_own_budgets_and_only_admins_set_them(store: Store, tmp_path: Path) -> None:
    service, ann = spender(store, tmp_path, Priced(), Clock()), Principal("ann", roles=frozenset({"runner"}))
    for name in ("all", "person:*", "person:bob", "playbook:talking"):
        await service.budgets.set(name, {"month": 5.0}, ADMIN)
    assert [one.budget.name for one in await service.budgets.listed(ADMIN)] == [
        "all", "person:*", "person:bob", "playbook:talking"
    ]  # fmt: skip
    assert [one.budget.name for one in await service.budgets.listed(ann)] == ["person:*"]
    with pytest.raises(NotAllowed, match="requires the role admin"):
        await service.budgets.set("person:ann", {"month": 50.0}, ann)
    with pytest.raises(NotAllowed, match="requires the role admin"):
        await service.budgets.remove("all", ann)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("all", {"month": -1.0}, "must be 0 or more"),
        ("all", {"soft": 1.5, "day": 1.0}, "between 0% and 100%"),
        ("all", {"soft": 0.5}, "needs a limit"),
        ("team:x", {"day": 1.0}, "not the name of a budget"),
        ("all", {"week": 1.0}, "has no 'week'"),
    ],
)
async def test_a_budget_that_makes_no_sense_is_refused(
    file_store: Store, tmp_path: Path, name: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        await spender(file_store, tmp_path, Priced()).budgets.set(name, changes, ADMIN)
