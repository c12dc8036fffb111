"""What ends when a user is removed, so that nothing of theirs passes to a later user of the same name.

The name stays reserved for the same person while the store has anything of theirs: see `check_is_new`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.gate.roles import Principal, User
from cuebook.gate.standing_permissions import STANDING
from cuebook.kernel.errors import BadInput
from cuebook.kernel.notices import notice
from cuebook.kernel.ports import Store
from cuebook.kernel.ports.admin_acts import KeptChange
from cuebook.service.access.people import FORMER, GROUPS
from cuebook.service.notifications.erasure import forget_messages
from cuebook.service.notifications.people import LINK, PREFERENCES
from cuebook.service.triggers.events import EVENT_TRIGGERS
from cuebook.service.triggers.schedules import Schedule
from cuebook.service.triggers.trigger import Trigger

if TYPE_CHECKING:
    from cuebook.service.admin import Administration

TRIGGERS: tuple[type[Trigger], ...] = (Schedule, *EVENT_TRIGGERS)


class Departure(msgspec.Struct, frozen=True):
    """What ended with a user."""

    name: str
    suspended: tuple[str, ...] = ()
    """Their schedules and other triggers, as `schedule:nightly`."""
    withdrawn: tuple[str, ...] = ()
    """The triggers whose standing permissions they had given."""
    accounts: int = 0
    """How many Slack accounts decided as them."""


class Former(msgspec.Struct, frozen=True):
    """A user who was removed."""

    at: float
    issuer: str = ""
    subject: str = ""

    def is_identity(self, issuer: str, subject: str) -> bool:
        """Whether this is who the identity provider says: a subject never passes to someone else."""
        return bool(subject) and (self.issuer, self.subject) == (issuer, subject)


async def depart(
    store: Store, records: Administration, user: User, body: dict[str, Any], now: float, who: Principal
) -> Departure:
    """Removes a user with everything that is bound to their name. Their runs stay."""
    tenant, name = who.tenant, user.name
    theirs = [one for one in await _triggers(store, tenant) if one.owner == name]
    given = await _given(store, tenant, name)
    bound = await bindings(store, tenant, name)
    accounts = sum(one.kind == LINK for one in bound)
    former = await store.kept(tenant, FORMER)
    tombstone = msgspec.to_builtins(Former(now, user.issuer, user.subject))
    names = tuple(one.trigger for one in theirs)
    withdrawn = tuple(one.name for one in given)
    details = {"roles": list(user.roles), "suspended": names, "withdrawn": withdrawn, "accounts": accounts}
    changes = [
        KeptChange(tenant, "user", name, body, None),
        KeptChange(tenant, FORMER, name, former.get(name), tombstone),
        *bound,
        *given,
    ]
    await records.record_act("user.remove", name, who, {k: v for k, v in details.items() if v}, changes=changes)
    for one in theirs:
        await _suspend(store, records, one, now)
    await forget_messages(store, tenant, name)
    return Departure(name, names, withdrawn, accounts)


async def check_is_new(store: Store, tenant: str, name: str) -> str:
    """Why a new person must not get this name, as a clause; empty if there is no trace of an earlier user of the name."""
    if name in await store.kept(tenant, FORMER):
        return "was removed, and has left a trace"
    if await store.runs(tenant=tenant, owner=name, limit=1):
        return "has runs here"
    if any(one.owner == name for one in await _triggers(store, tenant)):
        return "has schedules or other triggers here"
    return ""


async def is_former(store: Store, tenant: str, name: str, issuer: str, subject: str) -> bool:
    """Whether the earlier user of this name is who the identity provider says."""
    body = (await store.kept(tenant, FORMER)).get(name)
    return body is not None and msgspec.convert(body, Former).is_identity(issuer, subject)


async def removed_at(store: Store, tenant: str, issuer: str, subject: str) -> float:
    """When a user who was this person for the identity provider was last removed, under whatever name; 0 if never."""
    former = [msgspec.convert(body, Former) for body in (await store.kept(tenant, FORMER)).values()]
    return max((one.at for one in former if one.is_identity(issuer, subject)), default=0.0)


async def arrivals(store: Store, tenant: str, name: str) -> list[KeptChange]:
    """What to remove when a user of this name is added: the note of an earlier one, and what an older version left of them."""
    body = (await store.kept(tenant, FORMER)).get(name)
    gone = [] if body is None else [KeptChange(tenant, FORMER, name, body, None)]
    return [*gone, *await bindings(store, tenant, name)]


async def bindings(store: Store, tenant: str, name: str) -> list[KeptChange]:
    """The removal of a person's preferences and groups, and of the Slack accounts that decide as them."""
    own = {kind: (await store.kept(tenant, kind)).get(name) for kind in (PREFERENCES, GROUPS)}
    links = (await store.kept(tenant, LINK)).items()
    return [
        *(KeptChange(tenant, kind, name, body, None) for kind, body in own.items() if body is not None),
        *(KeptChange(tenant, LINK, account, body, None) for account, body in links if body["person"] == name),
    ]


# --- inside ---


async def _triggers(store: Store, tenant: str) -> Sequence[Trigger]:
    return [kind.of(job) for kind in TRIGGERS for job in await store.jobs(kind.KIND, tenant)]


async def _given(store: Store, tenant: str, name: str) -> list[KeptChange]:
    """The withdrawal of the standing permissions that a person gave."""
    kept = (await store.kept(tenant, STANDING)).items()
    return [KeptChange(tenant, STANDING, trigger, body, None) for trigger, body in kept if body["by"] == name]


async def _suspend(store: Store, records: Administration, trigger: Trigger, now: float) -> None:
    """Suspends a trigger whose owner is removed. What was asked of it is skipped, and not made up for later."""
    reason = f"Its owner, {trigger.owner}, was removed."
    while (job := await store.job(trigger.tenant, trigger.KIND, trigger.name)) is not None:
        found = type(trigger).of(job)
        if found.owner != trigger.owner:
            return
        for firing in (*found.requested, *([found.queued] if found.queued else ())):
            skipped = msgspec.structs.replace(firing, state="skipped", reason=reason, inputs={}, done=now)
            found = found.recorded(skipped)
        stopped = msgspec.structs.replace(found, suspended=reason, requested=(), queued=None)
        if await store.put_job(stopped.job(now, job.version)) is not None:
            break
    else:
        return
    kind, command = trigger.COMMAND.capitalize(), f"cuebook {trigger.COMMAND}"
    fix = f"`{command} resume {trigger.name}` resumes it if they are added again."
    key = f"{trigger.trigger}.{trigger.created:.3f}.departed"
    text = f"{kind} '{trigger.name}' is suspended. {reason} {fix}"
    made = notice(
        trigger.tenant, "schedule", at=now, key=key, playbook=trigger.target.name, owner=trigger.owner, text=text
    )
    await records.notify(made)


def taken(name: str, why: str) -> BadInput:
    """Refuses an earlier user's name to a new one."""
    return BadInput(
        f"An earlier user named '{name}' {why}, which would be the new user's. Nothing was changed.",
        fix=f"Choose another name. If this is the same person, `cuebook users add {name} --role ROLE --same-person` adds them"
        f" again. `cuebook erase --owner {name}` removes what was theirs.",
    )
