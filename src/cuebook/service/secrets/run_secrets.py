"""Finds the handles of a run's secrets in its playbook, its inputs and its journal. It never sees their values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from sys import intern
from typing import Any

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.dialect import Dialect
from cuebook.kernel.effects import SecretNeed
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import AnyEvent, Forked, Performed, Performing, RunStarted, WaitClosed
from cuebook.kernel.journal import PURGED, Codec
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow
from cuebook.service.start import playbook_of

_PREFIX = "secret:"
_KINDS = tuple(event.__name__ for event in (RunStarted, Forked, WaitClosed, Performing))
"""The kinds of records that can mention a secret."""
_MOST = 1000
"""The maximum number of cached runs and playbooks."""


def declared_by(dialect: Dialect, document: Any) -> tuple[SecretNeed, ...]:
    """The secrets that a playbook declares."""
    return tuple(dialect.secrets(document))


def named_in(declared: Iterable[SecretNeed], given: Mapping[str, Any]) -> Iterator[SecretNeed]:
    """The declared secrets whose handle is known, from the playbook or from these inputs."""
    for need in declared:
        named = need.handle or given.get(need.argument)
        if isinstance(named, str) and named:
            yield SecretNeed(named.removeprefix(_PREFIX), required=need.required)


class RunSecrets(msgspec.Struct, frozen=True):
    """The secrets of one run."""

    declared: frozenset[SecretNeed]
    """The secrets mentioned in the playbook or the inputs."""
    used: frozenset[SecretNeed]
    """The secrets that effects have used."""
    policy: str | None
    """The policy at the start of the run."""


class _Seen:
    """The secrets found in the journal of a run so far."""

    def __init__(self) -> None:
        self.seq = 0
        self.policy: str | None = None
        self.named: set[SecretNeed] = set()
        self.used: set[SecretNeed] = set()

    def see(self, event: AnyEvent, declared: tuple[SecretNeed, ...]) -> None:
        match event:
            case RunStarted(inputs=inputs, policy=policy):
                self.named.update(named_in(declared, inputs))
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
    """Finds the secrets of runs. Reads each record of a journal only once."""

    def __init__(self, store: Store, codec: Codec) -> None:
        self._store = store
        self._codec = codec
        self._declared: dict[tuple[str, str], tuple[SecretNeed, ...]] = {}
        self._seen: dict[str, _Seen] = {}

    async def of(self, row: RunRow, given: Mapping[str, Any]) -> RunSecrets:
        """A run's secrets, including any that the `given` values mention."""
        declared = await self._declared_by(row)
        seen = self._seen.get(row.id)
        if seen is None:
            seen = _remember(self._seen, row.id, _Seen())
        dialect = _dialect_of(row)
        reads = dialect if dialect is not None and dialect.reads_secrets else None
        async for record in self._store.records(row.id, seen.seq, (*_KINDS, Performed.__name__) if reads else _KINDS):
            seen.seq = record.seq
            if record.body.startswith(PURGED):
                continue
            event = self._codec.entry(record).event
            seen.see(event, declared)
            if reads is not None and isinstance(event, Performed):
                seen.used.update(reads.secrets_in(event))
        # Values that a user changed reach the journal only when the run continues.
        waits = await self._store.unclosed(row.id) if declared else []
        decided = [wait.answer.get("overrides", {}) for wait in waits]
        named = {need for values in (*decided, given) for need in named_in(declared, values)}
        return RunSecrets(frozenset(seen.named | named), frozenset(seen.used), seen.policy)

    async def _declared_by(self, row: RunRow) -> tuple[SecretNeed, ...]:
        key = row.dialect, row.playbook
        if key not in self._declared:
            _remember(self._declared, key, await self._parsed(row))
        return self._declared[key]

    async def _parsed(self, row: RunRow) -> tuple[SecretNeed, ...]:
        if _dialect_of(row) is None:
            return ()
        try:
            playbook = await playbook_of(self._store, row)
        except BadInput:  # written for another version, so this version cannot run it either
            return ()
        return () if playbook is None else declared_by(playbook.dialect, playbook.document)


def _dialect_of(row: RunRow) -> Dialect | None:
    """The dialect of a run; None for a Python program."""
    return registry.named(row.dialect) if registry.is_known(row.dialect) else None


def _remember(kept: dict[Any, Any], key: Any, value: Any) -> Any:
    if len(kept) >= _MOST:
        kept.clear()
    kept[key] = value
    return value
