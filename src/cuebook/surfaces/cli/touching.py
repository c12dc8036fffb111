"""What a playbook would reach: models, tools, texts and hosts, and what the policy says to each.

Nothing is called and no tool server is started: what a server says of its own tools is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import msgspec

from cuebook.config.reach import ToolServer
from cuebook.gate import policy as rules
from cuebook.gate.policy import Ruling
from cuebook.kernel.effects import AskModel, CallTool, Effect, ReadSource, RunCommand, SendHttp
from cuebook.kernel.errors import BadInput
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import Action, Describer, Description, Performer
from cuebook.kernel.run import Settings
from cuebook.kernel.tool_names import server_of
from cuebook.performers.mcp import McpServer
from cuebook.performers.sources import SourcePerformer
from cuebook.performers.tools import Toolbox
from cuebook.surfaces.cli.rehearsing import Rehearsal, Shown, Ways
from cuebook.surfaces.wiring import Wiring

Decide = Callable[[Action], Ruling]


class Touched(msgspec.Struct, frozen=True):
    """One thing that a run would do, in the words of a policy."""

    domain: str
    target: str
    steps: tuple[str, ...]
    decision: str
    rules: tuple[tuple[str, str], ...]
    """What decides: the rule, and where it stands."""


class Reached(msgspec.Struct, frozen=True):
    touched: list[Touched]
    hosts: dict[str, str]
    """Each host, and what it is reached for."""
    problems: list[str]
    """What is not there, and what is asked besides."""
    missing: bool = False
    """Whether a tool is not there."""


def everything(rehearsal: Rehearsal) -> list[Shown]:
    """All that may happen, whichever way it goes."""
    found: list[Shown] = []
    for part in rehearsal.parts:
        if isinstance(part, Ways):
            found += [*part.before, *(one for _, shown in part.shown for one in shown)]
        else:
            found.append(part)
    return found


async def reached(shown: Iterable[Shown], wiring: Wiring, decide: Decide) -> Reached:
    return await _Reaching(wiring).gathered(shown, decide)


class _Reaching:
    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._servers = wiring.config.reach.servers
        performers: dict[type[Effect], Performer] = wiring.reaching.performers(wiring.performer())
        tools, texts = performers[CallTool], performers[ReadSource]
        assert isinstance(tools, Toolbox) and isinstance(texts, SourcePerformer)
        self._tools, self._texts = tools, texts
        self._describers = performers
        self._problems: dict[str, None] = {}
        self._hosts: dict[str, str] = {}
        self._missing = False

    async def gathered(self, shown: Iterable[Shown], decide: Decide) -> Reached:
        steps: dict[Action, dict[str, None]] = {}
        for one in shown:
            for action in await self._actions(one):
                steps.setdefault(action, {})[one.label] = None
        touched = [_touched(action, tuple(labels), decide(action)) for action, labels in steps.items()]
        return Reached(touched, self._hosts, list(self._problems), self._missing)

    async def _actions(self, shown: Shown) -> Sequence[Action]:
        match shown.effect:
            case AskModel(model=model):
                return self._of_model(self._wiring.asked(model))
            case CallTool() as call:
                return await self._of_tool(shown, call)
            case ReadSource() as source:
                return await self._of_text(shown, source)
            case RunCommand() | SendHttp() as effect:
                return await self._of_effect(shown, effect)
            case _:
                return ()

    async def _of_effect(self, shown: Shown, effect: RunCommand | SendHttp) -> Sequence[Action]:
        describer = self._describers[type(effect)]
        assert isinstance(describer, Describer)
        described = await describer.describe(effect, Settings())
        if isinstance(described, Failed):
            self._problem(shown, described)
            return ()
        secrets = tuple(Action("secret", use.handle) for use in effect.secrets)
        return (*self._with_hosts(described, f"step {shown.label}"), *secrets)

    def _of_model(self, model: str) -> Sequence[Action]:
        with suppress(BadInput):  # what cannot be asked is said elsewhere
            model = self._wiring.providers.full_name(model, self._wiring.model)
        config = self._wiring.provider_configs.get(model.partition("/")[0])
        if config is not None:
            self._host(config.base_url, f"model {model}")
        return (Action("model", model, reads_only=True),)

    async def _of_tool(self, shown: Shown, call: CallTool) -> Sequence[Action]:
        server = self._servers.get(server_of(call.tool, self._servers))
        if server is not None:
            return (Action("tool", call.tool), *self._of_server(server))
        described = await self._tools.describe(call, Settings())
        if isinstance(described, Description):
            return self._with_hosts(described, f"tool {call.tool}")
        tool = await self._tools.find(call.tool)
        if isinstance(tool, Failed):
            self._problem(shown, tool)
            self._missing = True
            return (Action("tool", call.tool),)
        return (Action("tool", call.tool, tool.reads_only),)  # its arguments are stand-ins, which may not fit

    def _of_server(self, server: ToolServer) -> Sequence[Action]:
        if not server.url:
            network = "may use the network" if server.network else "in a sandbox without network"
            words = f"The tool server '{server.name}' is started ({server.command[0]}, {network})"
            self._problems[f"{words}; a person is asked the first time."] = None
        else:
            self._host(server.url, f"tool server {server.name}")
        known = McpServer(
            server.name,
            command=server.command,
            url=server.url,
            secret_env=server.secret_env,
            secret_headers=server.secret_headers,
        )
        secrets = tuple(Action("secret", handle, reads_only=True) for handle in known.handles)
        return (Action("egress", f"POST {known.place}"), *secrets) if server.url else secrets

    async def _of_text(self, shown: Shown, source: ReadSource) -> Sequence[Action]:
        described = await self._texts.describe(source, Settings())
        if isinstance(described, Description):
            scheme, _, name = source.source.partition(":")
            server = self._servers.get(name.partition("/")[0]) if scheme == "mcp" else None
            if server is not None:
                self._of_server(server)
            return self._with_hosts(described, f"text {source.source}")
        self._problem(shown, described)
        return ()

    def _with_hosts(self, described: Description, what: str) -> Sequence[Action]:
        for action in described.actions:
            if action.domain == "egress":
                self._host(action.target.partition(" ")[2], what)
        return described.actions

    def _host(self, url: str, what: str) -> None:
        host = urlsplit(url).hostname
        if host:
            self._hosts.setdefault(host, what)

    def _problem(self, shown: Shown, failed: Failed) -> None:
        where = f"Step {shown.label}: " if shown.label else ""
        self._problems[f"{where}{failed}"] = None


def _touched(action: Action, steps: tuple[str, ...], ruling: Ruling) -> Touched:
    said = tuple(dict.fromkeys((reason.rule, reason.where) for reason in ruling.deciding))
    return Touched(action.domain, action.target, steps, ruling.decision, said)


def deciding(policy: rules.Policy, overrides: Sequence[rules.Override] = (), now: float = 0.0) -> Decide:
    return lambda action: rules.decide(action, [policy], overrides, now)
