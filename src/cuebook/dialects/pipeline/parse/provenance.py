"""Finds the commands that depend on text from outside: from a model, a server or a tool. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from posixpath import basename
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import Cli, Question, Step, Words
from cuebook.dialects.pipeline.run.resolve import refs, run_refs
from cuebook.formats.executables import FILTERS, WRAPPERS, is_interpreter, makes_input_code, takes_code_from_input

_SAID = ("stdout", "json", "errorMessage", "stderr", "headers")
"""Fields of a result that contain text from outside."""


def marked(steps: Iterable[Step]) -> Iterator[Step]:
    """Marks the commands that depend on text from outside. Steps refer only to earlier steps."""
    outside: set[str] = set()
    for step in steps:
        if not isinstance(step.action, Cli):
            if not isinstance(step.action, Question):  # a person's answer is the user's own text
                outside.add(step.id)
            yield step
            continue
        named = _from(outside, (step.action, step.env))
        named = named or any(ref.step in outside for ref in refs(step.takes))  # it may be code
        fed = _from(outside, step.stdin)
        if named or fed:
            outside.add(step.id)
        obeys = named or (fed and _interprets(step, step.action))
        yield msgspec.structs.replace(step, from_outside=True) if obeys else step


def _from(outside: set[str], value: Any) -> bool:
    if any(ref.source not in ("run", "changes") for ref in run_refs(value)):
        return True  # an earlier run may have kept text from outside
    return any(ref.step in outside and ref.path[0] in _SAID for ref in refs(value))


def _interprets(step: Step, action: Cli) -> bool:
    """Whether a command executes its stdin, itself or through a program that it may start, as in `timeout 5 sh` or
    `docker exec -i c sh`. A reference may resolve to any program.
    """
    first, *rest = argv = [_literal(word) for word in action.argv]
    begun = [word.parts[0] if word.parts else "" for word in action.argv]
    if first is None:
        return True
    by_variable = any(map(makes_input_code, step.env))
    if is_interpreter(first):
        return by_variable or takes_code_from_input(argv)
    program = basename(first)
    if program in FILTERS:
        return False
    if program in WRAPPERS and any(not isinstance(word, str) for word in begun[1:]):
        return True
    return any(
        by_variable or takes_code_from_input(inside)
        for number, word in enumerate(rest)
        for inside in _started(word, begun[number + 1], rest[number:])
    )


def _literal(word: Words) -> str | None:
    """Returns the text of a word, or None if it contains a reference."""
    return "".join(map(str, word.parts)) if all(isinstance(part, str) for part in word.parts) else None


def _started(word: str | None, begun: Any, after: list[str | None]) -> Iterator[Sequence[str | None]]:
    """The interpreters that a word may start: by name, with the words `after` it, or as a whole command, as in
    `su -c "sh -s"`.
    """
    if word is None:
        if isinstance(begun, str) and is_interpreter(begun.strip().partition(" ")[0]):
            yield (None,)
        return
    if is_interpreter(word):
        yield after
    elif is_interpreter(word.strip().partition(" ")[0]):
        try:
            yield shlex.split(word)
        except ValueError:
            yield (None,)
