"""What an assistant is kept from, whatever it is told: to spend more than a person has set, and to decide what it had a hand in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuebook.gate.people import NotAllowed
from cuebook.kernel.events import Forked, Rewound, WaitClosed
from cuebook.kernel.run import Budget, RunRow
from cuebook.surfaces.mcp.calling import Call
from cuebook.surfaces.mcp.shapes import Amounts


def tightened(call: Call, wanted: Amounts) -> Budget:
    """What an assistant asks for, where that is less than what is configured."""
    configured = call.host.wiring.config.budget
    both = {name: (getattr(wanted, name), getattr(configured, name)) for name in Budget.__struct_fields__}
    return Budget(**{name: min((one for one in two if one is not None), default=None) for name, two in both.items()})


async def check_raised(call: Call, row: RunRow, wanted: Mapping[str, Any]) -> None:
    """An assistant raises what it set itself, up to what is configured. Everything else is for a person to raise."""
    service, who = call.host.service, call.caller.principal
    _, settings = await service.settings(row.id, who)
    for name, amount in wanted.items():
        now = getattr(settings.budget, name)
        most = getattr(call.host.wiring.config.budget, name) if row.owner == who.name else now
        if most is not None and amount is not None and amount > max(most, now or 0):
            raise _not_raised(call, row, name)
    waits = await service.store.waits(run=row.id)
    unpriced = any(wait.kind == "budget" and wait.details.get("code") == "unknown_price" for wait in waits)
    if unpriced and not call.host.may_raise(call.caller, row, "money"):
        raise _not_raised(call, row, "money")


def _not_raised(call: Call, row: RunRow, name: str) -> NotAllowed:
    return NotAllowed(
        f"An assistant does not raise the budget of {name} that a person has set.",
        fix=f"Ask the person to do it at {call.caller.link(row.id)}.",
    )


async def has_changed(call: Call, run: str) -> bool:
    """Whether the caller has had a hand in a run: answered in it, gone on with it, retried it or changed it."""
    who = call.caller.principal.name
    async for entry in call.host.service.engine.entries(run):
        match entry.event:
            case WaitClosed(kind="question" | "breakpoint" | "budget" | "secret", by=by) if by == who:
                return True
            case Rewound(by=by) | Forked(owner=by) if by == who:
                return True
    return False
