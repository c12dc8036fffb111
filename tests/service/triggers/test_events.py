"""Files that change and runs that are completed fire their triggers, once each."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from cuebook.config.settings import Rate
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Store
from cuebook.kernel.run import Settings
from cuebook.service.job_runner import JobRunner
from cuebook.service.triggers import Target
from cuebook.service.triggers.events import EVENT_TRIGGERS, AfterTrigger, Events, EventTrigger, FileTrigger
from cuebook.service.triggers.watchers import Completions, FileWatch, check_folder
from tests.service.triggers.scheduled import TEA, Clocked, at
from tests.support.programs import eventually


class Watched(Clocked):
    """Triggers on a store with the real clock."""

    def __init__(self, store: Store, folder: Path) -> None:
        now = store.now
        super().__init__(store, folder, "2026-03-02 05:30")
        store.now = now  # type: ignore[method-assign]
        self.events = Events(self.triggers)
        self.runner = JobRunner(store, {one.KIND: self.events.handle for one in EVENT_TRIGGERS})
        self.completions = Completions(self.service, self.events, self.triggers)
        self.inbox = folder / "inbox"
        self.inbox.mkdir()

    async def trigger(self, kind: type[EventTrigger], name: str = "tea", **given: Any) -> EventTrigger:
        target = Target(str(self.book), given.pop("playbook", "tea.md"))
        created = given.pop("created", self.store.now() - 1)
        made = kind(tenant="local", name=name, owner="local", target=target, created=created, **given)
        return await self.triggers.add(made)

    async def files(self, **given: Any) -> FileWatch:
        given = {"since": self.store.now() - 1, "overlap": "queue", "mapping": {"CUP": "file"}, **given}
        trigger = await self.trigger(FileTrigger, folder=str(self.inbox), **given)
        assert isinstance(trigger, FileTrigger)
        return FileWatch(self.events, self.triggers, trigger)

    async def requested(self, name: str = "tea") -> list[Any]:
        return [one.inputs.get("CUP") for one in (await self.triggers.known(FileTrigger, name, "local")).requested]


@pytest.fixture
def watched(store: Store, tmp_path: Path) -> Watched:
    return Watched(store, tmp_path)


# --- files ---


async def test_a_file_fires_once_in_all_processes_and_again_when_it_changes(watched: Watched) -> None:
    here = await watched.files(pattern="*.csv")
    there = FileWatch(watched.events, watched.triggers, here.trigger)
    (watched.inbox / "before.csv").write_text("a")
    tasks = [asyncio.create_task(one.run()) for one in (here, there)]
    try:

        async def seen(count: int) -> bool:
            return len(await watched.requested()) >= count

        await eventually(lambda: seen(1))
        (watched.inbox / "a.csv").write_text("1")
        for name in ("notes.txt", ".hidden.csv"):
            (watched.inbox / name).write_text("1")
        (watched.inbox / "link.csv").symlink_to(watched.book)
        await eventually(lambda: seen(2))
        (watched.inbox / "a.csv").write_text("22")
        await eventually(lambda: seen(3))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert await watched.requested() == ["before.csv", "a.csv", "a.csv"]


async def test_a_file_that_was_there_before_does_not_fire(watched: Watched) -> None:
    old = watched.inbox / "old.csv"
    old.write_text("a")
    os.utime(old, (1, 1))
    watch = await watched.files()
    await watch._look([str(old)])
    assert await watched.requested() == []


async def test_a_folder_that_is_gone_is_logged_as_an_event(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watch = await watched.files()
    watched.inbox.rmdir()

    async def logged() -> list[Any]:
        return [one.fields for one in caplog.records if one.msg == "trigger.unwatched"]  # type: ignore[attr-defined]

    task = asyncio.create_task(watch.run())
    assert await eventually(logged) == [{"trigger": watch.trigger.trigger, "kind": "FileNotFoundError"}]
    task.cancel()
    assert str(watched.inbox) not in caplog.text


async def test_a_file_starts_a_run_with_its_name(watched: Watched) -> None:
    watch = await watched.files()
    (watched.inbox / "big.csv").write_text("a")
    await watch._look([str(watched.inbox / "big.csv")])
    await watched.look()
    (run,) = await watched.runs()
    assert (run.trigger, (await watched.service.view(run.id)).inputs["CUP"]) == ("files:tea", "big.csv")


async def test_a_folder_outside_the_workspace_or_too_large_is_refused(
    watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert check_folder(watched.inbox, tmp_path) == str(watched.inbox.resolve())
    (watched.inbox / "way").symlink_to("/")
    for folder, error in ((tmp_path.parent, "not in the workspace"), (tmp_path / "gone", "There is no folder"), (watched.inbox / "way", "not in")):  # fmt: skip
        with pytest.raises(BadInput, match=error):
            check_folder(folder, tmp_path)
    (watched.inbox / "a").touch()
    monkeypatch.setattr("cuebook.service.triggers.watchers.MOST_FILES", 0)
    with pytest.raises(BadInput, match="more than 0 files"):
        check_folder(watched.inbox, tmp_path)


async def test_a_trigger_that_fires_too_often_is_suspended_and_notifies(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileTrigger, "MOST", 2)
    trigger = (await watched.files()).trigger
    for number in range(4):
        known = await watched.triggers.known(FileTrigger, "tea", "local")
        await watched.events.event(known, f"k{number}", {"file": "x"})
    known = await watched.triggers.known(FileTrigger, "tea", "local")
    assert (known.suspended, len(known.requested)) == ("It was fired too often, as in a loop.", 2)
    assert any(trigger.name in one and "too often" in one for one in await watched.notices())


async def test_events_start_runs_beside_each_other_or_one_after_the_other(watched: Watched) -> None:
    await watched.files(name="beside", overlap="parallel")
    await watched.files(name="serial", overlap="queue")
    for name in ("beside", "serial"):
        for number in range(3):
            known = await watched.triggers.known(FileTrigger, name, "local")
            await watched.events.event(known, f"k{number}", {"file": f"{number}"})

    async def ran(name: str) -> list[str]:
        history = (await watched.triggers.known(FileTrigger, name, "local")).history
        return [one.run for one in reversed(history) if one.state == "started"]

    await watched.look()
    assert (len(await ran("beside")), len(await ran("serial"))) == (3, 1)
    for count in (2, 3):
        await watched.end((await ran("serial"))[-1])

        async def next_started(count: int = count) -> bool:
            await watched.look()
            return len(await ran("serial")) == count

        await eventually(next_started)


async def test_events_above_the_rate_limit_wait_and_a_person_does_not(watched: Watched) -> None:
    await watched.trigger(AfterTrigger, after="build.md", overlap="parallel")
    watched.service._rate = Rate(2, "hour")
    known = await watched.triggers.known(AfterTrigger, "tea", "local")
    for key in "abcd":
        await watched.events.event(known, key, {})
    await watched.look()
    await watched.triggers.request(AfterTrigger, "tea", "local", "by hand", by="local")
    known = await watched.triggers.known(AfterTrigger, "tea", "local")
    assert [one.key for one in known.requested] == ["c", "d", "by hand"]
    known = await watched.triggers.work(known)
    assert ([one.key for one in known.requested], known.history[0].state) == (["c", "d"], "failed")
    assert any(
        "2 runs were started within the last hour, which is the limit. Its events" in one
        for one in await watched.notices()
    )
    watched.service._rate = None

    async def all_started() -> bool:
        await watched.look()
        return len(await watched.runs()) == 5  # what was done here by hand was not stored

    await eventually(all_started)


async def test_an_event_whose_run_could_not_start_is_tried_again_when_it_comes_again(watched: Watched) -> None:
    await watched.files()
    watched.book.rename(watched.folder / "gone.md")
    for state in ("failed", "started", "started"):
        known = await watched.triggers.known(FileTrigger, "tea", "local")
        await watched.events.event(known, "k", {"file": "x"})
        await watched.look()
        known = await watched.triggers.known(FileTrigger, "tea", "local")
        assert [one.state for one in known.history] == [state]
        watched.book.write_text(TEA)
    assert len(await watched.runs()) == 1


async def test_an_input_that_came_to_take_a_secret_is_not_filled_in_by_an_event(watched: Watched) -> None:
    watched.book = watched.folder / "use.yml"
    await watched.files(playbook="use.yml", mapping={"token": "file"})
    watched.book.write_text("name: Use\nargs: {token: {secret: true}}\nsteps: [{id: a, command: cli ls}]\n")
    known = await watched.triggers.known(FileTrigger, "tea", "local")
    await watched.events.event(known, "k", {"file": "env:PATH"})
    await watched.look()
    (firing,) = (await watched.triggers.known(FileTrigger, "tea", "local")).history
    assert (firing.state, "which no event may choose" in firing.reason) == ("failed", True)
    assert await watched.runs() == []


async def test_no_file_fires_again_after_many_others(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuebook.service.triggers.events.SEEN", 3)
    monkeypatch.setattr("cuebook.service.triggers.trigger.KEPT", 3)
    watch = await watched.files(overlap="parallel")
    for number in range(10):
        (watched.inbox / f"{number}.csv").write_text("a")
    await watch._look(watch._changed_before())
    await watched.look()
    assert len(await watched.runs()) == 10
    after_restart = FileWatch(watched.events, watched.triggers, watch.trigger)
    await after_restart._look(after_restart._changed_before())
    assert await watched.requested() == []
    (watched.inbox / "3.csv").write_text("changed")
    for number in range(5, 10):
        (watched.inbox / f"{number}.csv").unlink()
    await after_restart._look(after_restart._changed_before())
    await after_restart._forget_gone()
    assert await watched.requested() == ["3.csv"]
    assert len((await watched.triggers.known(FileTrigger, "tea", "local")).known) == 5


async def test_files_for_which_there_is_no_room_wait_and_that_is_notified(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuebook.service.triggers.firing.MOST_REQUESTED", 2)
    watch = await watched.files(overlap="parallel")
    for number in range(5):
        (watched.inbox / f"{number}.csv").write_text("a")
    await watch._look(watch._changed_before())
    assert await watched.requested() == ["0.csv", "1.csv"]
    (notice,) = await watched.notices()
    assert "has 2 firings that no process has fired yet. Further events wait until there is room." in notice
    for _ in range(2):
        await watched.look()
        again, watch._again = watch._again, set()
        await watch._look(list(again))
    await watched.look()
    started = [(await watched.service.view(run.id)).inputs["CUP"] for run in await watched.runs()]
    assert sorted(started) == [f"{number}.csv" for number in range(5)]
    assert watch._again == set()


async def test_a_file_that_is_being_written_keeps_no_other_from_firing(watched: Watched) -> None:
    watch = await watched.files()
    (watched.inbox / "a.csv").write_text("a")
    (watched.inbox / "growing.csv").write_text("a")
    looking = asyncio.create_task(watch._look(watch._changed_before()))
    await asyncio.sleep(0)
    (watched.inbox / "growing.csv").write_text("more")
    await looking
    assert (await watched.requested(), watch._again) == (["a.csv"], {str(watched.inbox / "growing.csv")})


async def test_new_events_do_not_postpone_those_that_wait_for_the_end_of_a_run(watched: Watched) -> None:
    await watched.files(overlap="queue")
    watched.set("2026-03-02 06:00")

    async def event(key: str) -> float:
        known = await watched.triggers.known(FileTrigger, "tea", "local")
        await watched.events.event(known, key, {"file": key})
        due = await watched.store.next_due(["files"])
        assert due is not None
        return due - at("2026-03-02 06:00")

    assert await event("k0") <= 0
    await watched.look()
    await event("k1")
    await watched.look()
    watched.set("2026-03-02 06:00:01")
    assert await event("k2") == 2.0
    watched.set("2026-03-02 06:01")
    assert await event("k3") == 2.0  # it is overdue, and not postponed


async def test_a_completed_run_for_which_there_is_no_room_waits(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuebook.service.triggers.firing.MOST_REQUESTED", 1)
    await watched.trigger(AfterTrigger, after="build.md", mapping={"CUP": "run"}, overlap="parallel")
    runs = [await complete(watched, "build.md") for _ in range(3)]
    monkeypatch.setattr("cuebook.service.triggers.watchers._OVERLAP", -3600.0)  # they are older than what is looked at
    for _ in runs:
        await watched.completions.look()
        await watched.look()
    started = [(await watched.service.view(one.id)).inputs["CUP"] for one in await watched.runs() if one.trigger]
    assert sorted(started) == sorted(runs)
    assert any("Further events wait until there is room." in one for one in await watched.notices())


# --- runs ---


async def complete(watched: Watched, name: str) -> str:
    """A completed run of a playbook with this name."""
    row = await watched.service.start(Playbook.from_text(TEA, name), {}, Settings())
    row = await watched.service.drive(row.id)
    assert row.status == "completed", row
    return row.id


async def test_a_completed_run_fires_once_and_its_id_becomes_an_input(watched: Watched) -> None:
    await watched.trigger(AfterTrigger, after="build.md", mapping={"CUP": "run"})
    run = await complete(watched, "build.md")
    await complete(watched, "other.md")
    for _ in range(2):
        await watched.completions.look()
        await watched.look()
    (started,) = [one for one in await watched.runs() if one.trigger]
    assert started.trigger == "after:tea"
    assert (await watched.service.view(started.id)).inputs["CUP"] == run


async def test_a_completed_run_whose_follower_cannot_start_fires_once(watched: Watched) -> None:
    await watched.trigger(AfterTrigger, after="build.md")
    await complete(watched, "build.md")
    watched.book.unlink()
    for _ in range(3):
        await watched.completions.look()
        await watched.look()
    trigger = await watched.triggers.known(AfterTrigger, "tea", "local")
    assert ([one.state for one in trigger.history], len(trigger.recent)) == (["failed"], 1)


async def test_a_result_that_is_too_long_for_an_input_is_not_cut(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cuebook.service.triggers.events.LONGEST", 5)
    await watched.trigger(AfterTrigger, after="build.md", mapping={"CUP": "run"})
    await complete(watched, "build.md")
    for _ in range(2):
        await watched.completions.look()
        await watched.look()
    (firing,) = (await watched.triggers.known(AfterTrigger, "tea", "local")).history
    assert (firing.state, "The event's run has 12 characters, and an input may have 5" in firing.reason) == (
        "failed",
        True,
    )
    assert [one for one in await watched.runs() if one.trigger] == []
    assert any("could not start tea.md: The event's run has" in one for one in await watched.notices())


async def test_a_run_that_is_cancelled_or_was_completed_before_fires_nothing(watched: Watched) -> None:
    await complete(watched, "build.md")
    await watched.trigger(AfterTrigger, after="build.md", created=watched.store.now() + 1)  # its clock is an estimate
    run = await watched.service.start(Playbook.from_text(TEA, "build.md"), {}, Settings())
    await watched.end(run.id)
    await watched.completions.look()
    assert (await watched.triggers.known(AfterTrigger, "tea", "local")).requested == ()


async def test_a_run_that_is_completed_during_a_pause_is_not_made_up_for(watched: Watched) -> None:
    await watched.trigger(AfterTrigger, after="build.md")
    await watched.triggers.pause(AfterTrigger, "tea")
    await complete(watched, "build.md")
    await watched.completions.look()
    await watched.triggers.resume(AfterTrigger, "tea")
    await watched.completions.look()
    assert (await watched.triggers.known(AfterTrigger, "tea", "local")).requested == ()
