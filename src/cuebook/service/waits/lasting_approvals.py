"""Approvals that last: an approver may allow the same actions for the rest of the run, or for all runs.

Those of a run are recorded in its journal; the tenant's records say which were revoked. Those for all runs are the
tenant's overrides.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

import msgspec

from cuebook.gate.gate import revoked_in
from cuebook.gate.policy import Override
from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.events import WaitClosed
from cuebook.kernel.journal import Entry
from cuebook.kernel.ports import KeptRecord, Store
from cuebook.kernel.run import FOR_RUN, RunOverride, RunRow, WaitRow, overrides_in

Lasts = Literal["once", "run", "always"]
"""How long an approval lasts: for this action once, for the same actions in the rest of the run, or for all runs."""
LASTING: tuple[Lasts, ...] = get_args(Lasts)

SEPARATOR = "."
"""Between the id of a run and the rest of its overrides' ids."""


# --- at the approval ---


def offered(row: WaitRow) -> list[list[tuple[str, str]]]:
    """What an approver of this wait may allow beyond the one action: lists of domains and patterns to choose from."""
    return [[(str(domain), str(pattern)) for domain, pattern in one] for one in row.details.get("offers", ())]


def lasting(
    row: WaitRow, decision: str, lasts: str, offer: int, who: Principal, now: float
) -> tuple[dict[str, Any], tuple[KeptRecord, ...]]:
    """What an approval also allows: its part of the answer, and the overrides to store with it. Only what was offered with
    the approval, and so shown before it, can be allowed.
    """
    if lasts not in LASTING:
        raise BadInput(f"An approval cannot last '{lasts}'.", fix=f"Use one of: {', '.join(LASTING)}.")
    if lasts == "once":
        return {}, ()
    if decision != "approve":
        raise BadInput(f"Only an approval can last; '{decision}' applies once.", fix="Leave out how long it lasts.")
    choices = offered(row)
    if not choices:
        why = row.details.get("once_only") or "it does not say what else to allow"
        raise BadInput(f"This can only be approved once: {why}.", fix="Approve it once, or deny it.")
    if not 1 <= offer <= len(choices):
        raise BadInput(f"There is no offer {offer}; there are {len(choices)}.", fix="`cuebook inbox` shows them.")
    made = [_override(row, domain, pattern, lasts, who, now) for domain, pattern in choices[offer - 1]]
    listed = [{"id": one.id, "domain": one.domain, "pattern": one.pattern} for one in made]
    if lasts == "run":
        return {"lasts": lasts, FOR_RUN: listed}, ()
    kept = tuple(KeptRecord(row.tenant, "override", one.id, msgspec.to_builtins(one)) for one in made)
    return {"lasts": lasts, "for_all": listed}, kept


def _override(row: WaitRow, domain: str, pattern: str, lasts: str, who: Principal, now: float) -> Override:
    from cuebook.gate.policy.overrides import check_override

    check_override(domain, pattern)  # type: ignore[arg-type]
    name = f"{row.run}{SEPARATOR}{secrets.token_hex(3)}" if lasts == "run" else f"o{secrets.token_hex(4)}"
    return Override(name, domain, pattern, who.name, now, tenant=row.tenant)  # type: ignore[arg-type]


# --- afterwards ---


def granted(entries: Iterable[Entry], row: RunRow) -> list[RunOverride]:
    """The overrides that the run's own records grant. A retry does not undo them; a fork does not inherit them."""
    return [
        one
        for entry in entries
        if isinstance(entry.event, WaitClosed) and entry.seq >= row.parent_seq
        for one in overrides_in(entry.event.answer, entry.event.by, entry.at)
    ]


async def overrides_of(store: Store, row: RunRow, entries: Iterable[Entry]) -> tuple[Override, ...]:
    """The overrides of a run, including revoked ones, oldest first."""
    found = granted(entries, row)
    revoked = await store.kept(row.tenant, revoked_in(row.id)) if found else {}
    return tuple(_known(one, row, revoked.get(one.id)) for one in found)


def _known(one: RunOverride, row: RunRow, revoked: Mapping[str, Any] | None) -> Override:
    made = Override(one.id, one.domain, one.pattern, one.by, one.created, tenant=row.tenant, run=row.id)  # type: ignore[arg-type]
    if revoked is None:
        return made
    return msgspec.structs.replace(made, revoked=True, revoked_by=str(revoked["by"]), revoked_at=float(revoked["at"]))


async def revoke(store: Store, row: RunRow, known: Iterable[Override], name: str, who: Principal, now: float) -> None:
    """Revokes an override of a run. It applies from the next effect on, in every process that drives the run."""
    one = next((one for one in known if one.id == name), None)
    if one is None:
        raise NotFound(
            f"Run {row.id} has no override '{name}'.", fix=f"`cuebook policy overrides --run {row.id}` lists them."
        )
    if not one.revoked:
        await store.keep(row.tenant, revoked_in(row.id), name, {"by": who.name, "at": now})
