"""Asks for what a pipeline refers to outside its own steps: the run's date, and what earlier runs left. Keeps values for
later runs."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from cuebook.dialects.pipeline.model import Pipeline, Step
from cuebook.dialects.pipeline.run.resolve import Scope, run_refs
from cuebook.dialects.pipeline.run.results import Facts, Result
from cuebook.kernel.effects import Now, Program, Recall, Remember
from cuebook.kernel.outcomes import EffectFailed, Failed, Moment, Source

T = TypeVar("T")

KEPT = "$state"
"""Key of what a branch has kept, in its result or in the details of its failure."""
EPOCH = datetime(1970, 1, 1)
"""The beginning of the time that `Now` counts, in UTC."""


def recalled(pipeline: Pipeline, scope: Scope) -> Program[None]:
    """Asks for everything that is not known yet, once for all steps, so that the whole run sees the same."""
    for ref in dict.fromkeys(run_refs((pipeline.steps, pipeline.on_failure, pipeline.finally_))):
        name = str(ref.path[0])
        match ref.source:
            case "run" if name == "date" and "date" not in scope.run:
                moment: Moment = yield Now()
                scope.run["date"] = (EPOCH + timedelta(seconds=moment.at)).isoformat()[:10]
            case "previous" if name not in scope.previous:
                found = yield Recall("output", name)
                scope.previous[name] = _result(found)
            case "state" if name not in scope.state:
                scope.state[name] = (yield Recall("state", name)).value


def _result(found: object) -> Result | None:
    if isinstance(found, Source):
        return Result(found.content)
    return Result(facts=Facts(truncated=True)) if getattr(found, "value", None) else None


def kept(step: Step, scope: Scope) -> Program[None]:
    """Keeps the values of a completed step for later runs."""
    for name, field in step.state.items():
        value = scope.field(field)
        yield Remember(name, value)
        scope.keep({name: value})


def settled(scope: Scope, values: Mapping[str, Any], *, again: bool) -> Program[None]:
    """Makes what branches kept visible after them. With `again`, several may have kept the same value at the same time, so the
    one that counts is kept again."""
    if again:
        for name, value in values.items():
            yield Remember(name, value)
    scope.keep(values)


def carrying(scope: Scope, branch: Program[T]) -> Program[T]:
    """A branch whose failure says what it has kept."""
    try:
        return (yield from branch)
    except EffectFailed as error:
        if not scope.kept:
            raise
        details = {**error.failed.details, KEPT: scope.kept}
        raise EffectFailed(msgspec.structs.replace(error.failed, details=details), error.seq) from None


def kept_by(outcome: Any) -> dict[str, Any]:
    """What a branch has kept, from what `All` returned."""
    found = outcome.details if isinstance(outcome, Failed) else outcome[0] if isinstance(outcome, tuple) else outcome
    return dict(found.get(KEPT, {}))
