"""Small pieces of prose: a number with its noun, or the beginning of a string on one line."""

from __future__ import annotations

from typing import Any

from cuebook import __version__

SHORT = 60
"""The default length of a shortened string, in characters."""


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def with_extra(name: str) -> str:
    """How to install an optional part: the package is not on an index, so a wheel is named."""
    wheel = f"cuebook-{__version__}-py3-none-any.whl[{name}]"
    return f"Install it with the extra '{name}', as in `pip install '{wheel}'`, or with `make dev` in a clone."


def short(value: Any, limit: int = SHORT) -> str:
    """The beginning of a string, on one line."""
    text = " ".join(str(value).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
