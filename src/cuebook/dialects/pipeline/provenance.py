"""Which commands depend on what came from outside: on the words of a model, a server or a tool. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from posixpath import basename
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Cli, Step
from cuebook.dialects.pipeline.resolve import refs
from cuebook.programs import FILTERS, WRAPPERS, is_interpreter

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
    """Whether it does as its input says: its program, or one that this may start, as in `timeout 5 sh` or `docker exec -i
    c sh`. What a reference names may be any program.
    """
    first, *rest = (word.parts[0] if word.parts else "" for word in action.argv)
    if not isinstance(first, str) or is_interpreter(first):
        return True
    program = basename(first)
    if program in FILTERS:
        return False
    # A word may be a whole command, as in `su -c "sh -s"`.
    return any(
        is_interpreter(word.strip().partition(" ")[0]) if isinstance(word, str) else program in WRAPPERS
        for word in rest
    )
