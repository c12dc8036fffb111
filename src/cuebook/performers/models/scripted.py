"""A model with scripted replies, for tests. It costs nothing, does not wait, and keeps every request.

model = ScriptedModel(["Paris", Says("", calls=(ToolCall("1", "search", {"q": "x"}),))])
providers = Providers.only(model)
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import TypeAlias

import msgspec

from cuebook.kernel.context import ToolCall
from cuebook.kernel.errors import CuebookError
from cuebook.performers.models.model import (
    Chunk,
    Final,
    Finish,
    ModelError,
    Request,
    TextDelta,
    Tokens,
    estimate_request,
    estimate_text,
)


class ScriptEnded(CuebookError):
    """The scripted model was called more often than its script has replies."""

    code = "script_ended"


class Says(msgspec.Struct, frozen=True):
    """One reply in a script, with every detail that a test may want to choose."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: Finish | None = None
    """By default `tool_calls` if there are calls, otherwise `stop`."""
    tokens: Tokens | None = None
    """By default estimated from the text."""
    no_tokens: bool = False
    """The provider does not report tokens."""
    cost: float | None = None
    """Dollars that the provider reports."""
    model: str = ""
    """The model name that it reports."""
    chunk: int | None = None
    """Characters per chunk; by default the `chunk` of the model."""
    drop_after: int | None = None
    """The stream breaks off after this many characters."""
    wait_for: asyncio.Event | None = None
    """The event that the reply waits for."""
    pause_at: int | None = None
    """With `wait_for`: the reply waits after this many characters instead of at the beginning."""


Line: TypeAlias = str | Says | ModelError
"""A reply: a string, a reply with details, or an error to raise instead."""

Script: TypeAlias = Callable[[Request], Line | Awaitable[Line]]


class ScriptedModel:
    """Answers from a list, one reply for each request, or with a function of the request.

    `requests` contains all requests in order. `chunk` is how many characters stream at a time; None streams each reply
    in one piece. With `cycle`, a list starts over at its end; otherwise that raises `ScriptEnded`.
    """

    def __init__(self, script: Iterable[Line] | Script, *, chunk: int | None = None, cycle: bool = False) -> None:
        self.requests: list[Request] = []
        self.stopped = 0
        """How many streams were closed before their end."""
        self._script: Script | None = script if callable(script) else None
        self._lines: Sequence[Line] = () if callable(script) else list(script)
        self._chunk = chunk
        self._cycle = cycle

    async def stream(self, request: Request) -> AsyncGenerator[Chunk, None]:
        turn = len(self.requests)
        self.requests.append(request)
        line = await self._line(turn, request)
        if isinstance(line, ModelError):
            raise line
        says = Says(line) if isinstance(line, str) else line
        finished = False
        try:
            async with aclosing(self._said(says)) as chunks:
                async for chunk in chunks:
                    yield chunk
            finished = True
        except ModelError:
            finished = True
            raise
        finally:
            self.stopped += not finished
        yield _final(says, request)

    async def _line(self, turn: int, request: Request) -> Line:
        if self._script is not None:
            given = self._script(request)
            return await given if inspect.isawaitable(given) else given
        if self._cycle and self._lines:
            return self._lines[turn % len(self._lines)]
        if turn < len(self._lines):
            return self._lines[turn]
        raise ScriptEnded(
            f"The scripted model has {len(self._lines)} replies and was called once more.",
            fix="Add a reply to the script, or check why the playbook calls the model again.",
        )

    async def _said(self, says: Says) -> AsyncGenerator[Chunk, None]:
        if says.wait_for is not None and says.pause_at is None:
            await says.wait_for.wait()
        end = len(says.text) if says.drop_after is None else min(says.drop_after, len(says.text))
        for start, stop in _pieces(end, says.chunk or self._chunk, says.pause_at):
            if says.wait_for is not None and start == says.pause_at:
                await says.wait_for.wait()
            yield TextDelta(says.text[start:stop])
        if says.wait_for is not None and says.pause_at is not None and says.pause_at >= end:
            await says.wait_for.wait()
        if says.drop_after is not None:
            raise ModelError("dropped", f"The script dropped the stream after {end} characters.")


def _pieces(end: int, size: int | None, pause_at: int | None) -> list[tuple[int, int]]:
    """Where each chunk begins and ends; a chunk begins where the script pauses."""
    if not end:
        return []
    cuts = set(range(0, end, size or max(1, end)))
    if pause_at is not None and pause_at < end:
        cuts.add(pause_at)
    starts = sorted(cuts)
    return list(zip(starts, [*starts[1:], end], strict=True))


def _final(says: Says, request: Request) -> Final:
    finish: Finish = says.finish or ("tool_calls" if says.calls else "stop")
    tokens = says.tokens
    if tokens is None and not says.no_tokens:
        tokens = Tokens(estimate_request(request).likely, estimate_text(says.text).likely)
    return Final(finish, tokens, says.calls, says.model, says.cost)
