"""The results of a comparison, as a table: cases in rows, variants in columns, and what each column adds up to.

Existing runs are compared in the same table: runs with the same inputs are of one case, and runs of the same text with the
same model are repetitions, unless all of them are; then each run has a column of its own.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

import msgspec

from cuebook.formats.words import short
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import RunRow
from cuebook.kernel.triggers import COMPARE
from cuebook.service.comparisons import Cell, ComparedCase, Comparison, Variant
from cuebook.service.runs.views import RunView
from cuebook.service.service import Principal, Service
from cuebook.testing.cases import Case
from cuebook.testing.comparison.results import VERDICTS, CheckResult, Result, Verdict, judged


class Share(msgspec.Struct, frozen=True):
    """How many of some runs have the most frequent value."""

    same: int = 0
    of: int = 0

    @property
    def part(self) -> float | None:
        return self.same / self.of if self.of else None


class Group(msgspec.Struct, frozen=True):
    """The runs of one case with one variant."""

    results: tuple[Result, ...]

    @property
    def _over(self) -> list[Result]:
        return [one for one in self.results if one.verdict in ("passed", "failed", "waiting")]

    @property
    def same_output(self) -> Share:
        """How often the most frequent output came out. Runs that wait have none yet."""
        return _share([one.output for one in self._over if one.verdict != "waiting"])

    @property
    def same_verdict(self) -> Share:
        return _share([one.verdict for one in self._over])

    @property
    def outputs(self) -> list[tuple[str | None, list[Result]]]:
        """The different outputs, the most frequent first, each with its runs."""
        found: OrderedDict[str | None, list[Result]] = OrderedDict()
        for one in self.results:
            if one.run:
                found.setdefault(None if one.output is None else one.output.strip(), []).append(one)
        return sorted(found.items(), key=lambda item: -len(item[1]))


class Column(msgspec.Struct, frozen=True):
    """What the runs of one variant add up to."""

    variant: Variant
    label: str
    results: tuple[Result, ...]
    same_output: Share
    same_verdict: Share

    @property
    def verdicts(self) -> dict[Verdict, int]:
        counts = Counter(one.verdict for one in self.results)
        return {verdict: counts[verdict] for verdict in VERDICTS}

    @property
    def begun(self) -> list[Result]:
        return [one for one in self.results if one.run]

    @property
    def ended(self) -> list[Result]:
        """The runs whose time and cost can be compared."""
        return [one for one in self.results if one.verdict in ("passed", "failed")]

    @property
    def cost(self) -> float | None:
        """The known cost of all runs; None if nothing is known."""
        known = [one.cost for one in self.begun if one.cost is not None]
        return sum(known) if known or not self.begun else None

    @property
    def unknown_costs(self) -> int:
        return sum(one.unknown_costs for one in self.begun)

    @property
    def cost_per_run(self) -> float | None:
        known = [one.cost for one in self.ended if one.cost is not None]
        return sum(known) / len(known) if known else None

    @property
    def tokens(self) -> int:
        return sum(one.tokens for one in self.begun)

    @property
    def seconds(self) -> tuple[float, float, float] | None:
        """The mean, the shortest and the longest time of a run."""
        found = [one.seconds for one in self.ended]
        return (sum(found) / len(found), min(found), max(found)) if found else None

    @property
    def checks(self) -> dict[str, dict[CheckResult, int]]:
        counts: dict[str, Counter[CheckResult]] = {}
        for one in self.results:
            for name, result in one.checks.items():
                counts.setdefault(name, Counter())[result] += 1
        return {name: {result: found[result] for result in get_args(CheckResult)} for name, found in counts.items()}


class Row(msgspec.Struct, frozen=True):
    name: str
    line: int
    groups: tuple[Group, ...]
    """By column."""


class Table(msgspec.Struct, frozen=True):
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    comparison: Comparison | None = None
    """None for runs that were chosen."""

    @property
    def results(self) -> list[Result]:
        return [one for column in self.columns for one in column.results]

    @property
    def verdicts(self) -> dict[Verdict, int]:
        counts = Counter(one.verdict for one in self.results)
        return {verdict: counts[verdict] for verdict in VERDICTS}

    @property
    def checks(self) -> list[str]:
        """The names of all checks, in the order of the cases."""
        named = [name for column in self.columns for one in column.results for name in one.checks]
        return list(dict.fromkeys(named))

    @property
    def repeats(self) -> bool:
        """Whether there is anything to say about stability."""
        return any(column.same_verdict.of for column in self.columns)


# --- of a comparison ----------------------------------------------------------------------------------------


async def table_of(
    service: Service,
    comparison: Comparison,
    who: Principal = Principal(),
    rows: Mapping[Cell, RunRow] | None = None,
) -> Table:
    """The table of a comparison as far as its runs have come."""
    rows = await service.comparisons.rows(comparison, who) if rows is None else rows
    found: dict[tuple[int, int], list[Result]] = {}
    variants = range(len(comparison.variants))
    for cell in comparison.runs(who.tenant).values():
        case, row = comparison.cases[cell.case], rows.get(cell)
        result = (
            Result(verdict="not started", repetition=cell.repetition)
            if row is None
            else await judged(service, row, case, who, cell.repetition)
        )
        found.setdefault((cell.case, cell.variant), []).append(result)
    made = tuple(
        Row(case.name, case.line, tuple(Group(tuple(found.get((number, one), ()))) for one in variants))
        for number, case in enumerate(comparison.cases)
        if any((number, one) in found for one in variants)
    )
    labels = labels_of(comparison.variants)
    return Table(_columns(comparison.variants, labels, made), made, comparison)


def labels_of(variants: Sequence[Variant]) -> list[str]:
    """As much of each variant as tells it apart from the others."""
    several_models = len({one.model for one in variants}) > 1
    several_texts = len({(one.playbook, one.digest) for one in variants}) > 1
    labels = []
    for one in variants:
        parts = [one.playbook] if several_texts else []
        if several_models or not several_texts:
            parts.append(one.model or "no model")
        labels.append(", ".join(parts))
    again = Counter(labels)
    return [
        f"{label} ({one.digest[:8]})" if again[label] > 1 else label
        for label, one in zip(labels, variants, strict=True)
    ]


def _columns(variants: Sequence[Variant], labels: Sequence[str], rows: Sequence[Row]) -> tuple[Column, ...]:
    made = []
    for number, (variant, label) in enumerate(zip(variants, labels, strict=True)):
        groups = [row.groups[number] for row in rows]
        results = tuple(one for group in groups for one in group.results)
        made.append(
            Column(
                variant,
                label,
                results,
                _added(group.same_output for group in groups),
                _added(group.same_verdict for group in groups),
            )
        )
    return tuple(made)


def _share(values: Sequence[object]) -> Share:
    """Of a single run, nothing can be said."""
    return Share(Counter(values).most_common(1)[0][1], len(values)) if len(values) > 1 else Share()


def _added(shares: Iterable[Share]) -> Share:
    shares = list(shares)
    return Share(sum(one.same for one in shares), sum(one.of for one in shares))


# --- of chosen runs -----------------------------------------------------------------------------------------


async def table_of_runs(
    service: Service, runs: Sequence[str], who: Principal = Principal(), cases: Sequence[Case] | None = None
) -> Table:
    """The table of runs that exist. They are judged by the case with the same inputs, if there are cases, or by the case of
    the comparison that started them.
    """
    found = {row.id: row for row in [await service.get(run, who) for run in runs]}
    if len(found) < 2:
        raise BadInput("Comparing needs at least two runs.", fix="Name another one.")
    views = {run: await service.view(run, who) for run in found}
    by_inputs: dict[bytes, list[str]] = {}
    for run, view in views.items():
        by_inputs.setdefault(_inputs_key(view.inputs), []).append(run)
    texts = {run: Variant(row.name, row.model, digest=row.playbook) for run, row in found.items()}
    variants = list(dict.fromkeys(texts.values()))
    labels = labels_of(variants)
    if len(variants) == 1:
        variants = list(texts.values())
        column_of = {run: number for number, run in enumerate(found)}
        labels = [f"run {run}" for run in found]
    else:
        column_of = {run: variants.index(texts[run]) for run in found}
    rows = []
    for members in by_inputs.values():
        groups: list[list[Result]] = [[] for _ in variants]
        name, line = _names_of(views[members[0]], len(by_inputs) > 1), 0
        for run in members:
            case = await _case_of(service, found[run], views[run], cases, who)
            if case.name:
                name, line = case.name, case.line
            here = groups[column_of[run]]
            here.append(await judged(service, found[run], case, who, len(here), views[run]))
        rows.append(Row(name, line, tuple(Group(tuple(one)) for one in groups)))
    return Table(_columns(variants, labels, rows), tuple(rows))


def _inputs_key(inputs: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(dict(inputs), order="sorted", enc_hook=str)


def _names_of(view: RunView, several: bool) -> str:
    if not several:
        return "the same inputs"
    return short(", ".join(f"{name}: {value}" for name, value in view.inputs.items())) or "no inputs"


async def _case_of(
    service: Service, row: RunRow, view: RunView, cases: Sequence[Case] | None, who: Principal
) -> ComparedCase:
    """The case that a run is judged by; one that only expects it to complete if there is none."""
    if cases is not None:
        playbook = await service.playbook_of(row)
        for case in cases if playbook is not None else ():
            assert playbook is not None
            try:
                accepted = playbook.accept(case.inputs, case.options)
            except BadInput:
                continue
            if _inputs_key(service.masked(accepted.values)) == _inputs_key(view.inputs):
                return ComparedCase(case.name, case.line, msgspec.to_builtins(case.expect), case.unattended)
        return ComparedCase("")
    kind, _, name = row.trigger.partition(":")
    if kind == COMPARE:
        for one in await service.comparisons.listed(who):
            cell = one.runs(who.tenant).get(row.id) if one.id == name else None
            if cell is not None:
                return one.cases[cell.case]
    return ComparedCase("")
