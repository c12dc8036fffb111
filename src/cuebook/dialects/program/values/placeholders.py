"""Placeholders such as `{$name}` in a description, a value or a message. Nothing is executed here.

A placeholder is on one line. Braces around anything other than a value, such as JSON or words, are text. `{{` and
`}}` mean a single brace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator
from typing import Any

import msgspec

from cuebook.dialects.program.values.expressions import (
    CallOf,
    Expression,
    ExpressionError,
    Filled,
    Literal,
    Ref,
    Words,
    expression_of,
    refs_of,
)

_LONGEST = 500
"""The maximum number of characters between the braces."""
_OPEN = re.compile(r"\{\{|\}\}|\{")
_INNER = re.compile(r"\"(?:[^\"\\]|\\.)*+\"?|'(?:[^'\\]|\\.)*+'?|[{}]|[^\"'{}]++")


class Placeholder(msgspec.Struct, frozen=True):
    start: int
    end: int
    source: str
    """The text between the braces."""
    value: Expression

    @property
    def calls(self) -> bool:
        """Whether it is the result of a call."""
        return isinstance(self.value, CallOf)


def placeholders(text: str) -> tuple[Placeholder, ...]:
    """All placeholders in the text, in order."""
    return tuple(one for one in _found(text) if isinstance(one, Placeholder))


def filled(text: str, value_of: Callable[[Placeholder], str]) -> str:
    """Return the text with its placeholders replaced."""
    pieces: list[str] = []
    at = 0
    for one in _found(text):
        start, end = (one.start, one.end) if isinstance(one, Placeholder) else (one, one + 2)
        pieces += [text[at:start], value_of(one) if isinstance(one, Placeholder) else text[one]]
        at = end
    return "".join([*pieces, text[at:]])


def interpolated(value: Any, names: Container[str] | None = None) -> Any:
    """A value whose strings will have `{$x}` filled in: with any variable, or only with those in `names`."""
    match value:
        case Literal(text) if isinstance(text, str) and "{" in text and "$" in text:
            return _filled_in(text, names)
        case Literal() | Words() | Ref() | Filled():
            return value
        case tuple():
            return tuple(interpolated(one, names) for one in value)
        case msgspec.Struct():
            old = {field: getattr(value, field) for field in value.__struct_fields__}
            new = {field: interpolated(one, names) for field, one in old.items()}
            changed = {field: one for field, one in new.items() if one is not old[field] and one != old[field]}
            return msgspec.structs.replace(value, **changed) if changed else value
    return value


def _filled_in(text: str, names: Container[str] | None) -> Literal | Filled:
    parts: list[Expression] = []
    at = 0
    for one in placeholders(text):
        wanted = [*refs_of(one.value)]
        if "$" in one.source and not one.calls and wanted and (names is None or all(name in names for name in wanted)):
            parts += [Literal(text[at : one.start]), one.value]
            at = one.end
    return Filled((*parts, Literal(text[at:]))) if parts else Literal(text)


_MENTIONED = re.compile(r"\$[^\W\d]\w*")


def mentions(value: Any) -> bool:
    """Whether a string in the value mentions a variable outside braces: only a model knows what is meant."""
    match value:
        case Literal(text):
            return isinstance(text, str) and _MENTIONED.search(text) is not None
        case tuple():
            return any(mentions(one) for one in value)
        case msgspec.Struct():
            return any(mentions(getattr(value, field)) for field in value.__struct_fields__)
    return False


def _found(text: str) -> Iterator[Placeholder | int]:
    """Yield the placeholders, and the offsets of doubled braces."""
    at = 0
    while (opened := _OPEN.search(text, at)) is not None:
        at = opened.end()
        if len(opened[0]) == 2:
            yield opened.start()
            continue
        end = _end(text, at)
        value = _value(text[at:end].strip()) if end else None
        if value is not None:
            yield Placeholder(opened.start(), end + 1, text[at:end].strip(), value)
            at = end + 1


def _end(text: str, at: int) -> int:
    """The offset of the brace that closes the brace before `at`; 0 if there is none, or it is too far away."""
    line = text.find("\n", at, at + _LONGEST)
    last = text.rfind("}", at, line if line >= 0 else at + _LONGEST)
    depth = 1
    for found in _INNER.finditer(text, at, last + 1):
        if found[0] == "{":
            depth += 1
        elif found[0] == "}":
            depth -= 1
            if depth == 0:
                return found.start()
    return 0


def _value(source: str) -> Expression | None:
    try:
        value = expression_of(source)
    except ExpressionError:
        return None
    if isinstance(value, Words):
        return Ref(source) if source.isidentifier() else None
    return value
