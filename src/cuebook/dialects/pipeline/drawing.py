"""A pipeline as boxes and arrows: its steps in order, their conditions and approvals, loops, branches and sections, and the
outputs that each step uses."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from cuebook.dialects.pipeline.describe import around, doing
from cuebook.dialects.pipeline.model import Group as Steps
from cuebook.dialects.pipeline.model import Mcp, NodeCall, Parallel, Pipeline, Step
from cuebook.dialects.pipeline.run.resolve import own_refs
from cuebook.dialects.presentation.drawing import Arrow, ArrowKind, Chain, Drawing, Group, Progress

_ON_ERROR = {"continue": "continues if it fails", "skip_rest": "ends the run early if it fails"}


def drawing(pipeline: Pipeline, progress: Progress | None = None) -> Drawing:
    made = _Made(pipeline, Chain(progress))
    made.chain.add("start", "start", [pipeline.name, *([f"args: {', '.join(pipeline.args)}"] if pipeline.args else [])])
    made.steps(pipeline.steps)
    if pipeline.on_failure:
        ends, made.chain.loose = made.chain.loose, [("start", "if a step fails", "otherwise")]
        made.steps(pipeline.on_failure, made.group("on_failure", "on failure"))
        made.chain.loose = [*ends, *made.chain.loose]
    if pipeline.finally_:
        made.steps(pipeline.finally_, made.group("finally", "finally"))
    made.chain.add("finish", "end", ["end"])
    return made.drawing()


class _Made:
    """The drawing while it is made."""

    def __init__(self, pipeline: Pipeline, chain: Chain) -> None:
        self._pipeline, self.chain = pipeline, chain
        self._names = {step.id: f"s{number}" for number, step in enumerate(pipeline.every, start=1)}
        self._groups: list[Group] = []

    def drawing(self) -> Drawing:
        made = self.chain.drawing(self._pipeline.name)
        uses = [
            Arrow(self._names[one], self._names[step.id], kind="data")
            for step in self._pipeline.every
            for one in dict.fromkeys(ref.step for ref in own_refs(step))
            if one in self._names and one != step.id
        ]
        return msgspec.structs.replace(made, arrows=(*made.arrows, *uses), groups=tuple(self._groups))

    def group(self, id: str, title: str) -> str:
        self._groups.append(Group(id, title))
        return id

    def steps(self, steps: tuple[Step, ...], group: str = "") -> None:
        for step in steps:
            self._step(step, group)

    def _step(self, step: Step, group: str) -> None:
        id, chain, first = self._names[step.id], self.chain, len(self.chain.boxes)
        if step.condition is not None:
            chain.add(f"{id}_if", "choice", [step.condition_text])
            chain.loose = [(f"{id}_if", "yes", "way")]
        if step.approval:
            chain.add(f"{id}_ask", "person", ["approval"])
        chain.add(id, "tool" if isinstance(step.action, Mcp | NodeCall) else "step", _lines(step), step.id)
        for number in range(first, len(chain.boxes)):
            chain.boxes[number] = msgspec.structs.replace(chain.boxes[number], group=group)
        self._inside(step, id, group)
        if step.condition is not None:
            chain.loose.append((f"{id}_if", "no", "otherwise"))

    def _inside(self, step: Step, id: str, group: str) -> None:
        chain = self.chain
        match step.action:
            case Steps(steps=steps):
                self.steps(
                    steps, self.group(f"{id}_each", f"{step.id}: each {step.each.name if step.each else 'item'}")
                )
            case Parallel(mode=mode, lanes=lanes):
                ends: list[tuple[str, str, ArrowKind]] = []
                for lane in lanes:
                    chain.loose = [(id, lane.name, "fan")]
                    self.steps(lane.steps, group)
                    ends += [(box, "first" if mode == "any" else label, "join") for box, label, _ in chain.loose]
                chain.loose = ends
        ends = list(chain.loose)
        for name, reaction in (("denied", step.on_denied), ("expired", step.on_expired)):
            if reaction is not None and reaction.steps:
                chain.loose = [(f"{id}_ask" if step.approval else id, name, "otherwise")]
                self.steps(reaction.steps, group)
                ends += chain.loose
        chain.loose = ends


def _lines(step: Step) -> Iterator[str]:
    yield f"{step.id}: {step.name}" if step.name else step.id
    yield doing(step)
    if step.each is not None or step.until is not None:
        yield around(step)[0]
    if step.on_error in _ON_ERROR:
        yield _ON_ERROR[step.on_error]
