"""A program's conversation as a page shows it: what was said, in order and each once.

What a model says is shown as soon as it is verified, while its reply streams. It belongs to that reply from then on: the
message that is sent later is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cuebook.dialects.program.observe import Projection, Said
from cuebook.dialects.program.reply import ReplyReader
from cuebook.dialects.program.speaking import executes, spoken_in
from cuebook.kernel.events import ModelAsked, Performed, Rewound
from cuebook.kernel.journal import Entry, same_line
from cuebook.kernel.outcomes import Reply
from cuebook.surfaces.web.calls import Calls

MOST = 200
"""Turns that are shown, the last ones: a page stays readable however long a program talks."""
TALK, TURN, GONE, EARLIER = "said", "turn-", "gone-", "earlier"
"""The parts: all of it, one turn, one that is shown no more, and how many are not shown."""


@dataclass(eq=False)
class Turn:
    """What was said at once: by a reply of a model, or by one entry."""

    seq: int
    path: str
    said: list[Said] = field(default_factory=list)
    agent: str = ""
    of_model: bool = False
    streams: bool = False
    """Whether it is a reply under way."""
    sent: list[tuple[int, str]] = field(default_factory=list)
    """Of a reply: what was sent of it, each with its record."""

    @property
    def id(self) -> str:
        return f"said-{self.seq}"


class Talk:
    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.earlier = 0
        """Turns that are shown no more."""
        self._calls = Calls()

    @property
    def asked_at(self) -> list[str]:
        """The branches on which a model is asked now."""
        return list(dict.fromkeys(asked.place.path for asked in self._calls.open.values()))

    def see(self, entry: Entry, run: Projection, said: list[Said]) -> list[str]:
        """Takes an entry in, and what `run` found to be said by it; gives the names of the parts that it changed."""
        ended = self._calls.see(entry)
        if isinstance(entry.event, Rewound):
            self._rewind(entry.event)
            return [TALK]
        outcome = entry.event.outcome if isinstance(entry.event, Performed) else None
        changed = self._end(ended, outcome if isinstance(outcome, Reply) else None)
        if isinstance(entry.event, ModelAsked) and executes(run, entry, entry.event):
            path = entry.place.path
            changed += self._add(Turn(entry.seq, path, agent=run.agent_at(path), of_model=True, streams=True))
        new = [one for one in said if not self._was_shown(one, entry)]
        if new:
            changed += self._add(Turn(entry.seq, entry.place.path, new))
        return changed

    def hear(self, asked: Entry, text: str, sent: int) -> Turn | None:
        """A reply as it streams: its turn, if what comes after so many characters says something, or it begins again."""
        turn = next((one for one in self.turns if one.seq == asked.seq), None)
        if turn is None:
            return None
        reader = ReplyReader()
        before = spoken_in(reader, text[:sent])
        more = spoken_in(reader, text[sent:])
        self._take(turn, [*before, *more])
        return turn if more or not text else None

    def turn(self, part: str) -> Turn:
        seq = int(part.removeprefix(TURN))
        return next(one for one in self.turns if one.seq == seq)

    # --- inside ---

    def _add(self, turn: Turn) -> list[str]:
        self.turns.append(turn)
        if len(self.turns) <= MOST:
            return [f"{TURN}{turn.seq}"]
        first = self.turns.pop(0)
        self.earlier += 1
        return [EARLIER, f"{GONE}{first.seq}", f"{TURN}{turn.seq}"]

    def _take(self, turn: Turn, texts: list[str]) -> None:
        turn.said = [Said("program", text, "user", turn.agent) for text in texts]

    def _end(self, ended: int | None = None, reply: Reply | None = None) -> list[str]:
        """Replies that are complete now, or lost."""
        changed: list[str] = []
        for turn in [one for one in self.turns if one.streams and one.seq not in self._calls.open]:
            turn.streams = False
            text = reply.text[: reply.released] if reply is not None and turn.seq == ended else ""
            self._take(turn, spoken_in(ReplyReader(), text))
            if not turn.said:
                self.turns.remove(turn)
                changed.append(f"{GONE}{turn.seq}")
        return changed

    def _was_shown(self, said: Said, entry: Entry) -> bool:
        """Whether a reply said it: then that is what is sent now."""
        if said.by != "program" or said.to != "user":
            return False
        for turn in self.turns:
            spoken = [one.text for one in turn.said].count(said.text) if turn.of_model and not turn.streams else 0
            if spoken > [text for _, text in turn.sent].count(said.text):
                turn.sent.append((entry.seq, said.text))
                return True
        return False

    def _rewind(self, event: Rewound) -> None:
        """What was taken back was not said."""
        for turn in self.turns:
            turn.sent = [(seq, text) for seq, text in turn.sent if seq < event.seq]
        self.turns = [one for one in self.turns if one.seq < event.seq or not same_line(one.path, event.path)]
        self._end()
