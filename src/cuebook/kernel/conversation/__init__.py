"""The conversation that all dialects share: call a model, make the tool calls it requests, call it again.

A sub-program: use it with `yield from`. It does not depend on how tools or models are reached.
"""

from __future__ import annotations

from cuebook.kernel.conversation.calls import Agent, CallOutcome
from cuebook.kernel.conversation.compaction import SUMMARIES, weight_of
from cuebook.kernel.conversation.loop import LAST_CALL, REPAIRS, VERSION, Flaw, Heard, Talk, Turns, converse
from cuebook.kernel.conversation.relay import relayed

__all__ = [
    "LAST_CALL",
    "REPAIRS",
    "SUMMARIES",
    "VERSION",
    "Agent",
    "CallOutcome",
    "Flaw",
    "Heard",
    "Talk",
    "Turns",
    "converse",
    "relayed",
    "weight_of",
]
