"""The texts that prompts refer to, read beforehand: those on this machine that the policy lets through unasked.

Nothing is fetched and nobody is asked; what cannot be read this way is left to the run.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any

from cuebook.config import config_folder
from cuebook.gate.policy import Policy, decide_all, load_policy
from cuebook.kernel.effects import Failed, ReadSource, Source
from cuebook.kernel.ports import Action, Call
from cuebook.kernel.run import Settings
from cuebook.surfaces.wiring import Wiring

LOCAL = ("file", "prompt")


def strictest_policy(wiring: Wiring) -> Policy:
    """Today's policy if nothing was trusted: at least as strict as the one that holds, and no store is needed for it."""
    return load_policy(config_folder(os.environ), wiring.config.folder, lambda path, digest: False)


class LocalTexts:
    """Reads a source, once. None means that it is not looked at here."""

    def __init__(self, wiring: Wiring, settings: Settings) -> None:
        self._performer = wiring.reaching.sources()
        self._settings = settings
        self._policy = strictest_policy(wiring)
        self._read: dict[str, Source | Failed | None] = {}

    def __call__(self, source: str) -> Source | Failed | None:
        if source.partition(":")[0] not in LOCAL:
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
