"""The small values that playbooks keep between runs (`state:` of a pipeline's step): a list of them, and how to clear them.

Whatever is cleared leaves a record of who did it and when.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from hashlib import sha256
from typing import Any

import msgspec

from cuebook.gate.roles import Principal
from cuebook.kernel.engine.memory import STATE
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.service.admin import Administration

_CLEARED = "cleared_state"
"""The kind under which the store keeps the records of what was cleared."""
_LIST = "`cuebook state list` lists the playbooks that keep values."


class KeptValue(msgspec.Struct, frozen=True):
    name: str
    value: Any
    run: str
    """The run that kept it."""


class Cleared(msgspec.Struct, frozen=True):
    """What someone cleared: the names, and a digest of each value."""

    workspace: str
    playbook: str
    values: dict[str, str]
    by: str
    at: float


class PlaybookState(msgspec.Struct, frozen=True):
    """What one playbook keeps in one workspace."""

    workspace: str
    playbook: str
    values: tuple[KeptValue, ...] = ()
    cleared: tuple[Cleared, ...] = ()


class States(Administration):
    """Reads and clears the values."""

    async def states(self, playbook: str = "", who: Principal = Principal()) -> list[PlaybookState]:
        """What the playbooks of a tenant keep, or only those with this name, which may be in several workspaces."""
        who.require("viewer", "view what playbooks keep")
        found: dict[tuple[str, str], list[KeptValue]] = {}
        for body in (await self._store.kept(who.tenant, STATE)).values():
            place = (body["workspace"], body["playbook"])
            found.setdefault(place, []).append(KeptValue(body["name"], body["value"], body["run"]))
        cleared: dict[tuple[str, str], list[Cleared]] = {}
        for body in (await self._store.kept(who.tenant, _CLEARED)).values():
            one = msgspec.convert(body, Cleared)
            cleared.setdefault((one.workspace, one.playbook), []).append(one)
        return [
            PlaybookState(
                *place,
                tuple(sorted(found.get(place, ()), key=lambda one: one.name)),
                tuple(sorted(cleared.get(place, ()), key=lambda one: one.at)),
            )
            for place in sorted({*found, *cleared})
            if playbook in ("", place[1])
        ]

    async def clear_state(
        self, playbook: str, names: Collection[str] = (), workspace: str = "", who: Principal = Principal()
    ) -> Cleared:
        """Clears values of a playbook, by default all of them. The next run finds them null."""
        who.require("runner", "clear what playbooks keep")
        here = [one for one in await self.states(playbook, who) if one.values and workspace in ("", one.workspace)]
        if not here:
            raise NotFound(f"The playbook '{playbook}' keeps no values.", fix=_LIST)
        if len(here) > 1:
            folders = ", ".join(one.workspace for one in here)
            raise BadInput(
                f"Playbooks called '{playbook}' keep values in several workspaces.",
                fix=f"Name one with --workspace: {folders}.",
            )
        state = here[0]
        known = {one.name: one for one in state.values}
        if unknown := [name for name in names if name not in known]:
            raise NotFound(
                f"The playbook '{playbook}' keeps no value '{unknown[0]}'.", fix=f"It keeps {', '.join(known)}."
            )
        chosen = {name: known[name] for name in (names or known)}
        digests = {name: sha256(msgspec.json.encode(one.value)).hexdigest() for name, one in chosen.items()}
        record = Cleared(state.workspace, state.playbook, digests, who.name, self._clock())
        # The record comes first: what is gone must have one.
        await self._store.keep(who.tenant, _CLEARED, uuid.uuid4().hex, msgspec.to_builtins(record))
        for key, body in (await self._store.kept(who.tenant, STATE)).items():
            if (body["workspace"], body["playbook"]) == (state.workspace, state.playbook) and body["name"] in chosen:
                await self._store.forget(who.tenant, STATE, key)
        return record
