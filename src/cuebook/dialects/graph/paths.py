"""Paths into results, `[all:|any:]segment.segment[*]`, and the conditions equals, in and matches on their values.

`requires`, value evaluators and guards use them. Pure; a check takes time proportional to the size of the value.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from cuebook.dialects.graph.model import Match
from cuebook.formats.regex import searches

_SEGMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[\*\])?", re.ASCII)
_NODE = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_-]*)(\[\*\])?", re.ASCII)
_PREFIX = re.compile(r"([a-z]+):", re.ASCII)
_SHOWN = 120

Mode = Literal["all", "any"]


class Segment(msgspec.Struct, frozen=True):
    name: str
    each: bool
    """Whether it selects every element of an array."""


class Path(msgspec.Struct, frozen=True):
    mode: Mode
    segments: tuple[Segment, ...]


class Found(msgspec.Struct, frozen=True):
    """The values at a path, or the problem with the path."""

    mode: Mode = "all"
    values: tuple[Any, ...] = ()
    problem: str = ""


@lru_cache(maxsize=4096)
def parse_path(path: str, of_nodes: bool = False) -> Path | str:
    """The path, or a description of its problem. With `of_nodes`, the first segment may be an id in kebab case."""
    mode: Mode = "all"
    body = path
    prefix = _PREFIX.match(path)
    if prefix is not None:
        if prefix[1] not in ("all", "any"):
            return f"unknown prefix '{prefix[1]}' (expected 'all' or 'any')"
        mode = "all" if prefix[1] == "all" else "any"
        body = path[prefix.end() :]
    if not body:
        return "empty path"
    segments = []
    for number, part in enumerate(body.split(".")):
        found = (_NODE if of_nodes and number == 0 else _SEGMENT).fullmatch(part)
        if found is None:
            return f"malformed segment '{part[:_SHOWN]}'"
        segments.append(Segment(found[1], found[2] is not None))
    return Path(mode, tuple(segments))


def find(data: Mapping[str, Any], path: str, of_nodes: bool = False) -> Found:
    """The values at a path. With `any:`, array elements that lack the rest of the path are skipped."""
    parsed = parse_path(path, of_nodes)
    if isinstance(parsed, str):
        return Found(problem=parsed)
    current: list[Any] = [data]
    spread = False
    for segment in parsed.segments:
        following: list[Any] = []
        for value in current:
            child, problem = _step(value, segment)
            if problem and parsed.mode == "any" and spread:
                continue
            if problem:
                return Found(problem=problem)
            following += child if segment.each else (child,)
        current = following
        spread = spread or segment.each
    return Found(parsed.mode, tuple(current))


def _step(value: Any, segment: Segment) -> tuple[Any, str]:
    if value is None:
        return None, f"null encountered before segment '{segment.name}'"
    if not isinstance(value, Mapping):
        return None, f"expected object before segment '{segment.name}', got {_type(value)}"
    if segment.name not in value:
        return None, f"missing segment '{segment.name}'"
    child = value[segment.name]
    if segment.each and not isinstance(child, list | tuple):
        return None, f"expected array at '{segment.name}', got {_type(child)}"
    return child, ""


def node_in(name: str, nodes: Container[str]) -> tuple[str, str]:
    """The node and the field that `NODE` or `NODE.FIELD` refers to; ('', name) if there is no such node. Ids may
    contain dots, so the longest matching id is used.
    """
    end = len(name)
    while end > 0:
        if name[:end] in nodes:
            return name[:end], name[end + 1 :]
        end = name.rfind(".", 0, end)
    return "", name


# --- conditions ---------------------------------------------------------------------------------------


def missing(paths: Sequence[str], data: Mapping[str, Any], of_nodes: bool = False) -> str:
    """The paths of `output_required` that are missing, as a message; empty if there are none."""
    problems = [f"'{path}' {problem}" for path in paths if (problem := _missing(data, path, of_nodes))]
    return f"output_required: {'; '.join(problems)}" if problems else ""


def _missing(data: Mapping[str, Any], path: str, of_nodes: bool) -> str:
    found = find(data, path, of_nodes)
    if found.problem:
        return found.problem
    there = [value is not None for value in found.values]
    if found.mode == "any":
        return "" if any(there) else "(any:) has no element that is there"
    return "" if all(there) else "is null"


def unmatched(matches: Sequence[Match], data: Mapping[str, Any], of_nodes: bool = False) -> str:
    """The conditions of `output_matches` that do not hold, as a message; empty if all hold."""
    problems = [f"'{match.path}' {problem}" for match in matches if (problem := _unmatched(match, data, of_nodes))]
    return f"output_matches: {'; '.join(problems)}" if problems else ""


def _unmatched(match: Match, data: Mapping[str, Any], of_nodes: bool) -> str:
    found = find(data, match.path, of_nodes)
    if found.problem:
        return found.problem
    wanted = f"{match.operator} {_operand(match)}"
    if found.mode == "any":
        return "" if any(holds(match, value) for value in found.values) else f"(any:) has no element that {wanted}"
    wrong = [shown(value) for value in found.values if not holds(match, value)]
    return f"{wanted}, got {', '.join(wrong[:5])}" if wrong else ""


def holds(match: Match, value: Any) -> bool:
    match match.operator:
        case "equals":
            return same(value, match.operand)
        case "in":
            return any(same(value, one) for one in match.operand)
        case "matches":
            return searches(match.operand, value if isinstance(value, str) else as_json(value))


def same(one: Any, other: Any) -> bool:
    """Deep equality as in JSON: true differs from 1, and 1 equals 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(value, other[name]) for name, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def as_json(value: Any) -> str:
    """JSON as JavaScript writes it: 5.0 is `5`."""
    return msgspec.json.encode(_whole(value)).decode()


def shown(value: Any) -> str:
    text = as_json(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    if isinstance(value, Mapping):
        return {name: _whole(inner) for name, inner in value.items()}
    return [_whole(inner) for inner in value] if isinstance(value, list | tuple) else value


def _operand(match: Match) -> str:
    return f"/{match.operand}/" if match.operator == "matches" else shown(match.operand)


def _type(value: Any) -> str:
    names: Iterator[str] = (
        name
        for kinds, name in (
            ((bool,), "boolean"),
            ((int, float), "number"),
            ((str,), "string"),
            ((list, tuple), "array"),
        )
        if isinstance(value, kinds)
    )
    return "null" if value is None else next(names, "object")
