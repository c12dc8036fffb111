"""Takes an effect through the gate: it is examined, approved by someone if needed, and only then performed.

The gate decides what is allowed; this module decides what happens when an approval is denied or expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cuebook.kernel.capabilities import comes_and_goes
from cuebook.kernel.effects import Acting, AskApproval, Effect
from cuebook.kernel.errors import CuebookError, Elsewhere, StoreError, with_fix
from cuebook.kernel.events import WaitClosed
from cuebook.kernel.journal import Key
from cuebook.kernel.outcomes import LACKS_SECRET, REQUESTED, Failed
from cuebook.kernel.ports import Action, Admitted, Case, Needed
from cuebook.kernel.votes import APPROVE, CHANGES, DENY, RULE

if TYPE_CHECKING:
    from cuebook.kernel.engine.driver import Driver, Line

T = TypeVar("T")

CANCELLED = Failed("cancelled", "Cancelled.")
CUT_OFF = Failed("cancelled", "Cancelled while it was under way.", details={"in_doubt": True})
"""The failure of a cancelled effect that may have happened anyway."""


def _everything(action: Action) -> Failed | None:
    return None


UNGUARDED = Admitted(_everything, dict)
"""The ruling if there is no gate."""


async def admit(driver: Driver, line: Line, key: Key, effect: Effect) -> Admitted | Failed:
    """Decides whether the effect may be performed; waits for the user whenever something new needs approval."""
    missing = await present(driver, line, key, effect)
    if missing is not None:
        return missing
    gate = driver.engine.gate
    if gate is None:
        return await _asked_for(driver, line, key, effect) if isinstance(effect, AskApproval) else UNGUARDED
    refused = _refused_before(driver, key)
    if refused is not None:
        return refused
    granted = _granted_before(driver, key)
    asked, missed = 0, count(1)
    held = False
    asked_about: dict[str, Any] = {}
    while True:
        settings = driver.settings_at(key[0])
        case = Case(
            driver.row,
            settings,
            driver.recorded.policy,
            granted,
            tuple(driver.outermost.recorded.overrides),
            driver.outermost.run_id,
        )
        ruling = await _examined(driver, line, effect, case)
        if isinstance(ruling, Failed) and ruling.details.get(LACKS_SECRET):
            if await _secret_awaited(driver, line, key, ruling, f"secret:{next(missed)}"):
                continue
            return CANCELLED
        if not isinstance(ruling, Needed):
            refused = _refused_before(driver, key)  # the user may have been faster than the gate
            driver.waits.close_cancelled(key, "approval:")  # an open question that is now obsolete
            return refused or ruling
        asked += 1
        purpose = f"approval:{asked}"
        before = driver.recorded.opened.get((key, f"approval:{asked - 1}"))
        again = _changed(before.details if before is not None else asked_about, ruling.details)
        asked_about = ruling.details
        details = {**ruling.details, **again, "digest": ruling.digest, "on_expiry": ruling.on_expiry, "held": held}
        closed = await driver.waits.wait(
            line,
            key,
            "approval",
            ruling.prompt,
            purpose=purpose,
            options=_decisions(effect),
            expires_after=None if held else ruling.expires_after,
            details=details,
            whole=ruling.whole,
        )
        if closed.how == "answered":
            if closed.answer.get("decision") != APPROVE:
                return _refused(closed)
            digest = str(closed.answer.get("digest", ""))
            granted |= {digest}
            if ruling.trust is not None and digest == ruling.digest:
                await gate.trusted(ruling.trust, driver.row, closed.by)
            continue
        if closed.how == "cancelled":
            if not driver.stops(line):  # withdrawn when no approval was needed, but needed again now
                continue
            return CANCELLED
        opened = driver.recorded.opened.get((key, purpose))
        outcome = _expired((opened.details if opened is not None else details).get("on_expiry"))
        if outcome is not None:
            return outcome
        held = True


async def _secret_awaited(driver: Driver, line: Line, key: Key, lacking: Failed, purpose: str) -> bool:
    """Waits until someone resumes the run, because a secret of this effect is unavailable. Returns False if it was cancelled."""
    prompt, details = with_fix(lacking.message, lacking.fix), {"code": lacking.code}
    closed = await driver.waits.wait(line, key, "secret", prompt, purpose=purpose, details=details)
    return closed.how == "answered"


async def present(driver: Driver, line: Line, key: Key, effect: Effect, patience: float | None = None) -> Failed | None:
    """Waits until everything that an effect needs is here: in another process, which then continues the run, or in this one.
    Returns the failure if it did not come in time, or if the branch is cancelled.
    """
    limited = driver.engine.awaiting(effect)
    seconds = limited.patience(effect) if limited is not None and patience is None else patience
    while True:
        lacking = driver.engine.lacking(effect, driver.settings_at(key[0]), driver.row.tenant)
        if limited is not None and not driver.waits.came(key, here=not lacking):
            return await limited.missing(effect, driver.run_id, seconds or 0)
        if not lacking:
            return None
        limit = seconds if all(comes_and_goes(name) for name in lacking) else None
        await driver.waits.hand_over(line, key, lacking, limit)
        if driver.stops(line):
            return CANCELLED


def _refused_before(driver: Driver, key: Key) -> Failed | None:
    """A denial of this effect since the last drive, by someone or by expiry. It applies regardless of the gate's
    current ruling.
    """
    for asked in count(1):
        opened = driver.recorded.opened.get((key, f"approval:{asked}"))
        if opened is None:
            return None
        closed = driver.waits.decided(key, f"approval:{asked}")
        if closed is not None and closed.how == "answered" and closed.answer.get("decision") != APPROVE:
            return _refused(closed)
        if closed is not None and closed.how == "expired":
            outcome = _expired(opened.details.get("on_expiry"))
            if outcome is not None:
                return outcome
    return None


def _granted_before(driver: Driver, key: Key) -> frozenset[str]:
    """The digests that users have approved for this effect, from the journal, so the effect is described only once. An
    approval of something that the effect relies on (a `Trust`) is not among them: the gate must rule on it before it is
    remembered.
    """
    granted: set[str] = set()
    for asked in count(1):
        opened = driver.recorded.opened.get((key, f"approval:{asked}"))
        if opened is None:
            return frozenset(granted)
        closed = driver.waits.decided(key, f"approval:{asked}")
        approved = closed is not None and closed.how == "answered" and closed.answer.get("decision") == APPROVE
        if closed is not None and approved and "bound" in opened.details:
            granted.add(str(closed.answer.get("digest", "")))
    raise AssertionError


async def _asked_for(driver: Driver, line: Line, key: Key, effect: AskApproval) -> Admitted | Failed:
    """The approval that an effect itself asks for. Without a gate it has neither approver roles nor an expiry."""
    details: dict[str, Any] = {"preview": effect.preview, "purpose": effect.purpose, "requester": driver.row.owner}
    if effect.rule is not None:
        details[RULE] = effect.rule.plain()
    closed = await driver.waits.wait(
        line, key, "approval", effect.approval, purpose="approval:1", options=_decisions(effect), details=details
    )
    if closed.how != "answered":
        return CANCELLED
    return UNGUARDED if closed.answer.get("decision") == APPROVE else _refused(closed)


def _changed(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    """The parts that changed since someone last approved this effect, which is why approval is requested again."""
    old, new = before.get("bound"), now.get("bound")
    if not isinstance(old, dict) or not isinstance(new, dict):
        return {}
    return {"changed": sorted(name for name in {*old, *new} if old.get(name) != new.get(name))}


async def _examined(driver: Driver, line: Line, effect: Effect, case: Case) -> Admitted | Needed | Failed:
    """The gate's ruling. Any error in the gate counts as a refusal, except `Elsewhere` and `StoreError`: they say nothing
    about the effect and end the drive. A run that was cancelled only has to finish, so `Elsewhere` refuses there too.
    """
    gate = driver.engine.gate
    assert gate is not None
    try:
        revealed = driver.engine.revealed(driver.run_id, effect)
        if revealed is not effect:
            case = msgspec.structs.replace(case, redactor=driver.redactor)
        return await interruptibly(driver, line, gate.examine(revealed, case))
    except CutShort as cut:
        return cut.failed
    except Elsewhere as error:
        if driver.cancel is None:
            raise
        return Failed.of(error)
    except StoreError:  # the run continues when the store can be used again
        raise
    except CuebookError as error:
        return Failed.of(error)
    except Exception as error:
        return Failed("gate_error", f"'{effect.fingerprint}' could not be checked: {type(error).__name__}: {error}")


def _decisions(effect: Effect) -> tuple[str, ...]:
    rule = effect.rule if isinstance(effect, Acting) else None
    return (APPROVE, DENY, *((CHANGES,) if rule is not None and rule.changes else ()))


def _refused(closed: WaitClosed) -> Failed:
    """The failure of an effect that was not approved."""
    reason = str(closed.answer.get("reason", "")).strip()
    if closed.answer.get("decision") == CHANGES:
        asked = {"feedback": reason, "by": closed.by, "to": str(closed.answer.get("to", ""))}
        return Failed(REQUESTED, f"{closed.by or 'Someone'} asked for changes: {reason}", details={"changes": asked})
    return Failed("denied", f"{closed.by or 'Someone'} denied it{f': {reason}' if reason else '.'}")


def _expired(on_expiry: Any) -> Failed | None:
    """The outcome of an approval that was not given in time. Returns None if it waits indefinitely."""
    match on_expiry:
        case "hold":
            return None
        case "deny":
            return Failed("denied", "It was not approved in time, so the policy denies it.")
        case _:
            return Failed("expired", "It was not approved in time.", fix="Restart the run from that step.")


class CutShort(Exception):
    """The awaited work was cut short: the run was cancelled, or its performer stopped it."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


async def interruptibly(driver: Driver, line: Line, work: Awaitable[T], doubt: bool = False) -> T:
    """Awaits work that a cancellation of the run may interrupt. If that happens, raises `CutShort`."""
    line.interruptible = True
    try:
        return await work
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling() == 0:
            raise CutShort(Failed("performer_error", "It was cancelled by its own performer.")) from None
        if not driver.stops(line) or driver.finishing:
            raise
        task.uncancel()
        raise CutShort(CUT_OFF if doubt else Failed(CUT_OFF.code, CUT_OFF.message)) from None
    finally:
        line.interruptible = False
