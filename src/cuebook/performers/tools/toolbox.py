"""The available tools by name, and the performer of `CallTool`.

It finds a tool, checks the arguments, inserts secrets and enforces the tool's limits. It does not know what a tool
does, where it runs or whether it may be used.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Protocol, TypeVar

import msgspec

from cuebook.kernel.capabilities import SANDBOX
from cuebook.kernel.effects import CallTool, ServerSpec, ToolSpec
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.outcomes import UNANSWERED, Failed, ToolResult
from cuebook.kernel.ports import Action, Call, Description, Trust
from cuebook.kernel.run import Settings
from cuebook.kernel.tool_names import HOW_NAMED, SERVER_NAME, likely_server, server_of, table_of
from cuebook.performers.tools.arguments import Place, check, places, with_handles, with_values

T = TypeVar("T")

_LISTED = 40
_WILD = "*?["


class Tool(Protocol):
    """Something that can be called by name with plain arguments."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def reads_only(self) -> bool: ...

    @property
    def idempotent(self) -> bool: ...

    @property
    def takes_secrets(self) -> bool:
        """Whether its arguments may contain secrets. False if they end up in a command line or a file."""

    async def describe(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        """The actions of the call, in addition to calling the tool. The arguments match the schema."""

    async def call(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        """Performs the call within `call.limits`."""


class ToolServer(Protocol):
    """Tools that come from elsewhere and may change; each is named after the server, as in `github.search`."""

    async def find(self, tool: str, seconds: float | None = None) -> Tool | Failed:
        """The tool by its name on the server, within that time. Its schema may be empty until the server may be
        started.
        """

    async def tools(self) -> list[Tool] | Failed:
        """All tools; empty until the server may be started."""

    async def describe(self) -> Description | Failed:
        """The actions of listing its tools. Nothing is started."""

    async def close(self) -> None: ...


Bring = Callable[[ServerSpec], ToolServer]
"""Creates a server from its definition in a playbook, without starting it. Raises `BadInput` if it is invalid."""


Run = Callable[[dict[str, Any], Call], Awaitable[ToolResult | Failed]]
Describe = Callable[[dict[str, Any], Settings], Awaitable[Description | Failed]]


class SimpleTool(msgspec.Struct, frozen=True):
    """A tool made of one or two functions."""

    spec: ToolSpec
    run: Run
    describing: Describe | None = None
    reads_only: bool = False
    idempotent: bool = False
    takes_secrets: bool = False
    needs: tuple[str, ...] = ()
    """The capabilities that a call needs."""
    hidden: bool = False
    """Whether it is never listed, and accepts only calls that are `internal`."""
    aliases: dict[str, str] = {}
    """Alternative names of its arguments that models know from elsewhere, with the names used here."""
    unused: frozenset[str] = frozenset()
    """Arguments that models pass from habit and that change nothing here. They are dropped."""

    async def describe(self, arguments: dict[str, Any], settings: Settings) -> Description | Failed:
        if self.describing is not None:
            return await self.describing(arguments, settings)
        return plain_description(self.spec.name, arguments)

    async def call(self, arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        return await self.run(arguments, call)


def plain_description(name: str, arguments: dict[str, Any]) -> Description:
    return Description((), f"Call {name}", {"arguments": as_json(arguments)})


def as_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def no_secrets(handle: str) -> str:
    """Used if no secrets are configured."""
    raise BadInput(f"The secret '{handle}' is not available here.", fix="Configure where secrets come from.")


Ready = Callable[[str], Awaitable[object]]
"""Waits until the value of a secret is at hand. Raises `CuebookError` if there is none."""


async def at_hand(handle: str) -> None:
    """Used where no secret comes from a manager that may be slow."""


class Toolbox:
    """Performs and describes `CallTool`."""

    def __init__(
        self,
        tools: Iterable[Tool] = (),
        servers: Mapping[str, ToolServer] | None = None,
        bring: Bring | None = None,
    ) -> None:
        """`bring` makes the servers that playbooks bring along; without it there are none."""
        self._servers = dict(servers or {})
        self._bring = bring
        self._brought: dict[bytes, ToolServer] = {}
        """The servers by their whole definition. The user approved each running server, so there are not many."""
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            name = tool.spec.name
            if name in self._tools:
                raise BadInput(f"There are two tools named '{name}'.", fix="Rename one of them.")
            if "." in name:
                raise BadInput(f"The tool name '{name}' contains a dot.", fix="Dots separate a server from its tools.")
            self._tools[name] = tool

    async def describe(self, effect: CallTool, settings: Settings) -> Description | Failed:
        effect = self._named(effect)
        prepared = await self._prepared(effect)
        if isinstance(prepared, Failed):
            return prepared
        tool, _, arguments = prepared
        try:
            description = await tool.describe(arguments, settings)
        except CuebookError as error:
            return Failed.of(error)
        if isinstance(description, Failed):
            return description
        action = Action("tool", effect.tool, tool.reads_only or description.reads_only)
        return msgspec.structs.replace(description, actions=(action, *description.actions))

    def needs(self, effect: CallTool, settings: Settings) -> tuple[str, ...]:
        """Some tools start a process, and so do the servers of others."""
        brought = effect.server
        name = brought.name if brought is not None else effect.tool.partition(".")[0]
        found = self._servers.get(name) or (None if brought is not None else self._tools.get(effect.tool))
        if found is None and brought is not None:
            return (SANDBOX,) if brought.command else ()
        return getattr(found, "needs", ())

    async def perform(self, effect: CallTool, call: Call) -> ToolResult | Failed:
        effect = self._named(effect)
        # A tool enforces its limit itself and can report more about it; this is for a tool that does not.
        net = call.limits.seconds + call.limits.grace + 1.0
        try:
            outcome = await in_time(effect.tool, net, self._perform(effect, call))
        except CuebookError as error:
            return Failed.of(error)
        return outcome if isinstance(outcome, Failed) else capped(outcome, effect.tool, call, ends=effect.ends)

    async def _perform(self, effect: CallTool, call: Call) -> ToolResult | Failed:
        clock = asyncio.get_running_loop().time
        begun = clock()
        prepared = await self._prepared(effect, call.limits.seconds)
        if isinstance(prepared, Failed):
            return prepared
        tool, secret, _ = prepared
        arguments = _with_secrets(effect, secret, call)
        if isinstance(arguments, Failed):
            return arguments
        if effect.key_at:
            arguments = {**arguments, effect.key_at: sha256(call.key.encode()).hexdigest()}
        spent = min(clock() - begun, call.limits.seconds)
        left = msgspec.structs.replace(call.limits, seconds=call.limits.seconds - spent)
        # An effect that a tool passes to other performers has its own secrets, or none.
        inner = msgspec.structs.replace(call, limits=left, spent=call.spent + spent, secrets=dict)
        outcome = await tool.call(arguments, inner)
        if isinstance(outcome, Failed) and outcome.details.get(UNANSWERED) and (tool.reads_only or tool.idempotent):
            known = {name: value for name, value in outcome.details.items() if name != UNANSWERED}
            return msgspec.structs.replace(outcome, details=known)
        return outcome

    async def specs(self, pattern: str = "*", server: ServerSpec | None = None) -> list[ToolSpec] | Failed:
        """The tools whose names match, as a model sees them: the tools of a playbook's server, or all others. A server that
        is not approved has none.
        """
        if server is not None:
            return await self._specs_of(server, pattern)
        found = [
            tool.spec
            for name, tool in self._tools.items()
            if fnmatchcase(name, pattern) and not getattr(tool, "hidden", False)
        ]
        for name, one in self._servers.items():
            if not _may_fit(name, pattern):
                continue
            tools = await one.tools()
            if isinstance(tools, Failed):
                return tools
            found += [tool.spec for tool in tools if fnmatchcase(tool.spec.name, pattern)]
        return sorted(found, key=lambda spec: spec.name)

    async def trusts(self, name: str) -> tuple[Trust, ...]:
        """The approvals that are required before a tool with this name is listed. Nothing is started."""
        own = server_of(name, self._servers)
        if not own:
            return ()
        described = await self._servers[own].describe()
        return () if isinstance(described, Failed) else described.trusts

    async def describe_server(self, server: ServerSpec) -> Description | Failed:
        """The actions of listing the tools of a server that a playbook brings."""
        found = self._found(server)
        return found if isinstance(found, Failed) else await found.describe()

    async def find(self, name: str, seconds: float | None = None, server: ServerSpec | None = None) -> Tool | Failed:
        """The tool with that name and its properties. This may start its server, if the user has approved it."""
        if server is not None:
            return await self._find_at(server, name, seconds)
        tool = self._tools.get(name)
        if tool is not None:
            return tool
        own = server_of(name, self._servers)
        if own:
            return await self._servers[own].find(name.removeprefix(f"{own}."), seconds)
        return no_such_tool(name, self._known())

    def _known(self) -> list[str]:
        shown = [name for name, tool in self._tools.items() if not getattr(tool, "hidden", False)]
        return [*shown, *(f"{one}.*" for one in self._servers)]

    async def close(self) -> None:
        """Stops the servers."""
        await asyncio.gather(*(server.close() for server in (*self._servers.values(), *self._brought.values())))

    def _named(self, effect: CallTool) -> CallTool:
        """The call with its arguments renamed to the names used here."""
        tool = self._tools.get(effect.tool) if effect.server is None else None
        if not isinstance(tool, SimpleTool) or (tool.aliases.keys() | tool.unused).isdisjoint(effect.arguments):
            return effect
        given = {name: value for name, value in effect.arguments.items() if name not in tool.unused}
        named = {name: tool.aliases.get(name, name) for name in given}
        # An argument that is passed under both names is left unchanged, so the call is rejected.
        arguments = {name if named[name] in given else named[name]: value for name, value in given.items()}
        return msgspec.structs.replace(effect, arguments=arguments)

    def _found(self, server: ServerSpec) -> ToolServer | Failed:
        """The server itself. A configured server takes precedence over a playbook's server of the same name."""
        configured = self._servers.get(server.name)
        if configured is not None:
            return configured
        if self._bring is None:
            return Failed("no_tools", f"Playbooks cannot bring tool servers here, so '{server.name}' is not used.")
        key = msgspec.json.encode(server, order="sorted")
        if key not in self._brought:
            try:
                self._brought[key] = self._bring(server)
            except BadInput as error:
                return Failed.of(error)
        return self._brought[key]

    async def _find_at(self, server: ServerSpec, name: str, seconds: float | None) -> Tool | Failed:
        if not server_of(name, (server.name,)):
            return no_such_tool(name, [f"{server.name}.*"])
        found = self._found(server)
        return found if isinstance(found, Failed) else await found.find(name.removeprefix(f"{server.name}."), seconds)

    async def _specs_of(self, server: ServerSpec, pattern: str) -> list[ToolSpec] | Failed:
        found = self._found(server)
        tools = found if isinstance(found, Failed) else await found.tools()
        if isinstance(tools, Failed):
            return tools
        return sorted((tool.spec for tool in tools if fnmatchcase(tool.spec.name, pattern)), key=lambda spec: spec.name)

    async def _prepared(
        self, effect: CallTool, seconds: float | None = None
    ) -> tuple[Tool, dict[Place, Any], dict[str, Any]] | Failed:
        """The tool, the places of secrets, and the arguments with handles for secrets, checked against its schema."""
        secret = places(effect.secrets, effect.tool)
        if isinstance(secret, Failed):
            return secret
        arguments = with_handles(effect.arguments, secret)
        if isinstance(arguments, Failed):
            return arguments
        tool = await self.find(effect.tool, seconds, effect.server)
        if isinstance(tool, Failed):
            return tool
        if getattr(tool, "hidden", False) and not effect.internal:
            return no_such_tool(effect.tool, self._known())
        if secret and not tool.takes_secrets:
            return Failed(
                "secret_misplaced",
                f"The tool '{effect.tool}' does not accept secrets: its arguments do not stay private.",
                fix="Pass the secret to a command in its environment, or to a request in a header.",
            )
        wrong = check(effect.tool, tool.spec.parameters, arguments, secret)
        return wrong or (tool, secret, arguments)


def no_such_tool(name: str, known: Iterable[str]) -> Failed:
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    listed = ", ".join(names[:_LISTED]) + (f" and {len(names) - _LISTED} more" if len(names) > _LISTED else "")
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    server = likely_server(name)
    if server and not any(one.startswith(f"{server}.") or server_of(name, (likely_server(one),)) for one in names):
        meant += _how_to_add(server)
    return Failed(
        "no_such_tool",
        f"There is no tool named '{name[:200]}'.",
        fix=f"{meant}There {'are: ' + listed if names else 'are no tools'}.",
        details={"near": near},
    )


def _how_to_add(server: str) -> str:
    if not SERVER_NAME.fullmatch(server):
        return f"No tool server can be named '{server[:60]}'. {HOW_NAMED} "
    words = f"No tool server '{server}' is configured: add {table_of(server)} to your cuebook.toml"
    return f"{words}; `cuebook doctor` lists those that are. "


async def in_time(name: str, seconds: float, work: Awaitable[T], note: str = "") -> T | Failed:
    """The result of the work, or a `timeout` if it takes longer, in which case it is cancelled."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if not limit.expired():
            raise
        return timed_out(name, seconds, note)


def timed_out(name: str, seconds: float, note: str = "") -> Failed:
    return Failed(
        "timeout",
        f"The tool '{name}' took longer than {seconds:.3g} seconds and was stopped.{f' {note}' if note else ''}",
        fix="Request less at a time, or allow more time.",
        details={"seconds": round(seconds, 3), UNANSWERED: True},
    )


def capped(result: ToolResult, name: str, call: Call, *, ends: bool = False) -> ToolResult:
    """The result, cut at the size limit. The result and the step say what was left out.

    With `ends`, its beginning and its end are kept: a model finds the verdict of a long output at its end.
    """
    text = result.value if isinstance(result.value, str) else None
    try:
        data = call.masked(text if text is not None else msgspec.json.encode(result.value).decode()).encode(
            "utf-8", "replace"
        )
    except (TypeError, ValueError, RecursionError):
        return result  # the engine reports what cannot be stored
    limit = call.limits.output
    if len(data) <= limit:
        return result
    what = "" if text is not None else " of JSON"
    size = max(len(data), result.size)  # the tool may have cut it before
    if ends:
        call.warn("output_cut", f"The result of '{name}' has {size} bytes; {limit} from both ends are kept.")
        head, tail = (part.decode("utf-8", "ignore") for part in (data[: limit // 2], data[len(data) - limit // 2 :]))
        note = f"[{size - 2 * (limit // 2):,} of {size:,} bytes{what} are left out here]"
        return msgspec.structs.replace(result, value=f"{head}\n{note}\n{tail}", kept=len(head), size=size)
    call.warn("output_cut", f"The result of '{name}' has {len(data)} bytes; the first {limit} are kept.")
    kept = data[:limit].decode("utf-8", "ignore")
    note = f"[cut: the first {limit} of {len(data)} bytes{what} are shown]"
    return msgspec.structs.replace(result, value=f"{kept}\n{note}", kept=len(kept), size=len(data))


def _with_secrets(effect: CallTool, secret: Mapping[Place, Any], call: Call) -> dict[str, Any] | Failed:
    if not secret:
        return effect.arguments
    values = call.secrets()
    missing = [use.handle for use in secret.values() if use.at not in values]
    if missing:
        return Failed("secret_missing", f"The secret '{missing[0]}' was not provided.", fix="Check the secret.")
    return with_values(effect.arguments, {place: values[use.at] for place, use in secret.items()})


def _may_fit(server: str, pattern: str) -> bool:
    """Whether a tool of the server could match the pattern: other servers need not be started."""
    literal = pattern
    for sign in _WILD:
        literal = literal.partition(sign)[0]
    own = f"{server}."
    return literal.startswith(own) or (literal != pattern and own.startswith(literal))
