"""The most that a run may use: tokens and money, from what a dry run shows. Pure; prices come from outside.

Every reply is counted at its limit, and again in everything that it goes into. Where there are several ways, the
dearest counts.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cuebook.dialects.markdown.directives import variable_of
from cuebook.dialects.markdown.interpolate import placeholders
from cuebook.dialects.markdown.model import Book, Step
from cuebook.dialects.markdown.parse import answer_names
from cuebook.kernel.context import Context
from cuebook.kernel.effects import AskHuman, AskModel, CallTool, ReadSource
from cuebook.performers.models import Facts
from cuebook.performers.models.tokens import MESSAGE_OVERHEAD, estimate_text
from cuebook.surfaces.cli.rehearsing import Rehearsal, Shown, Ways, steps_at
from cuebook.surfaces.reading.foreseeing import branches_on_itself

UNSEEN = 1_000
"""Tokens that are counted for an answer, an input or a text which is not known yet."""
_AROUND = 64
"""Tokens of the words that say whose an output is."""


class Terms(msgspec.Struct, frozen=True):
    """What is known of the model and of the limits."""

    facts: Facts
    max_tokens: int
    tool_output: int
    """Bytes that are kept of a tool's result."""
    free: bool = False

    @property
    def reply(self) -> int:
        limits = [self.max_tokens, self.facts.output, self.facts.window]
        return min(limit for limit in limits if limit is not None)


class Bound(msgspec.Struct, frozen=True):
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0
    """None where the price is unknown."""
    guessed: bool = False
    """Whether something was counted as `UNSEEN`."""

    def plus(self, other: Bound) -> Bound:
        return Bound(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            None if self.cost is None or other.cost is None else self.cost + other.cost,
            self.guessed or other.guessed,
        )

    def or_dearer(self, other: Bound) -> Bound:
        """The larger of each part: two ways may be the dearest in different respects."""
        return Bound(
            max(self.calls, other.calls),
            max(self.input_tokens, other.input_tokens),
            max(self.output_tokens, other.output_tokens),
            None if self.cost is None or other.cost is None else max(self.cost, other.cost),
            self.guessed or other.guessed,
        )


def bound_of(rehearsal: Rehearsal, book: Book, inputs: Mapping[str, str], terms: Terms) -> Bound:
    """For all steps together; `inputs` are those that are given."""
    counting = _Counting(book, inputs, terms)
    total, carried = Bound(), 0
    for part in rehearsal.parts:
        if isinstance(part, Shown):
            total, carried = _and(total, counting.one([part], carried))
            continue
        total, carried = _and(total, counting.one(part.before, carried))
        total, carried = _and(total, _dearest(counting, part, carried))
    return total


Counted = tuple[Bound, int]
"""What was used, and how many tokens later calls are shown of it all."""


def _and(total: Bound, counted: Counted) -> Counted:
    return total.plus(counted[0]), counted[1]


def _dearest(counting: _Counting, ways: Ways, carried: int) -> Counted:
    bound, most = Bound(), carried
    for _, shown in ways.shown:
        used, after = counting.one(shown, carried)
        bound, most = bound.or_dearer(used), max(most, after)
    return bound, most


def _set_by(step: Step) -> list[str]:
    answers = answer_names(step) if step.elicitation is not None else ()
    return [*answers, step.output.name] if step.output is not None else list(answers)


class _Counting:
    def __init__(self, book: Book, inputs: Mapping[str, str], terms: Terms) -> None:
        self._book = book
        self._declared = frozenset(declared.name for declared in book.inputs)
        self._inputs = inputs
        self._terms = terms
        self._largest = 0
        """Tokens of the largest outcome so far: what a name may stand for."""
        self._set = frozenset(name for step in book.walk() for name in _set_by(step))
        self._texts: dict[tuple[int, str, str], dict[str, str | None]] = {}
        """The texts that prompts refer to, by step and source; None for one that was not looked at."""
        self._sizes: dict[int, tuple[Context, int]] = {}

    def one(self, shown: list[Shown], carried: int) -> Counted:
        bound = Bound()
        for one in shown:
            if isinstance(one.effect, AskModel):
                bound = bound.plus(self._call(one, one.effect, carried))
            elif isinstance(one.effect, ReadSource):
                text = one.text if one.what["read"] else None
                self._texts.setdefault((one.position, one.label, one.title), {})[one.effect.source] = text
            size, guessed = self._outcome(one)
            if size:
                self._largest = max(self._largest, size)
                carried += size * self._copies(one) + _AROUND
            bound = bound.plus(Bound(guessed=guessed))
        return bound, carried

    def _call(self, shown: Shown, effect: AskModel, carried: int) -> Bound:
        facts = self._terms.facts
        unknown, later = self._filled_in(shown)
        messages = (1 if len(effect.context) else 0) + (1 if effect.prompt else 0)
        size = self._of_context(effect.context) + estimate_text(effect.prompt).upper + MESSAGE_OVERHEAD * messages
        size += carried + later * self._largest + unknown * UNSEEN
        # What does not fit is refused before it costs anything.
        size = size if facts.window is None else min(size, facts.window)
        reply = self._terms.reply
        cost = None if facts.price is None else facts.price.most(size, reply)
        return Bound(1, size, reply, 0.0 if self._terms.free else cost, unknown > 0)

    def _outcome(self, shown: Shown) -> tuple[int, bool]:
        """How large what comes back may be, and whether that is a guess."""
        match shown.effect:
            case AskModel():
                return self._terms.reply, False
            case CallTool():
                return self._terms.tool_output // 2, False  # the least bytes that a token is counted for
            case AskHuman(type="input") if "as_if" in shown.what:
                return UNSEEN, True
            case AskHuman():
                return estimate_text(str(shown.what.get("as_if", shown.what.get("answer", "")))).upper, False
            case _:
                return 0, False

    def _copies(self, shown: Shown) -> int:
        """A field that is taken from an output is shown beside it."""
        steps = steps_at(self._book, shown.position, shown.label, shown.title)
        return 1 + sum(step.output is not None and bool(step.output.extract) for step in steps)

    def _filled_in(self, shown: Shown) -> tuple[int, int]:
        """What goes into the prompt and is not known yet: inputs that are not given and texts, and what steps set."""
        steps = steps_at(self._book, shown.position, shown.label, shown.title)
        unknown = later = 0
        for step in steps:
            if step is not steps[0] and branches_on_itself(self._book, step):
                continue  # its text has been used before its branch was chosen
            texts: list[str | None] = [step.content]
            texts += self._texts.get((shown.position, step.label, step.title), {}).values()
            if step.prompt is not None:
                texts.append(self._referred(step.prompt.argument))
            for text in texts:
                names = [found.name for found in placeholders(text or "")]
                unknown += text is None
                unknown += sum(map(self._is_missing, names))
                later += sum(map(self._is_set, names))
        return unknown, later

    def _referred(self, argument: str) -> str | None:
        """What a prompt's argument says of its text: all where it is a variable, nothing where the text's name is open."""
        names = [found.name for found in placeholders(argument)]
        if variable_of(argument) is not None:
            return argument
        return None if any(self._is_missing(name) or self._is_set(name) for name in names) else ""

    def _is_missing(self, name: str) -> bool:
        return name in self._declared and name not in self._inputs

    def _is_set(self, name: str) -> bool:
        return name not in self._declared and name in self._set

    def _of_context(self, context: Context) -> int:
        """By what a context grew from, so that each block is counted once."""
        grown: list[Context] = []
        node: Context | None = context
        while node is not None and node.block is not None and id(node) not in self._sizes:
            grown.append(node)
            node = node.parent
        size = self._sizes[id(node)][1] if node is not None and id(node) in self._sizes else 0
        for node in reversed(grown):
            assert node.block is not None
            size += estimate_text(f"{node.block.text}\n\n").upper
            self._sizes[id(node)] = (node, size)
        return size
