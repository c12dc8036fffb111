"""What came of a run of a program, as frozen values for whoever asks: what was said, and how it came about. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from cuebook.dialects.program.observe import Refusal, Said, Standing, seen
from cuebook.kernel.journal import Entry


class ProgramRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a program, as far as it has come."""

    said: tuple[Said, ...]
    """By the program and by the user, in order."""
    lines: tuple[str, ...]
    """Every line that was gone through, as in `Main:02`, and playbooks without lines by their names."""
    calls: tuple[str, ...]
    """The playbooks that were called."""
    stack: tuple[Standing, ...]
    """The playbooks that are under way, the last one on top. Of a run that failed, as it stood then."""
    variables: dict[str, dict[str, Any]]
    """By agent and name."""
    triggers: tuple[str, ...]
    """Those that fired, as in `Enough:T1`."""
    refusals: tuple[Refusal, ...]
    """The replies that were not taken, each with the rule and what the model was told."""
    value: Any
    """What the program returned, once it has ended."""
    exited: bool
    """Whether the program ended itself, and did not just come to its end."""
    turns: int
    """How often a model was asked to go on."""
    without_model: int
    """Lines that needed no model. Of a run that has not ended, those up to its last checkpoint."""

    @property
    def messages(self) -> tuple[str, ...]:
        """What the program said to the user."""
        return tuple(one.text for one in self.said if one.by == "program" and one.to == "user")


def told_of(entries: Iterable[Entry]) -> ProgramRun:
    """`entries` are those that count."""
    run = seen(entries)
    ended: dict[str, Any] = run.result if isinstance(run.result, dict) else {}
    return ProgramRun(
        said=tuple(run.said),
        lines=tuple(run.trace),
        calls=tuple(run.calls),
        stack=tuple(run.stack),
        variables={**run.variables, **ended.get("variables", {})},
        triggers=tuple(run.triggers),
        refusals=tuple(run.refused),
        value=ended.get("value"),
        exited=bool(ended.get("exited")),
        turns=ended.get("model_calls", run.model_calls),
        without_model=run.without_model,
    )
