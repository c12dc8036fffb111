"""Small pieces of prose: a number with its noun, or the beginning of a string on one line."""

from __future__ import annotations

from typing import Any

SHORT = 60
"""The default length of a shortened string, in characters."""


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def short(value: Any, limit: int = SHORT) -> str:
    """The beginning of a string, on one line."""
    text = " ".join(str(value).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
