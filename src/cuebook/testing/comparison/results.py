"""The result of one run of a comparison: its output, what it used, and its verdict by the checks of its case."""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal, get_args

import msgspec

from cuebook.kernel.events import ENDED, WAITING
from cuebook.kernel.run import RunRow
from cuebook.service.comparisons import ComparedCase
from cuebook.service.runs.objects import final_output, known_cost
from cuebook.service.runs.views import RunView
from cuebook.service.service import PYTHON, Principal, Service
from cuebook.stores.refusals import PURGED_RUN
from cuebook.testing.cases import Expected
from cuebook.testing.expectations import Check, Mismatch, Outcome, checks
from cuebook.testing.outcomes import outcome_of

Verdict = Literal["passed", "failed", "waiting", "unfinished", "not started", "purged"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
CheckResult = Literal["passed", "failed", "not checked"]
_KEPT = 2_000
"""The number of judged runs that are remembered."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A run, judged by its case. Without a run, it was not started."""

    verdict: Verdict
    repetition: int = 0
    run: str = ""
    status: str = ""
    reason: str = ""
    """Why it failed, or what it waits for."""
    output: str | None = None
    checks: dict[str, CheckResult] = {}
    mismatches: tuple[Mismatch, ...] = ()
    cost: float | None = 0.0
    """None if nothing is known."""
    unknown_costs: int = 0
    tokens: int = 0
    seconds: float = 0.0


async def judged(
    service: Service,
    row: RunRow,
    case: ComparedCase,
    who: Principal = Principal(),
    repetition: int = 0,
    view: RunView | None = None,
) -> Result:
    """A run with its verdict. What has ended is remembered until the run changes."""
    key = (row.id, row.updated, row.epoch, row.status, row.reason, msgspec.json.encode(case))
    known = _known.get(key)
    if known is None:
        known = await _judged(service, row, case, who, view)
        if row.status in ENDED:
            _known[key] = known
            while len(_known) > _KEPT:
                _known.popitem(last=False)
    return msgspec.structs.replace(known, repetition=repetition)


_known: OrderedDict[tuple[object, ...], Result] = OrderedDict()


async def _judged(service: Service, row: RunRow, case: ComparedCase, who: Principal, view: RunView | None) -> Result:
    view = view or await service.view(row.id, who)
    expected = msgspec.convert(case.expect, Expected)
    output = final_output(view)
    done = Result(
        verdict="unfinished",
        run=row.id,
        status=row.status,
        reason=_reason(row, view),
        output=None if output is None else str(output),
        cost=known_cost(row.totals),
        unknown_costs=row.totals.unknown_costs,
        tokens=row.totals.tokens,
        seconds=row.totals.seconds,
    )
    if row.reason == PURGED_RUN:
        return msgspec.structs.replace(done, verdict="purged")
    if row.status not in ENDED and row.status not in WAITING:
        return done
    if row.dialect == PYTHON:
        outcome = Outcome(status=row.status, error="" if row.error is None else str(row.error), step=row.step)
    else:
        unattended, system = case.unattended, bool(expected.system)
        outcome = await outcome_of(service, row, who, unattended=unattended, with_system=system, view=view)
    results: dict[str, CheckResult] = {}
    mismatches: list[Mismatch] = []
    for check in checks(expected):
        results[check.name], found = checked(check, outcome)
        mismatches += found
    verdict: Verdict = "failed" if "failed" in results.values() else "passed"
    return msgspec.structs.replace(
        done,
        verdict="waiting" if row.status in WAITING else verdict,
        checks=results,
        mismatches=tuple(mismatches),
    )


def checked(check: Check, outcome: Outcome) -> tuple[CheckResult, list[Mismatch]]:
    """The result of one check, and how the run differs."""
    found = list(check.find(outcome))
    if found and check.needs in outcome.unrecorded:
        return "not checked", []  # what only reads is not in the journal, so it may have been there
    return ("failed" if found else "passed"), found


def _reason(row: RunRow, view: RunView) -> str:
    if row.error is not None:
        return str(row.error)
    if row.status in WAITING and view.waits:
        return view.waits[0].prompt
    return row.reason
