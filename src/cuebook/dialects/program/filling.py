"""Descriptions with their placeholders filled in: values at once, calls by what they came to. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from cuebook.dialects.program.evaluate import NotComputable, evaluate
from cuebook.dialects.program.expressions import CallOf
from cuebook.dialects.program.items import Call
from cuebook.dialects.program.placeholders import Placeholder, filled, placeholders
from cuebook.dialects.program.prompts import shown


def calls_in(description: str, knows: Callable[[str], bool]) -> Iterator[tuple[str, Call]]:
    """The calls that a description needs, each with the name its result is kept under."""
    if "{" not in description:
        return
    for one in placeholders(description):
        if isinstance(one.value, CallOf) and knows(one.value.name):
            yield slot_of(one), Call(one.value.name, one.value.args, one.value.named)


def slot_of(placeholder: Placeholder) -> str:
    return f"{{{placeholder.source}}}"


def rendered(description: str, variables: Mapping[str, Any], slots: Mapping[str, Any]) -> str:
    """The description. What cannot be filled in stays as it is written."""
    if "{" not in description:
        return description

    def value(one: Placeholder) -> str:
        slot = slot_of(one)
        if slot in slots:
            return _text(slots[slot])
        try:
            return _text(evaluate(one.value, variables))
        except NotComputable:
            return slot

    return filled(description, value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else shown(value)
