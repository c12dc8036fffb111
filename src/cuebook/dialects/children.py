"""The playbooks that a playbook starts as children: found and checked before a run, and pinned when it starts.

The names are part of the text, so unknown playbooks, wrong inputs, circles and depth are found here, with the line that is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.dialects.findings import Codes, InvalidPlaybook, Problem
from cuebook.kernel.context import Text
from cuebook.kernel.engine.children import MOST_DEPTH
from cuebook.kernel.errors import BadInput, CuebookError, NotFound
from cuebook.kernel.events import PinnedPlaybook

if TYPE_CHECKING:
    from cuebook.dialects.dialect import Dialect, Input
    from cuebook.dialects.playbook import Playbook

UNKNOWN, BROKEN, INPUTS = "UNKNOWN_CHILD", "BROKEN_CHILD", "CHILD_INPUTS"
CYCLE, DEPTH = "CHILD_CYCLE", "CHILD_DEPTH"

CODES: Codes = {
    UNKNOWN: ("error", "There is no playbook with the name of a child."),
    BROKEN: ("error", "A playbook that is started as a child cannot be run."),
    INPUTS: ("error", "The inputs for a child are missing, unknown or invalid."),
    CYCLE: ("error", "A playbook starts itself, directly or through its children."),
    DEPTH: ("error", f"Children are nested more than {MOST_DEPTH} deep."),
}
"""The codes of these problems, in all dialects."""

Find = Callable[[str, str], "Playbook"]
"""Finds a playbook by the name that an author wrote, from the folder of that author's file. Raises `BadInput`."""

SECRET = "secret"
"""The type of an input whose values are handles of secrets."""

_TYPES = {
    "string": "string",
    "text": "string",
    "enum": "string",
    "number": "number",
    "integer": "integer",
    "boolean": "boolean",
    "object": "object",
    "array": "array",
}


class ChildUse(msgspec.Struct, frozen=True):
    """A playbook that a step starts as a child."""

    name: str
    """The name that the author wrote: an id, or a file next to the playbook."""
    step: str = ""
    line: int | None = None
    inputs: tuple[str, ...] | None = None
    """The names of the inputs that it gets; None if a model chooses them."""
    known: Mapping[str, Any] = {}
    """The values that are known before a run."""
    handles: tuple[str, ...] = ()
    """The inputs for which the author, or the person who started the caller, chose a secret."""


class Pins(msgspec.Struct, frozen=True):
    """What a run records about its children: the digests by name, and the playbooks by digest."""

    uses: dict[str, str] = {}
    pinned: dict[str, PinnedPlaybook] = {}


def pins_of(playbook: Playbook, folder: str, find: Find) -> Pins:
    """Finds all children of a playbook. Raises `InvalidPlaybook` with every problem and its line."""
    uses = playbook.dialect.children(playbook.document)
    if not uses:
        return Pins()
    search = _Search(find)
    problems: list[Problem] = []
    digests: dict[str, str] = {}
    for use in uses:
        problems += search.problems(use, folder, (_identity(playbook),), digests)
    if problems:
        raise InvalidPlaybook(playbook.name, problems, codes=True)
    return Pins(digests, search.pinned)


def problems_of(dialect: Dialect, document: Any, text: str, name: str, folder: str, find: Find) -> Iterator[Problem]:
    """Everything that is wrong with the children of a playbook, for checks."""
    from cuebook.dialects.playbook import Playbook

    playbook = Playbook(text, name, document, dialect)
    try:
        pins_of(playbook, folder, find)
    except InvalidPlaybook as error:
        yield from error.problems


def about(playbook: Playbook) -> dict[str, Any]:
    """What the caller of a playbook is told about it."""
    return {"title": playbook.title, "description": playbook.description, "inputs": schema_of(playbook.inputs)}


def schema_of(inputs: tuple[Input, ...]) -> dict[str, Any]:
    """The inputs of a playbook as a JSON Schema, without secrets: no model chooses those."""
    properties: dict[str, Any] = {}
    for one in inputs:
        if one.type == SECRET:
            continue
        made: dict[str, Any] = {"type": _TYPES[one.type]} if one.type in _TYPES else {}
        if one.options and made.get("type", "string") == "string":
            made["enum"] = list(one.options)
        if one.description:
            made["description"] = one.description
        properties[one.name] = made
    required = [one.name for one in inputs if one.required and one.default is None and one.type != SECRET]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": not inputs}
    return {**schema, **({"required": required} if required else {})}


def untaken(about: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """The inputs that a model gave to a playbook that was described to it (see `about`) and that it does not take."""
    schema = about.get("inputs") or {}
    if schema.get("additionalProperties", True):
        return []
    return [name for name in given if name not in schema.get("properties", {})]


def _identity(playbook: Playbook) -> tuple[str, str, str]:
    place = "" if playbook.path is None else os.path.realpath(playbook.path)
    return playbook.name, playbook.digest, place


class _Search:
    """Finds playbooks and the playbooks that they start in turn, each once."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self.pinned: dict[str, PinnedPlaybook] = {}

    def problems(
        self, use: ChildUse, folder: str, chain: tuple[tuple[str, str, str], ...], digests: dict[str, str]
    ) -> Iterator[Problem]:
        """The problems of one child. `chain` is the playbooks around it, outermost first; `digests` receives the child's."""
        where = f"The step '{use.step}' starts" if use.step else "It starts"
        try:
            found = self._find(use.name, folder)
        except NotFound as error:
            yield Problem(
                f"{where} the unknown playbook '{use.name[:100]}'. {error.message}", use.line, error.fix, UNKNOWN
            )
            return
        except CuebookError as error:
            words = f"{where} the playbook '{use.name[:100]}', which cannot be run: {error.message}"
            yield Problem(
                words, use.line, error.fix or f"`cuebook validate {use.name}` lists all its problems.", BROKEN
            )
            return
        name, digest, place = _identity(found)
        again = next((at for at, one in enumerate(chain) if digest == one[1] or (place and place == one[2])), None)
        if again is not None:
            circle = " -> ".join([*(one[0] for one in chain[again:]), name])
            words = f"{where} '{use.name}', which starts itself: {circle}."
            yield Problem(words, use.line, "Remove one of these calls; a loop belongs in a playbook.", CYCLE)
            return
        if len(chain) > MOST_DEPTH:
            words = f"{where} '{use.name}' more than {MOST_DEPTH} levels deep."
            yield Problem(words, use.line, "Call it from a playbook further out.", DEPTH)
            return
        wrong = _wrong_inputs(use, found)
        if wrong:
            yield Problem(f"{where} '{use.name}' with inputs that do not fit: {wrong}", use.line, _takes(found), INPUTS)
            return
        digests[use.name] = digest
        if digest in self.pinned:
            return
        below: dict[str, str] = {}
        inner = [
            problem
            for one in found.dialect.children(found.document)
            for problem in self.problems(one, found.folder, (*chain, (name, digest, place)), below)
        ]
        for problem in inner:
            inside = f" (line {problem.line})" if problem.line else ""
            yield msgspec.structs.replace(problem, message=f"In {found.name}{inside}: {problem.message}", line=use.line)
        if not inner:
            self.pinned[digest] = PinnedPlaybook(
                found.name, found.dialect.name, Text(found.text), found.folder, below, about(found)
            )


def _wrong_inputs(use: ChildUse, found: Playbook) -> str:
    """Why the inputs do not fit, as far as that is known before a run; empty if they may fit."""
    secrets = [one.name for one in found.inputs if one.type == SECRET]
    if use.inputs is None:
        needed = [one.name for one in found.inputs if one.name in secrets and one.required and one.default is None]
        return f"a model would have to choose the secret {', '.join(needed)}." if needed else ""
    declared = {one.name for one in found.inputs}
    unknown = [one for one in use.inputs if one not in declared and not found.dialect.takes(found.document, one)]
    if unknown:
        return f"there is no input {', '.join(unknown)}."
    missing = [one.name for one in found.inputs if one.required and one.default is None and one.name not in use.inputs]
    if missing:
        return f"{', '.join(missing)} is missing."
    chosen = [one for one in secrets if one in use.inputs and one not in (*use.known, *use.handles)]
    if chosen:
        return f"{', '.join(chosen)} must be the handle of a secret, written here, or a secret argument."
    if set(use.known) != set(use.inputs):
        return ""
    try:
        found.accept(use.known, {})
    except BadInput as error:
        return error.message
    return ""


def _takes(found: Playbook) -> str:
    names = [f"{one.name}{'' if one.required and one.default is None else ' (optional)'}" for one in found.inputs]
    return f"{found.name} takes: {', '.join(names)}." if names else f"{found.name} takes no inputs."
