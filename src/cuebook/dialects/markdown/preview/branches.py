"""Predicts the branches of a run: which branches the inputs decide, and which values lead to each other branch.
Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice, product

import msgspec

from cuebook.dialects.markdown.inputs import as_text
from cuebook.dialects.markdown.model import (
    Book,
    Branch,
    Condition,
    DeclaredInput,
    Step,
    answers_only,
    branches_on_itself,
    condition_words,
    reaches_branches,
)
from cuebook.dialects.markdown.parse import answer_names
from cuebook.formats.forms import fields_of, filled_in
from cuebook.kernel.answers import advance_answer
from cuebook.kernel.effects import AskHuman
from cuebook.kernel.outcomes import Answer
from cuebook.kernel.run import Settings

MOST_COMBINED = 2_000
"""The maximum number of value combinations tried at one step."""

Values = Mapping[str, str | None]
"""Assumed values by name. None stands for any value that no condition mentions."""


class Origin(msgspec.Struct, frozen=True):
    """A step that sets a name."""

    step: Step
    position: int
    """The position of the step, or of its parent step."""
    branch: int | None
    """The branch that must be taken for it to run; None if it always runs."""
    answer: bool = False
    """Whether the value is the user's answer."""


class Way(msgspec.Struct, frozen=True):
    """One possible outcome of a step with branches."""

    branch: int | None
    """The branch that is taken; None if no condition holds."""
    values: dict[str, str | None]
    """The values that lead here."""


class Fork(msgspec.Struct, frozen=True):
    """A step whose branch is unknown before the run."""

    position: int
    step: Step
    on: tuple[str, ...]
    """The names that decide the branch."""
    origins: dict[str, tuple[Origin, ...]]
    """The origins of each name; empty for a missing input."""
    ways: tuple[Way, ...]
    first: Way
    """The outcome that the preview assumes for later steps."""


class Foresight(msgspec.Struct, frozen=True):
    forks: dict[int, Fork]
    """The forks by position."""
    taken: dict[int, int | None]
    """The branches that are already known, by position; None if the step is skipped."""
    assumed: dict[str, str | None]
    """The values that lead to the first outcome of each fork."""

    def values_for(self, fork: Fork, way: Way) -> tuple[dict[str, str | None], int]:
        """The values to assume for this outcome, with the first outcome at all other forks, and the position of the
        first step that changes."""
        needed, origins = dict(way.values), dict(fork.origins)
        for name, value in way.values.items():
            for before, turn in self._to_avoid(origins[name]) if value == "" else self._to_reach(origins[name]):
                needed, origins = {**turn.values, **needed}, {**before.origins, **origins}
        changed = [name for name in needed if name not in self.assumed or self.assumed[name] != needed[name]]
        # An input takes effect from the first step.
        positions = [min((origin.position for origin in origins[name]), default=0) for name in changed]
        return {**self.assumed, **needed}, min(positions, default=fork.position)

    def _to_avoid(self, origins: Sequence[Origin]) -> list[tuple[Fork, Way]]:
        """The outcomes that avoid all branches that set a name, so that it is empty; none if that is impossible."""
        turns: list[tuple[Fork, Way]] = []
        for position, branches in _branches(origins).items():
            fork = self.forks.get(position)
            if fork is None or fork.first.branch not in branches:
                continue
            other = next((way for way in fork.ways if way.branch not in branches), None)
            if other is None:
                return []
            turns.append((fork, other))
        return turns

    def _to_reach(self, origins: Sequence[Origin]) -> list[tuple[Fork, Way]]:
        """The outcome in which a branch that sets a name is taken."""
        if not origins or any(_runs(origin, self.forks, self.taken) for origin in origins):
            return []
        fork = self.forks.get(origins[0].position)
        return [] if fork is None else [(fork, way) for way in fork.ways if way.branch == origins[0].branch][:1]


def _runs(origin: Origin, forks: Mapping[int, Fork], taken: Mapping[int, int | None]) -> bool:
    """Whether this origin sets its name if each fork has its first outcome."""
    if origin.branch is None:
        return True
    fork = forks.get(origin.position)
    return (fork.first.branch if fork is not None else taken.get(origin.position)) == origin.branch


def _branches(origins: Sequence[Origin]) -> dict[int, set[int | None]]:
    """The branches of the origins, by position."""
    found: dict[int, set[int | None]] = {}
    for origin in origins:
        found.setdefault(origin.position, set()).add(origin.branch)
    return found


def foresee(book: Book, inputs: Mapping[str, str], settings: Settings = Settings()) -> Foresight:
    """Predicts the branches. Declared inputs that are missing from `inputs` are unknown."""
    return _Walk(book, inputs, settings).done()


class _Walk:
    """Goes through the steps in order and tracks what is known."""

    def __init__(self, book: Book, inputs: Mapping[str, str], settings: Settings) -> None:
        self._book = book
        self._declared = {declared.name: declared for declared in book.inputs}
        self._inputs = inputs
        self._settings = settings
        self._origins: dict[str, list[Origin]] = {}
        self._compared = _compared(book)
        self._forks: dict[int, Fork] = {}
        self._taken: dict[int, int | None] = {}
        self._reached: dict[int, frozenset[int | None]] = {}
        """The branches that can be taken, by position, including None if the step may be skipped."""
        self._assumed: dict[str, str | None] = {}

    def done(self) -> Foresight:
        for position, step in enumerate(self._book.steps):
            self._pass(position, step)
        return Foresight(self._forks, self._taken, self._assumed)

    def _pass(self, position: int, step: Step) -> None:
        if step.elicitation is not None and step.tool is None:
            self._answered(step, position, None)
        branching = reaches_branches(self._book, step)
        if not branching or branches_on_itself(self._book, step):
            self._sets(step, position, None)
        if not branching:
            return
        ways = self._ways(position, step)
        self._reached[position] = frozenset(ways)
        reached = [number for number in ways if number is not None]
        for number in reached:
            for sub in step.branches[number].steps:
                if sub.elicitation is not None and sub.tool is None:
                    self._answered(sub, position, number)
                self._sets(sub, position, number)
        if not branches_on_itself(self._book, step):
            # The output of the branch is the step's output; if no branch matches, there is no output.
            for branch in reached if None in ways else (None,):
                self._sets(step, position, branch)

    def _answered(self, step: Step, position: int, branch: int | None) -> None:
        for name in answer_names(step):
            self._add(name, Origin(step, position, branch, answer=True))

    def _sets(self, step: Step, position: int, branch: int | None) -> None:
        if step.output is not None:
            self._add(step.output.name, Origin(step, position, branch, answer=answers_only(step)))

    def _add(self, name: str, origin: Origin) -> None:
        # An origin that always runs replaces the earlier origins.
        before = [] if origin.branch is None else self._origins.get(name, [])
        self._origins[name] = [*before, origin]

    # --- forks ---

    def _ways(self, position: int, step: Step) -> list[int | None]:
        """The branches that can be taken, including None if no condition may hold. Records the fork or the branch."""
        names = dict.fromkeys(branch.condition.variable for branch in step.branches if branch.condition is not None)
        ways = _reachable(step, {name: self._candidates(name) for name in names})
        if len(ways) == 1:
            self._taken[position] = ways[0].branch
        else:
            self._fork(position, step, tuple(names), ways)
        return [way.branch for way in ways]

    def _fork(self, position: int, step: Step, names: Sequence[str], ways: Sequence[Way]) -> None:
        on = tuple(name for name in names if len(self._candidates(name)) > 1)
        first = self._first(step, names)
        ways = tuple(first if way.branch == first.branch else way for way in ways)
        ways = tuple(Way(way.branch, {name: way.values[name] for name in on}) for way in ways)
        first = next(way for way in ways if way.branch == first.branch)
        origins = {name: () if name in self._declared else tuple(self._origins[name]) for name in on}
        unset = {name for name in on if origins[name] and not self._set(name)}
        self._assumed = {**{name: v for name, v in first.values.items() if name not in unset}, **self._assumed}
        self._forks[position] = Fork(position, step, on, origins, ways, first)

    def _first(self, step: Step, names: Sequence[str]) -> Way:
        """The first outcome that is consistent with the values assumed so far."""
        candidates: dict[str, Sequence[str | None]] = {}
        for name in names:
            values = self._values(name)
            if name in self._assumed:
                values = tuple(value for value in values if value == self._assumed[name]) or values
            candidates[name] = values if self._set(name) else ("",)
        return _reachable(step, candidates)[0]

    def _set(self, name: str) -> bool:
        """Whether a name has a value if each fork has its first outcome; otherwise it is empty."""
        origins = self._origins.get(name, ())
        if name in self._declared or not origins:
            return True
        return any(_runs(origin, self._forks, self._taken) for origin in origins)

    def _candidates(self, name: str) -> Sequence[str | None]:
        """The values to distinguish. If there is only one, it is certain."""
        values, origins = self._values(name), self._origins.get(name, ())
        if name in self._declared or not origins or self._certain(origins):
            return values
        return tuple(dict.fromkeys([*values, ""]))  # its value if no origin runs

    def _values(self, name: str) -> Sequence[str | None]:
        """The values that a name can have."""
        declared = self._declared.get(name)
        if declared is not None:
            return (self._inputs[name],) if name in self._inputs else self._of_input(declared)
        origins = self._origins.get(name)
        if not origins:
            return (self._inputs.get(name, ""),)
        return tuple(dict.fromkeys(value for origin in origins for value in self._given(origin, name)))

    def _certain(self, origins: Sequence[Origin]) -> bool:
        """Whether one of the origins runs regardless of the branches taken."""
        several = _branches(origins).items()
        return any(None in branches or branches >= self._reached[position] for position, branches in several)

    def _of_input(self, declared: DeclaredInput) -> Sequence[str | None]:
        if declared.type == "boolean":
            return ("true", "false")
        return declared.options or (*self._compared.get(declared.name, ()), None)

    def _given(self, origin: Origin, name: str) -> Sequence[str | None]:
        step, anything = origin.step, (*self._compared.get(name, ()), None)
        if origin.answer and step.elicitation is not None:
            known = None if step.elicitation.schema is not None else self._known_answer(origin)
            if known is not None:
                return (known,)
            if step.elicitation.type == "form":
                return self._of_field(origin, name) or anything
            fixed = {"confirm": ("yes", "no"), "select": step.elicitation.options}.get(step.elicitation.type, ())
            return fixed or anything
        options = step.output.options if step.output is not None else ()
        return (*options, None) if options else anything  # a reply that matches no option is kept unchanged

    def _of_field(self, origin: Origin, name: str) -> Sequence[str | None]:
        """The values of a field of a form; empty if any is possible."""
        asked = origin.step.elicitation
        assert asked is not None
        field = next((one for one in fields_of(asked.schema) if one.name == name), None)
        known = self._known_answer(origin)
        if known is not None and field is not None:
            value = json.loads(known)
            return (as_text(value[name]) if name in value else "",)
        if field is None or field.kind not in ("choice", "boolean"):
            return ()
        values = field.options or ("true", "false")
        return values if field.required else (*values, "")

    def _known_answer(self, origin: Origin) -> str | None:
        asked = origin.step.elicitation
        assert asked is not None
        labels = (origin.step.label, self._book.steps[origin.position].label)
        effect = AskHuman(
            asked.prompt, asked.type, asked.options, asked.default, label=origin.step.label, schema=asked.schema
        )
        answer = advance_answer(effect, labels, self._settings, fill_in=filled_in)
        return answer.value if isinstance(answer, Answer) else None


def _reachable(step: Step, candidates: Mapping[str, Sequence[str | None]]) -> list[Way]:
    """Each branch that these values can select, with the first such values. The case without a match comes last."""
    found: dict[int | None, dict[str, str | None]] = {}
    asked: dict[str, set[str]] = {}
    for branch in step.branches:
        if branch.condition is not None:
            asked.setdefault(branch.condition.variable, set()).add(branch.condition.value)
    distinct = [_distinct(values, asked[name]) for name, values in candidates.items()]
    for chosen in islice(product(*distinct), MOST_COMBINED):
        values = dict(zip(candidates, chosen, strict=True))
        found.setdefault(chosen_branch(step.branches, values), values)
    ordered = sorted(found, key=lambda branch: len(step.branches) if branch is None else branch)
    return [Way(branch, found[branch]) for branch in ordered]


def _distinct(values: Sequence[str | None], asked: set[str]) -> list[str | None]:
    """The values, except those that no condition can distinguish from an earlier value."""
    other = next((value for value in values if value not in asked), None)
    return [value for value in values if value in asked or value == other]


def chosen_branch(branches: Sequence[Branch], values: Values) -> int | None:
    """The index of the first branch whose condition holds."""
    fitting = (number for number, branch in enumerate(branches) if _holds(branch.condition, values))
    return next(fitting, None)


def _holds(condition: Condition | None, values: Values) -> bool:
    if condition is None:
        return True
    same = values.get(condition.variable, "") == condition.value
    return same if condition.operator == "==" else not same


def _compared(book: Book) -> dict[str, tuple[str, ...]]:
    """The values that each name is compared with, in document order."""
    found: dict[str, dict[str, None]] = {}
    for step in book.steps:
        for branch in step.branches:
            if branch.condition is not None:
                found.setdefault(branch.condition.variable, {})[branch.condition.value] = None
    return {name: tuple(values) for name, values in found.items()}


# --- phrases -------------------------------------------------------------------------------------------


def way_words(step: Step, way: Way) -> str:
    return "otherwise" if way.branch is None else condition_words(step.branches[way.branch])


def origin_words(origins: Sequence[Origin]) -> str:
    """A phrase for where the value of a name comes from."""
    if not origins:
        return "a missing input"
    answered = list(dict.fromkeys(origin.step.label for origin in origins if origin.answer))
    given = list(dict.fromkeys(origin.step.label for origin in origins if not origin.answer))
    parts = [f"the output of step {' or '.join(given)}"] if given else []
    parts += [f"the answer in step {' or '.join(answered)}"] if answered else []
    return " or ".join(parts)


def fork_words(fork: Fork) -> str:
    return " and ".join(f"{name} ({origin_words(fork.origins[name])})" for name in fork.on)
