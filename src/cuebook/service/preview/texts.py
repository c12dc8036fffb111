"""Reads the sources that prompts refer to, before a run, if they are on this machine and the policy allows it without
asking.

It fetches nothing and asks no one. The run reads the other sources.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

from cuebook.dialects.presentation.preview import unread
from cuebook.gate.policy import Policy, decide_all
from cuebook.kernel.effects import ReadSource
from cuebook.kernel.outcomes import Failed, Source
from cuebook.kernel.ports import Action, Call
from cuebook.kernel.run import Settings
from cuebook.performers.sources import SourcePerformer

SCHEMES = ("file", "prompt", "skill", "tools")
"""The schemes of local sources: texts, skills and tool lists."""


class LocalTexts:
    """Reads each source once. Call it outside an event loop."""

    def __init__(
        self,
        performer: SourcePerformer,
        policy: Policy,
        settings: Settings,
        schemes: Collection[str] = SCHEMES,
    ) -> None:
        self._performer = performer
        self._policy = policy
        self._settings = settings
        self._schemes = schemes
        self._read: dict[str, Source | Failed | None] = {}

    def __call__(self, effect: ReadSource) -> Source | Failed:
        if effect.server is not None:
            return Failed("not_started", "No tool server is started for a preview.")
        if effect.source.partition(":")[0] not in self._schemes:
            return unread(effect)
        if effect.source not in self._read:
            self._read[effect.source] = asyncio.run(self._found(effect))
        found = self._read[effect.source]
        return unread(effect) if found is None else found

    @property
    def looked(self) -> bool:
        """Whether it read anything that can change while the playbook stays the same."""
        return bool(self._read)

    async def _found(self, effect: ReadSource) -> Source | Failed | None:
        described = await self._performer.describe(effect, self._settings)
        if isinstance(described, Failed):
            return described
        decision = decide_all(described.actions, [self._policy]).decision
        if decision == "deny" and described.harmless:
            return Failed("forbidden", f"{described.summary}: the policy denies it.")
        if decision != "allow" and not described.harmless:
            return None
        return await self._performer.perform(effect, self._call())

    def _call(self) -> Call:
        def nothing(*said: Any) -> None:
            return None

        return Call("", "", 1, self._settings, lambda text: True, nothing, nothing, permits=self._refusal)

    def _refusal(self, action: Action) -> Failed | None:
        if decide_all((action,), [self._policy]).decision == "allow":
            return None
        return Failed("forbidden", f"{action.target} cannot be read before the run.")
