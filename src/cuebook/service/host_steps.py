"""Steps of runs that a connected assistant does (`model: host`): taking one, completing it, calling one of its tools.

A step is leased to one assistant at a time. Its result is checked here, as far as that is possible without the program, which
checks the rest and asks again if it has to.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects import registry
from cuebook.gate.roles import Principal
from cuebook.kernel.context import INLINE_LIMIT, ToolCall
from cuebook.kernel.effects import ToolSpec
from cuebook.kernel.engine.engine import Engine
from cuebook.kernel.engine.host import ASKED, CALLS, CLAIM, FAILED, SCHEMA, SECONDS, TEXT, TOOLS
from cuebook.kernel.engine.waits import asker_of, in_full
from cuebook.kernel.errors import AlreadyAnswered, BadInput, Leased, NotFound, Refused, WaitClosed
from cuebook.kernel.events import FOR_HOST, ModelAsked, Noted, WaitOpened
from cuebook.kernel.events import WaitClosed as Closed
from cuebook.kernel.journal import Entry, Place, step_at, without_void
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Redactor
from cuebook.kernel.run import HOST, Lease, RunRow, WaitRow
from cuebook.service.runs.views import Sent, sent

MOST_REFUSED = 5
"""Refused results after which the step gets a failed reply instead of being asked for again."""
LONGEST_RESULT = 1_000_000
"""Maximum number of characters in a result."""
_REASON = 1_000
"""Maximum number of characters in the reason for a refusal."""
_REFUSALS = ("repair", "refused", "contract")
"""Notes with which a program says that a reply cannot be used."""
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)


class HostStep(msgspec.Struct, frozen=True):
    """A step that an assistant has taken: what to do, with what, and until when it is kept for it."""

    wait: WaitRow
    claim: str
    until: float
    """Afterwards another assistant may take it over."""
    messages: tuple[Sent, ...]
    """The request, in order; the last user message is the instruction. Images and documents are in `files`."""
    schema: dict[str, Any] | None
    tools: tuple[ToolSpec, ...]
    refused: tuple[str, ...]
    """Why earlier results for this step were refused."""
    left: int
    """How many more results may be refused."""

    @property
    def latest(self) -> tuple[Sent, ...]:
        """What has been added since the last reply: results of tools, and new instructions."""
        replies = [number for number, one in enumerate(self.messages) if one.role == "assistant"]
        return self.messages[replies[-1] + 1 if replies else 0 :]

    @property
    def results(self) -> tuple[str, ...]:
        """The results of the tools that were just called."""
        return tuple(one.text for one in self.latest if one.role == "tool")


class Completion(msgspec.Struct, frozen=True):
    """What became of a result."""

    wait: WaitRow
    refused: str = ""
    """Why it was refused; empty if it was accepted."""
    left: int = MOST_REFUSED
    """How many more results may be refused; at 0 the step went on without one."""
    repeated: bool = False
    """Whether the step was already completed with this claim, so that nothing was done."""


class HostSteps:
    """The steps that wait for assistants. `redactor_of` returns what masks a run's secrets and sensitive inputs, `wake`
    continues a run.
    """

    def __init__(
        self,
        engine: Engine,
        redactor_of: Callable[[RunRow], Awaitable[Redactor]],
        wake: Callable[[str], Awaitable[object]],
        lease: float,
    ) -> None:
        """`lease` is for how many seconds a step is kept for the assistant that took it; each sign of life renews it."""
        self._lease = lease
        self._engine, self._store = engine, engine.store
        self._redactor_of, self._wake = redactor_of, wake

    async def open(self, run: str) -> list[WaitRow]:
        """The steps of a run that wait for an assistant, oldest first."""
        return await self._store.waits(run=run, kinds=(FOR_HOST,))

    async def take(self, row: RunRow, who: Principal, claim: str = "", at: Place | None = None) -> HostStep:
        """Leases the next step of a run to an assistant; with a claim, renews its lease. `at` is where the assistant worked
        last: only another call of that step is taken. Raises `Leased` if others have all
        of them, and `Refused` if there is none.
        """
        who.require("runner", "do steps of runs")
        if claim:
            return await self._step(row, await self._leased((await self._claimed(row, claim, who)).id, who, claim))
        waits = [one for one in await self.open(row.id) if at is None or one.place.key[:3] == at.key[:3]]
        if not waits:
            status = row.status.replace("_", " ")
            raise Refused(f"Run {row.id} has no step for an assistant: it is {status}.", fix="Look at its state.")
        taken: Leased | None = None
        for wait in waits:
            try:
                return await self._step(row, await self._leased(wait.id, who, f"{wait.id}.{secrets.token_hex(6)}"))
            except Leased as error:
                taken = error
            except (AlreadyAnswered, WaitClosed):
                continue
        raise taken or Refused(f"Run {row.id} has just continued.", fix="Ask again for its next step.")

    async def complete(self, row: RunRow, claim: str, result: Any, who: Principal) -> Completion:
        """Completes a step with its result, a text or a JSON value. A result that does not fit is refused with the reason."""
        text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
        if len(text) > LONGEST_RESULT:
            raise BadInput(
                f"The result has {len(text):,} characters; at most {LONGEST_RESULT:,} are kept.", fix="Shorten it."
            )
        wait = await self._claimed(row, claim, who)
        if wait.state != "open":
            return Completion(wait, repeated=True)
        schema, _ = self._request(wait)
        if schema is not None and (fenced := _FENCED.fullmatch(text.strip())):
            text = fenced[1]
        text = (await self._redactor_of(row)).value(text)
        problem = _flaw(schema, text)
        if problem:
            return await self._refuse(wait, claim, who, problem, text)
        return await self._done(wait, claim, who, {TEXT: text})

    async def call(
        self, row: RunRow, claim: str, tool: str, arguments: Mapping[str, Any], who: Principal
    ) -> Completion:
        """Requests a call of one of the step's tools. The run makes it like the call of any other model: through the gate."""
        wait = await self._claimed(row, claim, who)
        if wait.state != "open":
            return Completion(wait, repeated=True)
        names = [one.name for one in self._request(wait)[1]]
        if tool not in names:
            listed = (
                f"It may use: {', '.join(names)}." if names else "It has no tools now: complete it with its result."
            )
            raise BadInput(f"This step may not use the tool '{tool[:200]}'.", fix=listed)
        if _starts_job(tool, arguments):
            raise BadInput(
                "A step for an assistant cannot start background jobs: they would end before its next call.",
                fix="Run the command in the foreground, with a `timeout` if it takes long.",
            )
        made = ToolCall(f"call_{wait.id}", tool, (await self._redactor_of(row)).value(dict(arguments)))
        return await self._done(wait, claim, who, {TEXT: "", CALLS: [msgspec.to_builtins(made)]})

    async def refused_since(self, row: RunRow, wait: str) -> list[str]:
        """Why the program did not accept the result of this step; empty if it did."""
        entries = without_void([entry async for entry in self._engine.entries(row.id)])
        closed = next((e.seq for e in entries if isinstance(e.event, Closed) and e.event.wait == wait), None)
        return [] if closed is None else _notes(row, [entry for entry in entries if entry.seq > closed])

    # --- inside ---

    async def _claimed(self, row: RunRow, claim: str, who: Principal) -> WaitRow:
        """The step with this claim: leased under it now, or already completed under it."""
        who.require("runner", "do steps of runs")
        if not claim.strip():
            raise BadInput("The claim is missing.", fix="Take the step first: that returns its claim.")
        unknown = NotFound(
            f"Run {row.id} has no step with the claim '{claim[:60]}'.",
            fix="Take the step first: that returns its claim.",
        )
        try:
            wait = await self._store.wait(claim.partition(".")[0])
        except NotFound:
            raise unknown from None
        if wait.tenant != who.tenant or wait.run != row.id or wait.kind != FOR_HOST:
            raise unknown
        held = wait.lease
        if held is not None and (held.claim, held.by) == (claim, who.name):
            if wait.state in ("answered", "closed") and wait.answer.get(CLAIM) == claim:
                return wait
            if wait.state == "open" and (wait.expires is None or wait.expires > self._engine.clock()):
                return wait
            raise WaitClosed(
                f"Step {step_at(wait.place)} no longer waits for a result.", fix="Look at the run's state."
            )
        if held is None:
            raise Leased("No one has taken this step with this claim.", fix="Take the step first.")
        step = step_at(wait.place)
        if held.claim == claim:
            raise Leased(
                f"This claim on step {step} was given to {held.by}, and only {held.by} can use it.",
                fix="Take a step yourself: that returns a claim of your own.",
            )
        has = "has" if wait.state == "open" else "had"
        raise Leased(
            f"This claim on step {step} is not valid: {held.through or held.by} {has} the step under another claim.",
            fix="Take the next step instead.",
        )

    async def _leased(self, wait: str, who: Principal, claim: str, *refused: str) -> WaitRow:
        now = self._engine.clock()
        lease = Lease(claim, who.name, now, now + self._lease, who.through, refused)
        return await self._store.lease_wait(wait, lease, now)

    async def _step(self, row: RunRow, wait: WaitRow) -> HostStep:
        assert wait.lease is not None
        asker = asker_of(wait)[0]
        row = row if asker == row.id else await self._store.run(asker)
        entries = [entry async for entry in self._engine.entries(asker)]
        calls = {entry.seq: entry.event for entry in entries if isinstance(entry.event, ModelAsked)}
        request = sent(calls[wait.details[ASKED]], calls.values(), self._store.text)
        schema, tools = self._request(wait)
        opened = (entry for entry in entries if isinstance(entry.event, WaitOpened) and entry.event.wait == wait.id)
        place = next((entry.place for entry in opened), wait.place)
        here = [e for e in without_void(entries) if (e.place.path, e.place.step, e.place.visit) == place.key[:3]]
        return HostStep(
            wait,
            wait.lease.claim,
            wait.lease.until,
            tuple(one for one in request if one.text or one.files or one.role == "assistant"),
            schema,
            tools,
            (*_notes(row, here), *wait.lease.refused),
            MOST_REFUSED - len(wait.lease.refused),
        )

    def _request(self, wait: WaitRow) -> tuple[dict[str, Any] | None, tuple[ToolSpec, ...]]:
        """The schema of the reply and the tools that the step may use."""
        parts = in_full(wait, self._store.text).details.get("preview", {})
        schema = msgspec.json.decode(parts[SCHEMA]) if SCHEMA in parts else None
        return schema, _without_jobs(msgspec.json.decode(parts.get(TOOLS, "[]"), type=tuple[ToolSpec, ...]))

    async def _refuse(self, wait: WaitRow, claim: str, who: Principal, problem: str, text: str) -> Completion:
        row = await self._leased(wait.id, who, claim, problem)
        left = MOST_REFUSED - len(row.lease.refused if row.lease is not None else ())
        if left > 0:
            return Completion(row, problem, left)
        failed = Failed(
            "schema_mismatch",
            f"The assistant's result was refused {MOST_REFUSED} times: {problem}.",
            "Retry the step, or loosen its schema.",
            True,
            {"model": HOST, "reply": text[:INLINE_LIMIT], "usage": {"input": 0}},
        )
        done = await self._done(row, claim, who, {FAILED: msgspec.to_builtins(failed)})
        return msgspec.structs.replace(done, refused=problem, left=0)

    async def _done(self, wait: WaitRow, claim: str, who: Principal, answer: dict[str, Any]) -> Completion:
        now, held = self._engine.clock(), wait.lease
        seconds = max(0.0, now - held.since) if held is not None else 0.0
        answer = {**answer, SECONDS: seconds, CLAIM: claim, **({"through": who.through} if who.through else {})}
        try:
            done = await self._store.complete_wait(wait.id, answer, who.name, now, claim=claim)
        except AlreadyAnswered:
            done = await self._store.wait(wait.id)
            if done.answer.get(CLAIM) != claim:
                raise
            return Completion(done, repeated=True)
        await self._wake(wait.run)
        return Completion(done)


def _without_jobs(tools: tuple[ToolSpec, ...]) -> tuple[ToolSpec, ...]:
    """The tools without background jobs, which end whenever a run waits: here, after every call."""
    if not any(tool.name == "Bash" for tool in tools):
        return tools
    from cuebook.performers.agent_tools.bash import without_jobs

    return without_jobs(tools)


def _starts_job(tool: str, arguments: Mapping[str, Any]) -> bool:
    if tool != "Bash":
        return False
    from cuebook.performers.agent_tools.bash import starts_job

    return starts_job(arguments)


def _flaw(schema: dict[str, Any] | None, text: str) -> str:
    """Why a text cannot be a step's result; empty if it can."""
    if not text.strip():
        return "it is empty"
    if schema is None:
        return ""
    from cuebook.formats.schema import mismatches

    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        return f"it must be JSON that follows the schema, and it is not JSON ({error})"[:_REASON]
    wrong = next((one.removeprefix("$: ") for one in mismatches(schema, value, most=1)), "")
    return f"it does not follow the schema: {wrong}"[:_REASON] if wrong else ""


def _notes(row: RunRow, entries: Sequence[Entry]) -> list[str]:
    found = [entry.event for entry in entries if isinstance(entry.event, Noted) and entry.event.name in _REFUSALS]
    return [registry.note(row.dialect, one.name, one.data).words[:_REASON] for one in found]
