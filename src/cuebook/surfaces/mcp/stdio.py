"""The MCP server over stdio, started by an assistant for one person. It exits when the assistant does, and nothing is lost."""

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

from cuebook.gate.roles import Role
from cuebook.service.service import Principal
from cuebook.surfaces.mcp.bad_lines import valid_messages
from cuebook.surfaces.mcp.host import Caller, Host, client_of
from cuebook.surfaces.mcp.server import make_server

ASSISTANT = "assistant"
"""The name that tools act under over stdio. It is not a person and cannot approve what it started."""


def caller_here(address: str, *, decides: bool, approves_here: bool, each: bool) -> Callable[[Any], Caller]:
    """The caller at the other end of the pipe: the assistant of the person at this machine."""
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
            alone=True,
        )

    return caller


async def serve(host: Host) -> int:
    """Serve until the assistant disconnects, then drive its runs until they end or wait. A signal stops it at once."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    await host.worker.open()
    serving = asyncio.create_task(_serve(host))
    stopping = asyncio.create_task(stopped.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    host.closing.set()
    if serving.done() and _is_disconnected(serving.exception()):
        resting = asyncio.create_task(host.worker.until_idle())
        await asyncio.wait({resting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await _leave(host)
    if stopped.is_set():
        await _leave(host)
    stopping.cancel()
    await serving
    await host.worker.close()
    return 0


async def _serve(host: Host) -> None:
    server = make_server(host)
    announced = NotificationOptions(tools_changed=True, resources_changed=True)
    wire = claimed_input()

    async def readline(size: int) -> bytes:
        return await anyio.to_thread.run_sync(wire.readline, size, abandon_on_cancel=True)

    # The SDK gets an empty input: it would drop lines that are not messages without an answer.
    async with stdio_server(stdin=anyio.wrap_file(io.StringIO())) as (unread, writing):
        passed, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)

        async def pass_on() -> None:
            async with passed, unread:
                async for message in valid_messages(readline, writing):
                    await passed.send(message)

        passing = asyncio.create_task(pass_on())
        try:
            await server.run(heard, writing, server.create_initialization_options(announced))
        finally:
            passing.cancel()
            await asyncio.gather(passing, return_exceptions=True)
    await host.worker.until_idle()


def _is_disconnected(wrong: BaseException | None) -> bool:
    """Whether the client has closed the server's output, which means the same as the end of its input."""
    if isinstance(wrong, BaseExceptionGroup):
        return all(_is_disconnected(one) for one in wrong.exceptions)
    return isinstance(wrong, BrokenPipeError)


def claimed_input() -> BinaryIO:
    """Take over the process's input for the server; child processes and libraries get an empty input."""
    private = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3)
    os.set_blocking(private, True)  # a non-blocking input looks as if it had ended
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return os.fdopen(private, "rb", closefd=False)


async def _leave(host: Host) -> None:
    """Release all runs, so that the next server can pick them up at once, and exit the process: a thread is still waiting
    for input that may never come.
    """
    await host.worker.close()
    await host.service.close()
    sys.stderr.flush()
    os._exit(0)
