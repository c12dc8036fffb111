"""Parses the text of a pipeline into its document, or reports every problem with line and code."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from cuebook.dialects.findings import InvalidPlaybook, Problem
from cuebook.dialects.pipeline import inputs
from cuebook.dialects.pipeline.model import Arg, Pipeline, Step
from cuebook.dialects.pipeline.parse import files, steps
from cuebook.dialects.pipeline.parse.places import SECTION, SECTIONS, Found, Part, Place, find
from cuebook.dialects.pipeline.parse.provenance import marked
from cuebook.dialects.pipeline.parse.references import Scope
from cuebook.formats.shape import Shape, first_problems, in_order
from cuebook.formats.values import Malformed, Value
from cuebook.formats.yaml import read_yaml_or_json
from cuebook.kernel.context import digest_of

SIZE_LIMIT = 4_000_000
"""Characters."""
MOST_STEPS = 10_000
FIELDS = ("id", "name", "description", "version", "args", "steps", "allowed_domains", "consent_boundary", *SECTIONS)
FAILURE = ("step", "code", "message")
"""The fields of `$failure`."""
_HOST = re.compile(r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?(?::[0-9]{1,5})?", re.ASCII)


class Parsed(msgspec.Struct, frozen=True):
    """The parsed document, or the errors in its text."""

    pipeline: Pipeline | None
    errors: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    used: frozenset[str] = frozenset()
    """The arguments that are referenced."""
    lines: dict[str, int] = {}
    """The line of each top-level name."""
    places: dict[str, Place] = {}
    """The place of each step."""


def parse(text: str, name: str) -> Pipeline:
    """Returns the document, or raises `InvalidPlaybook` with all problems."""
    parsed = read(text, name)
    if parsed.pipeline is None:
        raise InvalidPlaybook(name, parsed.errors, codes=True)
    return parsed.pipeline


def read(text: str, name: str) -> Parsed:
    """Returns the document or all errors, plus the warnings in either case."""
    return _read(text, name.lower().endswith(".json"))


def _read(text: str, is_json: bool) -> Parsed:
    try:
        root = read_yaml_or_json(text, is_json, SIZE_LIMIT, "Split the pipeline.")
    except Malformed as error:
        return Parsed(None, (Problem(f"{error.message}.", error.line, error.fix, "PARSE"),))
    if root.kind != "map":
        fix = "Write name and steps."
        return Parsed(None, (Problem("A pipeline must be a table of names and values.", root.line, fix, "SCHEMA"),))
    return _Reading(root, text).result()


class _Reading:
    """Reads the fields of one pipeline."""

    def __init__(self, root: Value, text: str) -> None:
        self._root = root
        self._text_of_it = text
        self._shape = Shape()
        self._used: set[str] = set()
        self._places: dict[str, Place] = {}

    def result(self) -> Parsed:
        shape, root = self._shape, self._root
        fields = shape.closed(root, "the pipeline", FIELDS, ("name", "steps"))
        declared = inputs.declared(shape, fields["args"]) if "args" in fields else {}
        name = self._text("name")
        lists = self._lists(declared)
        pipeline = Pipeline(
            id=self._text("id") or slug(name),
            name=name,
            steps=lists["steps"],
            description=self._text("description"),
            version=self._text("version") or digest_of(self._text_of_it),
            args=declared,
            allowed_domains=self._domains(),
            consent_boundary=self._text("consent_boundary"),
            on_failure=lists["on_failure"],
            finally_=lists["finally"],
            beyond=tuple(section for section in SECTIONS if section in fields),
        )
        if any(place.namespace == "web" for place in self._places.values()):
            from cuebook.dialects.pipeline.parse.web import check_one_at_a_time  # most pipelines have no browser steps

            check_one_at_a_time(shape, pipeline)
        errors, warnings = in_order(shape.problems), in_order(shape.warnings)
        more: dict[str, Any] = {"used": frozenset(self._used), "lines": dict(root.lines), "places": self._places}
        if errors:
            return Parsed(None, first_problems(errors), warnings, **more)
        pipeline = msgspec.structs.replace(marked(pipeline), warnings=warnings)
        return Parsed(pipeline, (), warnings, **more)

    def _text(self, name: str) -> str:
        value = self._root.fields.get(name)
        return steps.trimmed(self._shape, value, name) if value is not None else ""

    def _lists(self, declared: dict[str, Arg]) -> dict[str, tuple[Step, ...]]:
        """The steps and the sections."""
        fields, shape = self._root.fields, self._shape
        found: list[Found] = []
        for name in ("steps", *SECTIONS):
            if name in fields:
                shape.items(fields[name], name, at_least=1)
                within = (Part(SECTION, name),) if name in SECTIONS else ()
                found += find(fields[name], name, within, len(found))
        if len(found) > MOST_STEPS:
            line = found[MOST_STEPS].value.line
            shape.wrong(line, f"There are more than {MOST_STEPS:,} steps.", "Split the pipeline.")
            return dict.fromkeys(("steps", *SECTIONS), ())
        places = self._places
        for one in found:
            self._check_id(one, places)
            places.setdefault(one.id, msgspec.structs.replace(one.place, files=files.named(one.value)))
        whole = Scope(shape, declared, places, "", self._used)
        made: dict[str, tuple[Step, ...]] = {}
        for name in ("steps", *SECTIONS):
            whole.locals = {"failure": FAILURE} if name in SECTIONS else {}
            made[name] = steps.listed(whole, fields[name], name) if name in fields else ()
        return made

    def _check_id(self, found: Found, before: dict[str, Place]) -> None:
        written = found.value.fields.get("id") if found.value.kind == "map" else None
        if written is None:
            return
        steps.step_id(self._shape, written, f"{found.at}.id")
        if found.id in before:
            fix = f"The other step is on line {before[found.id].line}: rename one of them."
            self._shape.wrong(written.line, f"Two steps have the id '{found.id}'.", fix, "DUPLICATE_STEP")

    def _domains(self) -> tuple[str, ...]:
        value = self._root.fields.get("allowed_domains")
        if value is None:
            return ()
        hosts = [one.strip().lower() for one in self._shape.texts(value, "allowed_domains", at_least=1)]
        for one, host in zip(value.items, hosts, strict=False):
            if host and not _HOST.fullmatch(host):
                fix = "Write a host name such as api.example.com, optionally with a port, as in 127.0.0.1:8080."
                self._shape.wrong(one.line, f"allowed_domains: '{host[:60]}' is not a host.", fix, "BAD_DOMAIN")
        return tuple(dict.fromkeys(hosts))


def slug(name: str) -> str:
    """An id made from a name: lowercase letters and digits, joined by hyphens. For other scripts a digest keeps it unique."""
    made = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:64]
    if name.isascii() or re.search(r"[a-z]", made):
        return made or "pipeline"
    return f"{made or 'pipeline'}-{digest_of(name)[:8]}"
