"""The triggers of a person whose data is erased go with everything that they keep, and no others."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from cuebook.gate.roles import Principal
from cuebook.gate.standing_permissions import STANDING, Allowed
from cuebook.kernel.ports import Store
from cuebook.service.triggers.events import FileTrigger
from cuebook.service.triggers.permissions import Asking, Permissions
from cuebook.service.triggers.schedules import Schedule
from tests.service.triggers.test_events import Watched

ADMIN = Principal()
CANARY = "ZEBRACANARY77"


@pytest.fixture
def watched(store: Store, tmp_path: Path) -> Watched:
    return Watched(store, tmp_path)


async def stored(watched: Watched) -> str:
    """Everything that is stored about triggers."""
    jobs = [await watched.store.jobs(kind) for kind in (Schedule.KIND, FileTrigger.KIND)]
    return f"{jobs} {await watched.store.kept('local', STANDING)}"


async def allow(watched: Watched, trigger: Schedule) -> None:
    permissions = Permissions(watched.service, watched.triggers)
    asks = [Asking("1", "command ls", (Allowed("command", "ls", "1"),))]
    await permissions.give(trigger, "playbook", "policy", asks, ADMIN)


async def test_the_schedules_and_events_of_an_erased_person_are_removed(watched: Watched) -> None:
    await watched.service.add_user("ann", ["runner"])
    mine = await watched.add(name="mine")
    hers = await watched.add(name="hers", owner="ann", inputs={"CUP": CANARY})
    for one in (mine, hers):
        await allow(watched, one)
    await watched.trigger(FileTrigger, "inbox", folder=str(watched.inbox), since=0.0, mapping={"CUP": "file"})
    await watched.triggers.alter(FileTrigger, await watched.triggers.known(FileTrigger, "inbox", "local"), owned_by_ann)
    known = await watched.triggers.known(FileTrigger, "inbox", "local")
    await watched.events.event(known, "k", {"file": CANARY})

    retention = watched.service.retention
    planned = await retention.erase(ADMIN, owner="ann", dry_run=True)
    assert (sorted(planned.triggers), CANARY in await stored(watched)) == (["files:inbox", "schedule:hers"], True)
    assert sorted((await retention.erase(ADMIN, owner="ann")).triggers) == ["files:inbox", "schedule:hers"]
    left = await stored(watched)
    assert (CANARY in left, "ann" in left) == (False, False)
    assert [one.name for one in await watched.triggers.page(Schedule)] == ["mine"]
    assert list(await watched.store.kept("local", STANDING)) == ["schedule:mine"]
    act = (await watched.service.admin_audit.acts(ADMIN))[-1].act
    assert (act.what, act.details["triggers"]) == ("runs.erase", 2)


async def test_by_an_input_triggers_and_waiting_events_with_it_are_removed(watched: Watched) -> None:
    await watched.add(name="with", inputs={"CUP": CANARY})
    await watched.add(name="without", inputs={"CUP": "mug"})
    await watched.trigger(FileTrigger, "inbox", folder=str(watched.inbox), since=0.0, mapping={"CUP": "file"})
    for key, file in (("1", CANARY), ("2", "other")):
        known = await watched.triggers.known(FileTrigger, "inbox", "local")
        await watched.events.event(known, key, {"file": file})
    erased = await watched.service.retention.erase(ADMIN, inputs={"CUP": CANARY})
    assert erased.triggers == ["schedule:with"]
    assert CANARY not in await stored(watched)
    (waiting,) = (await watched.triggers.known(FileTrigger, "inbox", "local")).requested
    assert waiting.inputs == {"CUP": "other"}


def owned_by_ann(trigger: FileTrigger) -> FileTrigger:
    return msgspec.structs.replace(trigger, owner="ann")
