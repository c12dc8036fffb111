"""Lists what a run would touch: models, tools, sources and hosts, each with the policy's decision.

It calls nothing and starts no tool server, so the properties of a server's tools are not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

import msgspec

from cuebook.config.tools import ToolServer
from cuebook.dialects.presentation.preview import Act, Preview
from cuebook.gate.policy import Ruling, strictest
from cuebook.kernel.effects import (
    AGENTS,
    AskModel,
    Browse,
    CallNode,
    CallTool,
    Effect,
    ReadSource,
    RunCommand,
    SendHttp,
)
from cuebook.kernel.outcomes import Failed
from cuebook.kernel.ports import EVERYWHERE, Action, Describer, Description, Performer
from cuebook.kernel.run import Settings
from cuebook.kernel.tool_names import AGENTS_OWN, server_of, visible
from cuebook.performers.mcp import McpServer
from cuebook.performers.sources import SourcePerformer
from cuebook.performers.tools.toolbox import Toolbox
from cuebook.service.preview.tool_rulings import Decide, ToolRuling, ToolRulings


class Touched(msgspec.Struct, frozen=True):
    """One action of a run, in policy terms."""

    domain: str
    target: str
    steps: tuple[str, ...]
    decision: str
    rules: tuple[tuple[str, str], ...]
    """The deciding rule and its place."""


class Touches(msgspec.Struct, frozen=True):
    touched: list[Touched]
    hosts: dict[str, str]
    """Each host, with the purpose of the connection."""
    problems: list[str]
    """Missing parts, and further questions for the approver."""
    missing: bool = False
    """Whether a tool is missing."""
    agents: dict[str, AgentAccess] = {}
    """What each coding agent is given, by its name as a model."""


class AgentAccess(msgspec.Struct, frozen=True):
    """What a coding agent is given when it is started."""

    hosts: tuple[str, ...] = ()
    """The hosts that it may reach, as URLs."""
    variables: dict[str, str] = {}
    """Environment variables, each with the handle of its secret."""
    files: dict[str, str] = {}
    """Files in its home folder that it can only read, each with the handle of its secret."""
    readable: tuple[str, ...] = ()
    """Paths that it may read in addition to the workspace."""
    optional: tuple[str, ...] = ()
    """Variables that are left out if their secret does not exist."""


class Asked(msgspec.Struct, frozen=True):
    """A model that a run would call."""

    name: str
    """As `provider/model` if its provider is known."""
    base_url: str = ""
    otherwise: tuple[Asked, ...] = ()
    """The models that are called while this one is unavailable."""
    agent: AgentAccess = AgentAccess()
    """What it is given if it is a coding agent."""

    @property
    def every(self) -> tuple[Asked, ...]:
        return (self, *self.otherwise)

    @property
    def is_agent(self) -> bool:
        return self.name.startswith(AGENTS)


class Reach(msgspec.Struct, frozen=True):
    """The configured performers and tool servers, through which a playbook acts."""

    performers: Mapping[type[Effect], Performer]
    servers: Mapping[str, ToolServer]
    asked: Callable[[str | None], Asked]
    """Returns the model to call if a playbook specifies this model, or none."""

    @property
    def tools(self) -> Toolbox:
        found = self.performers[CallTool]
        assert isinstance(found, Toolbox)
        return found

    @property
    def texts(self) -> SourcePerformer:
        found = self.performers[ReadSource]
        assert isinstance(found, SourcePerformer)
        return found


async def touches_of(preview: Preview, reach: Reach, tools: ToolRulings) -> Touches:
    """Everything that a run may touch, in all branches."""
    found = _Search(reach)
    touched = await found.touched([("", effect) for effect in preview.reads], tools.decide)
    for act in preview.every_act():
        if act.effect is not None:
            touched += await found.touched([(act.label, act.effect)], tools.decide)
        for _, one in await found.called(act, tools):
            touched += one
    made = found.result(_together(touched))
    return msgspec.structs.replace(made, hosts={**made.hosts, **preview.hosts})


async def tool_rulings_of(act: Act, reach: Reach, tools: ToolRulings) -> tuple[list[ToolRuling], Touches]:
    """The decisions on the tools that the model of an act may call, and what these touch."""
    found = _Search(reach)
    called = await found.called(act, tools)
    return [ruling for ruling, _ in called], found.result([one for _, touched in called for one in touched])


def _together(touched: Iterable[Touched]) -> list[Touched]:
    """Each action once, with all its steps."""
    steps: dict[Touched, dict[str, None]] = {}
    for one in touched:
        steps.setdefault(msgspec.structs.replace(one, steps=()), {}).update(dict.fromkeys(one.steps))
    return [msgspec.structs.replace(one, steps=tuple(labels)) for one, labels in steps.items()]


async def touches_of_effect(label: str, effect: Effect, reach: Reach, decide: Decide) -> Touches:
    found = _Search(reach)
    return found.result(await found.touched([(label, effect)], decide))


class _Search:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._servers = reach.servers
        self._problems: dict[str, None] = {}
        self._hosts: dict[str, str] = {}
        self._missing = False
        self._agents: dict[str, AgentAccess] = {}

    def result(self, touched: list[Touched]) -> Touches:
        return Touches(touched, self._hosts, list(self._problems), self._missing, self._agents)

    async def called(self, act: Act, tools: ToolRulings) -> list[tuple[ToolRuling, list[Touched]]]:
        """The tools that the model of an act may call, each with the decision on it and what it touches. A coding agent has
        tools of its own; it calls the other ones, and asks Cuebook for permissions, files and commands.
        """
        every = self._reach.asked(act.effect.model).every if isinstance(act.effect, AskModel) else ()
        agents = [one for one in every if one.is_agent]
        calls = [call for call in act.calls if len(agents) < len(every) or visible(call.tool) not in AGENTS_OWN]
        found = [await self._called(act.label, call, tools) for call in calls]
        for agent in agents:
            found += ((ruling, [of_ruling(ruling, act.label)]) for ruling in tools.requests(agent.name))
        return found

    async def _called(self, label: str, call: CallTool, tools: ToolRulings) -> tuple[ToolRuling, list[Touched]]:
        if call.server is None and not server_of(call.tool, self._servers):
            tool = await self._reach.tools.find(call.tool)
            ruling = None if isinstance(tool, Failed) else tools.built_in(call.tool, tool.reads_only)
            if ruling is not None:
                return ruling, [of_ruling(ruling, label)]
        touched = await self.touched([(label, call)], tools.decide)
        decision = strictest(one.decision for one in touched)  # type: ignore[misc]
        reasons = [reason for one in touched if one.decision == decision for reason in one.rules]
        asked = tuple(Action(one.domain, one.target) for one in touched if one.decision == "ask")  # type: ignore[arg-type]
        return ToolRuling(call.tool, decision, tuple(dict.fromkeys(reasons)), asked=asked), touched

    async def touched(self, effects: Iterable[tuple[str, Effect]], decide: Decide) -> list[Touched]:
        """Returns what these effects touch. Each effect is paired with the label of its step."""
        steps: dict[Action, dict[str, None]] = {}
        for label, effect in effects:
            for action in await self._actions(label, effect):
                steps.setdefault(action, {})[label] = None
        return [touched_by(action, decide(action), tuple(labels)) for action, labels in steps.items()]

    async def _actions(self, label: str, effect: Effect) -> Sequence[Action]:
        match effect:
            case AskModel(model=model):
                return self._of_model(model)
            case CallTool():
                return await self._of_tool(label, effect)
            case ReadSource():
                return await self._of_text(label, effect)
            case RunCommand() | SendHttp() | Browse() | CallNode():
                return await self._of_effect(label, effect)
            case _:
                return ()

    async def _of_effect(self, label: str, effect: RunCommand | SendHttp | Browse | CallNode) -> Sequence[Action]:
        describer = self._reach.performers[type(effect)]
        assert isinstance(describer, Describer)
        described = await describer.describe(effect, Settings())
        if isinstance(described, Failed):
            self._problem(label, described)
            return ()
        secrets = tuple(Action("secret", use.handle) for use in effect.secrets)
        return (*self._with_hosts(described, f"step {label}"), *secrets)

    def _of_model(self, named: str | None) -> Sequence[Action]:
        return tuple(action for one in self._reach.asked(named).every for action in self._of_one_model(one))

    def _of_one_model(self, asked: Asked) -> Iterator[Action]:
        yield Action("model", asked.name, reads_only=True)
        self._host(asked.base_url, f"model {asked.name}")
        if asked.is_agent:
            self._agents[asked.name] = asked.agent
        for host in asked.agent.hosts:
            self._host(host, f"coding agent {asked.name}")
            yield Action("egress", f"CONNECT {host}", reads_only=True)

    async def _of_tool(self, label: str, call: CallTool) -> Sequence[Action]:
        server = self._servers.get(server_of(call.tool, self._servers))
        if server is not None:
            return (Action("tool", call.tool), *self._of_server(server))
        described = await self._reach.tools.describe(call, Settings())
        if isinstance(described, Description):
            return self._with_hosts(described, f"tool {call.tool}")
        tool = await self._reach.tools.find(call.tool)
        if isinstance(tool, Failed):
            self._problem(label, tool)
            self._missing = True
            return (Action("tool", call.tool),)
        return (Action("tool", call.tool, tool.reads_only),)  # its arguments are stand-ins, which may be invalid

    def _of_server(self, server: ToolServer) -> Sequence[Action]:
        if not server.url:
            hosts = f"may reach {', '.join(server.network)}" if server.network else "in a sandbox without network"
            network = "may use the network" if server.network == EVERYWHERE else hosts
            words = f"The tool server '{server.name}' is started ({server.command[0]}, {network})"
            self._problems[f"{words}; this needs approval the first time."] = None
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

    async def _of_text(self, label: str, source: ReadSource) -> Sequence[Action]:
        described = await self._reach.texts.describe(source, Settings())
        if isinstance(described, Description):
            scheme, _, name = source.source.partition(":")
            server = self._servers.get(name.partition("/")[0]) if scheme == "mcp" else None
            if server is not None:
                self._of_server(server)
            return self._with_hosts(described, f"text {source.source}")
        self._problem(label, described)
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

    def _problem(self, label: str, failed: Failed) -> None:
        where = f"Step {label}: " if label else ""
        self._problems[f"{where}{failed}"] = None


def touched_by(action: Action, ruling: Ruling, steps: tuple[str, ...] = ()) -> Touched:
    rules = tuple(dict.fromkeys((reason.rule, reason.where) for reason in ruling.deciding))
    return Touched(action.domain, action.target, steps, ruling.decision, rules)


def of_ruling(ruling: ToolRuling, label: str) -> Touched:
    return Touched("tool", ruling.tool, (label,), ruling.decision, ruling.reasons)
