"""The maximum that a run may use: calls, tokens and money. Pure; the caller supplies prices.

If a preview's acts are known, each reply counts at its limit, and again in every later call that sees it. Among several
branches, the most expensive counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from cuebook.dialects.presentation.preview import Act, Choice, Limits, Preview
from cuebook.kernel.context import Context
from cuebook.kernel.effects import AskHuman, AskModel, CallTool
from cuebook.kernel.run import RunRow
from cuebook.performers.models import Facts
from cuebook.performers.models.model import MESSAGE_OVERHEAD, Tokens, estimate_text

UNSEEN = 1_000
"""Tokens counted for an answer, an input or other text that is not known yet."""
_AROUND = 64
"""Tokens in the heading that names an output's step."""
_RUNS = 10
"""The number of past runs that typical use is based on."""


class Terms(msgspec.Struct, frozen=True):
    """The known facts about the model and its limits."""

    facts: Facts
    max_tokens: int
    tool_output: int
    """The maximum number of bytes of a tool's result to keep."""
    free: bool = False
    otherwise: tuple[Terms, ...] = ()
    """Those of the models that are called while this one is unavailable."""

    @property
    def reply(self) -> int:
        limits = [self.max_tokens, self.facts.output, self.facts.window]
        return min(limit for limit in limits if limit is not None)

    def cost(self, input_tokens: int) -> float | None:
        """The maximum cost of one call, with the dearest model of the chain; None if a price is unknown."""
        own = None if self.facts.price is None else self.facts.price.most(input_tokens, self.reply)
        costs = [0.0 if self.free else own, *(one.cost(input_tokens) for one in self.otherwise)]
        known = [cost for cost in costs if cost is not None]
        return max(known) if len(known) == len(costs) else None


class Use(msgspec.Struct, frozen=True):
    """The maximum use of acts."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = 0.0
    """None if the price is unknown."""
    guessed: bool = False
    """Whether something was counted as `UNSEEN`."""

    def plus(self, other: Use) -> Use:
        return Use(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            None if self.cost is None or other.cost is None else self.cost + other.cost,
            self.guessed or other.guessed,
        )

    def or_more(self, other: Use) -> Use:
        """The larger value of each field: each branch may be the more expensive in a different respect."""
        return Use(
            max(self.calls, other.calls),
            max(self.input_tokens, other.input_tokens),
            max(self.output_tokens, other.output_tokens),
            None if self.cost is None or other.cost is None else max(self.cost, other.cost),
            self.guessed or other.guessed,
        )


class Bound(msgspec.Struct, frozen=True):
    """The maximum use of a run."""

    calls: int | None
    """None if only a budget limits them."""
    cost: float | None
    """None if it is unbounded or a price is unknown."""
    use: Use | None = None
    """None if tokens are not counted."""


def bound_of(preview: Preview, terms: Terms) -> Bound:
    if preview.limits is not None:
        return _bound_of_limits(preview.limits, terms)
    use = use_of(preview.acts, terms)
    return Bound(use.calls, use.cost, use)


def _bound_of_limits(limits: Limits, terms: Terms) -> Bound:
    """Every call at its most expensive: a full window in, a full reply out."""
    calls, window = limits.calls, terms.facts.window
    if calls == 0 or terms.free:
        return Bound(calls, 0.0)
    each = None if window is None else terms.cost(window)
    return Bound(calls, None if calls is None or each is None else calls * each)


# --- from earlier runs ---------------------------------------------------------------------------------------


class TypicalUse(msgspec.Struct, frozen=True):
    """The average use of earlier runs of a playbook."""

    tokens: Tokens
    runs: int


def typical_use(rows: Iterable[RunRow]) -> TypicalUse | None:
    """The average of the latest completed runs; None if there are none. Expects the newest run first."""
    done = [row.totals for row in rows if row.status == "completed" and row.totals.tokens and not row.parent][:_RUNS]
    if not done:
        return None
    count = len(done)
    return TypicalUse(Tokens(sum(one.input for one in done) // count, sum(one.output for one in done) // count), count)


# --- from acts --------------------------------------------------------------------------------------------


def use_of(acts: Iterable[Act | Choice], terms: Terms) -> Use:
    counter = _Counter(terms)
    total, carried = Use(), 0
    for part in acts:
        if isinstance(part, Choice):
            total, carried = _and(total, counter.count(part.before, carried))
            total, carried = _and(total, _most_expensive(counter, part, carried))
        else:
            total, carried = _and(total, counter.count([part], carried))
    return total


Counted = tuple[Use, int]
"""The use so far, and the number of its tokens that all later calls see."""


def _and(total: Use, counted: Counted) -> Counted:
    return total.plus(counted[0]), counted[1]


def _most_expensive(counter: _Counter, choice: Choice, carried: int) -> Counted:
    used, most = Use(), carried
    for alternative in choice.alternatives:
        more, after = counter.count(alternative.acts, carried)
        used, most = used.or_more(more), max(most, after)
    return used, most


class _Counter:
    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._largest = 0
        """Tokens of the largest outcome so far, which any name may refer to."""
        self._sizes: dict[int, tuple[Context, int]] = {}

    def count(self, acts: Sequence[Act], carried: int) -> Counted:
        used = Use()
        for act in acts:
            if isinstance(act.effect, AskModel):
                used = used.plus(self._call(act, act.effect, carried))
            size, guessed = self._outcome(act)
            if size:
                self._largest = max(self._largest, size)
                carried += size * act.filled.copies + _AROUND
            used = used.plus(Use(guessed=guessed))
        return used, carried

    def _call(self, act: Act, effect: AskModel, carried: int) -> Use:
        window = self._terms.facts.window
        messages = (1 if len(effect.context) else 0) + (1 if effect.prompt else 0)
        size = self._of_context(effect.context) + estimate_text(effect.prompt).upper + MESSAGE_OVERHEAD * messages
        size += carried + act.filled.outputs * self._largest + act.filled.unknown * UNSEEN
        # A request that does not fit is rejected before it costs anything.
        size = size if window is None else min(size, window)
        return Use(1, size, self._terms.reply, self._terms.cost(size), act.filled.unknown > 0)

    def _outcome(self, act: Act) -> tuple[int, bool]:
        """The largest size of the outcome, and whether that is a guess."""
        match act.effect:
            case AskModel():
                return self._terms.reply, False
            case CallTool():
                return self._terms.tool_output // 2, False  # a token has at least two bytes
            case AskHuman(type="input") if act.is_assumed:
                return UNSEEN, True
            case AskHuman():
                return estimate_text(act.answer or "").upper, False
            case _:
                return 0, False

    def _of_context(self, context: Context) -> int:
        """The size of a context. The sizes of its parents are cached, so each block is counted once."""
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
