"""Finds every step of a pipeline, including the steps inside others, and what each may refer to. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from cuebook.formats.values import Value

SECTIONS = ("on_failure", "finally")
"""The lists of steps in addition to `steps`."""
REACTIONS = ("on_denied", "on_expired")
LANES, EACH, REACTION, SECTION = "lane", "each", "reaction", "section"
"""The kinds of parts that contain steps."""


def namespace_of(text: str) -> str:
    """The first word of a command, in lower case."""
    return text.strip().partition(" ")[0].split("\n")[0].split("\t")[0].lower()


class Part(msgspec.Struct, frozen=True):
    """A part of a pipeline that contains steps and may run several times, at the same time as others, or not at all."""

    kind: str
    owner: str
    """The step that it belongs to; for a section, its name."""
    name: str = ""


class Place(msgspec.Struct, frozen=True):
    """The position of a step among the others, its namespace, and the parts that it is in."""

    position: int
    namespace: str
    within: tuple[Part, ...] = ()
    fields: tuple[str, ...] = ()
    """The fields that its result has because of its structure."""
    line: int = 0
    schema: Any = None
    """The schema of its output, if it declares one."""
    files: tuple[str, ...] = ()
    """The names of the files that it produces."""
    keeps: tuple[str, ...] = ()
    """The names of the values that it keeps for later runs."""

    def beyond(self, other: Place) -> tuple[Part, ...]:
        """The parts that contain this step but not the other."""
        common = 0
        for one, two in zip(self.within, other.within, strict=False):
            if one != two:
                break
            common += 1
        return self.within[common:]


class Found(msgspec.Struct, frozen=True):
    """A step in the text, before it is parsed."""

    id: str
    """Its id as written, or its position if it has none."""
    value: Value
    place: Place
    at: str
    """Where it is, by its number."""


def find(value: Value | None, at: str, within: tuple[Part, ...] = (), first: int = 0) -> Iterator[Found]:
    """The steps of a list, each followed by those inside it. Anything that is not a list has none."""
    for number, one in enumerate(value.items if value is not None and value.kind == "seq" else ()):
        for found in _steps(one, f"{at}[{number}]", within, first):
            first = found.place.position + 1
            yield found


def _steps(value: Value, at: str, within: tuple[Part, ...], position: int) -> Iterator[Found]:
    fields = value.fields
    written = fields["id"].text.strip() if "id" in fields else ""
    id = written or f"#{position}"
    where = f"{at.partition('[')[0]}.{written}" if written else at
    kept = tuple(fields["state"].fields) if "state" in fields else ()
    place = Place(position, _kind(value), within, _own_fields(value), value.line, _schema(value), keeps=kept)
    yield Found(id, value, place, at)
    position += 1
    for inner, part, name in _inside(value, id):
        for found in find(inner, f"{where}.{name}", (*within, part), position):
            position = found.place.position + 1
            yield found


def _inside(value: Value, id: str) -> Iterator[tuple[Value, Part, str]]:
    """The lists of steps inside a step."""
    fields = value.fields
    if "steps" in fields:
        yield fields["steps"], Part(EACH, id), "steps"
    if "branches" in fields:
        for name, lane in fields["branches"].fields.items():
            yield lane, Part(LANES, id, name), f"branches.{name}"
    for name in REACTIONS:
        if name in fields:
            yield fields[name], Part(REACTION, id, name), name


def _kind(value: Value) -> str:
    fields = value.fields
    if "command" in fields:
        return namespace_of(fields["command"].text)
    return next((name for name in ("input", "playbook", "parallel", "steps", "wait") if name in fields), "")


def _schema(value: Value) -> Any:
    """The schema that a step declares for its output or answer; None if it declares none, or if it is a loop."""
    output = value.fields.get("input" if "input" in value.fields else "output")
    schema = output.fields.get("schema") if output is not None and output.kind == "map" else None
    return schema.plain if schema is not None and schema.kind == "map" and "for_each" not in value.fields else None


def _own_fields(value: Value) -> tuple[str, ...]:
    if "for_each" in value.fields:
        return ("results", "items")
    return ("results", "items", "winner") if "parallel" in value.fields else ()
