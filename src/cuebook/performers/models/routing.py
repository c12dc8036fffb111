"""Passes each `AskModel` to the performer of its model: a coding agent, or everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cuebook.kernel.effects import AGENTS, AskModel
from cuebook.kernel.outcomes import AnyOutcome, Failed
from cuebook.kernel.ports import Call, Description, Estimate
from cuebook.kernel.run import WORKTREE, Settings

if TYPE_CHECKING:
    from cuebook.performers.agents.performer import AgentPerformer


class ModelRouter:
    """Implements what the engine and the gate expect of a performer of `AskModel`. Agents are loaded on first use."""

    def __init__(self, models: Any, agents: Callable[[str], AgentPerformer]) -> None:
        """`agents` creates the performer for a worktree, or for the workspace if the name is empty."""
        self._models = models
        self._make = agents
        self._agents: dict[str, AgentPerformer] = {}

    def _agents_of(self, settings: Settings) -> AgentPerformer:
        name = str(settings.options.get(WORKTREE) or "")
        if name not in self._agents:
            self._agents[name] = self._make(name)
        return self._agents[name]

    def _of(self, effect: AskModel, settings: Settings) -> Any:
        return self._agents_of(settings) if settings.asked(effect.model).startswith(AGENTS) else self._models

    def acts(self, effect: AskModel, settings: Settings) -> bool:
        return effect.relays and settings.asked(effect.model).startswith(AGENTS)

    async def continues(self, effect: AskModel, call: Call) -> bool:
        return await self._agents_of(call.settings).continues(effect, call)

    def needs(self, effect: AskModel, settings: Settings) -> tuple[str, ...]:
        found: tuple[str, ...] = self._of(effect, settings).needs(effect, settings)
        return found

    def estimate(self, effect: AskModel, settings: Settings) -> Estimate:
        found: Estimate = self._of(effect, settings).estimate(effect, settings)
        return found

    def is_free(self, effect: AskModel, settings: Settings) -> bool:
        return bool(self._of(effect, settings).is_free(effect, settings))

    async def describe(self, effect: AskModel, settings: Settings) -> Description | Failed:
        found: Description | Failed = await self._of(effect, settings).describe(effect, settings)
        return found

    async def perform(self, effect: AskModel, call: Call) -> AnyOutcome:
        outcome: AnyOutcome = await self._of(effect, call.settings).perform(effect, call)
        return outcome

    async def close(self) -> None:
        """Ends the agents that were started."""
        for agents in self._agents.values():
            await agents.close()
