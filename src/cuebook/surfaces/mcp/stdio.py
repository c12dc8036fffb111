"""The server over stdio, as an assistant starts it for one person: it ends with that assistant, and loses nothing."""

from __future__ import annotations

import asyncio
import fcntl
import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import anyio
import anyio.to_thread
from mcp.server.lowlevel import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from cuebook.gate.people import Role
from cuebook.service import Principal
from cuebook.surfaces.mcp.host import Caller, Host, client_of
from cuebook.surfaces.mcp.screening import screened
from cuebook.surfaces.mcp.server import make_server

ASSISTANT = "assistant"
"""On whose behalf tools act over stdio. It is no person: what it started, it does not approve."""


def caller_here(address: str, *, decides: bool, approves_here: bool, each: bool) -> Callable[[Any], Caller]:
    """Whoever is at the other end of the pipe: the assistant of the person at this machine."""
    roles: set[Role] = {"runner", "approver"} if decides else {"runner"}

    def caller(ctx: Any) -> Caller:
        through = client_of(ctx)
        return Caller(
            principal=Principal(ASSISTANT, "local", frozenset(roles), through),
            person=Principal(through=through),
            address=address,
            decides=decides,
            approves_here=approves_here,
            each=each,
        )

    return caller


async def serve(host: Host) -> int:
    """Serves until the assistant goes away; what runs then is brought to where it rests. A signal ends it at once."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await host.drivers.open()
    serving = asyncio.create_task(_serve(host))
    stopping = asyncio.create_task(stopped.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    host.closing.set()
    if serving.done() and _is_unheard(serving.exception()):
        resting = asyncio.create_task(host.drivers.rest())
        await asyncio.wait({resting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await _leave(host)
    if stopped.is_set():
        await _leave(host)
    stopping.cancel()
    await serving
    await host.drivers.close()
    return 0


async def _serve(host: Host) -> None:
    server = make_server(host)
    announced = NotificationOptions(tools_changed=True, resources_changed=True)
    wire = claimed_input()

    async def readline(size: int) -> bytes:
        return await anyio.to_thread.run_sync(wire.readline, size, abandon_on_cancel=True)

    # The SDK is given nothing to read: it would lose what the lines say that are no messages.
    async with stdio_server(stdin=anyio.wrap_file(io.StringIO())) as (unread, writing):
        passed, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)

        async def pass_on() -> None:
            async with passed, unread:
                async for message in screened(readline, writing):
                    await passed.send(message)

        passing = asyncio.create_task(pass_on())
        try:
            await server.run(heard, writing, server.create_initialization_options(announced))
        finally:
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)
    await host.drivers.rest()


def _is_unheard(wrong: BaseException | None) -> bool:
    """Whether nobody reads any more what the server says, which tells as much as an end of its input."""
    if isinstance(wrong, BaseExceptionGroup):
        return all(_is_unheard(one) for one in wrong.exceptions)
    return isinstance(wrong, BrokenPipeError)


def claimed_input() -> BinaryIO:
    """What is sent to this process, for the server alone: whatever it starts, or calls, finds its input at an end."""
    private = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    os.set_blocking(private, True)  # one that does not wait looks like one that has ended
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return os.fdopen(private, "rb", closefd=False)


async def _leave(host: Host) -> None:
    """Runs are let go, so that the next server takes them up at once. A thread still waits for input, which may never
    come: nothing else ends it.
    """
    await host.drivers.close()
    await host.service.close()
    sys.stderr.flush()
    os._exit(0)
