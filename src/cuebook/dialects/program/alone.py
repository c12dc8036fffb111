"""Where nobody is there: answers that no person gave are counted, so that a program which asks until one fits comes to an end."""

from __future__ import annotations

import msgspec

from cuebook.kernel.effects import Bound
from cuebook.kernel.outcomes import Answer, Failed

MOST_EMPTY = 5
"""How often the same question is answered with nothing."""
MOST_SAME = 100
"""How often the same question is answered beforehand."""
MOST_ALONE = 1_000
"""Answers that nobody gave, whatever was asked."""


class Alone(msgspec.Struct):
    """What was answered since a person was heard."""

    times: int = 0
    question: str = ""
    same: int = 0
    """How often this question was asked in a row."""

    def note(self, answer: Answer, question: str, label: str) -> Bound | None:
        """One more answer. If there were too many, what ends the run."""
        self.times += 1
        self.same = self.same + 1 if question == self.question else 1
        self.question = question
        if self.same < (MOST_SAME if answer.value else MOST_EMPTY) and self.times < MOST_ALONE:
            return None
        with_ = f"answered with {answer.value!r:.60}" if answer.value else "left without an answer"
        words = f"Nobody is there, and '{question:.200}' was {with_} {self.same} times in a row."
        fix = f"Give {label or 'it'} an answer beforehand that the program goes on with, or run it where somebody can answer."
        return Bound("answers", Failed("unanswered", words, fix))
