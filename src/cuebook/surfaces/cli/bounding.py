"""The most that a run may use: tokens and money, from what a dry run shows. Pure; prices come from outside.

Every reply is counted at its limit, and again in everything that it goes into. Where there are several ways, the
dearest counts.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from cuebook.dialects.markdown.interpolate import placeholders
from cuebook.dialects.markdown.model import Book
from cuebook.kernel.context import Context
from cuebook.kernel.effects import AskHuman, AskModel, CallTool
from cuebook.performers.models import Facts
from cuebook.performers.models.tokens import MESSAGE_OVERHEAD, estimate_text
from cuebook.surfaces.cli.dry_run import Rehearsal, Shown, Ways, steps_at

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


class _Counting:
    def __init__(self, book: Book, inputs: Mapping[str, str], terms: Terms) -> None:
        self._book = book
        self._declared = frozenset(declared.name for declared in book.inputs)
        self._inputs = inputs
        self._terms = terms
        self._largest = 0
        """Tokens of the largest outcome so far: what a name may stand for."""
        self._unread: dict[int, int] = {}
        """Texts that were not looked at, by position."""
        self._sizes: dict[int, tuple[Context, int]] = {}

    def one(self, shown: list[Shown], carried: int) -> Counted:
        bound = Bound()
        for one in shown:
            if isinstance(one.effect, AskModel):
                bound = bound.plus(self._call(one, one.effect, carried))
            elif one.what.get("read") is False:
                self._unread[one.position] = self._unread.get(one.position, 0) + 1
            size, guessed = self._outcome(one)
            if size:
                self._largest = max(self._largest, size)
                carried += size * self._copies(one) + _AROUND
            bound = bound.plus(Bound(guessed=guessed))
        return bound, carried

    def _call(self, shown: Shown, effect: AskModel, carried: int) -> Bound:
        facts = self._terms.facts
        unknown, later = self._filled_in(shown)
        unknown += self._unread.get(shown.position, 0)
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
        """Placeholders of the step for what is not known yet: inputs that are not given, and outputs."""
        steps = steps_at(self._book, shown.position, shown.label, shown.title)
        texts = [step.content for step in steps] + [step.prompt.argument for step in steps if step.prompt is not None]
        names = [found.name for text in texts for found in placeholders(text)]
        unknown = sum(name in self._declared and name not in self._inputs for name in names)
        return unknown, sum(name not in self._declared for name in names)

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
