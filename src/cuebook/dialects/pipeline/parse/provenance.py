"""Finds the commands that depend on text from outside: from a model, a server or a tool. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from posixpath import basename
from typing import Any

import msgspec

from cuebook.dialects.pipeline.model import (
    Cli,
    Group,
    LocalRef,
    Parallel,
    Pipeline,
    Question,
    Ref,
    RunRef,
    Step,
    StepRef,
    Words,
)
from cuebook.dialects.pipeline.run.resolve import all_refs, refs
from cuebook.formats.executables import FILTERS, WRAPPERS, is_interpreter, makes_input_code, takes_code_from_input

_SAID = ("stdout", "json", "errorMessage", "stderr", "headers", "results", "items")
"""Fields of a result that contain text from outside."""


def marked(pipeline: Pipeline) -> Pipeline:
    """Marks the commands that depend on text from outside. Steps refer only to earlier steps."""
    tracing = _Tracing()
    lists = {name: tracing.marked(getattr(pipeline, name)) for name in ("steps", "on_failure", "finally_")}
    return msgspec.structs.replace(pipeline, **lists)


class _Tracing:
    """Follows text from outside through the steps, in their order."""

    def __init__(self) -> None:
        self._steps: set[str] = set()
        self._locals = {"failure"}
        """The names of a part of the pipeline that stand for text from outside. A failure may quote anything."""

    def marked(self, steps: Iterable[Step]) -> tuple[Step, ...]:
        return tuple(map(self._step, steps))

    def _step(self, step: Step) -> Step:
        if step.each is not None:
            (self._locals.add if self._from(step.each.over) else self._locals.discard)(step.each.name)
            (self._locals.add if self._from(step.each.key) else self._locals.discard)("loop")
        made = self._structure(step) if step.is_structure else self._marked(step)
        reactions = {
            name: msgspec.structs.replace(reaction, steps=self.marked(reaction.steps))
            for name, reaction in (("on_denied", made.on_denied), ("on_expired", made.on_expired))
            if reaction is not None
        }
        return msgspec.structs.replace(made, **reactions) if reactions else made

    def _structure(self, step: Step) -> Step:
        match step.action:
            case Group(steps=steps):
                action: Any = Group(self.marked(steps))
            case Parallel(mode=mode, lanes=lanes):
                made = (msgspec.structs.replace(lane, steps=self.marked(lane.steps)) for lane in lanes)
                action = Parallel(mode, tuple(made))
            case _:
                return step
        if any(inner.id in self._steps for inner in step.inner):
            self._steps.add(step.id)
        return msgspec.structs.replace(step, action=action)

    def _marked(self, step: Step) -> Step:
        if not isinstance(step.action, Cli):
            if not isinstance(step.action, Question):  # a person's answer is the user's own text
                self._steps.add(step.id)
            return step
        named = self._from((step.action, step.env, step.credentials))
        named = named or any(ref.step in self._steps for ref in refs(step.takes))  # it may be code
        fed = self._from(step.stdin)
        if named or fed:
            self._steps.add(step.id)
        obeys = named or (fed and _interprets(step, step.action))
        return msgspec.structs.replace(step, from_outside=True) if obeys else step

    def _from(self, value: Any) -> bool:
        return any(map(self._is_from_outside, all_refs(value)))

    def _is_from_outside(self, ref: Ref) -> bool:
        match ref:
            case LocalRef(name=name):
                return name in self._locals
            case RunRef(source=source):
                return source not in ("run", "changes")  # an earlier run may have kept text from outside
            case StepRef(step=step, path=path):
                return step in self._steps and path[0] in _SAID
            case _:
                return False


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
