"""`cuebook runtime`, and `cuebook run --envelope`: one envelope on stdout and nothing else.

A run whose caller waits no longer goes on in the process that drives it. If that is this one, stdout is closed once the
envelope is written, and the process ends when the run waits for someone or has ended.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import click

from cuebook.envelope import Envelope, refused, strict_form
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.run import RunRow
from cuebook.requests import InvalidRequest, Run, read
from cuebook.runtime import Runtime
from cuebook.service import Service
from cuebook.surfaces.cli import live, onward, options, session, streams
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.wiring import Wiring

STRICT = click.Option(["--strict-envelope"], is_flag=True, help="An envelope with the format's fields and no others.")
ENVELOPE: list[click.Parameter] = [
    click.Option(["--envelope"], is_flag=True, help="Ask nothing, and print one envelope on stdout."),
    STRICT,
]

_EXIT_CODES = {"ok": 0, "needs_approval": 3, "cancelled": 5}
_EXIT_CODES_OF_ERRORS = {
    **dict.fromkeys(("invalid_request", "not_found", "conflict", "invalid_state", "rate_limited"), 2),
    "not_allowed": 5,
}
"""Of requests that came to nothing. A run has its own codes, and some of them are called the same."""

Ask = Callable[[Runtime, Service], Awaitable[Envelope]]


@command(
    "runtime",
    [
        click.Argument(["request"], default="-"),
        STRICT,
        *options.SETTINGS,
        options.AS_USER,
        options.STORE,
    ],
)
def runtime_command(given: Given) -> int:
    """Answer one request of the runtime contract by an envelope.

    REQUEST is JSON, @FILE for a file's, or - for stdin's. {"action": "run", "pipeline": ...} starts a playbook by the id it
    is stored under, its path or its text; {"action": "resume", "token": ..., "approve": true} decides what it waits for;
    {"action": "cancel", "runId": ...} stops it; {"action": "status", "runId": ...} says how it is.

    With "waitMs", the envelope comes after that time at the latest. Its error is then `timeout`, stdout is closed, and the
    run goes on until it waits or ends; so does this process.
    """
    try:
        text = options.value_of("REQUEST", given["request"])
        asked = read(text)
    except BadInput as error:
        sys.stdout.write(live.json_line({"error": InvalidRequest.code, "message": str(error)}))
        return 2

    async def ask(runtime: Runtime, service: Service) -> Envelope:
        who = await session.acting(service, given)
        return await runtime.handle(text, who)

    return _answered(given, session.wiring_of(given), ask, create=isinstance(asked, Run))


def started(given: Given, wiring: Wiring, start: Callable[[Service], Awaitable[RunRow]]) -> int:
    """Starts a run and prints its envelope."""

    async def ask(runtime: Runtime, service: Service) -> Envelope:
        return await runtime.go_on((await start(service)).id)

    return _answered(given, wiring, ask, create=True)


def wanted(args: list[str]) -> bool:
    """Whether a call asks for an envelope, told before its options are read."""
    return "--envelope" in args or "--strict-envelope" in args


def told(error: CuebookError, *, strict: bool) -> int:
    """Prints why nothing was started; gives the exit code."""
    _print(refused(error), strict=strict)
    return error.exit_code


def _answered(given: Given, wiring: Wiring, ask: Ask, *, create: bool) -> int:
    async def work() -> int:
        async with session.opened(wiring, create=create, empty=not create) as service:
            runtime = wiring.runtime(service)
            try:
                return await _said(runtime, service, ask, strict=bool(given["strict_envelope"]))
            except asyncio.CancelledError:
                raise session.Interrupted(next(iter(await runtime.under_way()), "RUN")) from None
            finally:
                await runtime.close()

    return session.perform(work())


async def _said(runtime: Runtime, service: Service, ask: Ask, *, strict: bool) -> int:
    try:
        envelope = await ask(runtime, service)
    except CuebookError as error:
        envelope = refused(error)
    _print(envelope, strict=strict)
    sys.stdout.flush()
    under_way = await runtime.under_way()
    if not under_way:
        return _exit_code(envelope)
    streams.silence(sys.stdout)
    await runtime.finished()
    return max([onward.exit_code(await service.store.run(run)) for run in under_way])


def _print(envelope: Envelope, *, strict: bool) -> None:
    sys.stdout.write(live.json_line(strict_form(envelope) if strict else envelope))


def _exit_code(envelope: Envelope) -> int:
    if envelope.get("requiresApproval", {}).get("kind") == "budget":
        return 4
    code = envelope.get("error", {}).get("code", "")
    if "steps" in envelope:  # it tells of a run
        return _EXIT_CODES.get(envelope["status"], 5 if code == "forbidden" else 1)
    return _EXIT_CODES_OF_ERRORS.get(code, 1)
