"""Notices events in this process: files that change, and runs that are completed. Requests firings for them.

Several processes may notice the same event; its key makes sure that it starts one run.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import AtLimit, BadInput, CuebookError, NotFound
from cuebook.kernel.run import RunRow
from cuebook.service.service import Service
from cuebook.service.triggers.events import AfterTrigger, Events, FileTrigger, file_key
from cuebook.service.triggers.firing import Triggers
from cuebook.system.logs import log_event

log = logging.getLogger("cuebook.triggers")

LOOK = 2.0
"""Seconds between two looks at the triggers, and at the runs that they wait for."""
MOST_FILES = 20_000
"""Files that a watched folder may contain."""
MOST_RUNS = 200
"""Completed runs of a playbook that are looked at, the newest first."""
_AGAIN = 500
"""Milliseconds after which files that could not fire yet are looked at again."""
_OVERLAP = 3600.0
"""Seconds before the last look; the clocks of other machines may be that far behind."""
_SETTLED = 0.3
"""Seconds in which a file must not change before it counts as written."""
_UNFINISHED_NAMES = (".*", "*~", "*.tmp", "*.part", "*.swp", "*.crdownload")


# --- files ---


def check_folder(folder: Path, workspace: Path) -> str:
    """The real path of a folder to watch. Raises `BadInput` unless it is in the workspace and not too large."""
    real, within = Path(os.path.realpath(folder)), Path(os.path.realpath(workspace))
    if not real.is_dir():
        raise BadInput(f"There is no folder {folder}.", fix="Create it, or choose another one.")
    if not real.is_relative_to(within):
        fix = "Choose a folder in the workspace, or set another workspace with --workspace."
        raise BadInput(f"{folder} is not in the workspace, {within}.", fix=fix)
    count = 0
    for _, folders, files in os.walk(real):
        folders[:] = [one for one in folders if not one.startswith(".")]
        count += len(files)
        if count > MOST_FILES:
            raise BadInput(f"{folder} contains more than {MOST_FILES:,} files.", fix="Choose a smaller folder.")
    return str(real)


class _Change:
    """A file as it is now."""

    def __init__(self, trigger: FileTrigger, path: str) -> None:
        self.path = path
        found = os.stat(path, follow_symlinks=False)
        self.is_file = os.path.isfile(path) and not os.path.islink(path)
        self.mtime = found.st_mtime
        self.state = (found.st_mtime_ns, found.st_size)
        relative = os.path.relpath(path, trigger.folder)
        self.key = file_key(relative, found.st_mtime_ns, found.st_size)
        self.payload = {"path": path, "file": relative, "name": os.path.basename(path), "size": found.st_size}


def _fits(trigger: FileTrigger, path: str) -> bool:
    parts = Path(os.path.relpath(path, trigger.folder)).parts
    hidden = any(part.startswith(".") for part in parts)
    name = parts[-1] if parts else ""
    unfinished = any(fnmatch(name, one) for one in _UNFINISHED_NAMES)
    inside = os.path.realpath(path) == path and ".." not in parts
    is_text = not any(0xD800 <= ord(one) < 0xE000 for one in path)
    return not hidden and not unfinished and inside and is_text and fnmatch(name, trigger.pattern)


class FileWatch:
    """Watches the folder of one trigger."""

    def __init__(self, events: Events, triggers: Triggers, trigger: FileTrigger) -> None:
        self._events = events
        self._triggers = triggers
        self.trigger = trigger
        self._again: set[str] = set()
        """Files whose events could not be requested: there was no room, or the store was busy."""

    async def run(self) -> None:
        from watchfiles import Change, awatch

        timing = {"debounce": 200, "step": 50, "rust_timeout": _AGAIN, "yield_on_timeout": True}
        watched = awatch(self.trigger.folder, ignore_permission_denied=True, **timing)  # type: ignore[arg-type]
        is_first = True
        try:
            await asyncio.to_thread(os.stat, self.trigger.folder)  # a folder that is gone would be watched in vain
            async for changes in watched:
                again, self._again = self._again, set()
                if is_first:  # only now: what is changed after this look is among the next changes
                    again.update(await asyncio.to_thread(self._changed_before))
                    await self._forget_gone()
                    is_first = False
                await self._look([*again, *(path for change, path in changes if change != Change.deleted)])
        except (OSError, RuntimeError) as error:  # the folder is gone, or the system can watch no more
            kind = type(error).__name__
            log_event(log, "trigger.unwatched", logging.WARNING, trigger=self.trigger.trigger, kind=kind)
            await asyncio.sleep(LOOK)

    def _files(self) -> Iterator[str]:
        for folder, folders, files in os.walk(self.trigger.folder):
            folders[:] = [one for one in folders if not one.startswith(".")]
            yield from (os.path.join(folder, name) for name in files)

    def _changed_before(self) -> list[str]:
        """The files that were changed while no process was watching."""
        found = []
        for path in self._files():
            with suppress(OSError):
                if _fits(self.trigger, path) and os.stat(path).st_mtime > self.trigger.since:
                    found.append(path)
        return found

    async def _forget_gone(self) -> None:
        """Lets the trigger forget files that are gone, if they are many."""
        folder = self.trigger.folder
        there = await asyncio.to_thread(lambda: [os.path.relpath(path, folder) for path in self._files()])
        with suppress(CuebookError):  # it was removed, or the next process does it
            await self._triggers.alter(FileTrigger, self.trigger, lambda one: one.without_gone(there))

    async def _look(self, paths: list[str]) -> None:
        """Requests the events of these files. Those that are being written, and those for which there is no room, come again."""
        before = await self._new(self._states(paths))
        await asyncio.sleep(_SETTLED if before else 0)
        has_room = True
        for path, change in self._states(before).items():
            if change.state == before[path].state and has_room:
                has_room = await self._request(change)
            else:
                self._again.add(path)

    async def _new(self, found: dict[str, _Change]) -> dict[str, _Change]:
        """Those that have not fired it yet."""
        if not found:
            return found
        try:
            trigger = await self._triggers.known(FileTrigger, self.trigger.name, self.trigger.tenant)
        except CuebookError:  # it was removed, or the store is busy
            return found
        return {path: change for path, change in found.items() if not trigger.knows(change.key)}

    def _states(self, paths: Iterable[str]) -> dict[str, _Change]:
        found = {}
        for path in sorted(set(paths)):
            if _fits(self.trigger, path):
                with suppress(OSError):
                    found[path] = _Change(self.trigger, path)
        return found

    async def _request(self, change: _Change) -> bool:
        """Returns False if there is no room for further events."""
        if not change.is_file or change.mtime <= self.trigger.since:
            return True
        try:
            trigger = await self._triggers.known(FileTrigger, self.trigger.name, self.trigger.tenant)
            await self._events.event(trigger, change.key, change.payload)
        except NotFound:  # it was removed
            return True
        except CuebookError as error:
            self._again.add(change.path)
            return not isinstance(error, AtLimit)
        return True


class Watches:
    """Watches the folders of all triggers whose workspace this process offers."""

    def __init__(self, events: Events, triggers: Triggers) -> None:
        self._events = events
        self._triggers = triggers
        self._tasks: dict[tuple[str, str, float, float], asyncio.Task[None]] = {}

    async def run(self) -> None:
        try:
            while True:
                with suppress(CuebookError):  # a lock or a full disk may be temporary
                    await self._adapt()
                await asyncio.sleep(LOOK)
        finally:
            await self._end(list(self._tasks))

    async def _adapt(self) -> None:
        wanted = {
            (one.tenant, one.name, one.created, one.since): one
            for one in await self._triggers.every(FileTrigger)
            if one.is_active and self._events.offers(one)
        }
        await self._end([key for key, task in self._tasks.items() if key not in wanted or task.done()])
        for key in wanted.keys() - self._tasks.keys():
            watch = FileWatch(self._events, self._triggers, wanted[key])
            self._tasks[key] = asyncio.create_task(watch.run())

    async def _end(self, keys: list[tuple[str, str, float, float]]) -> None:
        tasks = [self._tasks.pop(key) for key in keys]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# --- runs ---


class Completions:
    """Notices completed runs of the playbooks that triggers wait for."""

    def __init__(self, service: Service, events: Events, triggers: Triggers) -> None:
        self._store = triggers.store
        self._service = service
        self._events = events
        self._triggers = triggers
        self._unfinished: dict[tuple[str, str], set[str]] = {}
        self._looked: dict[tuple[str, str], float] = {}
        """Since when each playbook's runs are looked at. Older ones were unfinished at the last look, or are known."""

    async def run(self) -> None:
        while True:
            try:
                await self.look()
            except CuebookError as error:  # a lock or a full disk may be temporary
                log_event(log, "triggers.failed", logging.WARNING, what="completions", code=error.code)
            await asyncio.sleep(LOOK)

    async def look(self) -> None:
        found = [one for one in await self._triggers.every(AfterTrigger) if one.is_active]
        completed = {
            (tenant, name): await self._completed(tenant, name) for tenant, name in {(t.tenant, t.after) for t in found}
        }
        for trigger in found:
            for row in completed[trigger.tenant, trigger.after]:
                if row.updated > max(trigger.created, trigger.since) and not trigger.remembers(row.id):
                    await self._event(trigger, row)

    async def _completed(self, tenant: str, name: str) -> list[RunRow]:
        """The newest completed runs of a playbook, and those that ended since the last look, the oldest first."""
        since = self._looked.get((tenant, name))
        self._looked[tenant, name] = self._store.now() - _OVERLAP
        rows = await self._store.runs(
            tenant=tenant, name=name, status=("completed",), caller="", since=since, limit=MOST_RUNS
        )
        found = {row.id: row for row in rows}
        before = self._unfinished.get((tenant, name), set())
        for run in before - found.keys():
            with suppress(CuebookError):
                row = await self._store.run(run)
                if row.status == "completed":
                    found[run] = row
        unfinished = await self._store.runs(tenant=tenant, name=name, status=_UNFINISHED, caller="", limit=1000)
        self._unfinished[tenant, name] = {row.id for row in unfinished}
        return sorted(found.values(), key=lambda row: row.updated)

    async def _event(self, trigger: AfterTrigger, row: RunRow) -> None:
        try:
            who = await self._triggers.owner_of(trigger)
            await self._service.get(row.id, who)
        except CuebookError:  # its owner may not see that run
            return
        payload = {"run": row.id, "playbook": row.name, "owner": row.owner, **await self._result(row, who)}
        current = await self._triggers.known(AfterTrigger, trigger.name, trigger.tenant)
        try:
            await self._events.event(current, row.id, payload)
        except AtLimit:
            self._unfinished.setdefault((trigger.tenant, trigger.after), set()).add(row.id)  # it is looked at again

    async def _result(self, row: RunRow, who: Principal) -> dict[str, Any]:
        with suppress(CuebookError):
            return {"result": (await self._service.view(row.id, who)).result}
        return {}


_UNFINISHED = ("pending", "running", "paused", "awaiting_input", "awaiting_approval")
