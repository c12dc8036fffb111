"""Standing permissions: what an approver allows the runs of one trigger to do without asking, as long as nothing changes.

A permission lists single actions of single effects: a command with exactly this input and environment, a request with exactly
this body. It holds for the playbook and the policy that the approver saw, until it expires, and while its giver is an approver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cuebook.gate.approvals import effect_digest
from cuebook.gate.policy import Override
from cuebook.gate.roles import Principal, User
from cuebook.kernel.context import digest_of
from cuebook.kernel.effects import AskModel, Effect, ReadSource
from cuebook.kernel.run import RunRow

STANDING = "standing"
"""The kind of the records: one for each trigger, by the name that its runs record."""


class Allowed(msgspec.Struct, frozen=True):
    """An action that is allowed in advance."""

    domain: str
    pattern: str
    step: str = ""
    """The step that would ask about it."""
    effect: str = ""
    """Identifies the effect that may do it: see `effect_key`."""


class Standing(msgspec.Struct, frozen=True):
    """A standing permission."""

    trigger: str
    playbook: str
    """The digest of the playbook, with everything that it imports."""
    policy: str
    """The digest of the policy."""
    allowed: tuple[Allowed, ...]
    by: str
    at: float
    """When it was given: it does not hold for runs that were started before."""
    expires: float

    def problem(self, playbook: str, policy: str, now: float) -> str:
        """Why it does not hold for a run of this playbook under this policy, as a sentence; empty if it holds."""
        if now >= self.expires:
            return "It has expired."
        if playbook != self.playbook:
            return "The playbook has changed since."
        if policy != self.policy:
            return "The policy has changed since."
        return ""


def may_still_allow(standing: Standing, users: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the person who gave it could still give it, by the records of the users."""
    local, body = Principal(), users.get(standing.by)
    if standing.by == local.name or body is None:
        return standing.by == local.name
    return Principal(standing.by, roles=frozenset(msgspec.convert(body, User).all_roles)).may("approver")


def effect_key(effect: Effect) -> str:
    """Identifies an effect with everything that it sends. A model may be asked, and a text read, whatever for."""
    return type(effect).__name__ if isinstance(effect, AskModel | ReadSource) else effect_digest(effect)


def standing_overrides(
    records: Mapping[str, Mapping[str, Any]], run: RunRow, snapshot: str | None, effect: Effect, now: float
) -> Sequence[Override]:
    """The actions that an effect of a run may perform because of its trigger. A fork of the run, or a child, has none of them."""
    body = records.get(run.trigger)
    if body is None or run.parent or run.caller or snapshot is None:
        return ()
    found = msgspec.convert(body, Standing)
    if found.at > run.created or found.problem(run.playbook, digest_of(snapshot), now):
        return ()
    key = effect_key(effect)
    return [
        Override(f"{STANDING} {found.trigger}", one.domain, one.pattern, found.by, found.at, found.expires, tenant=run.tenant)  # type: ignore[arg-type]
        for one in found.allowed
        if one.effect == key
    ]  # fmt: skip
