"""Which commands depend on what came from outside: on the words of a model, a server or a tool. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from posixpath import basename
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Cli, Step
from cuebook.dialects.pipeline.resolve import refs
from cuebook.programs import WRAPPERS, is_interpreter

_SAID = ("stdout", "json", "errorMessage")
"""Fields of a result that hold somebody's words."""


def marked(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps, each command that depends on words from outside marked as one. Steps refer to earlier ones only."""
    outside: set[str] = set()
    for step in steps:
        if not isinstance(step.action, Cli):
            outside.add(step.id)
            yield step
            continue
        told = _from(outside, (step.action, step.env))
        fed = _from(outside, step.stdin)
        if told or fed:
            outside.add(step.id)
        obeys = told or (fed and _interprets(step.action))
        yield msgspec.structs.replace(step, from_outside=True) if obeys else step


def _from(outside: set[str], value: Any) -> bool:
    return any(ref.step in outside and ref.path[0] in _SAID for ref in refs(value))


def _interprets(action: Cli) -> bool:
    """Whether it does as its input says: its program, or one that this starts, as `timeout 5 sh` does. What a reference
    names may be any program.
    """
    starts = False
    for word in action.argv:
        name = word.parts[0] if word.parts else ""
        first = word is action.argv[0]
        if (first or starts) and (is_interpreter(name) if isinstance(name, str) else True):
            return True
        starts = starts or (first and basename(str(name)) in WRAPPERS)
    return False
