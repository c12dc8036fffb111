"""A step that starts another playbook as a child: its approval, its inputs and its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Child, Secret, Step
from cuebook.dialects.pipeline.run.outputs import broken_off
from cuebook.dialects.pipeline.run.resolve import Scope
from cuebook.dialects.pipeline.run.results import ENDING, Facts, Result
from cuebook.kernel.effects import AskApproval, Program, RunPlaybook
from cuebook.kernel.outcomes import EffectFailed, PlaybookResult
from cuebook.kernel.votes import Rule


def running(
    step: Step, action: Child, scope: Scope, shown: Mapping[str, str], approval: str, rule: Rule | None = None
) -> Program[Result]:
    """The result of a child, once its start was approved, if the step asks for that. Its output is the child's artifact."""
    inputs = given(action, scope)
    if approval:
        looked = {"playbook": action.playbook, "inputs": msgspec.json.encode(inputs).decode(), **shown}
        yield AskApproval(approval=approval, rule=rule, preview=looked)
    try:
        done: PlaybookResult = yield RunPlaybook(action.playbook, inputs)
    except EffectFailed as error:
        if error.failed.code in ENDING:
            raise
        return broken_off(step, error.failed, error.seq).but(approved=step.approval)
    is_text = step.output is not None and step.output.type == "text"
    return Result(done.text, Facts(is_text, approved=step.approval, files={one.name: one for one in done.files}))


def given(action: Child, scope: Scope) -> dict[str, Any]:
    """The inputs with their references resolved. A secret is passed on as its handle."""
    found: dict[str, Any] = {}
    for name, value in action.inputs.items():
        if not isinstance(value, Secret):
            found[name] = scope.field(value)
        elif scope.has(value):
            found[name] = scope.handle(value)
    return found
