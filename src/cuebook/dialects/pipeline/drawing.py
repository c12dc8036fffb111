"""A pipeline as boxes and arrows: its steps in order, their conditions and approvals, and the outputs that each step
uses."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cuebook.dialects.pipeline.describe import doing
from cuebook.dialects.pipeline.model import Mcp, Pipeline, Step
from cuebook.dialects.pipeline.run.resolve import referred
from cuebook.dialects.presentation.drawing import Arrow, Chain, Drawing, Progress

_ON_ERROR = {"continue": "continues if it fails", "skip_rest": "ends the run early if it fails"}


def drawing(pipeline: Pipeline, progress: Progress | None = None) -> Drawing:
    chain = Chain(progress)
    chain.add("start", "start", [pipeline.name, *([f"args: {', '.join(pipeline.args)}"] if pipeline.args else [])])
    names = {step.id: f"s{number}" for number, step in enumerate(pipeline.steps, start=1)}
    for step in pipeline.steps:
        _add_step(chain, names[step.id], step)
    chain.add("finish", "end", ["end"])
    made = chain.drawing(pipeline.name)
    uses = [
        Arrow(names[one], names[step.id], kind="data")
        for step in pipeline.steps
        for one in referred(step)
        if one in names
    ]
    return msgspec.structs.replace(made, arrows=(*made.arrows, *uses))


def _add_step(chain: Chain, id: str, step: Step) -> None:
    if step.condition is not None:
        chain.add(f"{id}_if", "choice", [step.condition_text])
        chain.loose = [(f"{id}_if", "yes", "way")]
    if step.approval:
        chain.add(f"{id}_ask", "person", ["approval"])
    chain.add(id, "tool" if isinstance(step.action, Mcp) else "step", _lines(step), step.id)
    if step.condition is not None:
        chain.loose.append((f"{id}_if", "no", "otherwise"))


def _lines(step: Step) -> Iterator[str]:
    yield f"{step.id}: {step.name}" if step.name else step.id
    yield doing(step)
    if step.on_error in _ON_ERROR:
        yield _ON_ERROR[step.on_error]
