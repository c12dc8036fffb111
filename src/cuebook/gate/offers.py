"""What an approver may allow beyond the one action: the safe patterns that would stop the asking, or why there are none."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from cuebook.gate.policy import Override, Policy, Ruling, decide_all
from cuebook.kernel.ports import Action, Domain

Pattern = tuple[Domain, str]
"""A domain and a pattern of that domain."""


class Offers(msgspec.Struct, frozen=True):
    """The choices at an approval, in addition to approving once."""

    patterns: tuple[tuple[Pattern, ...], ...] = ()
    """The sets of overrides to choose from, the narrowest first. Each set would allow exactly these actions again."""
    once_only: str = ""
    """Why the action can only be approved once, as a clause; empty if there are patterns."""


def offers(
    actions: Sequence[Action],
    ruling: Ruling,
    policies: Sequence[Policy],
    overrides: Sequence[Override],
    now: float,
    why: str = "",
) -> Offers:
    """The overrides that, together with the existing ones, would settle these actions. `why` is a reason for asking that
    no override can settle.
    """
    from cuebook.gate.policy.overrides import not_suggested, suggested  # analyses commands, which most runs do not need

    if why:
        return Offers(once_only=f"{why}, and that is asked about each time")
    asked = list(dict.fromkeys(reason.action for reason in ruling.reasons if reason.decision == "ask"))
    choices = {action: suggested(action) for action in asked}
    for action, patterns in choices.items():
        if not patterns:
            return Offers(once_only=f"no safe pattern matches it: {not_suggested(action)}")
    narrow = tuple((action.domain, choices[action][0]) for action in asked)
    wide = tuple((action.domain, choices[action][-1]) for action in asked)
    found: list[tuple[Pattern, ...]] = []
    for these in dict.fromkeys((narrow, wide)):
        made = [Override("", domain, pattern, "", now) for domain, pattern in these]
        if decide_all(actions, policies, [*overrides, *made], now).decision == "allow":
            found.append(these)
    return Offers(tuple(found)) if found else Offers(once_only="no pattern would stop the asking")
