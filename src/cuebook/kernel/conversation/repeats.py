"""Detects a conversation without progress: the same calls that keep failing the same way, or calls that are always cut."""

from __future__ import annotations

from collections.abc import Sequence

from cuebook.kernel.context import ToolCall
from cuebook.kernel.conversation.calls import arguments_of, is_cut, shown
from cuebook.kernel.outcomes import EffectFailed, Failed, Reply, ToolResult

WARNED_FAILURES = 3
"""Consecutive turns with identical calls and failures after which the model is warned."""
SAME_FAILURES = 5
"""Consecutive turns with identical calls and failures after which the conversation ends."""
CUT_TURNS = 5
"""Consecutive turns with only calls that were cut off at the token limit, after which the conversation ends."""


class Repeats:
    """Counts consecutive turns without progress: the same calls that fail the same way, or calls that were all cut.

    Anything in between resets the count: a different or successful call may have changed the effect of the next one.
    """

    def __init__(self) -> None:
        self._last: frozenset[tuple[str, bytes, str]] = frozenset()
        self._call = ToolCall("", "")
        self._said = ""
        self._same = self._cut = 0

    def see(self, reply: Reply, answered: Sequence[tuple[ToolCall, ToolResult]]) -> None:
        """Counts a turn; raises if the limit is exceeded."""
        self._call, self._said = answered[0][0], shown(answered[0][1])
        if not all(result.is_error for _, result in answered):
            self._last, self._same, self._cut = frozenset(), 0, 0
            return
        turn = frozenset((call.name, arguments_of(call), shown(result)) for call, result in answered)
        self._same = self._same + 1 if turn == self._last else 1
        self._last = turn
        self._cut = self._cut + 1 if all(is_cut(call, reply) for call in reply.calls) else 0
        if self._cut >= CUT_TURNS:
            raise EffectFailed(self._too_long())
        if self._same >= SAME_FAILURES:
            raise EffectFailed(self._stuck())

    def note(self) -> str:
        """The last message to the model before the conversation ends."""
        if self._same < WARNED_FAILURES:
            return ""
        return (
            f"\n[The very same call failed the same way {self._same} times in a row, with nothing in between."
            f" At {SAME_FAILURES} times this step ends. Change something first, or answer without it.]"
        )

    def _stuck(self) -> Failed:
        return Failed(
            "same_call",
            f"The model called '{self._call.name}' {self._same} times in a row with the same arguments, and it failed each"
            f" time: {self._said}",
            "Explain the tool in the instruction, remove it, or use a larger model.",
            details={"tool": self._call.name, "arguments": arguments_of(self._call).decode()},
        )

    def _too_long(self) -> Failed:
        return Failed(
            "call_cut",
            f"The model's calls to '{self._call.name}' were cut off at its output limit {self._cut} times in a row.",
            "Raise max_tokens, or ask for smaller pieces.",
            details={"tool": self._call.name},
        )
