"""The secrets of a run by their handles: those that its playbook declares, its inputs name and its journal mentions.

It knows no values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from sys import intern
from typing import Any

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.registry import Dialect, NamingSecrets, ReadingSecrets
from cuebook.kernel.effects import SecretNeed
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import AnyEvent, Forked, Performed, Performing, RunStarted, WaitClosed
from cuebook.kernel.journal import PURGED, Codec
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow

_PREFIX = "secret:"
_KINDS = tuple(event.__name__ for event in (RunStarted, Forked, WaitClosed, Performing))
"""Of the records that can mention a secret."""
_MOST = 1000
"""Runs and playbooks that are remembered."""


def declared_by(dialect: Dialect, document: Any) -> tuple[SecretNeed, ...]:
    """The secrets that a playbook declares."""
    return tuple(dialect.secrets(document)) if isinstance(dialect, NamingSecrets) else ()


def named_in(declared: Iterable[SecretNeed], given: Mapping[str, Any]) -> Iterator[SecretNeed]:
    """Those with a handle, which the playbook has or these inputs name."""
    for need in declared:
        named = need.handle or given.get(need.argument)
        if isinstance(named, str) and named:
            yield SecretNeed(named.removeprefix(_PREFIX), required=need.required)


class RunSecrets(msgspec.Struct, frozen=True):
    """The secrets of one run."""

    declared: frozenset[SecretNeed]
    """By its playbook or its inputs."""
    used: frozenset[SecretNeed]
    """Mentioned by what was done."""
    policy: str | None
    """The policy that the run began with."""
    workspace: str
    """The folder that it works in."""


class _Seen:
    """What was found in a run's journal."""

    def __init__(self) -> None:
        self.seq = 0
        self.policy: str | None = None
        self.workspace = ""
        self.named: set[SecretNeed] = set()
        self.used: set[SecretNeed] = set()

    def see(self, event: AnyEvent, declared: tuple[SecretNeed, ...]) -> None:
        match event:
            case RunStarted(inputs=inputs, policy=policy, settings=settings):
                self.named.update(named_in(declared, inputs))
                self.workspace = intern(str(settings.get("workspace", "")))
                self.policy = None if policy is None else intern(str(policy))
            case Forked(values=values):
                self.named.update(named_in(declared, values))
            case WaitClosed(answer=answer):
                self.named.update(named_in(declared, answer.get("overrides", {})))
            case Performing(effect=effect):
                self.used.update(effect.needs)
            case _:
                pass


class Handles:
    """Finds the secrets of runs. What it has read of a journal is not read again."""

    def __init__(self, store: Store, codec: Codec) -> None:
        self._store = store
        self._codec = codec
        self._declared: dict[tuple[str, str], tuple[SecretNeed, ...]] = {}
        self._seen: dict[str, _Seen] = {}

    async def of(self, row: RunRow, given: Mapping[str, Any]) -> RunSecrets:
        """Those of a run, also those that the values name that it is given now."""
        declared = await self._declared_by(row)
        seen = self._seen.get(row.id)
        if seen is None:
            seen = _remember(self._seen, row.id, _Seen())
        reads = _reading(row)
        async for record in self._store.records(row.id, seen.seq, (*_KINDS, Performed.__name__) if reads else _KINDS):
            seen.seq = record.seq
            if record.body.startswith(PURGED):
                continue
            event = self._codec.entry(record).event
            seen.see(event, declared)
            if reads is not None and isinstance(event, Performed):
                seen.used.update(reads.secrets_in(event))
        # What a person has changed is in the journal only once the run has taken it up.
        waits = await self._store.unclosed(row.id) if declared else []
        decided = [wait.answer.get("overrides", {}) for wait in waits]
        named = {need for values in (*decided, given) for need in named_in(declared, values)}
        return RunSecrets(frozenset(seen.named | named), frozenset(seen.used), seen.policy, seen.workspace)

    async def _declared_by(self, row: RunRow) -> tuple[SecretNeed, ...]:
        key = row.dialect, row.playbook
        if key not in self._declared:
            _remember(self._declared, key, await self._parsed(row))
        return self._declared[key]

    async def _parsed(self, row: RunRow) -> tuple[SecretNeed, ...]:
        dialect = _dialect_of(row)
        if not isinstance(dialect, NamingSecrets):
            return ()
        text = await self._store.playbook(row.playbook)
        try:
            return declared_by(dialect, dialect.parse(text, row.name))
        except BadInput:  # of another version: its program does not start here either
            return ()


def _reading(row: RunRow) -> ReadingSecrets | None:
    dialect: object = _dialect_of(row)
    return dialect if isinstance(dialect, ReadingSecrets) else None


def _dialect_of(row: RunRow) -> Dialect | None:
    """None of a program of one's own."""
    return next((one for one in registry.dialects() if one.name == row.dialect), None)


def _remember(kept: dict[Any, Any], key: Any, value: Any) -> Any:
    if len(kept) >= _MOST:
        kept.clear()
    kept[key] = value
    return value
