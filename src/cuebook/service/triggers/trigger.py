"""A trigger as it is stored: what it starts, for whom, and what became of its firings. Each is a job of the store.

Each kind of trigger is a subclass with its own fields, such as the times of a schedule.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, Literal, Self, get_args

import msgspec

from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Job
from cuebook.kernel.run import Budget
from cuebook.kernel.triggers import trigger_of

Overlap = Literal["skip", "queue", "cancel", "parallel"]
"""What a firing does while the run of an earlier one is unfinished: nothing, wait for its end, cancel it, or start another."""
OVERLAPS: tuple[Overlap, ...] = get_args(Overlap)

State = Literal["requested", "started", "queued", "skipped", "missed", "failed"]
"""What became of a firing. It is skipped by the overlap policy, and missed if no process was there in time."""

KEPT = 30
"""How many firings a trigger keeps in its history."""
MOST_REQUESTED = 100
"""How many firings may wait for a process that fires them."""
LOOK_AGAIN = 2.0
"""Seconds between two looks at a run for whose end a firing waits."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """The run that a trigger starts. The playbook is read from its file at each firing."""

    path: str
    """The real path of the file."""
    name: str
    """The name of its runs."""
    id: str = ""
    """Its id in the library, if it was chosen there."""
    inputs: dict[str, Any] = {}
    model: str = ""
    answers: dict[str, str | tuple[str, ...]] = {}
    unattended: bool = False
    options: dict[str, Any] = {}
    budget: Budget | None = None
    workspace: str = ""
    """Where its runs work: only processes that offer this workspace fire it."""

    @property
    def words(self) -> str:
        """The playbook as a person names it."""
        return self.id or self.name


class Firing(msgspec.Struct, frozen=True, omit_defaults=True):
    """One time that a trigger fired or should have fired."""

    key: str
    """Identifies it among those of its trigger: of two with the same key, only the first starts a run."""
    at: float
    """The moment that it is for: of a schedule, the planned one."""
    state: State
    run: str = ""
    reason: str = ""
    """Why it started no run."""
    done: float = 0.0
    """When this was decided."""
    by: str = ""
    """The person who fired it, if one did."""
    inputs: dict[str, Any] = {}
    """What an event adds to the inputs of the target, until the run is started."""


class Trigger(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What starts runs of a playbook, and for whom."""

    KIND: ClassVar[str] = ""
    """The kind of its jobs, which is also how the trigger of its runs begins: see `kernel.triggers`."""
    KEEPS_ALL: ClassVar[bool] = False
    """Whether all firings are queued that come while a run is unfinished, and not only one."""
    SUSPENDS: ClassVar[bool] = False
    """Whether it is suspended if it is fired too often."""
    COMMAND: ClassVar[str] = "trigger"
    """The command that manages it."""

    tenant: str
    name: str
    owner: str
    """Who added it, and owns its runs."""
    target: Target
    created: float
    overlap: Overlap = "skip"
    paused: bool = False
    suspended: str = ""
    """Why it no longer fires until a person resumes it."""
    run: str = ""
    """The latest run that it started."""
    requested: tuple[Firing, ...] = ()
    """What events and people asked for, which no process has fired yet."""
    queued: Firing | None = None
    """The firing that waits for the end of that run."""
    look: float = 0.0
    """When to look again whether that run has ended, or the rate limit leaves another one. New requests do not postpone it."""
    history: tuple[Firing, ...] = ()
    """The latest firings, the newest first."""

    @property
    def trigger(self) -> str:
        """What its runs record as their trigger."""
        return trigger_of(self.KIND, self.name)

    @property
    def words(self) -> str:
        """What fires it, as a clause."""
        return ""

    @property
    def lines(self) -> tuple[str, ...]:
        """More about it, for people."""
        return ()

    @property
    def details(self) -> dict[str, Any]:
        """The fields of its kind, as JSON."""
        return {}

    @property
    def is_active(self) -> bool:
        return not self.paused and not self.suspended

    def next_due(self) -> float | None:
        """When it fires by itself; None if only an event fires it."""
        return None

    @property
    def is_serial(self) -> bool:
        """Whether each firing waits for the end of the run before it."""
        return self.KEEPS_ALL and self.overlap == "queue"

    def due(self, now: float) -> float | None:
        """When a process has to look at it; None if it waits for something other than the time."""
        if not self.is_active:
            return None
        again = min(self.look, now + LOOK_AGAIN)  # the clock may have been set back
        soon = again if (self.is_serial and self.run) or self.look > now else now
        moments = [self.next_due(), soon if self.requested else None, again if self.queued else None]
        return min((one for one in moments if one is not None), default=None)

    def job(self, now: float, version: int = 0) -> Job:
        body = msgspec.to_builtins(self)
        return Job(
            tenant=self.tenant,
            kind=self.KIND,
            name=self.name,
            due=self.due(now),
            body={name: value for name, value in body.items() if name not in ("tenant", "name")},
            version=version,
        )

    @classmethod
    def of(cls, job: Job) -> Self:
        return msgspec.convert({**job.body, "tenant": job.tenant, "name": job.name}, cls)

    def resumed(self, now: float) -> Self:
        """The trigger without its pause or suspension."""
        return msgspec.structs.replace(self, paused=False, suspended="")

    def recorded(self, firing: Firing) -> Self:
        """The trigger with this firing in its history. What became of it replaces what was planned."""
        others = tuple(one for one in self.history if one.key != firing.key)
        return msgspec.structs.replace(self, history=(firing, *others)[:KEPT])

    def knows(self, key: str) -> bool:
        """Whether there was a firing with this key, as far as that is still known. One that failed may be tried again."""
        found = self.firing(key)
        return found is not None and found.state != "failed"

    def noted(self, key: str, now: float) -> Self:
        """The trigger that remembers a new firing with this key."""
        return self

    def is_full(self, now: float) -> bool:
        """Whether it was fired too often lately to be fired again."""
        return False

    def firing(self, key: str) -> Firing | None:
        """The firing with this key, as far as it is still known."""
        known = (*self.requested, *([self.queued] if self.queued else ()), *self.history)
        return next((one for one in known if one.key == key), None)


def check_trigger_name(name: str, what: str) -> None:
    """Raises `BadInput` unless a trigger can have this name. `what` is its kind in words, as in `schedule`."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"'{name[:100]}' is not a valid name for a {what}.",
            fix="Use up to 64 letters, digits, and . _ -, beginning with a letter or digit.",
        )


def check_overlap(overlap: str) -> None:
    if overlap not in OVERLAPS:
        raise BadInput(f"Unknown overlap policy '{overlap}'.", fix=f"Use {', '.join(OVERLAPS)}.")
