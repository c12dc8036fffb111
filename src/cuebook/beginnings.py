"""What a run begins with, checked before anything is written: its dialect's program, options, policy and id. Pure."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cuebook.dialects import registry
from cuebook.dialects.options import COMMON, STRICT, chosen, heeding
from cuebook.dialects.registry import Choosing, Demand, Demanding, Dialect, InvalidPlaybook, Problem, Verifying
from cuebook.gate.limits import Ceilings
from cuebook.gate.people import Principal
from cuebook.gate.policy import Policy
from cuebook.kernel.effects import Program
from cuebook.kernel.engine import Programs
from cuebook.kernel.run import RunRow, Settings

_CHOSEN = ("model", "breakpoints", "budget", "answers", "unattended", "options")
_LETTERS = "abcdefghjkmnpqrstvwxyz23456789"


def programs_of(own: Programs | None) -> Programs:
    """Programs of playbooks by their dialect; of others, those that were handed in."""
    dialects = {dialect.name for dialect in registry.dialects()}

    def program_of(
        row: RunRow, text: str, inputs: dict[str, Any], options: dict[str, Any]
    ) -> Callable[[Any], Program[Any]]:
        if own is not None and row.dialect not in dialects:
            return own(row, text, inputs, options)
        dialect = registry.named(row.dialect)
        start = dialect.start(dialect.parse(text, row.name), inputs, row.interpreter, options)
        return heeding(start, options)

    return program_of


def options_of(dialect: Dialect, document: Any, name: str, settings: Settings) -> dict[str, Any]:
    """The options of a new run. A strict one is refused if there is something to warn of already."""
    options = chosen(settings.options, (*COMMON, *dialect.options))
    warnings: Sequence[Problem] = (*getattr(document, "faults", ()), *getattr(document, "warnings", ()))
    if options.get(STRICT.name) and warnings:
        raise InvalidPlaybook(name, warnings)
    unfit = dialect.unfit(document, options) if isinstance(dialect, Choosing) else ()
    if unfit:
        raise InvalidPlaybook(name, unfit)
    return options


def check_postconditions(dialect: Dialect, document: Any, name: str, policy: Policy) -> None:
    """Where the policy requires it, every step that may change something says how to tell that it worked."""
    required = requirement(policy)
    if required and isinstance(dialect, Verifying):
        problems = dialect.unverified(document)
        if problems:
            told = [msgspec.structs.replace(one, message=f"{one.message} {required}") for one in problems]
            raise InvalidPlaybook(name, told)


def check_limits(dialect: Dialect, document: Any, name: str, ceilings: Ceilings | None) -> None:
    """No step asks for more time, or a longer output, than the configuration lets it have."""
    if ceilings is None or not isinstance(dialect, Demanding):
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
                f"Step {demand.step}: {demand.field} is {wished * per:,.0f} {unit}, and the configured limit is"
                f" {most * per:,.0f}."
            )
            fix = f"Raise `{key}` under [limits] in your configuration (CUEBOOK_LIMITS_{key.upper()}), or lower it."
            yield Problem(message, demand.line, fix, "ABOVE_LIMIT")


def requirement(policy: Policy) -> str:
    """Which policy requires postconditions, as a sentence; empty where none does."""
    layer = next((layer for layer in policy.layers if layer.bundle.postconditions == "require"), None)
    if layer is None:
        return ""
    return f'The policy requires a postcondition (postconditions = "require" in {layer.place("postconditions")}).'


def chosen_in(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What of a run's settings whoever started it chose; the rest is configured."""
    return {name: settings[name] for name in _CHOSEN if name in settings}


_LENGTH = 12
"""Letters of a run's id, however it was started."""


def new_id() -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(_LENGTH))


def id_for(who: Principal, key: str) -> str:
    """The same for the same person and key, so that two starts cannot create two runs."""
    number = int.from_bytes(hashlib.sha256(f"{who.tenant}\0{who.name}\0{key}".encode()).digest())
    letters = []
    for _ in range(_LENGTH):
        number, letter = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[letter])
    return "".join(letters)
