"""Lookup tables of a program for a run: playbooks by call name, triggers by id, and listings. Each is built once.
Pure."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Any

import msgspec

from cuebook.dialects.program.listing import Listing
from cuebook.dialects.program.machine.prompts import DISPATCH, MESSAGES
from cuebook.dialects.program.model import Agent, Param, Playbook, ProgramText
from cuebook.dialects.program.shared_variables import Touched, named_in, touched_by
from cuebook.dialects.program.values.evaluate import NotComputable, condition_of, is_error, judge
from cuebook.dialects.program.values.expressions import Expression, refs_of
from cuebook.dialects.program.verify.scope import BUILT_IN
from cuebook.dialects.program.verify.verdicts import KnownTrigger, Signature, signature_of

_VARIABLE = re.compile(r"\$(\w+)")

_DISPATCHER = Playbook(MESSAGES, "react", (Param("message", "str"),), description=DISPATCH)


class Callee(msgspec.Struct, frozen=True):
    """The target of a call."""

    agent: Agent
    playbook: Playbook


class AgentView:
    """The playbooks that one agent can call, and the variables that its triggers watch."""

    def __init__(self, program: ProgramText, agent: Agent) -> None:
        self.agent = agent
        self.callees = _callees(program, agent)
        self.named = sorted({*agent.playbooks, *(name for name in self.callees if not _own(name, agent))})
        """Everything it can call, each under one name."""
        self.signatures: dict[str, Signature] = {name: signature_of(one.playbook) for name, one in self.callees.items()}
        self.private = tuple(
            f"{other.name}.{one.name}"
            for other in program.agents.values()
            for one in other.playbooks.values()
            if other.name != agent.name and not one.public
        )
        """The playbooks of other agents that it cannot call."""
        self.triggers: dict[str, KnownTrigger] = {}
        self.conditions: dict[str, Expression] = {}
        self.watchers: dict[str, list[str]] = {}
        """The computable triggers that depend on a variable, by variable."""
        self.semantic: dict[str, str] = {}
        """The conditions that only a model can judge, by id."""
        for playbook in agent.playbooks.values():
            for trigger in playbook.triggers:
                self._add(f"{playbook.name}:{trigger.id}", KnownTrigger(trigger.kind, trigger.text))
        self.events = [id for id, one in self.triggers.items() if one.kind == "EVT"]

    def _add(self, id: str, trigger: KnownTrigger) -> None:
        self.triggers[id] = trigger
        if trigger.kind != "CND":
            return
        condition = condition_of(trigger.text)
        if condition is None:
            self.semantic[id] = trigger.text
            return
        self.conditions[id] = condition
        for name in dict.fromkeys(refs_of(condition)):
            self.watchers.setdefault(name, []).append(id)

    @cached_property
    def watched(self) -> frozenset[str]:
        """The variables that semantic triggers mention. When one is set, a model has to judge."""
        return frozenset(name for text in self.semantic.values() for name in _VARIABLE.findall(text))

    def add_others(self, agent: Agent) -> None:
        """Add the playbooks of another agent that a message can trigger, prefixed with the agent's name."""
        for playbook in agent.playbooks.values():
            for trigger in playbook.triggers:
                if trigger.kind == "EVT" or (trigger.kind == "CND" and condition_of(trigger.text) is None):
                    name = f"{agent.name}.{playbook.name}"
                    self.triggers[f"{name}:{trigger.id}"] = KnownTrigger(trigger.kind, trigger.text)
                    self.callees[name] = Callee(agent, playbook)
                    self.signatures[name] = signature_of(playbook)

    def holds(self, id: str, variables: Mapping[str, Any]) -> bool:
        """Whether a condition holds for the agent's own variables. The result of a failed call never makes it hold."""
        condition = self.conditions[id]
        if any(is_error(variables.get(name)) for name in refs_of(condition)):
            return False
        try:
            return judge(condition, variables)
        except NotComputable:
            return False

    def knows(self, name: str) -> bool:
        return name in self.signatures or name.rpartition(".")[2] in BUILT_IN or name == "SaveArtifact"


class Catalogue:
    def __init__(self, program: ProgramText) -> None:
        self.program = program
        self.served: dict[str, list[Playbook]] = {}
        """The playbooks of remote agents, by agent."""
        self.grammars: dict[Hashable, str] = {}
        """Cached grammars, by their inputs."""
        self._views: dict[str, AgentView] = {}
        self._dispatching: dict[str, AgentView] = {}
        self._touched: dict[tuple[str, str], Touched] = {}
        self.messages = MESSAGES
        """The name of the frame that decides what a message triggers. No playbook has this name."""
        while any(self.messages in agent.playbooks for agent in program.agents.values()):
            self.messages += "_"
        self._listings: dict[tuple[str, str], Listing] = {}
        agents = [agent for agent in program.agents.values() if agent.kind == "ai"]
        self.ids = {agent.name: f"agent {1000 + number}" for number, agent in enumerate(agents)}
        self.agents = {agent.name: agent for agent in agents}

    def learn(self, name: str, tools: list[Playbook]) -> None:
        """Register the playbooks of a remote agent."""
        self.served[name] = tools
        agent = msgspec.structs.replace(self.program.agents[name], playbooks={tool.name: tool for tool in tools})
        self.program = msgspec.structs.replace(self.program, agents={**self.program.agents, name: agent})
        self._views.clear()
        self._dispatching.clear()
        self._touched.clear()

    def view(self, agent: str) -> AgentView:
        if agent not in self._views:
            self._views[agent] = AgentView(self.program, self.program.agents[agent])
        return self._views[agent]

    def playbook(self, agent: str, name: str) -> Playbook:
        if name == self.messages:
            return msgspec.structs.replace(_DISPATCHER, name=name)
        return self.program.agents[agent].playbooks[name]

    def dispatching(self, agent: str) -> AgentView:
        """The view of an agent that handles a user message addressed to no particular agent."""
        if agent not in self._dispatching:
            made = self._dispatching[agent] = AgentView(self.program, self.program.agents[agent])
            for other in self.agents.values():
                if other.name != agent:
                    made.add_others(other)
        return self._dispatching[agent]

    def touched(self, agent: str, name: str) -> Touched:
        """The variables that a call may read or set: directly, in its calls, and in playbooks that its variables trigger."""
        key = (agent, name)
        if key not in self._touched:
            seen: set[tuple[str, str]] = set()
            waiting, all_ = [key], Touched()
            while waiting:
                one = waiting.pop()
                if one in seen or self.program.agents[one[0]].remote is not None:
                    continue
                seen.add(one)
                owner, playbook, view = self.program.agents[one[0]], self.playbook(*one), self.view(one[0])
                own = touched_by(owner, playbook, self.listing(*one))
                all_ |= own
                called = [view.callees[word] for word in named_in(owner, playbook) if word in view.callees]
                waiting += [(callee.agent.name, callee.playbook.name) for callee in called]
                for _, variable in own.sets:
                    waiting += [(one[0], id.partition(":")[0]) for id in view.watchers.get(variable, ())]
            self._touched[key] = all_
        return self._touched[key]

    def listing(self, agent: str, name: str) -> Listing:
        key = (agent, name)
        if key not in self._listings:
            self._listings[key] = Listing.of(self.playbook(agent, name))
        return self._listings[key]

    def addressed(self, target: str) -> str:
        """The agent that a message is addressed to, by name or as in `agent 1001`; empty for the user."""
        words = target.strip()
        for name, id in self.ids.items():
            if words in (name, id) or words.lower() == id:
                return name
        return ""

    def waits_for_messages(self) -> str:
        """The first agent in which a message can trigger something; empty if there is none."""
        for name in self.agents:
            view = self.view(name)
            if view.events or view.semantic:
                return name
        return ""


def _own(name: str, agent: Agent) -> bool:
    return name in agent.playbooks or name.startswith(f"{agent.name}.") or "." not in name


def _callees(program: ProgramText, agent: Agent) -> dict[str, Callee]:
    """The playbooks that this agent can call, by name: its own, and the public playbooks of other agents."""
    found: dict[str, Callee] = {}
    for other in program.agents.values():
        for playbook in other.playbooks.values() if other.name != agent.name else ():
            if playbook.public:
                found[f"{other.name}.{playbook.name}"] = Callee(other, playbook)
                found.setdefault(playbook.name, Callee(other, playbook))
    for playbook in agent.playbooks.values():
        found[playbook.name] = found[f"{agent.name}.{playbook.name}"] = Callee(agent, playbook)
    return found


def tool_of(spec: Mapping[str, Any], agent: str) -> Playbook:
    """A tool of a remote agent, as a playbook that can be called."""
    schema = spec.get("parameters") or {}
    known, needed = schema.get("properties") or {}, schema.get("required") or ()
    params = tuple(Param(name, has_default=name not in needed) for name in known)
    name = str(spec["name"]).removeprefix(f"{agent}.")
    return Playbook(
        name, "python", params, description=str(spec.get("description", "")), metadata={"public": True}, open=not known
    )
