"""All tools, by name, and how they are listed: made once, and anew when a playbook has changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types import ListToolsResult, Tool

from cuebook.surfaces.library import Listed
from cuebook.surfaces.mcp import authoring, executing, offering
from cuebook.surfaces.mcp.calling import Offered, listed
from cuebook.surfaces.mcp.host import Caller, Host

_LIST = "tools/list"


class Entry(NamedTuple):
    """A tool, and how it is shown."""

    tool: Offered
    shown: Tool


def same(books: Sequence[Listed], others: Sequence[Listed]) -> bool:
    """Whether nothing has changed: the library gives the same objects for the same files."""
    return len(books) == len(others) and all(one is two for one, two in zip(books, others, strict=True))


class Catalogue:
    """The tools, and as a middleware of the server, the answer to who lists them.

    A listing depends on nothing but the files, the version of the protocol and what the caller may do. It is shaped and
    checked by the SDK once, and kept.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._fixed = _entries((*executing.TOOLS, *authoring.TOOLS))
        self._confined = host.wiring.config.get("sandbox") != "none"
        self._books: list[Listed] = []
        self._with_books = self._fixed
        self._answers: dict[tuple[Any, ...], HandlerResult] = {}

    def tools(self, *, each: bool) -> dict[str, Entry]:
        """By name; with `each`, those of the playbooks, too."""
        if not each:
            return self._fixed
        books = self._host.library.all()
        if not same(books, self._books):
            self._books = books
            self._with_books = {**_entries(offering.offered(books, confined=self._confined)), **self._fixed}
            self._answers = {}
        return self._with_books

    def named(self, name: str, caller: Caller) -> Offered | None:
        """The tool of this name, where this caller has it."""
        found = self.tools(each=caller.each).get(name)
        return found.tool if found is not None and found.tool.is_for(caller) else None

    def list(self, caller: Caller) -> ListToolsResult:
        found = self.tools(each=caller.each).values()
        return ListToolsResult(tools=[one.shown for one in found if one.tool.is_for(caller)])

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Whoever has not said what they can, or asks for a further page, is answered by the SDK's own way."""
        asks = ctx.method == _LIST and not (ctx.params or {}).keys() - {"_meta"}
        if not asks or ctx.session.client_capabilities is None:
            return await call_next(ctx)
        caller = self._host.caller(ctx)
        self.tools(each=caller.each)
        key = (ctx.protocol_version, caller.each, caller.may_decide, caller.principal.roles)
        answers = self._answers  # those of a library that changes meanwhile are not kept
        if key not in answers:
            answers[key] = await call_next(ctx)
        return answers[key]


def _entries(tools: Iterable[Offered]) -> dict[str, Entry]:
    return {tool.name: Entry(tool, listed(tool)) for tool in tools}
