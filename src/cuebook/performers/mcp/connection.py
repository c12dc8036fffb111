"""A connection to one tool server: opened once, shared by concurrent callers, and closed with everything behind it.

A separate task owns the session, because the protocol's client must be exited by the task that entered it. This module
does not know who may use the server or what its tools are called elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from cuebook import __version__
from cuebook.kernel.engine.descriptors import NoDescriptors, lacks_descriptors
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.outcomes import Failed
from cuebook.performers.mcp.results import readable
from cuebook.system import lazy_imports

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult, GetPromptResult
    from mcp_types import Prompt as ListedPrompt
    from mcp_types import Tool as Listed

T = TypeVar("T")
Fetch = Callable[["Client"], Awaitable[dict[str, T]]]

_MOST_PAGES = 50
_MOST_LISTED = 2_000
DOUBT_SECONDS = 5.0
"""How long a server has to show that it still answers after a call timed out."""
_CLOSING_SECONDS = 5.0
_SHOWN = 4_096
_SESSION_LOST = "Session terminated"
"""The client's message when a server has forgotten the session."""

_LOST = ("Connection closed", "SSE stream ")
"""How the client's message begins if no answer can arrive anymore. Servers use the same code for their own errors."""

_NO_PROTOCOL = ("Server returned an error response", "Not Found")
"""The client's messages when a server answers with a bare status."""


class Transport(Protocol):
    """The streams to a server, and how they ended."""

    closed: asyncio.Event
    violation: str

    def account(self) -> str: ...

    def details(self) -> dict[str, Any]: ...

    async def __aenter__(self) -> tuple[Any, Any]: ...

    async def __aexit__(self, *error: Any) -> None: ...


class Connection:
    """Alive until the server exits or `stop` is called; after that, a new connection is needed."""

    def __init__(self, server: str, transport: Transport, digest: str) -> None:
        self._server = server
        self._transport = transport
        self.digest = digest
        """The digest of the server as the user approved it."""
        self._client: Client | None = None
        self._error: BaseException | None = None
        self._opened = asyncio.Event()
        self._stopping = asyncio.Event()
        self._listing: dict[str, Listed] | None = None
        self._changes = 0
        """How often the server announced that its tools changed."""
        self._listing_lock = asyncio.Lock()
        self._unwatched = False
        self._in_doubt = False
        """Whether a call timed out, so that the next one first checks whether the server answers at all."""
        self._waiting = 0
        self._ending: asyncio.Task[None] | None = None
        self._keeper = asyncio.create_task(self._keep(), name=f"mcp {server}")

    @property
    def alive(self) -> bool:
        """Whether it is usable: opening or open, but not closed."""
        return not (self._keeper.done() or self._stopping.is_set() or self._transport.closed.is_set())

    async def ready(self, seconds: float, allowed: float) -> Failed | None:
        """Waits at most `seconds` until the session is open; errors mention the time `allowed`. When the last waiting
        caller gives up, the connection is closed.
        """
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await self._opened.wait()
        except TimeoutError:
            if self._waiting == 1:  # others may have more time
                await self.stop()
            return self._failed("timeout", f"did not start within {allowed:.3g} seconds.", sent=False)
        finally:
            self._waiting -= 1
            if not self._waiting and not self._opened.is_set():
                self._stop_soon()
        if self._client is None:
            await self._over()
            return self._broken("could not be started.", sent=False)
        return None

    async def listing(self, seconds: float, allowed: float) -> dict[str, Listed] | Failed:
        """The server's tools by name, fetched again after the server announces a change."""
        async with self._listing_lock:
            if self._listing is not None and not self._unwatched:
                return self._listing
            before = self._changes
            fetched = await self._listed(seconds, allowed, _tools)
            if isinstance(fetched, Failed):
                return fetched
            # A change during the request may be missing from the list.
            self._listing = fetched if before == self._changes else None
            return fetched

    async def prompts(self, seconds: float, allowed: float) -> dict[str, ListedPrompt] | Failed:
        """The server's prompts by name, as they are now."""
        if self._client is not None and self._client.server_capabilities.prompts is None:
            return {}
        return await self._listed(seconds, allowed, _prompts)

    async def call(
        self, tool: str, arguments: dict[str, Any], seconds: float, allowed: float
    ) -> CallToolResult | Failed:
        if not self.alive:
            return self._failed("dropped", "was gone before the call reached it.", sent=False)

        async def send(client: Client) -> CallToolResult:
            return await client.call_tool(tool, arguments)

        return await self._done(seconds, allowed, send)

    async def prompt(self, name: str, seconds: float, allowed: float) -> GetPromptResult | Failed:
        async def send(client: Client) -> GetPromptResult:
            return await client.get_prompt(name)

        return await self._done(seconds, allowed, send)

    async def stop(self) -> None:
        """Closes the connection and stops its server process. May be called more than once."""
        self._stop_soon()
        await self._over()

    # --- internal ---

    def _stop_soon(self) -> None:
        if not (self._opened.is_set() or self._stopping.is_set()):
            self._keeper.cancel()  # only once: a second time would interrupt its cleanup
            self._ending = asyncio.create_task(self._over())  # makes sure that it finishes
        self._stopping.set()

    async def _over(self) -> None:
        """Waits for the task that owns the session to finish; cancelling the wait does not stop that task."""
        done, _ = await asyncio.wait({self._keeper}, timeout=_CLOSING_SECONDS)
        if not done:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})

    async def _keep(self) -> None:
        watching: asyncio.Task[None] | None = None
        try:
            mcp = await lazy_imports.load("mcp")
            _quiet()
            async with mcp.Client(
                self._transport,
                cache=None,
                message_handler=self._heard,
                client_info=mcp.Implementation(name="cuebook", version=__version__),
            ) as client:
                self._client = client
                self._opened.set()
                if _may_watch(client):
                    watching = asyncio.create_task(self._watch(client))
                await _first_of(self._stopping, self._transport.closed)
                if watching is not None:
                    watching.cancel()
                    await asyncio.gather(watching, return_exceptions=True)
        except Exception as error:
            self._error = _innermost(error)
        finally:
            self._opened.set()

    async def _heard(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            self._changed()

    def _changed(self) -> None:
        self._changes += 1
        self._listing = None

    async def _watch(self, client: Client) -> None:
        """Newer servers send notifications of changes only to subscribers."""
        try:
            async with client.listen(tools_list_changed=True) as changes:
                self._changed()  # earlier changes were not announced
                async for _ in changes:
                    self._changed()
        except Exception:
            pass  # without notifications, the list is fetched each time
        self._unwatched = True

    async def _listed(self, seconds: float, allowed: float, fetch: Fetch[T]) -> dict[str, T] | Failed:
        if self._in_doubt:
            seconds, allowed = min(seconds, DOUBT_SECONDS), min(allowed, DOUBT_SECONDS)
        listed = await self._asked(seconds, allowed, fetch)
        if not isinstance(listed, Failed):
            self._in_doubt = False
        elif listed.code == "timeout":
            await self.stop()  # a server that does not even list its tools will not do anything else
        return listed

    async def _done(self, seconds: float, allowed: float, send: Callable[[Client], Awaitable[T]]) -> T | Failed:
        outcome = await self._asked(seconds, allowed, send)
        if isinstance(outcome, Failed) and outcome.code == "timeout":
            self._listing, self._in_doubt = None, True
        return outcome

    async def _asked(self, seconds: float, allowed: float, ask: Callable[[Client], Awaitable[T]]) -> T | Failed:
        """The answer to one request, or the failure."""
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED
        from pydantic import ValidationError

        client = self._client
        if client is None:
            return self._broken("is not connected.")
        try:
            async with asyncio.timeout(seconds):
                return await ask(client)
        except TimeoutError:
            return self._failed("timeout", f"did not answer within {allowed:.3g} seconds.")
        except MCPError as error:
            if error.message == _SESSION_LOST and self._transport.details().get("status") == 404:
                await self.stop()
                return self._failed("dropped", "has forgotten the session.", sent=False)
            lost = error.code == CONNECTION_CLOSED and error.message.startswith(_LOST)
            if lost or self._transport.violation or not self.alive:
                await self.stop()
                return self._broken("was lost before it answered.")
            return self._refused(error.code, error.message)
        except _EndlessListing as error:
            return self._failed("server_failed", str(error))
        except (ValidationError, RuntimeError) as error:
            if not self.alive:
                await self.stop()
                return self._broken("was lost before it answered.")
            return self._failed("bad_result", f"sent an invalid answer: {_first_line(error)}")
        except OSError as error:
            await self.stop()
            return self._failed("dropped", f"was lost before it answered: {error}.")

    def _refused(self, code: int, message: str) -> Failed:
        """An error that the server returned, or that the client raised for an invalid answer."""
        from mcp_types import PARSE_ERROR

        words = readable(message, _SHOWN)
        if code == PARSE_ERROR:
            return self._failed("bad_result", f"sent an invalid answer: {words}")
        moved = 300 <= self._transport.details().get("status", 0) < 400
        kind = "server_failed" if moved or message in _NO_PROTOCOL else "tool_error"
        return self._failed(kind, f"refused: {words.rstrip('.')}.", protocol_code=code)

    def _broken(self, what: str, **details: Any) -> Failed:
        error = self._error
        if isinstance(error, NoDescriptors) or (lacks_descriptors(error) and details.get("sent") is False):
            return Failed.of(NoDescriptors())
        if isinstance(error, CuebookError):
            words = f"The tool server '{self._server}' {what} {error.message}"
            return Failed("server_failed", words, error.fix, details=details)
        why = f" {_first_line(error)}." if error is not None and not self._transport.violation else ""
        code = "server_failed" if self._transport.violation or self._client is None else "dropped"
        return self._failed(code, f"{what}{why}", **details)

    def _failed(self, code: str, what: str, **details: Any) -> Failed:
        account = self._transport.account()
        return Failed(
            code,
            f"The tool server '{self._server}' {what}{f' {account}' if account else ''}",
            fix=_FIXES[code],
            details={"server": self._server, **self._transport.details(), **details},
        )


_FIXES = {
    "timeout": "Request less at a time, allow more time, or check what the server is doing.",
    "dropped": "It is unknown whether the call had an effect: check before you repeat it.",
    "server_failed": "Check the server's command and settings, or use another server.",
    "tool_error": "Correct the arguments as the server says.",
    "bad_result": "Report it to the server's author, or use another tool.",
}


async def _tools(client: Client) -> dict[str, Listed]:
    async def page(cursor: str | None) -> tuple[list[Listed], str | None]:
        found = await client.list_tools(cursor=cursor)
        return found.tools, found.next_cursor

    return {tool.name: tool for tool in await _all_pages("tools", page)}


async def _prompts(client: Client) -> dict[str, ListedPrompt]:
    async def page(cursor: str | None) -> tuple[list[ListedPrompt], str | None]:
        found = await client.list_prompts(cursor=cursor)
        return found.prompts, found.next_cursor

    return {prompt.name: prompt for prompt in await _all_pages("prompts", page)}


async def _all_pages(what: str, page: Callable[[str | None], Awaitable[tuple[list[T], str | None]]]) -> list[T]:
    found: list[T] = []
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        more, cursor = await page(cursor)
        found += more
        if not cursor:
            return found
        if len(found) > _MOST_LISTED:
            break
    raise _EndlessListing(f"lists {what} endlessly: {len(found)} so far.")


class _EndlessListing(Exception):
    """The server never stops listing."""


def _quiet() -> None:
    # Without a handler, Python prints a library's warnings to the terminal, and these quote what the server sent.
    for name in ("mcp", "client"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def _may_watch(client: Client) -> bool:
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    tools = client.server_capabilities.tools
    return client.protocol_version in MODERN_PROTOCOL_VERSIONS and tools is not None and bool(tools.list_changed)


async def _first_of(*events: asyncio.Event) -> None:
    tasks = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return readable(lines[0], 300).rstrip(".")
