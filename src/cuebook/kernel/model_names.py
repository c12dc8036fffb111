"""The names of models: `provider/model`, or a chain of them as in `a, then b`, where b is called while a is unavailable."""

from __future__ import annotations

import re

_THEN = re.compile(r"\s*,\s*then(?:\s+|$)")


def chain(name: str) -> tuple[str, ...]:
    """The models of a chain, in order; a single name is a chain of one."""
    return tuple(_THEN.split(name.strip()))


def chained(names: list[str] | tuple[str, ...]) -> str:
    """The name of a chain. A model that is listed twice counts where it comes first."""
    return ", then ".join(dict.fromkeys(names))
