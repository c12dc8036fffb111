"""What a run would be asked before it is started: the policy's decision on each step, and on what its tools could do."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from cuebook.service.preview.rulings import ActRuling


class StepRuling(msgspec.Struct, frozen=True):
    """What would be asked in a step; one without a label comes before the first step."""

    act: ActRuling

    @property
    def asks(self) -> bool:
        return self.act.decision == "ask" or bool(self.asking_tools)

    @property
    def asking_tools(self) -> tuple[str, ...]:
        return tuple(one.tool for one in self.act.tools if one.decision == "ask")


def step_rulings(before: Iterable[ActRuling], acts: Iterable[ActRuling]) -> tuple[StepRuling, ...]:
    """The decisions on the steps that a run may reach, in their order. `before` reads the sources, which is shown only if
    it is not simply allowed.
    """
    return tuple(
        StepRuling(one)
        for one in (*(one for one in before if one.decision != "allow"), *acts)
        if one.act.runs is not False
    )
