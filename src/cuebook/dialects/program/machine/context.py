"""The history of a frame as a model sees it. It grows at its end, and old turns are folded.

Its size stays bounded: the last turns are kept in full, earlier turns as one line each, and the oldest only as a
number. Independent of effects.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cuebook.kernel.context import Context, Role, Text

MOST_TURNS = 24
"""The maximum number of turns kept in full. Beyond that, the older half is folded."""
MOST_CHARACTERS = 24_000
"""The maximum number of characters in full turns. Beyond that, turns are folded earlier."""
MOST_FOLDED = 16
_LINE = 160


class History:
    """The context of one frame: its caller's context, the playbook, and the turns since."""

    def __init__(self, base: Context, header: str) -> None:
        self._begun = base.add("user", header)
        self.header = header
        self._turns: list[tuple[Role, Text]] = []
        self._characters = 0
        self._folded: list[str] = []
        self._forgotten = 0
        self.context = self._begun

    def add(self, role: Role, text: str) -> None:
        self._turns.append((role, Text(text)))
        self._characters += len(text)
        if len(self._turns) > MOST_TURNS or (self._characters > MOST_CHARACTERS and len(self._turns) > 4):
            self._fold()
        else:
            self.context = self.context.add(role, self._turns[-1][1])

    def _fold(self) -> None:
        old = self._turns[: len(self._turns) // 2]
        self._turns = self._turns[len(old) :]
        self._characters = sum(len(text) for _, text in self._turns)
        self._folded += [brief(role, str(text)) for role, text in old]
        surplus = max(0, len(self._folded) - MOST_FOLDED)
        self._forgotten += surplus
        self._folded = self._folded[surplus:]
        self.context = self._rebuilt()

    def _rebuilt(self) -> Context:
        context = self._begun
        if self._folded or self._forgotten:
            left_out = [f"({self._forgotten} turns before these)"] if self._forgotten else []
            context = context.add("user", "\n".join(["Earlier:", *left_out, *self._folded]))
        for role, text in self._turns:
            context = context.add(role, text)
        return context

    # --- checkpoints ---

    def kept(self) -> dict[str, Any]:
        return {"folded": list(self._folded), "forgotten": self._forgotten, "roles": [role for role, _ in self._turns]}

    def texts(self) -> Iterator[Text]:
        """The header first, then each turn."""
        yield Text(self.header)
        for _, text in self._turns:
            yield text

    @classmethod
    def restored(cls, base: Context, kept: dict[str, Any], texts: Iterator[Text]) -> History:
        made = cls(base, str(next(texts)))
        made._folded, made._forgotten = list(kept["folded"]), kept["forgotten"]
        made._turns = [(role, next(texts)) for role in kept["roles"]]
        made._characters = sum(len(text) for _, text in made._turns)
        made.context = made._rebuilt()
        return made


def brief(role: Role, text: str) -> str:
    """One line for a turn; for a reply, its recap."""
    line = next((line for line in text.splitlines() if line.strip()), "").strip()
    line = line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"
    return f"- {line}" if role == "user" else f"- you: {line}"
