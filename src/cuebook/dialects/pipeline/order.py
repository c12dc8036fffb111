"""What the steps of a pipeline have to do with each other and with the world, for continuing with a changed text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from cuebook.dialects.dialect import World
from cuebook.dialects.pipeline.model import Cli, Http, Llm, LocalRef, Mcp, Question, RunRef, Step, StepRef
from cuebook.dialects.pipeline.run.resolve import all_refs


def world(step: Step) -> World | None:
    """What a step has to do with the world around the run; None if it may depend on everything before it."""
    refs = list(all_refs(step))
    known = {"run", "previous"}
    if any(isinstance(ref, LocalRef) or (isinstance(ref, RunRef) and ref.source not in known) for ref in refs):
        return None
    if step.each is not None or step.until is not None or step.state or step.inner or step.takes:
        return None
    match step.action:
        case Question() | Llm(tools=()):
            return "none" if step.postcondition is None else None
        case Cli() | Http():
            return "reads" if step.reads_only else "writes"
        case Mcp():
            return "writes"
        case _:
            return None


def uses(steps: Sequence[Step], step: Step) -> frozenset[str]:
    """The steps whose results a step uses. An approval without chosen evidence shows what came before it."""
    found = {ref.step for ref in all_refs(step) if isinstance(ref, StepRef)} - {step.id}
    if step.approval and (step.asked is None or step.asked.show is None):
        found |= {one.id for one in steps[: steps.index(step)]}
    return frozenset(found)
