"""The coding agents that a run may use: how each is started, and what it needs. Starts nothing."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from cuebook.formats.words import with_extra
from cuebook.kernel.effects import AGENTS
from cuebook.kernel.errors import BadInput

PREFIX = AGENTS


class Agent(msgspec.Struct, frozen=True, kw_only=True):
    """A coding agent."""

    name: str
    command: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    """The hosts that it may reach, as in `api.example.com` or `api.example.com:8443`."""
    env: dict[str, str] = {}
    secret_env: dict[str, str] = {}
    """Environment variables, each with the handle of its value."""
    secret_files: dict[str, str] = {}
    """Files in its home folder, each with the handle of its content. It can read them, not change them."""
    optional: tuple[str, ...] = ()
    """Variables that are left out if their secret does not exist."""
    readable: tuple[str, ...] = ()
    """Absolute paths that it may read in addition to the workspace and its own program."""
    seconds: float = 1_800.0
    """The time limit of one turn."""
    stays: float = 300.0
    """Seconds that its process waits for an approval. Then it is ended, and its session is loaded afterwards."""
    memory: int = 4 << 30
    processes: int = 256
    install: str = ""
    """How to install it."""
    sign_in: str = ""
    """The way to sign in with the key in its environment, by its id in the protocol, if it does not do so on its own."""

    @property
    def handles(self) -> tuple[str, ...]:
        return tuple(sorted({*self.secret_env.values(), *self.secret_files.values()}))


def _built_in(
    name: str, command: str, install: str, *, hosts: tuple[str, ...] = (), keys: tuple[str, ...] = (), **more: Any
) -> Agent:
    return Agent(
        name=name,
        command=tuple(command.split()),
        hosts=hosts,
        secret_env={key: f"env:{key}" for key in keys},
        optional=keys,
        install=install,
        **more,
    )


BUILT_IN = {
    one.name: one
    for one in (
        _built_in(
            "claude-code",
            "claude-agent-acp",
            "npm install -g @agentclientprotocol/claude-agent-acp",
            hosts=("api.anthropic.com",),
            keys=("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
            env={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
        ),
        _built_in(
            "codex",
            "codex-acp",
            "npm install -g @agentclientprotocol/codex-acp",
            hosts=("api.openai.com",),
            keys=("CODEX_API_KEY", "OPENAI_API_KEY"),
            env={"NO_BROWSER": "1"},
            sign_in="api-key",
        ),
        _built_in(
            "gemini",
            "gemini --acp",
            "npm install -g @google/gemini-cli",
            hosts=("generativelanguage.googleapis.com",),
            keys=("GEMINI_API_KEY",),
            env={"NO_BROWSER": "1"},
        ),
        _built_in("opencode", "opencode acp", "npm install -g opencode-ai"),
        _built_in("goose", "goose acp", "see https://block.github.io/goose"),
    )
}
"""As of the packages that `make real-agent` tries."""


class AgentStatus(msgspec.Struct, frozen=True):
    """Whether an agent can be used here."""

    name: str
    program: str = ""
    """The path of its program; empty if it is not installed."""
    problem: str = ""
    """Why it cannot be used, and what to do."""


class UnknownAgent(BadInput):
    """There is no such agent."""

    code = "unknown_model"


class MissingAgent(BadInput):
    """An agent, or the package that talks to agents, is not installed."""

    code = "model_not_installed"


class Catalogue:
    """The built-in agents and those of the configuration, which replace built-in ones of the same name."""

    def __init__(self, configured: Mapping[str, Agent] | None = None, environ: Mapping[str, str] | None = None) -> None:
        self.configured = tuple((configured or {}).values())
        self._agents = {**BUILT_IN, **(configured or {})}
        self._environ = os.environ if environ is None else environ

    def agent(self, model: str) -> Agent:
        """The agent behind `acp/NAME`. Raises `BadInput` if there is none."""
        name = model.removeprefix(PREFIX)
        found = self._agents.get(name)
        if found is not None:
            return found
        close = get_close_matches(name, self._agents, n=1, cutoff=0.6)
        hint = f"Did you mean `{PREFIX}{close[0]}`? " if close else ""
        raise UnknownAgent(
            f"There is no coding agent `{name}`.",
            fix=f"{hint}The agents are {', '.join(self._agents)}; others can be added as [agents.NAME].",
        )

    def check(self, model: str) -> None:
        """Raises `BadInput` if this agent cannot be started here."""
        self.program(self.agent(model))

    def program(self, agent: Agent) -> str:
        """The path of an agent's program."""
        if importlib.util.find_spec("acp") is None:
            raise MissingAgent(
                "Coding agents need the Python package agent-client-protocol, which is not installed.",
                fix=with_extra("agents"),
            )
        first = agent.command[0]
        found = first if os.path.isabs(first) else shutil.which(first, path=self._environ.get("PATH"))
        if found and os.path.isfile(found):
            return found
        raise MissingAgent(
            f"The coding agent {agent.name} is not installed: there is no program '{first}'.",
            fix=f"Install it ({agent.install})." if agent.install else f"Correct [agents.{agent.name}].",
        )

    def statuses(self) -> list[AgentStatus]:
        """Every agent, and what is missing to use it."""
        return [self._status(agent) for agent in self._agents.values()]

    def _status(self, agent: Agent) -> AgentStatus:
        try:
            return AgentStatus(agent.name, self.program(agent))
        except BadInput as error:
            return AgentStatus(agent.name, problem=str(error))
