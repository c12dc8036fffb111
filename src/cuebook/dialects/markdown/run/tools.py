"""`@tool`: the tool's name, its arguments with placeholders replaced, and its result as the step's output. Pure.

Placeholders are replaced after the JSON is parsed, so that no value can change the structure of the arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

from cuebook.dialects.markdown.inputs import as_text
from cuebook.dialects.markdown.model import ToolUse
from cuebook.dialects.markdown.run.placeholders import Placeholder, placeholders, render
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import ToolResult

PLAYBOOK = "playbook"
"""The connection that runs another playbook as a child."""
BUILT_IN_CONNECTION = "builtin"
OWN_CONNECTIONS = frozenset({"python", BUILT_IN_CONNECTION})
"""Connections that are not tool servers: configured Python functions and built-in tools."""

_TEXTS = frozenset({"string", "text", "enum"})


class BadArguments(BadInput):
    """The arguments cannot be read as JSON."""

    code = "bad_arguments"


class Filled(msgspec.Struct, frozen=True):
    """The arguments of a call, and the names without a value, whose placeholders are kept."""

    arguments: dict[str, Any]
    unresolved: tuple[str, ...] = ()


def tool_name(use: ToolUse) -> str:
    """The name of the tool in effects."""
    return use.tool if use.connection in OWN_CONNECTIONS else f"{use.connection}.{use.tool}"


def fill(template: str, values: Mapping[str, str], types: Mapping[str, str]) -> Filled:
    """Replaces the placeholders in the arguments. Inside a string, a placeholder becomes part of the string. Elsewhere it
    becomes a JSON value of its declared type; without a type, its value is read as JSON if possible.
    """
    if not template.strip():
        return Filled({})
    unresolved: dict[str, None] = {}

    def rendered(text: str) -> str:
        filled, missing = render(text, values)
        unresolved.update(dict.fromkeys(missing))
        return filled

    leaf: Callable[[str], Any] = rendered
    try:
        read = _read(template)
    except ValueError:
        masked = _Masked(template)
        read, leaf = masked.read(), masked.filler(values, types, unresolved)
    if not isinstance(read, dict):
        raise BadArguments("they are not a JSON object.", fix='Write them as {"name": "value"}.')
    try:
        made: dict[str, Any] = _mapped(read, leaf)
        msgspec.json.encode(made)  # a journal cannot store lone surrogates or infinite numbers
    except (TypeError, OverflowError, RecursionError, UnicodeError) as error:
        raise BadArguments(f"they cannot be stored ({error}).", fix="Use plain JSON.") from None
    return Filled(made, tuple(unresolved))


def result_text(result: ToolResult) -> str:
    """A string unchanged, None as an empty string, any other value as JSON."""
    return "" if result.value is None else as_text(result.value)


class _Masked:
    """A template with marks in place of placeholders, so that it can be parsed as JSON."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._found: list[Placeholder] = []
        self._alone: set[int] = set()
        """The placeholders outside strings."""
        mark = "\ue000"
        while mark in template:
            mark += "\ue000"
        self._mark = re.compile(f"{mark}(\\d+){mark}")
        pieces: list[str] = []
        done, inside = 0, False
        for number, found in enumerate(placeholders(template)):
            inside = _within_string(template[done : found.start], inside)
            token = f"{mark}{number}{mark}"
            pieces += (template[done : found.start], token if inside else f'"{token}"')
            done = found.end
            self._found.append(found)
            if not inside:
                self._alone.add(number)
        self._text = "".join((*pieces, template[done:]))

    def read(self) -> Any:
        """The parsed template, with marks instead of values."""
        try:
            return self._with_keys(_read(self._text))
        except json.JSONDecodeError as error:
            raise BadArguments(f"they are not valid JSON ({error.msg}).", fix=_HOW) from None
        except ValueError as error:
            raise BadArguments(f"they are not valid JSON ({error}).", fix=_HOW) from None

    def _with_keys(self, value: Any) -> Any:
        """Restores placeholders in names, which are never replaced."""
        if isinstance(value, dict):
            return {self._mark.sub(self._written, name): self._with_keys(inner) for name, inner in value.items()}
        return [self._with_keys(inner) for inner in value] if isinstance(value, list) else value

    def filler(
        self, values: Mapping[str, str], types: Mapping[str, str], unresolved: dict[str, None]
    ) -> Callable[[str], Any]:
        def value_of(number: int) -> str | None:
            found = self._found[number]
            value = values.get(found.name, found.default)
            if value is None:
                unresolved[found.name] = None
            return value

        def part(match: re.Match[str]) -> str:
            value = value_of(int(match[1]))
            return self._written(match) if value is None else value

        def leaf(text: str) -> Any:
            match = self._mark.fullmatch(text)
            if match is None or int(match[1]) not in self._alone:
                return self._mark.sub(part, text)
            name = self._found[int(match[1])].name
            value = value_of(int(match[1]))
            if value is None:
                raise BadArguments(f"unknown variable '{name}', so they are not valid JSON.", fix=f"Set {name}.")
            return value if types.get(name) in _TEXTS else _as_json(value)

        return leaf

    def _written(self, match: re.Match[str]) -> str:
        found = self._found[int(match[1])]
        return self._template[found.start : found.end]


_HOW = 'Write a JSON object, with quotes around strings, as in {"name": "{{value}}"}.'


def _within_string(text: str, inside: bool) -> bool:
    """Whether a piece of JSON ends inside a string. `inside` says whether it begins inside a string."""
    escaped = False
    for letter in text:
        if escaped:
            escaped = False
        elif inside and letter == "\\":
            escaped = True
        elif letter == '"':
            inside = not inside
    return inside


def _mapped(value: Any, leaf: Callable[[str], Any]) -> Any:
    if isinstance(value, str):
        return leaf(value)
    if isinstance(value, dict):
        return {name: _mapped(inner, leaf) for name, inner in value.items()}
    return [_mapped(inner, leaf) for inner in value] if isinstance(value, list) else value


def _as_json(text: str) -> Any:
    try:
        return _read(text)
    except ValueError:
        return text


def _read(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")
