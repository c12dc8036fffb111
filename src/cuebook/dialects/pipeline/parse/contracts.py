"""Parses the output contract, the postcondition and `retry` of a step."""

from __future__ import annotations

import re
from typing import Any, cast

from cuebook.dialects.pipeline.model import (
    Assertion,
    Cli,
    CommandHolds,
    DomContains,
    ExitCode,
    FileHolds,
    HttpStatus,
    JsonPath,
    Output,
    OutputContains,
    Postcondition,
    Retry,
    Words,
)
from cuebook.dialects.pipeline.parse import commands
from cuebook.dialects.pipeline.parse.places import namespace_of
from cuebook.dialects.pipeline.parse.references import Scope
from cuebook.dialects.pipeline.run.outputs import DRAFT
from cuebook.formats.schema import flaws
from cuebook.formats.shape import Shape
from cuebook.formats.values import Value

MOST_ATTEMPTS = 20
LONGEST_DELAY = 3_600_000
"""In milliseconds."""
_INDEX = re.compile(r"\.([^.\[\]]+)|\[(\d{1,9})\]", re.ASCII)
_ASSERTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "http_status": (("type", "equals"), ("equals",)),
    "dom_contains": (("type", "text", "selector", "case_insensitive"), ("text",)),
    "json_path": (("type", "path", "equals"), ("path", "equals")),
    "exit_code": (("type", "equals"), ("equals",)),
    "output_contains": (("type", "text", "stream"), ("text",)),
    "file": (("type", "path", "exists", "contains"), ("path",)),
    "command": (("type", "command", "contains"), ("command",)),
}
OF_COMMANDS = ("exit_code", "output_contains", "file", "command")
"""The kinds that the published format does not have."""
"""The fields of each kind of assertion, and the required fields."""
CODE = "BAD_POSTCONDITION"
REMARKS = ("title", "description", "$comment")
"""Schema keywords that only serve as documentation."""


ADDED = ("max_bytes", "truncated")
"""Fields of an output that the published format does not have."""

# --- output -------------------------------------------------------------------------------------------------


def output(shape: Shape, value: Value, at: str) -> Output:
    if value.kind != "map":
        return Output(cast(Any, shape.choice(value, at, ("text", "json"))), line=value.line)
    fields = shape.closed(value, at, ("type", "schema", *ADDED), ("type",))
    kind = shape.choice(fields["type"], f"{at}.type", ("text", "json")) if "type" in fields else "json"
    schema = _schema(shape, fields["schema"], f"{at}.schema") if "schema" in fields else None
    if "schema" in fields and kind != "json":
        shape.wrong(value.lines["schema"], f"{at} has a schema but is not JSON.", "Write 'type: json', or remove it.")
    most = shape.whole(fields["max_bytes"], f"{at}.max_bytes", 1) if "max_bytes" in fields else None
    cut = "truncated" in fields and shape.choice(fields["truncated"], f"{at}.truncated", ("fail", "accept")) == "accept"
    if cut and kind == "json":
        fix = "Remove it, or write 'type: text'."
        shape.wrong(fields["truncated"].line, f"{at}: the beginning of a JSON output is not JSON.", fix)
    return Output(cast(Any, kind), schema, most, value.line, cut)


def _schema(shape: Shape, value: Value, at: str) -> dict[str, Any] | bool | None:
    if value.kind == "bool":
        return bool(value.plain)
    if value.kind != "map":
        shape.wrong(value.line, f"{at} must be a JSON Schema: a table, true or false.", "Correct it.")
        return None
    schema = cast("dict[str, Any] | None", shape.plain(value, at))
    for code, why in flaws(schema or {}, DRAFT):
        shape.wrong(value.line, f"{at} cannot be used: {why}.", "Correct the schema.", code)
    return schema


# --- postcondition ------------------------------------------------------------------------------------------


def postcondition(scope: Scope, value: Value, at: str) -> Postcondition | None:
    """Reads one assertion, a list of them, or a table with `assertions` and any other fields, which are kept as metadata."""
    shape = scope.shape
    if value.kind == "seq":
        return Postcondition(_assertions(scope, value, at), line=value.line)
    if value.kind != "map":
        fix = "Write 'type' and its fields, or a list of such assertions."
        shape.wrong(value.line, f"{at} must be an assertion or a list of them.", fix, CODE)
        return None
    if "assertions" not in value.fields:
        found = _assertion(scope, value, at)
        return Postcondition((found,), line=value.line) if found is not None else None
    inner = value.fields["assertions"]
    if inner.kind != "seq":
        shape.wrong(
            inner.line, f"{at}.assertions must be a list.", "Write one assertion per line, each after '- '.", CODE
        )
        return None
    rest = {name: shape.plain(one, f"{at}.{name}") for name, one in value.fields.items() if name != "assertions"}
    return Postcondition(_assertions(scope, inner, f"{at}.assertions"), rest, value.line)


def _assertions(scope: Scope, value: Value, at: str) -> tuple[Assertion, ...]:
    shape = scope.shape
    if not value.items:
        shape.wrong(value.line, f"{at} must not be empty.", "Add an assertion, or remove it.", CODE)
    found = (_assertion(scope, one, f"{at}[{number}]") for number, one in enumerate(value.items))
    return tuple(one for one in found if one is not None)


def _assertion(scope: Scope, value: Value, at: str) -> Assertion | None:
    shape = scope.shape
    kind = value.fields.get("type") if value.kind == "map" else None
    if kind is None or kind.text not in _ASSERTIONS or kind.kind != "str":
        fix = shape.meant(kind.text if kind is not None else "", _ASSERTIONS)
        shape.wrong(value.line, f"{at} does not have a known assertion type.", fix, CODE)
        return None
    known, needed = _ASSERTIONS[kind.text]
    strict = Shape()
    fields = strict.closed(value, at, known, needed)
    found = _read(strict, scope, kind.text, fields, at) if all(name in fields for name in needed) else None
    for problem in strict.problems:
        shape.wrong(problem.line or value.line, problem.message, problem.fix, CODE)
    return found


def _read(shape: Shape, scope: Scope, kind: str, fields: Any, at: str) -> Assertion | None:
    match kind:
        case "exit_code":
            return ExitCode(shape.whole(fields["equals"], f"{at}.equals", 0) or 0)
        case "output_contains":
            known = ("stdout", "stderr")
            stream = shape.choice(fields["stream"], f"{at}.stream", known) if "stream" in fields else "stdout"
            return OutputContains(_expected(shape, scope, fields["text"], f"{at}.text"), cast(Any, stream))
        case "file":
            file = scope.after_itself().words(shape.text(fields["path"], f"{at}.path"), fields["path"].line, at)
            exists = shape.flag(fields["exists"], f"{at}.exists") if "exists" in fields else True
            contains = _expected(shape, scope, fields["contains"], f"{at}.contains") if "contains" in fields else ""
            if contains and not exists:
                shape.wrong(
                    fields["contains"].line, f"{at}: a file that must not exist contains nothing.", "Remove one."
                )
            return FileHolds(file, exists, contains)
        case "command":
            contains = _expected(shape, scope, fields["contains"], f"{at}.contains") if "contains" in fields else ""
            return _probe(shape, scope, fields["command"], f"{at}.command", contains)
        case "http_status":
            status = shape.whole(fields["equals"], f"{at}.equals", 0)
            if status is not None and status > 65_535:
                shape.wrong(fields["equals"].line, f"{at}.equals is not an HTTP status.", "Write a status such as 200.")
            return HttpStatus(status or 0)
        case "dom_contains":
            selector = shape.text(fields["selector"], f"{at}.selector") if "selector" in fields else ""
            loose = (
                shape.flag(fields["case_insensitive"], f"{at}.case_insensitive")
                if "case_insensitive" in fields
                else False
            )
            return DomContains(_expected(shape, scope, fields["text"], f"{at}.text", empty=True), selector, loose)
    written = shape.text(fields["path"], f"{at}.path").strip()
    path = json_path(written)
    if path is None:
        fix = "Write $ for the whole value, then .field or [0], as in $.items[0].name."
        shape.wrong(fields["path"].line, f"{at}.path '{written[:60]}' is not a path.", fix)
    equals = fields["equals"]
    plain = not (equals.kind == "str" and scope.mentions(equals.text))
    expected = shape.plain(equals, f"{at}.equals") if plain else _expected(shape, scope, equals, f"{at}.equals")
    return JsonPath(path or (), expected, written)


def _expected(shape: Shape, scope: Scope, value: Value, at: str, *, empty: bool = False) -> str | Words:
    """The text that is looked for. It is taken literally unless it has a reference."""
    text = shape.text(value, at, empty=empty)
    return scope.after_itself().words(text, value.line, at) if scope.mentions(text) else text


def _probe(shape: Shape, scope: Scope, value: Value, at: str, contains: str | Words) -> CommandHolds | None:
    after, text = scope.after_itself(), shape.text(value, at).strip()
    if text and namespace_of(text) != "cli":
        shape.wrong(value.line, f"{at} must be a cli command.", "Write it as in `cli git tag -l v1`.")
        return None
    written = commands.written(after, text, value.line, at, None) if text else None
    action = None if written is None else commands.action(after, written)
    return CommandHolds(action.argv, contains) if isinstance(action, Cli) else None


def json_path(written: str) -> tuple[str | int, ...] | None:
    """Returns the parts of a path such as `$.items[0].name`, or None if it is invalid."""
    if not written.startswith("$"):
        return None
    steps: list[str | int] = []
    at = 1
    while at < len(written):
        found = _INDEX.match(written, at)
        if found is None:
            return None
        steps.append(found[1] if found[1] is not None else int(found[2]))
        at = found.end()
    return tuple(steps)


# --- retry --------------------------------------------------------------------------------------------------


def retry(shape: Shape, value: Value, at: str) -> Retry | None:
    if value.kind != "map":
        most = shape.whole(value, at, 1)
        return Retry(_bounded(shape, value, at, most, MOST_ATTEMPTS)) if most is not None else None
    names = ("max_attempts", "delay_ms", "backoff", "max_delay_ms", "jitter")
    fields = shape.closed(value, at, names, ("max_attempts",))
    if "max_attempts" not in fields:
        return None
    most = shape.whole(fields["max_attempts"], f"{at}.max_attempts", 1)
    more: dict[str, Any] = {}
    for name, field in (("delay_ms", "delay"), ("max_delay_ms", "max_delay")):
        if name in fields:
            delay = shape.whole(fields[name], f"{at}.{name}", 0)
            more[field] = _bounded(shape, fields[name], f"{at}.{name}", delay, LONGEST_DELAY) / 1000
    if more.get("delay", 0.0) > more.get("max_delay", LONGEST_DELAY):
        fix = "Raise max_delay_ms, or lower delay_ms."
        shape.wrong(fields["max_delay_ms"].line, f"{at}.delay_ms is above max_delay_ms.", fix)
    if "backoff" in fields:
        more["backoff"] = shape.choice(fields["backoff"], f"{at}.backoff", ("fixed", "exponential"))
    if "jitter" in fields:
        more["jitter"] = shape.flag(fields["jitter"], f"{at}.jitter")
    return Retry(_bounded(shape, fields["max_attempts"], f"{at}.max_attempts", most, MOST_ATTEMPTS), **more)


def _bounded(shape: Shape, value: Value, at: str, number: int | None, most: int) -> int:
    if number is not None and number > most:
        shape.wrong(value.line, f"{at} is above {most:,}.", "Lower it.")
    return number or 0
