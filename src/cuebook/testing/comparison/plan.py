"""What a comparison is to run: the playbooks, the models, the cases and the settings of every run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cuebook.dialects.playbook import Accepted, Playbook
from cuebook.formats.words import counted
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.comparisons import Cell, ComparedCase, Comparison, Variant
from cuebook.service.preview.explanation import Explanation, explain
from cuebook.service.service import Principal, Service
from cuebook.service.start import check_answers
from cuebook.testing.cases import Case
from cuebook.testing.runner import cases_of
from cuebook.wiring.preview import preview_setup
from cuebook.wiring.wiring import Wiring

MOST_RUNS = 1_000
"""The maximum number of runs in a comparison."""
_BETWEEN_MODELS = re.compile(r",(?!\s*then\b)")
"""`a, then b` is one model: the second is called while the first is unavailable."""
_SCRIPTED = {
    "replies": "replies",
    "step_replies": "replies",
    "routes": "routes",
    "recorded": "recorded",
    "model": "model",
    "tools": "tools",
    "commands": "commands",
    "requests": "requests",
    "approvals": "approvals",
    "real": "real",
    "prompts": "prompts",
    "breakpoints": "breakpoints",
    "overrides": "overrides",
}
"""The parts of a case that are for `cuebook test` only, and what they are called in the file."""


def models_in(given: str) -> tuple[str, ...]:
    """The models in a list such as `a,b`."""
    found = [part.strip() for part in _BETWEEN_MODELS.split(given)]
    return tuple(dict.fromkeys(one for one in found if one))


def read_cases(path: Path | None, playbook: Playbook) -> tuple[Case, ...]:
    """The cases of a file; without one, a single case with the playbook's defaults."""
    if path is None:
        return (Case(name="without inputs", line=0),)
    return cases_of(path, playbook.dialect, playbook.document)


class Plan(msgspec.Struct, frozen=True):
    """Everything that the runs of a comparison start with."""

    variants: tuple[Variant, ...]
    playbooks: tuple[Playbook, ...]
    """By variant."""
    cases: tuple[Case, ...]
    file: Path | None
    repeat: int
    settings: dict[tuple[int, int], Settings]
    """By variant and case."""
    inputs: dict[tuple[int, int], Accepted]
    wins: bool
    """Whether the models replace those that the playbooks name."""
    options: dict[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.variants) * len(self.cases) * self.repeat

    def mark(self, service: Service) -> str:
        settings = [[list(key), msgspec.to_builtins(one)] for key, one in self.settings.items()]
        cases = [[one.name, msgspec.to_builtins(one.expect)] for one in self.cases]
        inputs = [[list(key), one.values] for key, one in self.inputs.items()]
        parts = {
            "variants": msgspec.to_builtins(self.variants),
            "cases": cases,
            "inputs": msgspec.json.encode(inputs, enc_hook=str).decode(),
            "settings": settings,
            "repeat": self.repeat,
            "options": self.options,
        }
        return service.comparisons.mark_of(parts)

    def comparison(self, service: Service, who: Principal) -> Comparison:
        cases = tuple(
            ComparedCase(one.name, one.line, _given(one), self.settings[0, number].unattended)
            for number, one in enumerate(self.cases)
        )
        return service.comparisons.new(
            who,
            mark=self.mark(service),
            variants=self.variants,
            cases=cases,
            repeat=self.repeat,
            file="" if self.file is None else str(self.file.absolute()),
            model=self.wins,
            options=self.options,
        )

    async def start(
        self, service: Service, comparison: Comparison, cell: Cell, who: Principal, money: float | None
    ) -> RunRow:
        """Starts the run of a cell, which may spend at most this much money; once, however often it is called."""
        which = cell.variant, cell.case
        settings = self.settings[which]
        if money is not None:
            most = money if settings.budget.money is None else min(money, settings.budget.money)
            settings = msgspec.structs.replace(settings, budget=msgspec.structs.replace(settings.budget, money=most))
        playbook, inputs = self.playbooks[cell.variant], self.inputs[which]
        key = comparison.key(cell)
        return await service.start(playbook, inputs, settings, who, key=key, trigger=comparison.trigger)


def _given(case: Case) -> dict[str, Any]:
    """What a case expects, without what it leaves open."""
    plain: dict[str, Any] = msgspec.to_builtins(case.expect)
    return {name: one for name, one in plain.items() if one not in (None, {}, [], ())}


def plan(
    wiring: Wiring,
    playbooks: Sequence[Playbook],
    models: Sequence[str],
    cases: Sequence[Case],
    file: Path | None,
    repeat: int,
    *,
    unattended: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Plan:
    """Checks everything before anything is started. Raises `BadInput` for a model, a case or inputs that cannot be used."""
    notes = list(_notes(cases))
    cases = [case for case in cases if case.expect.refused is None]
    if not cases:
        raise BadInput("There is no case to compare.", fix="Write at least one that a model takes part in.")
    variants: list[Variant] = []
    chosen: list[Playbook] = []
    settings: dict[tuple[int, int], Settings] = {}
    inputs: dict[tuple[int, int], Accepted] = {}
    for playbook in playbooks:
        for model in models or ("",):
            base = wiring.settings(folder=Path(playbook.folder), document=playbook.document, model=model)
            wiring.check_models(playbook.dialect, playbook.document, base)
            variant = Variant(_name(playbook, playbooks), base.model, str(playbook.path or ""), playbook.digest)
            if variant in variants:
                continue
            for number, case in enumerate(cases):
                settings[len(variants), number] = _settings(case, playbook, base, unattended)
                inputs[len(variants), number] = _inputs(case, playbook)
            variants.append(variant)
            chosen.append(playbook)
    found = Plan(
        tuple(variants),
        tuple(chosen),
        tuple(cases),
        file,
        repeat,
        settings,
        inputs,
        bool(models),
        dict(options or {}),
        tuple(notes),
    )
    if found.size > MOST_RUNS:
        raise BadInput(
            f"These are {found.size:,} runs; a comparison has at most {MOST_RUNS:,}.",
            fix="Choose fewer cases, models or repetitions.",
        )
    return found


def _name(playbook: Playbook, others: Sequence[Playbook]) -> str:
    """The name of the file, or its path if another has the same name."""
    alike = [one for one in others if one.name == playbook.name]
    return playbook.where if len(alike) > 1 else playbook.name


def _settings(case: Case, playbook: Playbook, base: Settings, unattended: bool) -> Settings:
    if case.answers_in_order:
        raise BadInput(
            f"The case '{case.name}' (line {case.line}) gives its answers in order.",
            fix="In a comparison, write them by step, as 'STEP: ANSWER'.",
        )
    answers: dict[str, str | tuple[str, ...]] = {
        step: said[0] if len(said) == 1 else tuple(said) for step, said in case.answers.items() if said
    }
    if answers:
        try:
            check_answers(answers, playbook.outline)
        except BadInput as error:
            raise _of_case(case, playbook, error) from None
    return msgspec.structs.replace(
        base, answers=answers, unattended=unattended or case.unattended, options=case.options
    )


def _inputs(case: Case, playbook: Playbook) -> Accepted:
    try:
        return playbook.accept(case.inputs, case.options)
    except BadInput as error:
        raise _of_case(case, playbook, error) from None


def _of_case(case: Case, playbook: Playbook, error: BadInput) -> BadInput:
    where = f"The case '{case.name}' (line {case.line}) with {playbook.where}" if case.line else playbook.where
    return BadInput(f"{where}: {error.message}", fix=error.fix if case.line else "Give the inputs with --inputs FILE.")


def _notes(cases: Iterable[Case]) -> Iterable[str]:
    cases = list(cases)
    parts = {name for one in cases for field, name in _SCRIPTED.items() if getattr(one, field)}
    if parts:
        names = ", ".join(sorted(parts))
        yield f"Not used, because nothing is scripted in a comparison: {names}."
    refused = [one.name for one in cases if one.expect.refused is not None]
    if refused:
        yield (
            f"Left out, because no model takes part: {counted(len(refused), 'case')} whose run must be refused"
            f" ({', '.join(refused[:3])}{', ...' if len(refused) > 3 else ''})."
        )


# --- what it may cost ---------------------------------------------------------------------------------------


class Estimate(msgspec.Struct, frozen=True):
    """The most that the runs that are left may cost, as far as it is known."""

    explained: dict[tuple[int, int], Explanation]
    left: tuple[Cell, ...]
    """The cells whose runs are not started yet, or not at their end."""

    def free(self, variant: int) -> bool:
        """Whether the runs of a variant cost nothing."""
        found = [one for (number, _), one in self.explained.items() if number == variant]
        return all(one.bound.calls == 0 or (one.terms.free and not one.terms.otherwise) for one in found)

    def bound(self, cell: Cell) -> float | None:
        """The most that one run may cost; None if that is unknown."""
        one = self.explained[cell.variant, cell.case]
        return 0.0 if one.bound.calls == 0 else one.bound.cost

    def most(self, variant: int | None = None) -> float | None:
        """The most that the runs that are left may cost, of one variant or of all; None if that is unknown."""
        cells = [one for one in self.left if variant in (None, one.variant)]
        costs = [self.bound(one) for one in cells]
        known = [one for one in costs if one is not None]
        return sum(known) if len(known) == len(costs) else None

    @property
    def costs_money(self) -> bool:
        return any(not self.free(number) for number in {one.variant for one in self.left})


async def estimated(
    service: Service, wiring: Wiring, made: Plan, left: Sequence[Cell], who: Principal = Principal()
) -> Estimate:
    """Explains one run of each case with each variant. Raises `BadInput` if one of them would be refused."""
    explained: dict[tuple[int, int], Explanation] = {}
    for variant, case in {(one.variant, one.case): None for one in left}:
        playbook, settings = made.playbooks[variant], made.settings[variant, case]
        setup = preview_setup(wiring, settings.model if made.wins else "")
        inputs = made.inputs[variant, case].values
        found = await explain(service, playbook, inputs, settings, setup, who)
        if found.refused:
            raise BadInput(found.refused)
        explained[variant, case] = found
    return Estimate(explained, tuple(left))
