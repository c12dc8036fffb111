"""`cuebook runtime` and `cuebook run --envelope`: print one envelope on stdout and nothing else.

If the caller stops waiting, the run continues in the process that drives it. If that is this process, it closes stdout
after the envelope and exits once the run is waiting for a person or has ended.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import click

from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.run import RunRow
from cuebook.service.contract.envelope import Envelope, refused, strict_form
from cuebook.service.contract.requests import InvalidRequest, Run, read
from cuebook.service.contract.runtime import Runtime
from cuebook.service.service import Service
from cuebook.surfaces.cli import next_steps, options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import silence
from cuebook.wiring.wiring import Wiring

_EXIT_CODES = {"ok": 0, "needs_approval": 3, "cancelled": 5}
_EXIT_CODES_OF_ERRORS = {
    **dict.fromkeys(("invalid_request", "not_found", "conflict", "invalid_state", "rate_limited"), 2),
    "not_allowed": 5,
}
"""The exit codes of refused requests. The errors of a run have separate codes, some with the same names."""

Ask = Callable[[Runtime, Service], Awaitable[Envelope]]


@command(
    "runtime",
    [
        click.Argument(["request"], default="-"),
        options.STRICT_ENVELOPE,
        *options.SETTINGS,
        options.AS_USER,
        options.STORE,
    ],
)
def runtime_command(given: Given) -> int:
    """Handle one request of the runtime contract and print an envelope.

    REQUEST is JSON, @FILE for a file, or - for stdin. {"action": "run", "pipeline": ...} starts a playbook by its stored
    id, its path or its text; {"action": "resume", "token": ..., "approve": true} decides what the run is waiting for;
    {"action": "cancel", "runId": ...} cancels it; {"action": "status", "runId": ...} reports its state.

    With "waitMs", the envelope is printed after that time at the latest. If the run is still going, the error is `timeout`,
    stdout is closed, and this process continues the run until it waits or ends.
    """
    try:
        text = options.value_of("REQUEST", given["request"])
        asked = read(text)
    except BadInput as error:
        sys.stdout.write(views.json_line({"error": InvalidRequest.code, "message": str(error)}))
        return 2

    async def ask(runtime: Runtime, service: Service) -> Envelope:
        who = await session.acting(service, given)
        return await runtime.handle(text, who)

    try:
        wiring = session.wiring_of(given)
    except CuebookError as error:
        return print_error(error, strict=bool(given["strict_envelope"]))
    return _answered(given, wiring, ask, create=isinstance(asked, Run))


def started(given: Given, wiring: Wiring, start: Callable[[Service], Awaitable[RunRow]]) -> int:
    """Starts a run and prints its envelope."""

    async def ask(runtime: Runtime, service: Service) -> Envelope:
        return await runtime.drive((await start(service)).id)

    return _answered(given, wiring, ask, create=True)


def print_error(error: CuebookError, *, strict: bool) -> int:
    """Prints the envelope for an error that occurred before the run started, and returns the exit code."""
    _print(refused(error), strict=strict)
    return error.exit_code


def _answered(given: Given, wiring: Wiring, ask: Ask, *, create: bool) -> int:
    strict = bool(given["strict_envelope"])

    async def work() -> int:
        async with AsyncExitStack() as stack:
            try:
                service = await stack.enter_async_context(session.opened(wiring, create=create, empty=not create))
            except CuebookError as error:  # the caller reads envelopes, whatever is wrong with the store
                return print_error(error, strict=strict)
            runtime = wiring.runtime(service)
            try:
                return await _print_answer(runtime, service, ask, strict=strict)
            except asyncio.CancelledError:
                raise session.Interrupted(next(iter(await runtime.under_way()), "RUN")) from None
            finally:
                await runtime.close()

    return session.perform(work())


async def _print_answer(runtime: Runtime, service: Service, ask: Ask, *, strict: bool) -> int:
    try:
        envelope = await ask(runtime, service)
    except CuebookError as error:
        envelope = refused(error)
    _print(envelope, strict=strict)
    sys.stdout.flush()
    under_way = await runtime.under_way()
    if not under_way:
        return _exit_code(envelope)
    silence(sys.stdout)
    await runtime.finished()
    return max([next_steps.exit_code(await service.row(run)) for run in under_way])


def _print(envelope: Envelope, *, strict: bool) -> None:
    sys.stdout.write(views.json_line(strict_form(envelope) if strict else envelope))


def _exit_code(envelope: Envelope) -> int:
    if envelope.get("requiresApproval", {}).get("kind") == "budget":
        return 4
    code = envelope.get("error", {}).get("code", "")
    if "steps" in envelope:  # the envelope of a run, not of a refused request
        return _EXIT_CODES.get(envelope["status"], 5 if code == "forbidden" else 1)
    return _EXIT_CODES_OF_ERRORS.get(code, 1)
