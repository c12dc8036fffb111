"""Triggers that something outside fires: a signed request, a changed file, the end of another run.

An event is identified by a key, so one that arrives twice, or in two processes, starts one run. What it carries becomes inputs
only where the trigger says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, ClassVar, Self

import msgspec

from cuebook.kernel.errors import AtLimit, BadInput
from cuebook.kernel.ports import Job
from cuebook.kernel.triggers import AFTER, FILES, WEBHOOK
from cuebook.service.triggers.firing import Triggers
from cuebook.service.triggers.trigger import Firing, Trigger

SEEN = 1000
"""How many events a trigger remembers, so that it does not fire again for one of them."""
MOST_KNOWN = 25_000
"""How many files it remembers: more than a watched folder may contain."""
LONGEST = 20_000
"""How many characters of an event one input may have. A longer value starts no run."""
_ELSEWHERE = 1.0
"""Seconds until another process may take a trigger whose workspace this process does not offer."""


class EventTrigger(Trigger, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger that fires for events."""

    MOST: ClassVar[int] = 60
    PER: ClassVar[float] = 3600.0
    """How many events may fire it in how many seconds."""
    KEEPS_ALL: ClassVar[bool] = True
    SUSPENDS: ClassVar[bool] = True
    """Whether more than that suspend it, because that is probably a loop."""
    REFUSED: ClassVar[str] = "Further events wait until there is room."
    """What becomes of events for which there is no room."""

    mapping: dict[str, str] = msgspec.field(default_factory=dict)
    """The inputs that an event fills in, each with the path of its value in the event, as in `pull_request.title`."""
    only: dict[str, str] = msgspec.field(default_factory=dict)
    """What the values at these paths must be; other events are ignored."""
    seen: tuple[str, ...] = ()
    recent: tuple[float, ...] = ()
    """When it was fired lately."""

    def knows(self, key: str) -> bool:
        found = self.firing(key)
        return found.state != "failed" if found is not None else _short(key) in self.seen

    def remembers(self, key: str) -> bool:
        """Whether it was fired for this event, also if its run could not start."""
        return self.firing(key) is not None or _short(key) in self.seen

    def noted(self, key: str, now: float) -> Self:
        recent = tuple(one for one in self.recent if 0 <= now - one < self.PER)
        return msgspec.structs.replace(self, seen=(*self.seen, _short(key))[-SEEN:], recent=(*recent, now))

    def is_full(self, now: float) -> bool:
        return sum(0 <= now - one < self.PER for one in self.recent) >= self.MOST

    def resumed(self, now: float) -> Self:
        return msgspec.structs.replace(super().resumed(now), recent=())

    @property
    def lines(self) -> tuple[str, ...]:
        return (
            *(f"only if {path} is '{value}'" for path, value in self.only.items()),
            *(f"{name} = {path} of the event" for name, path in self.mapping.items()),
        )

    @property
    def details(self) -> dict[str, Any]:
        return {"map": self.mapping, "only": self.only}


class Webhook(EventTrigger, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger for signed requests to `/hooks/NAME`."""

    KIND: ClassVar[str] = WEBHOOK
    PER: ClassVar[float] = 60.0
    SUSPENDS: ClassVar[bool] = False
    REFUSED: ClassVar[str] = "Further requests are answered with 429 until there is room."

    scheme: str
    """`github`, `slack` or `hmac`: see `webhooks`."""
    secret: str
    """The name of the secret with which requests are signed."""
    events: tuple[str, ...] = ()
    """The events of GitHub that fire it; empty for all."""
    ignored: tuple[str, ...] = ()
    """Bodies that came for other events. GitHub does not sign which event a body is for, so they never fire it."""

    def knows(self, key: str) -> bool:
        return super().knows(key) or _short(key) in self.ignored

    def ignoring(self, key: str) -> Self:
        if self.knows(key):
            return self
        return msgspec.structs.replace(self, ignored=(*self.ignored, _short(key))[-SEEN:])

    @property
    def path(self) -> str:
        return f"/hooks/{self.name}"

    @property
    def words(self) -> str:
        return f"POST {self.path}, signed ({self.scheme})"

    @property
    def lines(self) -> tuple[str, ...]:
        events = (f"for the events {', '.join(self.events)}",) if self.events else ()
        return (f"signed with the secret '{self.secret}'", *events, *super().lines)

    @property
    def details(self) -> dict[str, Any]:
        return {
            **super().details,
            "scheme": self.scheme,
            "secret": self.secret,
            "address": self.path,
            "events": list(self.events),
        }


class FileTrigger(EventTrigger, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger for new and changed files in a folder of its workspace."""

    KIND: ClassVar[str] = FILES
    MOST: ClassVar[int] = 1000

    folder: str
    """The real path of the folder."""
    pattern: str = "*"
    """What the name of a file must match."""
    since: float
    """Files that were changed before that do not fire it."""
    known: dict[str, str] = msgspec.field(default_factory=dict)
    """The files for which it was fired, as digests: of each path, that of the latest state."""

    def knows(self, key: str) -> bool:
        path, state = _file_of(key)
        found = self.firing(key)
        return super().knows(key) if found is not None or not state else self.known.get(path) == state

    def noted(self, key: str, now: float) -> Self:
        path, state = _file_of(key)
        made = super().noted(key, now)
        if not state:
            return made
        known = {name: one for name, one in self.known.items() if name != path} | {path: state}
        for oldest in list(known)[: max(0, len(known) - MOST_KNOWN)]:
            del known[oldest]
        return msgspec.structs.replace(made, seen=self.seen, known=known)

    def without_gone(self, files: Iterable[str]) -> Self:
        """The trigger that remembers only these files; the others are gone."""
        there = {_short(one)[:12] for one in files}
        if len(self.known.keys() - there) < SEEN:
            return self
        return msgspec.structs.replace(self, known={path: one for path, one in self.known.items() if path in there})

    def resumed(self, now: float) -> Self:
        return msgspec.structs.replace(super().resumed(now), since=now)

    @property
    def words(self) -> str:
        return f"files {self.pattern} in {self.folder}"

    @property
    def details(self) -> dict[str, Any]:
        return {**super().details, "folder": self.folder, "pattern": self.pattern}


class AfterTrigger(EventTrigger, frozen=True, kw_only=True, omit_defaults=True):
    """A trigger for completed runs of another playbook."""

    KIND: ClassVar[str] = AFTER

    after: str
    """The name of the playbook's runs."""
    since: float = 0.0
    """Runs that were completed before that do not fire it."""

    def resumed(self, now: float) -> Self:
        return msgspec.structs.replace(super().resumed(now), since=now)

    @property
    def words(self) -> str:
        return f"after {self.after} completed"

    @property
    def details(self) -> dict[str, Any]:
        return {**super().details, "after": self.after}


EVENT_TRIGGERS: tuple[type[EventTrigger], ...] = (Webhook, FileTrigger, AfterTrigger)


def _short(key: str) -> str:
    return sha256(key.encode(errors="surrogateescape")).hexdigest()[:16]


def file_key(relative: str, changed: int, size: int) -> str:
    """The key of an event for a file in this state."""
    return f"{relative} {changed} {size}"


def _file_of(key: str) -> tuple[str, str]:
    """The digests of the path and the state in the key of a file; no state if it is another key."""
    parts = key.rsplit(" ", 2)
    if len(parts) < 3 or not (parts[1].isdigit() and parts[2].isdigit()):
        return "", ""
    return _short(parts[0])[:12], _short(f"{parts[1]} {parts[2]}")[:8]


# --- what an event carries ---


def fits(trigger: EventTrigger, payload: Any) -> bool:
    """Whether an event is one of those that fire the trigger."""
    return all(_text(_at(payload, path)) == value for path, value in trigger.only.items())


def inputs_from(trigger: EventTrigger, payload: Any) -> dict[str, str]:
    """The inputs that an event fills in. A value that the event does not have leaves the input as it is without it. Raises
    `BadInput` for a value that is too long.
    """
    found = {name: _text(_at(payload, path)) for name, path in trigger.mapping.items()}
    for name, value in found.items():
        if value is not None and len(value) > LONGEST:
            raise BadInput(
                f"The event's {trigger.mapping[name]} has {len(value):,} characters, and an input may have {LONGEST:,} of an event.",
                fix="Fill in something shorter, such as the address at which the run finds it.",
            )
    return {name: value for name, value in found.items() if value is not None}


def _at(payload: Any, path: str) -> Any:
    for part in path.split("."):
        if isinstance(payload, Mapping):
            payload = payload.get(part)
        elif isinstance(payload, list) and part.isascii() and part.isdigit() and int(part) < len(payload):
            payload = payload[int(part)]
        else:
            return None
    return payload


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def check_paths(given: Mapping[str, str], flag: str) -> None:
    for name, path in given.items():
        if not path or not all(path.split(".")):
            raise BadInput(
                f"{flag} {name}={path}: expected a path such as pull_request.title.", fix="Separate names by dots."
            )


# --- loops ---


async def check_no_loop(triggers: Triggers, new: AfterTrigger) -> None:
    """Raises `BadInput` if a playbook would, with the triggers that there are, start itself again."""
    leads: dict[str, set[str]] = {}
    for one in (*await triggers.every(AfterTrigger), new):
        if one.tenant == new.tenant and (one.name != new.name or one is new):
            leads.setdefault(one.after, set()).add(one.target.name)
    path: dict[str, tuple[str, ...]] = {new.target.name: (new.target.name,)}
    todo = [new.target.name]
    while todo:
        name = todo.pop()
        if name == new.after:
            chain = " -> ".join((new.after, *path[name]))
            raise BadInput(
                f"'{new.name}' would start the same playbooks again and again: {chain}.",
                fix="Remove one of these triggers, or start another playbook.",
            )
        for following in leads.get(name, ()):
            if following not in path:
                path[following] = (*path[name], following)
                todo.append(following)


# --- for processes that fire ---


class Events:
    """Fires the triggers of a store for which an event was requested."""

    def __init__(self, triggers: Triggers, offers: frozenset[str] | None = None) -> None:
        """`offers` are the workspaces that this process offers; None for all."""
        self._triggers = triggers
        self._offers = offers

    def offers(self, trigger: Trigger) -> bool:
        workspace = trigger.target.workspace
        return not workspace or self._offers is None or workspace in self._offers

    async def handle(self, job: Job) -> Job:
        kind = next(one for one in EVENT_TRIGGERS if job.kind == one.KIND)
        trigger = kind.of(job)
        now = self._triggers.now()
        if not self.offers(trigger):
            made = trigger.job(now, job.version)
            return made if made.due is None else msgspec.structs.replace(made, due=max(made.due, now + _ELSEWHERE))
        trigger = await self._triggers.work(trigger)
        return trigger.job(self._triggers.now(), job.version)

    async def event(self, trigger: EventTrigger, key: str, payload: Any) -> Firing | None:
        """Asks for a firing because of an event; None if the event is not one of the trigger's, or was seen before. Raises
        `AtLimit`, and notifies, if there is no room for it.
        """
        if not fits(trigger, payload) or trigger.knows(key):
            return None
        try:
            inputs = inputs_from(trigger, payload)
        except BadInput as error:
            return await self._triggers.refuse(trigger, key, str(error))
        try:
            made = await self._triggers.request(type(trigger), trigger.name, trigger.tenant, key, inputs)
        except AtLimit as error:
            await self._triggers.full(trigger, error, trigger.REFUSED)
            raise
        if made.suspended and not trigger.suspended:
            await self._triggers.suspended(made)
        return made.firing(key)

    async def ignore(self, webhook: Webhook, key: str) -> None:
        """Notes a request that is for an event of another kind, so that it cannot be sent again as one of ours."""
        if not webhook.knows(key):
            await self._triggers.alter(Webhook, webhook, lambda one: one.ignoring(key))
