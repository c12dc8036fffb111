"""Checks everything a run starts with before it is stored: its program, options, limits, policy, answers and id. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects import playbook, registry
from cuebook.dialects.dialect import Demand, Dialect, OutlinedStep
from cuebook.dialects.findings import InvalidPlaybook, Problem
from cuebook.dialects.options import COMMON, RUN_ID, STRICT, chosen, with_options
from cuebook.dialects.playbook import Playbook
from cuebook.formats.forms import filled_in
from cuebook.gate.limits import Ceilings
from cuebook.gate.policy import Policy
from cuebook.gate.roles import Principal
from cuebook.kernel.answers import fitting
from cuebook.kernel.effects import Program
from cuebook.kernel.engine.engine import Programs
from cuebook.kernel.errors import BadInput
from cuebook.kernel.ports import Store
from cuebook.kernel.run import ID_LENGTH, ID_LETTERS, WORKTREE, RunRow, Settings, id_from

_CHOSEN = ("model", "breakpoints", "budget", "answers", "unattended", "options")


def programs_of(own: Programs | None) -> Programs:
    """Returns a function that finds a run's program: its dialect's program, or else one of `own`."""

    def program_of(
        row: RunRow, text: str, inputs: dict[str, Any], options: dict[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        if own is not None and not registry.is_known(row.dialect):
            return own(row, text, inputs, options)
        found = playbook.recorded(row.dialect, text, row.name)
        found.observed()  # loads the modules that show the run while there are file descriptors left
        known = {**options, RUN_ID: row.id}
        start = with_options(found.dialect.start(found.document, inputs, row.interpreter, known), options)
        if not options.get(WORKTREE) or row.caller:  # a child works in the worktree of its parent
            return start
        from cuebook.dialects.worktree import in_worktree

        return in_worktree(start)

    return program_of


async def playbook_of(store: Store, row: RunRow) -> Playbook | None:
    """The playbook of a run; None for a Python program. Raises `InvalidPlaybook` if this version cannot parse it."""
    if row.dialect not in {dialect.name for dialect in registry.dialects()}:
        return None
    found = playbook.cached(row.dialect, row.playbook, row.name)
    return found or playbook.recorded(row.dialect, await store.playbook(row.playbook), row.name)


def options_of(dialect: Dialect, document: Any, name: str, settings: Settings) -> dict[str, Any]:
    """The options of a new run. Rejects a strict run of a playbook with warnings."""
    options = chosen(settings.options, (*COMMON, *dialect.options))
    warnings: Sequence[Problem] = (*document.faults, *document.warnings)
    if options.get(STRICT.name) and warnings:
        raise InvalidPlaybook(name, warnings)
    unfit = dialect.unfit(document, options)
    if unfit:
        raise InvalidPlaybook(name, unfit, codes=all(problem.code for problem in unfit))
    return options


def check_postconditions(dialect: Dialect, document: Any, name: str, policy: Policy) -> None:
    """If the policy requires postconditions, rejects steps that may change something but have none."""
    required = requirement(policy)
    if required:
        problems = dialect.unverified(document)
        if problems:
            explained = [msgspec.structs.replace(one, message=f"{one.message} {required}") for one in problems]
            raise InvalidPlaybook(name, explained)


def check_limits(dialect: Dialect, document: Any, name: str, ceilings: Ceilings | None) -> None:
    """Rejects steps that request more time or output than the configuration allows."""
    if ceilings is None:
        return
    problems = [problem for demand in dialect.demands(document) for problem in _above(demand, ceilings)]
    if problems:
        raise InvalidPlaybook(name, problems)


def _above(demand: Demand, ceilings: Ceilings) -> Iterator[Problem]:
    asked = (
        (demand.seconds, ceilings.max_seconds, "max_seconds", 1000, "ms"),
        (demand.output, ceilings.max_output, "max_output", 1, "bytes"),
    )
    for wished, most, key, per, unit in asked:
        if wished is not None and wished > most:
            message = (
                f"Step {demand.step}: {demand.field} is {wished * per:,.0f} {unit}, but the configured limit is"
                f" {most * per:,.0f}."
            )
            fix = f"Raise `{key}` under [limits] in your configuration (CUEBOOK_LIMITS_{key.upper()}), or lower it."
            yield Problem(message, demand.line, fix, "ABOVE_LIMIT")


def requirement(policy: Policy) -> str:
    """A sentence about the policy that requires postconditions; empty if none does."""
    layer = next((layer for layer in policy.layers if layer.bundle.postconditions == "require"), None)
    if layer is None:
        return ""
    return f'The policy requires a postcondition (postconditions = "require" in {layer.place("postconditions")}).'


def chosen_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that the user chose for a run; all other settings come from the configuration."""
    return {name: settings[name] for name in _CHOSEN if name in settings}


def new_id() -> str:
    return "".join(secrets.choice(ID_LETTERS) for _ in range(ID_LENGTH))


def id_for(who: Principal, key: str) -> str:
    """The id for a user and a key. Two starts with the same key get the same id, so they create only one run."""
    return id_from(f"{who.tenant}\0{who.name}\0{key}")


def continuing_id(parent: str) -> str:
    """The id of the run that continues another with a changed text. Of two that try at the same time, one creates it."""
    return id_from(f"{parent}\0edit")


# --- answers given in advance ---


def check_answers(answers: Mapping[str, str | tuple[str, ...]], outline: Sequence[OutlinedStep]) -> None:
    """Raises `BadInput` for an invalid answer, or for an answer to an unknown step or to a step without a question."""
    labels = dict.fromkeys(step.label for step in outline)
    asking = [step for step in outline if step.question is not None]
    for label in answers:
        if label not in labels:
            raise BadInput(f"The answer for step {label}: there is no such step.", fix=_which_ask(asking))
        if not any(label in (step.label, step.within) for step in asking):
            raise BadInput(f"The answer for step {label}: that step asks no question.", fix=_which_ask(asking))
    for step in asking:
        # The nearest label counts: an answer for a step also answers its sub-steps.
        nearest = next((one for one in (step.label, step.within) if one in answers), None)
        if nearest is not None:
            answer = answers[nearest]
            for value in answer if isinstance(answer, tuple) else (answer,):
                _check_answer(nearest, value, step)


def _check_answer(label: str, value: str, step: OutlinedStep) -> None:
    assert step.question is not None
    try:
        fitting(step.question.type, step.question.options, value, step.question.schema, filled_in)
    except BadInput as error:
        if label == step.label:
            raise BadInput(f"The answer for step {label}: {error.message}", fix=error.fix) from None
        raise BadInput(
            f"The answer for step {label} would also answer step {step.label}, but there {error.message}",
            fix=f"Add a separate answer for step {step.label}.",
        ) from None


def _which_ask(asking: Sequence[OutlinedStep]) -> str:
    listed = ", ".join(dict.fromkeys(step.label for step in asking))
    return f"Steps that ask a question: {listed}." if listed else "No step asks a question."
