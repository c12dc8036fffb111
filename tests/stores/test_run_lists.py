"""Lists of runs: filters, and pages that neither repeat nor miss a run while others come and go."""

from __future__ import annotations

import random
import string

import pytest

from cuebook.kernel.ports import Removal, RunFilter, RunMark, Store
from cuebook.kernel.run import RunRow
from tests.support.programs import new_row
from tests.support.records import claim, create, driven, ids, wait_row

_NAMES = ("daily/report.md", "Release.md", "Zürich.md", "50%_off.md")
_OWNERS = ("ann", "bob", "Carla")
_TRIGGERS = ("", "schedule:nightly", "schedule:Weekly", "webhook:github", "mcp", "token")


async def made(store: Store, number: int, **fields: object) -> RunRow:
    row = new_row(_NAMES[number % len(_NAMES)], f"run{number:03}")
    row.created, row.owner = float(number // 2), _OWNERS[number % len(_OWNERS)]
    row.trigger = _TRIGGERS[number % len(_TRIGGERS)]
    for name, value in fields.items():
        setattr(row, name, value)
    await create(store, row.id, row)
    return row


async def paged(store: Store, size: int, which: RunFilter) -> list[str]:
    found: list[str] = []
    part = which.copy()
    while rows := await store.runs(limit=size, **part):
        found += ids(rows)
        part["before"] = RunMark(rows[-1].created, rows[-1].id)
    return found


def removal(row: RunRow) -> Removal:
    return Removal(
        run=row.id, tenant=row.tenant, what="deleted", name="", created=row.created, status="", by="me", at=1.0
    )


@pytest.mark.parametrize(
    ("which", "numbers"),
    [
        ({"owner": "ann"}, {0, 3, 6, 9}),
        ({"visible": ["ann", "bob"]}, {0, 1, 3, 4, 6, 7, 9, 10}),
        ({"visible": ["ann", "bob"], "owner": "Carla"}, set()),
        ({"visible": []}, set()),
        ({"visible": ["bob"], "shown": ["run000", "gone"]}, {0, 1, 4, 7, 10}),
        ({"visible": [], "shown": ["run000", "run002"], "until": 1.0}, {0}),
        ({"visible": ["bob"], "shown": []}, {1, 4, 7, 10}),
        ({"name": "Release.md"}, {1, 5, 9}),
        ({"name": "release.md"}, set()),
        ({"names": ["Release.md", "50%_off.md"], "owner": "ann"}, {3, 9}),
        ({"since": 2.0}, set(range(4, 12))),
        ({"until": 2.0}, set(range(4))),
        ({"since": 2.0, "until": 3.0}, {4, 5}),
        ({"trigger": "schedule:nightly"}, {1, 7}),
        ({"trigger": "schedule"}, {1, 2, 7, 8}),
        ({"trigger": "sched"}, set()),
        ({"trigger": "mcp"}, {4, 10}),
        ({"trigger": ""}, {0, 6}),
        ({"words": ["RELEASE"]}, {1, 5, 9}),
        ({"words": ["weekly"]}, {2, 8}),
        ({"words": ["carla"]}, {2, 5, 8, 11}),
        ({"words": ["zürich"]}, {2, 6, 10}),
        ({"words": ["ZÜRICH"]}, set()),
        ({"words": ["%"]}, {3, 7, 11}),
        ({"words": ["0_"]}, set()),
        ({"words": ["run01"]}, {10, 11}),
        ({"words": ["un01"]}, set()),
        ({"words": ["release", "ann"]}, {9}),
        ({"status": ["pending"], "owner": "bob", "trigger": "webhook"}, set()),
        ({"status": ["completed"]}, set()),
        ({"status": ["completed"], "among": ["run004", "gone"]}, {4}),
        ({"among": ["run004", "run003"], "owner": "ann"}, {3}),
        ({"among": []}, set()),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
async def test_runs_are_found_by_everything_that_a_list_shows(
    store: Store, which: RunFilter, numbers: set[int]
) -> None:
    for number in range(12):
        await made(store, number)
    expected = [f"run{number:03}" for number in sorted(numbers, reverse=True)]
    assert ids(await store.runs(limit=None, **which)) == expected
    assert await paged(store, 2, which) == expected


async def test_a_page_follows_the_last_one_although_runs_are_added_and_removed(store: Store) -> None:
    rows = [await made(store, number, created=1.0) for number in range(6)]
    first = await store.runs(limit=2)
    assert ids(first) == ["run005", "run004"], "of runs with the same time, the last one that was added comes first"
    await made(store, 6, created=1.0)
    await made(store, 7, created=9.0)
    await store.remove([removal(rows[4])], force=True)
    second = await store.runs(limit=2, before=RunMark(first[-1].created, first[-1].id))
    assert ids(second) == ["run003", "run002"]
    assert ids(await store.runs(before=RunMark(1.0, "unknown"))) == [], "nothing is older"


async def test_random_filters_find_the_same_page_by_page_as_at_once(store: Store) -> None:
    chance = random.Random(7)
    for number in range(60):
        owner, name = chance.choice(string.ascii_lowercase[:3]), chance.choice(["a.md", "b.md", "ab.md"])
        await made(store, number, owner=owner, name=name, created=float(chance.randrange(8)))
    for _ in range(25):
        which: RunFilter = {}
        if chance.random() < 0.5:
            which["visible"] = chance.sample("abc", 2)
        if chance.random() < 0.5:
            which["words"] = [chance.choice("abc")]
        if chance.random() < 0.5:
            which["since"] = float(chance.randrange(8))
        whole = ids(await store.runs(limit=None, **which))
        assert await paged(store, chance.randrange(1, 7), which) == whole


async def test_the_tenants_that_have_runs_are_known(store: Store) -> None:
    assert await store.tenants_with_runs() == []
    for number, tenant in enumerate(["there", "here", "there", ""]):
        await made(store, number, tenant=tenant)
    assert await store.tenants_with_runs() == ["", "here", "there"]


async def test_waits_are_those_of_visible_owners(store: Store) -> None:
    await create(store)
    opened = [wait_row("hers", owner="ann"), wait_row("his", owner="bob", opened=2.0)]
    await store.append((await claim(store)).batch(*driven(), opened=opened))
    assert ids(await store.waits(tenant="here", visible=["bob"])) == ["his"]
    assert ids(await store.waits(tenant="here", visible=["ann", "bob"], kinds=["question"])) == ["hers", "his"]


async def test_marks_of_waits_say_whose_they_are_and_whom_they_name(store: Store) -> None:
    await create(store)
    asked = {"rule": {"by": ["role:approver"], "votes": 2}, "by": ["bob"], "cause": "x" * 100}
    opened = [wait_row("later", owner="ann", opened=2.0), wait_row("first", owner="bob", opened=1.0, details=asked)]
    await store.append((await claim(store)).batch(*driven(), opened=opened))
    first, later = await store.wait_marks("here", ["question"])
    assert (first.id, first.owner, first.details.rule["by"], first.details.by) == (
        "first", "bob", ["role:approver"], ["bob"],
    )  # fmt: skip
    assert (later.id, later.run, later.details.rule, list(later.details.by)) == ("later", first.run, {}, [])
    assert await store.wait_ids("here", ["question"]) == ["first", "later"]
    assert await store.wait_marks("here", ["approval"]) == await store.wait_marks("there", ["question"]) == []
