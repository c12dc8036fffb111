"""The base of tools that act through other performers, and helpers to declare their parameters."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import msgspec

from cuebook.kernel.outcomes import AnyOutcome, Failed
from cuebook.kernel.ports import Call, Description
from cuebook.kernel.run import Settings
from cuebook.performers.tools.toolbox import in_time

T = TypeVar("T")

HABITS = frozenset({"description", "explanation"})
"""Arguments with which models explain a call to the people who watch them. No tool needs them."""


class Acts(Protocol):
    """A performer that describes before it performs."""

    async def describe(self, effect: Any, settings: Settings) -> Description | Failed: ...

    async def perform(self, effect: Any, call: Call) -> AnyOutcome: ...


def within(call: Call, *, seconds: float | None = None, output: int | None = None, **more: Any) -> Call:
    """The call with different limits, but never with more time than it had."""
    if seconds is not None and seconds < call.limits.seconds:
        call = msgspec.structs.replace(call, limits=msgspec.structs.replace(call.limits, seconds=seconds), spent=0.0)
    if output is not None:
        call = msgspec.structs.replace(call, limits=msgspec.structs.replace(call.limits, output=output))
    return msgspec.structs.replace(call, **more)


def parameters(required: tuple[str, ...] = (), **properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def text(description: str, *, least: int = 0) -> dict[str, Any]:
    return {"type": "string", "description": description, **({"minLength": least} if least else {})}


def number(description: str, *, least: int = 1) -> dict[str, Any]:
    return {"type": "integer", "description": description, "minimum": least}


def flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description}


class Halted(Exception):
    """The caller is no longer waiting for the work."""


class Halt:
    """Tells work in a thread to stop."""

    def __init__(self) -> None:
        self._set = threading.Event()

    def set(self) -> None:
        self._set.set()

    def check(self) -> None:
        if self._set.is_set():
            raise Halted


async def in_worker(name: str, call: Call, work: Callable[[Halt], T]) -> T | Failed:
    """Runs the work in a thread, within the call's time limit. On a timeout or cancellation, it is told to stop."""
    halt = Halt()
    try:
        return await in_time(name, call.limits.seconds, asyncio.to_thread(work, halt))
    finally:
        halt.set()
