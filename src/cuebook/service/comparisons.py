"""Comparisons: which cases were to run with which playbooks and models, and how often. Their runs are ordinary runs.

The store keeps what is needed to find the runs again and to judge them, but no inputs: those are in the runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.ports import Store
from cuebook.kernel.run import RunRow
from cuebook.kernel.triggers import COMPARE, trigger_of
from cuebook.service.queries import Queries
from cuebook.service.start import id_for, new_id

COMPARISON = "comparison"
"""The kind under which the store keeps them."""


class Variant(msgspec.Struct, frozen=True):
    """A playbook and a model that all cases run with."""

    playbook: str
    """The name of the file."""
    model: str
    """Empty if the playbook calls none."""
    path: str = ""
    digest: str = ""


class ComparedCase(msgspec.Struct, frozen=True):
    """A case: its name, and what it expects as `testing.cases.Expected` has it."""

    name: str
    line: int = 0
    expect: dict[str, Any] = {}
    unattended: bool = False


class Cell(NamedTuple):
    """One run of a comparison: the number of its variant and of its case, and which repetition it is, all from 0."""

    variant: int
    case: int
    repetition: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    owner: str
    created: float
    mark: str
    """A signature of everything that its runs start with: the same command continues the same comparison."""
    variants: tuple[Variant, ...]
    cases: tuple[ComparedCase, ...]
    repeat: int
    file: str = ""
    """The file of the cases; empty if there is none."""
    model: bool = False
    """Whether its models replace those that the playbooks name."""
    options: dict[str, Any] = {}
    """How the runs were configured on the command line."""
    deleted: tuple[str, ...] = ()
    """Runs that were deleted. They are not started again."""

    @property
    def trigger(self) -> str:
        return trigger_of(COMPARE, self.id)

    @property
    def title(self) -> str:
        return ", ".join(dict.fromkeys(one.playbook for one in self.variants))

    @property
    def models(self) -> list[str]:
        return list(dict.fromkeys(one.model for one in self.variants if one.model))

    @property
    def cells(self) -> Iterator[Cell]:
        """The first run of every case with every variant, then the second, so that an early end compares all of them."""
        for repetition in range(self.repeat):
            for case in range(len(self.cases)):
                for variant in range(len(self.variants)):
                    yield Cell(variant, case, repetition)

    @property
    def size(self) -> int:
        return len(self.variants) * len(self.cases) * self.repeat - len(self.deleted)

    def key(self, cell: Cell) -> str:
        """The key that the run of a cell is started with: it is started once, no matter who tries or how often."""
        return f"{self.trigger}:{cell.variant}:{cell.case}:{cell.repetition}"

    def run_of(self, cell: Cell, tenant: str) -> str:
        return id_for(Principal(self.owner, tenant=tenant), self.key(cell))

    def runs(self, tenant: str) -> dict[str, Cell]:
        """The cell of each run that was not deleted, by the run's id."""
        named = {self.run_of(cell, tenant): cell for cell in self.cells}
        return {run: cell for run, cell in named.items() if run not in self.deleted}


class Comparisons:
    """The comparisons of a store."""

    def __init__(self, store: Store, queries: Queries) -> None:
        self._store = store
        self._queries = queries

    async def add(self, made: Comparison, who: Principal) -> Comparison:
        """Keeps a new comparison. Its names and expectations must not contain secrets."""
        who.require("runner", "compare models")
        body = msgspec.to_builtins(made)
        if self._queries.masked(body) is not body:
            raise BadInput(
                "The value of a secret is in the names or expectations of the cases; nothing was started.",
                fix="Remove it and use the secret's handle instead, for example env:NAME.",
            )
        await self._store.keep(who.tenant, COMPARISON, made.id, body)
        return made

    def new(self, who: Principal, **parts: Any) -> Comparison:
        return Comparison(id=new_id(), owner=who.name, created=self._queries.clock(), **parts)

    def mark_of(self, parts: Mapping[str, Any]) -> str:
        """The signature of what runs start with. Without the key of the store, it reveals nothing about them."""
        return self._queries.tokens.signer()(f"comparison {msgspec.json.encode(parts, order='sorted').decode()}")

    async def listed(self, who: Principal = Principal()) -> list[Comparison]:
        """The comparisons that this user may see, newest first."""
        who.require("viewer", "view runs")
        owners = await self._queries.visibility.owners(who)
        found = [
            msgspec.convert(body, Comparison) for body in (await self._store.kept(who.tenant, COMPARISON)).values()
        ]
        seen = [one for one in found if owners is None or one.owner in owners]
        return sorted(seen, key=lambda one: (one.created, one.id), reverse=True)

    async def get(self, name: str, who: Principal = Principal()) -> Comparison:
        """The comparison with this id, or with an id that begins so."""
        listed = await self.listed(who)
        found = [one for one in listed if name and one.id.startswith(name)]
        found = [one for one in found if one.id == name] or found
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(one.id for one in found[:5])
            raise BadInput(f"'{name}' matches {len(found)} comparisons: {ids}.", fix="Use more characters of the id.")
        raise NotFound(f"There is no comparison {name}.", fix="`cuebook compare --list` lists them.")

    async def same(self, mark: str, who: Principal) -> Comparison | None:
        """The newest comparison of this user with the same signature."""
        return next((one for one in await self.listed(who) if one.mark == mark and one.owner == who.name), None)

    async def rows(self, comparison: Comparison, who: Principal = Principal()) -> dict[Cell, RunRow]:
        """Those of its runs that exist."""
        cells = comparison.runs(who.tenant)
        rows = await self._queries.runs(trigger=comparison.trigger, limit=None, who=who)
        return {cells[row.id]: row for row in rows if row.id in cells}


async def forget_runs(store: Store, tenant: str, runs: Collection[str]) -> None:
    """Removes what comparisons keep about cases whose last run was deleted, and comparisons without runs."""
    for name, body in (await store.kept(tenant, COMPARISON)).items():
        one = msgspec.convert(body, Comparison)
        cells = one.runs(tenant)
        left = {row.id for row in await store.runs(tenant=tenant, trigger=one.trigger, limit=None)}
        gone = [run for run in runs if run in cells and run not in left]
        if not gone:
            continue
        kept = {cells[run].case for run in left if run in cells}
        concerned = {cells[run].case for run in gone} - kept
        await store.forget(tenant, COMPARISON, name, overwrite=True)
        if kept:
            cases = tuple(
                ComparedCase("deleted") if number in concerned else case for number, case in enumerate(one.cases)
            )
            rest = msgspec.structs.replace(one, cases=cases, deleted=(*one.deleted, *gone))
            await store.keep(tenant, COMPARISON, name, msgspec.to_builtins(rest))


async def forget_owner(store: Store, tenant: str, owner: str) -> None:
    """Removes the comparisons of a person."""
    for name, body in (await store.kept(tenant, COMPARISON)).items():
        if body["owner"] == owner:
            await store.forget(tenant, COMPARISON, name, overwrite=True)
