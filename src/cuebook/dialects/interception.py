"""Limits what the model calls of a program may use: in tokens and money, with sub-agents that share what is left."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, TypeVar

import msgspec

from cuebook.kernel.conversation import weight_of
from cuebook.kernel.conversation.subagents import Spending, SubAgent, spending_of
from cuebook.kernel.effects import All, AskModel, Branch, Effect, Program
from cuebook.kernel.engine.budget import money_words
from cuebook.kernel.interception import Instead, intercepted
from cuebook.kernel.outcomes import Failed, Reply, Usage

T = TypeVar("T")

_RATE = 0.3
"""Tokens per character that is added to a conversation."""
_LEAST = 0.15
"""Tokens per character that is removed from one."""
_REPLY = 64
"""The fewest tokens that a reply is expected to take."""
_GROWTH = 256
"""The fewest tokens by which a turn with tool calls is expected to lengthen the next."""


class Spent(msgspec.Struct):
    tokens: int = 0
    money: float = 0.0
    unknown: bool = False
    """Whether the cost of any call is unknown."""
    last_tokens: int = 0
    last_money: float = 0.0
    """The last call alone."""
    longest: int = _REPLY
    """The tokens of the longest reply."""
    dearest: float = 0.0
    """The highest price of a call, per token."""
    known: tuple[int, int] | None = None
    """The input tokens of the last call, and its characters."""
    growth: int = _GROWTH
    """The most tokens by which the input grew from one call to the next."""

    def add(self, usage: Usage, ask: AskModel | None = None) -> None:
        self.last_tokens, self.last_money = usage.input + usage.output, usage.cost or 0.0
        self.tokens += self.last_tokens
        self.money += self.last_money
        self.unknown = self.unknown or usage.cost is None
        self.longest = max(self.longest, usage.output)
        if self.last_tokens:
            self.dearest = max(self.dearest, self.last_money / self.last_tokens)
        if ask is not None and usage.input:
            self.growth = max(self.growth, usage.input - self.known[0] if self.known is not None else 0)
            self.known = (usage.input, weight_of(ask))

    def add_report(self, spending: Spending) -> None:
        self.tokens += spending.tokens
        self.money += spending.money
        self.unknown = self.unknown or spending.unknown

    def to_send(self, ask: AskModel) -> int:
        """About how many tokens a call will send."""
        weight = weight_of(ask)
        if self.known is None:
            return int((weight + _weight_of_tools(ask)) * _RATE)
        tokens, before = self.known
        added = weight - before
        return max(0, int(tokens + added * (_RATE if added > 0 else _LEAST)))


Over = Callable[[Spent, AskModel], Failed | None]
"""The failure that replaces a model call, or None if the call is allowed."""


class Share(msgspec.Struct, frozen=True):
    """What one sub-agent may use of a budget."""

    tokens: int | None
    money: float | None
    failed: Callable[[str, bool], Failed]
    """The failure for a reason; the flag says whether one last call is possible."""


Shares = Callable[[Spent, int], Share]
"""The share of each of several sub-agents that begin at the same time."""


def limited(program: Program[T], over: Over, shares: Shares | None = None, begun: Spent | None = None) -> Program[T]:
    """Runs a program whose model calls fail once `over` returns a failure. A call in progress is not interrupted.

    With `shares`, sub-agents that begin at the same time divide what is left. Without, a branch counts from what was spent when
    it began. In both cases its path does not depend on its siblings. What a sub-agent has spent counts once it has finished.
    """
    spent = Spent() if begun is None else copy(begun)

    def before(asked: Any) -> Any:
        reasons = (over(spent, ask) for ask in _asks(asked))
        reason = next((reason for reason in reasons if reason is not None), None)
        if reason is not None or not isinstance(asked, All):
            return asked if reason is None else reason
        if shares is None:
            branches = tuple(_limited_branch(one, over, spent) for one in asked.branches)
        else:
            agents = sum(isinstance(one, SubAgent) for one in asked.branches)
            share = shares(spent, agents) if agents else None
            branches = tuple(_shared_branch(one, share, spent) for one in asked.branches)
        return msgspec.structs.replace(asked, branches=branches)

    def after(asked: Any, outcome: Any) -> None:
        for one in outcome if isinstance(outcome, tuple) else (outcome,):
            if isinstance(one, Reply):
                spent.add(one.usage)
            elif (spending := spending_of(one)) is not None:
                spent.add_report(spending)

    return intercepted(program, before, after)


def _limited_branch(branch: Effect | Branch, over: Over, spent: Spent) -> Effect | Branch:
    if not isinstance(branch, Branch):
        return branch
    start, begun = branch.start, copy(spent)
    return Branch(lambda state: limited(start(state), over, begun=begun), branch.worktree)


def _asks(asked: Any) -> list[AskModel]:
    every = asked.branches if isinstance(asked, All) else (asked,)
    return [one for one in every if isinstance(one, AskModel)]


# --- the share of a sub-agent -------------------------------------------------------------------------------


def _shared_branch(branch: Effect | Branch, share: Share | None, spent: Spent) -> Effect | Branch:
    if share is None or not isinstance(branch, SubAgent):
        return branch
    start, begun = branch.start, Spent(longest=spent.longest, dearest=spent.dearest)
    return Branch(lambda state: _within(start(state), share, begun))


def _within(program: Program[T], share: Share, begun: Spent) -> Program[T]:
    """Runs a sub-agent within its share. A call is made only if there is room for what it sends and for a reply as long as the
    longest so far; its reply cannot take more than is left. A summary that does not fit is not made.
    """
    spent = copy(begun)

    def before(asked: Any) -> Any:
        if isinstance(asked, All) and asked.branches and all(isinstance(one, AskModel) for one in asked.branches):
            failures = [_short(share, spent, one, aside=True) for one in asked.branches if isinstance(one, AskModel)]
            if any(failures):
                return Instead(tuple(one or share.failed("another call did not fit", False) for one in failures))
            branches = tuple(_with_room(share, spent, one) for one in asked.branches)
            return msgspec.structs.replace(asked, branches=branches)
        if not isinstance(asked, AskModel):
            return asked
        return _short(share, spent, asked) or _with_room(share, spent, asked)

    def after(asked: Any, outcome: Any) -> None:
        pairs = zip(asked.branches, outcome, strict=True) if isinstance(asked, All) else [(asked, outcome)]
        for ask, one in pairs:
            if isinstance(one, Reply):
                spent.add(one.usage, ask if ask is asked else None)
            elif isinstance(one, Failed):
                failing(one)

    def failing(failed: Failed) -> None:
        used = failed.details.get("usage")
        if used:
            spent.add(msgspec.convert(used, Usage))

    return intercepted(program, before, after, failing)


def _short(share: Share, spent: Spent, ask: AskModel, *, aside: bool = False) -> Failed | None:
    """Why a call cannot be made within a share. While tools may be called, there must be room for a closing turn as well."""
    if share.money is not None and spent.unknown:
        return share.failed("the cost of its calls is unknown", False)
    coming = spent.to_send(ask) + spent.longest
    closing = coming + max(spent.growth, spent.longest) if aside or (ask.tools and ask.may_call) else 0
    for more in (coming, coming + closing) if closing else (coming,):
        last = more > coming
        if share.tokens is not None and spent.tokens + more > share.tokens:
            return share.failed(f"{share.tokens:,} tokens, of which {spent.tokens:,} are used", last)
        if share.money is not None and spent.money + more * spent.dearest > share.money:
            return share.failed(f"{money_words(share.money)}, of which {money_words(spent.money)} is used", last)
    return None


def _with_room(share: Share, spent: Spent, ask: Effect | Branch) -> Any:
    """The call, with a limit for its reply so that it stays within the share."""
    if not isinstance(ask, AskModel):
        return ask
    left = [] if share.tokens is None else [share.tokens - spent.tokens]
    if share.money is not None and spent.dearest:
        left.append(int((share.money - spent.money) / spent.dearest))
    if not left:
        return ask
    return msgspec.structs.replace(ask, room=max(1, min(left) - spent.to_send(ask)))


def _weight_of_tools(ask: AskModel) -> int:
    return sum(len(one.name) + len(one.description) + len(msgspec.json.encode(one.parameters)) for one in ask.tools)
