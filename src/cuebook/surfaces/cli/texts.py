"""The texts that prompts refer to, read beforehand: those on this machine that the policy lets through unasked.

Nothing is fetched and nobody is asked; what cannot be read this way is left to the run.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from typing import Any

from cuebook.config import config_folder
from cuebook.gate.policy import Policy, decide_all, load_policy
from cuebook.kernel.effects import ReadSource
from cuebook.kernel.outcomes import Failed, Source
from cuebook.kernel.ports import Action, Call
from cuebook.kernel.run import Settings
from cuebook.performers.sources import SourcePerformer
from cuebook.surfaces.wiring import Wiring

LOCAL = ("file", "prompt")
LISTED = (*LOCAL, "skill", "tools")


def strictest_policy(wiring: Wiring) -> Policy:
    """Today's policy if nothing was trusted: at least as strict as the one that holds, and no store is needed for it."""
    return load_policy(config_folder(os.environ), wiring.config.folder, lambda path, digest: False)


def listing_texts(wiring: Wiring, settings: Settings) -> LocalTexts:
    """Those, and what skills and tools there are here. No tool server is started for that."""
    performer = wiring.reaching.performers(wiring.performer())[ReadSource]
    assert isinstance(performer, SourcePerformer)
    return LocalTexts(wiring, settings, performer, LISTED)


class LocalTexts:
    """Reads a source, once. None means that it is not looked at here."""

    def __init__(
        self,
        wiring: Wiring,
        settings: Settings,
        performer: SourcePerformer | None = None,
        schemes: Collection[str] = LOCAL,
    ) -> None:
        self._performer = performer or wiring.reaching.sources()
        self._schemes = schemes
        self._settings = settings
        self._policy = strictest_policy(wiring)
        self._read: dict[str, Source | Failed | None] = {}

    def __call__(self, source: str) -> Source | Failed | None:
        if source.partition(":")[0] not in self._schemes:
            return None
        if source not in self._read:
            self._read[source] = asyncio.run(self._found(ReadSource(source)))
        return self._read[source]

    async def _found(self, effect: ReadSource) -> Source | Failed | None:
        described = await self._performer.describe(effect, self._settings)
        if isinstance(described, Failed):
            return described
        if decide_all(described.actions, [self._policy]).decision != "allow":
            return None
        return await self._performer.perform(effect, self._call())

    def _call(self) -> Call:
        def nothing(*said: Any) -> None:
            return None

        return Call("", "", 1, self._settings, lambda text: True, nothing, nothing, permits=self._refusal)

    def _refusal(self, action: Action) -> Failed | None:
        if decide_all((action,), [self._policy]).decision == "allow":
            return None
        return Failed("forbidden", f"{action.target} is not read beforehand.")
