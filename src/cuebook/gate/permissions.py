"""What a coding agent was permitted when it asked, and need not be asked about again."""

from __future__ import annotations

from cuebook.gate.policy import Reason, Ruling
from cuebook.kernel.effects import CallTool


def is_permitted(effect: CallTool, ruling: Ruling) -> bool:
    """Whether a coding agent asked for permission for everything that the rules ask about, and has it. A rule that asks about
    the tool itself still asks.
    """
    if not effect.internal:
        return False

    def covers(reason: Reason) -> bool:
        action = reason.action
        if action.domain == "file":
            return action.target in effect.granted
        return (action.domain, action.target, reason.where) == ("tool", effect.tool, "default")

    return all(covers(reason) for reason in ruling.reasons if reason.decision == "ask")
