"""Reads conditions on values: paths that must be there, and what the values at paths must be.

With `of_nodes` a path leads into the results of nodes and begins with the id of one.
"""

from __future__ import annotations

from cuebook.dialects.graph.model import Match
from cuebook.dialects.graph.paths import parse_path
from cuebook.dialects.regex import UnsupportedRegex, compiled
from cuebook.dialects.shape import Shape
from cuebook.dialects.values import Value

OPERATORS = ("equals", "in", "matches")


def paths(shape: Shape, value: Value, at: str, of_nodes: bool) -> tuple[str, ...]:
    found = shape.texts(value, at, at_least=1)
    for one in value.items:
        _check(shape, one, at, of_nodes)
    return found


def matches(shape: Shape, value: Value, at: str, of_nodes: bool) -> tuple[Match, ...]:
    items = shape.items(value, at, at_least=1)
    return tuple(_match(shape, one, f"{at}[{number}]", of_nodes) for number, one in enumerate(items))


def _match(shape: Shape, value: Value, at: str, of_nodes: bool) -> Match:
    fields = shape.closed(value, at, ("path", *OPERATORS), ("path",))
    path = shape.text(fields["path"], f"{at}.path") if "path" in fields else ""
    if path:
        _check(shape, fields["path"], at, of_nodes)
    operators = [name for name in OPERATORS if name in fields]
    if len(operators) != 1:
        if value.kind == "map":
            shape.wrong(value.line, f"{at} must have exactly one of equals, in and matches.")
        return Match(path, "equals", None)
    operator = operators[0]
    operand, where = fields[operator], f"{at}.{operator}"
    if operator == "in":
        shape.items(operand, where)
        return Match(path, "in", shape.plain(operand, where))
    if operator == "matches":
        return Match(path, "matches", _pattern(shape, operand, where))
    return Match(path, "equals", shape.plain(operand, where))


def _pattern(shape: Shape, value: Value, at: str) -> str:
    pattern = shape.text(value, at)
    if pattern:
        try:
            compiled(pattern)
        except UnsupportedRegex as why:
            shape.wrong(value.line, f"{at}: {why.message}", why.fix, "UNSUPPORTED_REGEX")
    return pattern


def _check(shape: Shape, value: Value, at: str, of_nodes: bool) -> None:
    """Notes a path that nothing can be at: what is checked there always fails."""
    said = parse_path(value.text, of_nodes) if value.kind == "str" and value.text else ""
    if isinstance(said, str) and said:
        fix = "Write it as name.name, with [*] after a list and all: or any: before the whole."
        shape.odd(value.line, f"{at}: '{value.text[:60]}' is no path: {said}.", fix, "MALFORMED_PATH")
