"""All tools by name, and their listings, which are built once and rebuilt when a playbook changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp_types import ListToolsResult, Tool

from cuebook.service.playbooks.library import Listed
from cuebook.surfaces.mcp.host import Caller, Host
from cuebook.surfaces.mcp.tools import host_steps, playbook_texts, playbooks, runs
from cuebook.surfaces.mcp.tools.tool import Offered, listed

_LIST = "tools/list"


class Entry(NamedTuple):
    """A tool and its listing."""

    tool: Offered
    shown: Tool


def same(books: Sequence[Listed], others: Sequence[Listed]) -> bool:
    """Whether nothing has changed: the library returns the same objects for unchanged files."""
    return len(books) == len(others) and all(one is two for one, two in zip(books, others, strict=True))


class Catalogue:
    """The tools, and a server middleware that caches `tools/list`.

    A listing depends only on the files, the protocol version and the caller's roles. The SDK builds and checks it once.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._fixed = _entries((*runs.TOOLS, *host_steps.TOOLS, *playbook_texts.TOOLS))
        self._confined = host.wiring.config.get("sandbox") != "none"
        self._books: list[Listed] = []
        self._with_books = self._fixed
        self._answers: dict[tuple[Any, ...], HandlerResult] = {}

    def tools(self, *, each: bool) -> dict[str, Entry]:
        """Tools by name; `each` adds one for each playbook."""
        if not each:
            return self._fixed
        books = self._host.library.all()
        if not same(books, self._books):
            self._books = books
            self._with_books = {**_entries(playbooks.offered(books, confined=self._confined)), **self._fixed}
            self._answers = {}
        return self._with_books

    def named(self, name: str, caller: Caller) -> Offered | None:
        """The tool with this name, if this caller may use it."""
        found = self.tools(each=caller.each).get(name)
        return found.tool if found is not None and found.tool.is_for(caller) else None

    def list(self, caller: Caller) -> ListToolsResult:
        found = self.tools(each=caller.each).values()
        return ListToolsResult(tools=[one.shown for one in found if one.tool.is_for(caller)])

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Leave clients without declared capabilities, and requests for further pages, to the SDK."""
        asks = ctx.method == _LIST and not (ctx.params or {}).keys() - {"_meta"}
        if not asks or ctx.session.client_capabilities is None:
            return await call_next(ctx)
        caller = self._host.caller(ctx)
        self.tools(each=caller.each)
        key = (ctx.protocol_version, caller.each, caller.may_decide, caller.principal.roles)
        answers = self._answers  # if the library changes in the meantime, this dictionary is dropped
        if key not in answers:
            answers[key] = await call_next(ctx)
        return answers[key]


def _entries(tools: Iterable[Offered]) -> dict[str, Entry]:
    return {tool.name: Entry(tool, listed(tool)) for tool in tools}
