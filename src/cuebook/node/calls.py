"""The requests of the server: what is checked before one begins, how it is performed, and how it ends.

Requests outlive connections. What is performed depends on the capabilities of this node and on its ledger alone, whatever
the server says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from cuebook.formats.schema import mismatches
from cuebook.kernel.errors import CuebookError
from cuebook.node.capabilities.capability import Action, BadArguments, Capability, Failure, Result, Work
from cuebook.node.ledger import Ledger
from cuebook.node.live_output import LiveOutput, Stream
from cuebook.performers.files.decoding import decoded
from cuebook.performers.nodes.protocol import (
    MAX_OUTPUT,
    Ask,
    Began,
    Call,
    Finished,
    Forget,
    Known,
    Message,
    Outcome,
    Refused,
    Stop,
    fits,
)

MOST_WAITING = 100
"""How many requests may wait for others to end; more are refused."""
LONGEST_ID = 500
_ENDING = 20.0
"""Seconds in which what is under way is ended when the node stops."""


class NotOffered(CuebookError):
    """This node does not offer it."""

    code = "not_offered"


class Busy(CuebookError):
    """This node has too much to do."""

    code = "busy"


class _Request:
    """A request that is being performed, or waits for that."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.began = False
        self.listed = False
        """Whether it is, or is about to be, in the ledger, so that its outcome belongs there too."""
        self.over = False
        """Whether its outcome is certain, so that nothing can be ended any more."""
        self.ending = ""
        """How it was ended from outside, if it was: a key of `_ENDINGS`."""
        self.kept: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        """Its output, in case that it is ended."""
        self.task: asyncio.Task[None] | None = None

    def keep(self, stream: Stream, data: bytes) -> None:
        kept = self.kept[stream]
        kept += data[: max(0, self.most - len(kept))]

    @property
    def most(self) -> int:
        return max(0, min(self.call.max_output, MAX_OUTPUT))

    @property
    def name(self) -> str:
        where = f" for step '{self.call.step[:80]}' of run {self.call.run[:80]}" if self.call.run else ""
        return f"{self.call.capability[:80]} {self.call.action[:80]}{where}"

    def output(self) -> dict[str, str]:
        return {
            "text": decoded(bytes(self.kept["stdout"]), cut=True),
            "stderr": decoded(bytes(self.kept["stderr"]), cut=True),
        }


_STOPPED, _NODE_STOPPED = "stopped", "node_stopped"
_ENDINGS = {
    _STOPPED: "It was stopped while it was under way.",
    _NODE_STOPPED: "The node was shut down while it was under way.",
}


class Calls:
    """Performs requests, several at once, and answers questions about them."""

    def __init__(
        self,
        capabilities: Mapping[str, Capability],
        ledger: Ledger,
        send: Callable[[Message], Awaitable[bool]],
        note: Callable[[str], None],
        *,
        at_once: int = 4,
        seconds: float = 86400.0,
    ) -> None:
        """`send` returns whether there was a connection, and `note` shows a line to the owner of the machine."""
        self._capabilities = capabilities
        self._ledger = ledger
        self._send = send
        self._note = note
        self._slots = asyncio.Semaphore(at_once)
        self._most = at_once + MOST_WAITING
        self._seconds = seconds
        self._requests: dict[str, _Request] = {}
        self._closing = False

    async def take(self, message: Call | Ask | Stop | Forget) -> None:
        """Acts on one message; requests continue in the background."""
        match message:
            case Call():
                await self._call(message)
            case Ask(id=id):
                await self._answer(id)
            case Stop(id=id):
                await self._stop(id)
            case Forget(ids=ids):
                await self._ledger.forget(id for id in ids if id not in self._requests)

    @property
    def under_way(self) -> list[str]:
        return [request.name for request in self._requests.values() if request.began]

    async def close(self) -> None:
        """Ends everything, and records and sends what can still be said of it."""
        self._closing = True
        tasks = [self._end(request, _NODE_STOPPED) for request in list(self._requests.values())]
        if tasks:
            await asyncio.wait(tasks, timeout=_ENDING)

    # --- messages ---

    async def _call(self, call: Call) -> None:
        if len(call.id) > LONGEST_ID or not call.id:
            await self._send(Refused(id=call.id[:LONGEST_ID], code="bad_arguments", message="The id cannot be used."))
        elif call.id in self._requests or await self._ledger.look(call.id) is not None:
            await self._answer(call.id)
        elif len(self._requests) >= self._most:
            busy = Busy(f"{len(self._requests)} requests are waiting on this node.", fix="Try again later.")
            await self._send(_refused(call, busy))
        elif self._closing:
            await self._send(_not_begun(_Request(call)))
        else:
            request = self._requests[call.id] = _Request(call)
            request.task = asyncio.create_task(self._perform(request), name=f"node-call-{call.id}")

    async def _answer(self, id: str) -> None:
        if id in self._requests:
            await self._send(Known(id=id, state="running"))
            return
        found = await self._ledger.look(id)
        if found is None:
            await self._send(Known(id=id, state="unknown"))
        elif found.outcome is None:
            await self._send(Known(id=id, state="interrupted"))
        else:
            await self._send(Known(id=id, state="ended", outcome=found.outcome))

    async def _stop(self, id: str) -> None:
        request = self._requests.get(id)
        if request is None:
            await self._answer(id)
        else:
            self._end(request, _STOPPED)

    def _end(self, request: _Request, why: str) -> asyncio.Task[None]:
        assert request.task is not None
        if not request.ending and not request.over:
            request.ending = why
            request.task.cancel()
        return request.task

    # --- performing ---

    async def _perform(self, request: _Request) -> None:
        call = request.call
        live = LiveOutput(call.id, request.most, self._send)
        try:
            async with self._slots:
                outcome = await self._outcome(request, live)
                request.over = True
                if request.listed:
                    await self._record(outcome)
        except asyncio.CancelledError:  # while it waited
            outcome = _not_begun(request)
        finally:
            del self._requests[call.id]
        self._note(f"{_ended(outcome)} {request.name}.")
        await live.close()
        await self._send(outcome)

    async def _outcome(self, request: _Request, live: LiveOutput) -> Outcome:
        """Checks and performs a request. From when it is in the ledger, every ending is an outcome."""
        call = request.call
        try:
            action = self._action(call)
            await _check(action, call.arguments)
        except CuebookError as refused:
            return _refused(call, refused)
        try:
            request.listed = True
            await self._ledger.begin(call.id, {"what": request.name})
        except asyncio.CancelledError:
            return _not_begun(request)
        except CuebookError as refused:
            request.listed = False
            return _refused(call, refused)
        except OSError as error:
            return _refused(call, CuebookError(f"The node's ledger cannot be written: {error.strerror}."))
        request.began = True
        self._note(f"started {request.name}.")
        try:
            await self._send(Began(id=call.id))
            return await self._finished(action, request, live)
        except asyncio.CancelledError:
            why = request.ending or _NODE_STOPPED
            return _sized(Refused(id=call.id, code="cancelled", message=_ENDINGS[why], began=True, **request.output()))

    async def _finished(self, action: Action, request: _Request, live: LiveOutput) -> Outcome:
        call = request.call

        def output(stream: Stream, data: bytes) -> None:
            request.keep(stream, data)
            live.add(stream, data)

        seconds = self._seconds if call.seconds is None else min(max(0.0, call.seconds), self._seconds)
        work = Work(call.id, call.run, call.step, seconds, request.most, output)
        limit = asyncio.timeout(None if action.keeps_time else seconds)
        try:
            async with limit:
                result = await action.function(call.arguments, work)
            return _fitting(call.id, result, request.most)
        except Failure as failed:
            text, stderr = (_cut(text, request.most)[0] for text in (failed.text, failed.stderr))
            made = Refused(
                id=call.id,
                code=failed.code,
                message=failed.message,
                fix=failed.fix,
                began=True,
                text=text,
                stderr=stderr,
            )
            return _sized(made)
        except CuebookError as error:
            return _refused(call, error, began=True)
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                message = f"It was still running after {seconds:g} s and was stopped."
                return _sized(Refused(id=call.id, code="timeout", message=message, began=True, **request.output()))
            message = f"{call.capability} {call.action} failed: {type(error).__name__}: {error}."
            return _sized(Refused(id=call.id, code="failed", message=message[:2000], began=True, **request.output()))

    def _action(self, call: Call) -> Action:
        capability = self._capabilities.get(call.capability)
        action = capability.action(call.action) if capability is not None else None
        if action is not None:
            return action
        offered = [f"{one.name} {action.name}" for one in self._capabilities.values() for action in one.actions]
        raise NotOffered(
            f"This node does not offer {call.capability[:80]!a} {call.action[:80]!a}.",
            fix=f"It offers {', '.join(offered)}.",
        )

    async def _record(self, outcome: Outcome) -> None:
        try:
            await self._ledger.finish(outcome)
        except OSError as error:
            # The server still gets the outcome. If it does not, the request counts as interrupted, which is safe.
            self._note(f"the node's ledger cannot be written: {error.strerror}.")


async def _check(action: Action, arguments: dict[str, Any]) -> None:
    wrong = mismatches(action.schema, arguments)
    if wrong:
        raise BadArguments(f"The arguments do not fit: {'; '.join(wrong)}.", fix="Correct the step.")
    if action.check is not None:
        await action.check(arguments)


def _refused(call: Call, error: CuebookError, *, began: bool = False) -> Refused:
    return Refused(id=call.id, code=error.code, message=error.message[:5000], fix=error.fix[:5000], began=began)


def _fitting(id: str, result: Any, most: int) -> Outcome:
    """The outcome of a function, cut to the limits."""
    if isinstance(result, str):
        result = Result(result)
    elif not isinstance(result, Result):
        result = Result(value=result)
    text, text_cut = _cut(result.text, most)
    stderr, stderr_cut = _cut(result.stderr, most)
    cut = result.cut or text_cut or stderr_cut
    try:
        value = msgspec.to_builtins(result.value)
        return _sized(Finished(id=id, value=value, text=text, stderr=stderr, exit_code=result.exit_code, cut=cut))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"The result cannot be expressed in JSON: {error}."
        return Refused(id=id, code="bad_result", message=message[:2000], began=True)


def _sized(outcome: Outcome) -> Outcome:
    """The outcome, with its output cut if it does not fit into a message. Escaped, a character can have six bytes."""
    for most in (MAX_OUTPUT, MAX_OUTPUT // 4, 0):
        text, stderr = _cut(outcome.text, most), _cut(outcome.stderr, most)
        made = msgspec.structs.replace(outcome, text=text[0], stderr=stderr[0])
        if isinstance(made, Finished):
            made = msgspec.structs.replace(made, cut=made.cut or text[1] or stderr[1])
        if fits(Known(id=made.id, state="ended", outcome=made)):
            return made
    return Refused(id=outcome.id, code="too_large", message="The result is too large for a message.", began=True)


def _not_begun(request: _Request) -> Refused:
    message = (
        "The node was shut down before it began." if request.ending != _STOPPED else "It was stopped before it began."
    )
    return Refused(id=request.call.id, code="cancelled", message=message)


def _cut(text: str, most: int) -> tuple[str, bool]:
    """At most so many bytes of a text, and whether something was left out."""
    data = text.encode("utf-8", "replace")
    return (text, False) if len(data) <= most else (decoded(data[:most], cut=True), True)


def _ended(outcome: Outcome) -> str:
    if isinstance(outcome, Finished):
        return "finished" if not outcome.exit_code else f"failed (exit code {outcome.exit_code}):"
    return f"{'failed' if outcome.began else 'refused'} ({outcome.code}):"
