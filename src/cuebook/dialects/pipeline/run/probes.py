"""Looks at the world for the assertions of a postcondition that need it: files, and commands that only read."""

from __future__ import annotations

from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import (
    Assertion,
    CommandHolds,
    FileHolds,
    JsonPath,
    Postcondition,
    Step,
    references_of,
)
from cuebook.dialects.pipeline.run.action import Given, variables
from cuebook.dialects.pipeline.run.resolve import Scope
from cuebook.dialects.pipeline.run.results import ENDING
from cuebook.kernel.effects import Program, RunCommand
from cuebook.kernel.outcomes import CommandResult, EffectFailed

Seen = CommandResult | str
"""What a probe returned, or why there is none."""


def resolved(wanted: Postcondition, scope: Scope) -> Postcondition:
    """The postcondition with its references resolved, except in what its probes run."""
    found = (
        msgspec.structs.replace(one, **{name: _value(one, name, scope) for name in references_of(one)})
        for one in wanted.assertions
    )
    return msgspec.structs.replace(wanted, assertions=tuple(found))


def _value(assertion: Assertion, name: str, scope: Scope) -> Any:
    words = getattr(assertion, name)
    return scope.value(words) if isinstance(assertion, JsonPath) else scope.text(words)


def probed(step: Step, wanted: Postcondition, scope: Scope, given: Given) -> Program[dict[int, Seen]]:
    """The results of the probes, by the number of their assertion. They run where nothing can be changed."""
    found: dict[int, Seen] = {}
    for number, one in enumerate(wanted.assertions):
        if not isinstance(one, FileHolds | CommandHolds):
            continue
        try:
            found[number] = yield _probe(step, one, scope, given)
        except EffectFailed as error:
            if error.failed.code in ENDING:
                raise
            found[number] = error.failed.message
    return found


def _probe(step: Step, wanted: FileHolds | CommandHolds, scope: Scope, given: Given) -> RunCommand:
    if isinstance(wanted, CommandHolds):
        argv = tuple(scope.text(word) for word in wanted.argv)
    elif wanted.contains:
        argv = ("grep", "-q", "-F", "-e", str(wanted.contains), "--", scope.text(wanted.path))
    else:
        argv = ("test", "-e", scope.text(wanted.path))
    folder = "/".join(part for part in (given.cwd, step.cwd) if part)
    return RunCommand(argv, folder, variables(scope), reads_only=True, witnessed=True, attempt_at="probe")
