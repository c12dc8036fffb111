"""The errors with which stores reject requests, shared by the SQLite and the in-memory store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from cuebook.kernel.errors import (
    AlreadyAnswered,
    Busy,
    Conflict,
    CuebookError,
    Fenced,
    Leased,
    NotFound,
    Refused,
    RunExists,
    StoreDamaged,
    StoreError,
    WaitClosed,
    WaitExpired,
)
from cuebook.kernel.events import ENDED
from cuebook.kernel.ports import Batch
from cuebook.kernel.run import Lease, Signal, StepRow, WaitRow


def no_run(run: str) -> NotFound:
    return NotFound(f"There is no run {run or repr(run)}.", fix="`cuebook runs` lists them.")


def run_exists(run: str) -> RunExists:
    return RunExists(f"Run {run} already exists.")


ALIKE = 20
"""The maximum number of runs or waits returned for an id prefix."""
LAST = "\U0010ffff"
"""Follows everything that begins with a prefix, if it is appended to it."""


def no_wait(wait: str) -> NotFound:
    return NotFound(f"There is no wait {wait}.", fix="`cuebook inbox` lists the open waits.")


RECENT = 600.0
"""Seconds for which a file is kept that no run names yet: it is stored before the record that names it."""
ERASED = "The contents of this run were purged."
PURGED_RUN = "purged"
"""The reason of a run whose contents were purged."""


def check_removable(run: str, status: str, held: bool, forks: Sequence[str], force: bool) -> None:
    """Rejects the removal of a run that others need. `forks` are the runs that were forked from it and stay."""
    if forks:
        raise Refused(f"Run {run} cannot be deleted: run {forks[0]} was forked from it.", fix="Delete that run first.")
    if force:
        return
    if held:
        raise Busy(f"Run {run} is being driven.", fix=f"Wait until it waits or ends, or run `cuebook cancel {run}`.")
    if status not in ENDED:
        raise Refused(
            f"Run {run} is {status.replace('_', ' ')}.",
            fix=f"`cuebook cancel {run}` ends it; --force deletes it as it is.",
        )


def damaged(what: str) -> StoreDamaged:
    return StoreDamaged(what, fix="Restore the store from a backup.")


def fenced(run: str) -> Fenced:
    return Fenced(f"Run {run} was taken over by another process; nothing more was recorded from this process.")


def gap(batch: Batch, head: int) -> StoreError:
    return StoreError(
        f"Run {batch.run} ends at record {head}, but the next record is {batch.records[0].seq}.",
        fix="An earlier write failed. Resume the run.",
    )


def check_signal(signal: Signal, status: str, *, under_way: bool) -> None:
    """Rejects a signal that comes too late, and a retry of a run that a live driver is about to retry."""
    if signal.kind == "late":
        return
    if signal.kind == "retry":
        if status not in ("failed", "cancelled", "expired"):
            fix = f"`cuebook restart {signal.run} STEP` repeats a step and all later steps in a new run."
            raise Refused(
                f"Run {signal.run} is {status.replace('_', ' ')}: only a failed, cancelled or expired run can be retried.",
                fix=fix if status == "completed" else f"`cuebook show {signal.run}` shows what to do next.",
            )
        if under_way:
            raise Refused(f"Run {signal.run} is already being retried.")
    elif status in ENDED:
        raise Refused(f"Run {signal.run} is already {status}: there is nothing to {signal.kind}.")


def unfinished(step: StepRow) -> bool:
    """Whether a driver needs the step: it is open or pending, or it was cut off or failed and may be retried."""
    return step.cut or step.failed_at > 0 or (step.finished is None and step.status not in ("completed", "skipped"))


def attach_late(wait: WaitRow, payload: dict[str, Any]) -> bool:
    p = wait.place
    if wait.kind != "in_doubt" or [p.path, p.step, p.visit, p.index] != payload["key"]:
        return False
    wait.details = {**wait.details, "late": payload["outcome"]}
    return True


def take_lease(wait: WaitRow, lease: Lease, now: float) -> None:
    """Leases a wait, unless someone else has it."""
    held = wait.lease
    same = held is not None and (held.claim, held.by) == (lease.claim, lease.by)
    if held is not None and not same and held.until > now:
        raise Leased(
            f"{held.through or held.by} is working on this step.",
            fix=f"Another assistant may take it over in {max(1, round(held.until - now))} s, unless it is completed before.",
        )
    if held is not None:
        since = held.since if same else lease.since
        lease = msgspec.structs.replace(lease, since=since, refused=(*held.refused, *lease.refused))
    wait.lease = lease


def check_claim(wait: WaitRow, claim: str | None, by: str) -> None:
    """Raises `Leased` if a wait that needs a claim is not leased under this one."""
    held = wait.lease
    if claim is None or (held is not None and (held.claim, held.by) == (claim, by)):
        return
    if held is None:
        raise Leased("No one has taken this step with this claim.", fix="Take the step first.")
    raise Leased(
        f"{held.through or held.by} has taken over this step, so this result was not used.",
        fix="Take the next step instead.",
    )


def in_order(steps: list[StepRow]) -> list[StepRow]:
    """The steps in the order in which they began; pending steps in the planned order."""
    return sorted(steps, key=lambda step: (step.seq == 0, step.seq, step.position))


def refusal(wait: str, state: str, by: str, over: bool) -> CuebookError:
    """The error for a wait that cannot be decided. `over` means that it has expired."""
    who = f" by {by}" if by else ""
    match state:
        case "open" | "expired":
            return WaitExpired(f"The wait {wait} has expired.", fix="Restart the run from that step.")
        case "closed" if over and not by:
            return WaitExpired(f"The wait {wait} has expired.", fix="Restart the run from that step.")
        case "cancelled":
            return WaitClosed(f"The wait {wait} is closed: its run was cancelled.")
        case "closed" if not by:
            return WaitClosed(f"The wait {wait} is closed: its run is no longer waiting for it.")
        case _:
            return AlreadyAnswered(f"The wait {wait} was already decided{who}.")


def changed_meanwhile(kind: str, name: str) -> Conflict:
    return Conflict(
        f"The {kind} '{name}' was changed in the meantime; nothing was done.", fix="Look at it, then try again."
    )


def does_not_follow(tenant: str) -> Conflict:
    return Conflict(
        f"The audit of administrative acts of tenant {tenant} has other acts here.",
        fix="Copy to a new file or an empty database.",
    )
