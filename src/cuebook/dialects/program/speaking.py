"""A program's conversation as it streams: what it says is shown as soon as it is verified, and nothing is shown twice.

What arrives of a reply is a beginning that was verified. A `Say` in it is shown when it is complete; the message that is
sent later is the same. What is computed, or said without a model, is shown when it is sent.
"""

from __future__ import annotations

from cuebook.dialects.program.expressions import Expression, Literal, Words
from cuebook.dialects.program.items import Call, ReplyItem
from cuebook.dialects.program.model import ProgramText
from cuebook.dialects.program.observe import Projection, Said
from cuebook.dialects.program.placeholders import interpolated
from cuebook.dialects.program.prompts import CHECK
from cuebook.dialects.program.reply import ReplyReader
from cuebook.kernel.events import ModelAsked, TextChunk, TextReset
from cuebook.kernel.journal import Entry

USER = ("user", "human")


class _Hearing:
    """A reply that streams: who speaks, and how much of it has come."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.said: list[str] = []
        self.begin()

    def begin(self) -> None:
        self.reader = ReplyReader()
        self.length = 0


class Conversation:
    """A run's projection, and what was said, in order and each once."""

    def __init__(self, program: ProgramText | None = None) -> None:
        self.run = Projection(program)
        self._replies: dict[int, _Hearing] = {}
        """By the record of the question."""
        self._ahead: list[str] = []
        """Shown, and not sent yet."""
        self._void: list[str] = []
        """Shown of a reply that began again."""
        self._early: dict[int, list[TextChunk]] = {}
        """Text that came before the record of its question, which is written without waiting for the disk."""
        self._seq = 0

    def see(self, event: Entry | TextChunk | TextReset) -> list[Said]:
        """What is to be shown now."""
        if isinstance(event, TextChunk):
            return self._heard(event)
        if isinstance(event, TextReset):
            self._reset(event.seq)
            return []
        said = self.run.see(event)
        self._seq = event.seq
        early = self._early.pop(event.seq, [])
        if isinstance(event.event, ModelAsked) and executes(self.run, event, event.event):
            self._void = []
            self._replies = {event.seq: _Hearing(self.run.agent_at(event.place.path)), **self._recent()}
            return [one for chunk in early for one in self._heard(chunk)]
        return [one for one in said if not self._was_shown(one)]

    def _recent(self) -> dict[int, _Hearing]:
        """Several may stream at once; those that ended long ago are of no use."""
        return dict(list(self._replies.items())[:15])

    def _heard(self, chunk: TextChunk) -> list[Said]:
        if chunk.seq > self._seq:
            self._early.setdefault(chunk.seq, []).append(chunk)
        reply = self._replies.get(chunk.seq)
        if reply is None or chunk.offset != reply.length:
            return []
        reply.length += len(chunk.text)
        found: list[Said] = []
        for text in spoken_in(reply.reader, chunk.text):
            reply.said.append(text)
            self._ahead.append(text)
            if text in self._void:
                self._void.remove(text)
            else:
                found.append(Said("program", text, "user", reply.agent))
        return found

    def _reset(self, seq: int) -> None:
        self._early.pop(seq, None)
        reply = self._replies.get(seq)
        if reply is None:
            return
        for text in reply.said:
            self._ahead.remove(text)
        self._void = [*reply.said]
        reply.said = []
        reply.begin()

    def _was_shown(self, said: Said) -> bool:
        if said.by != "program" or said.to != "user" or said.text not in self._ahead:
            return False
        self._ahead.remove(said.text)
        return True


def executes(run: Projection, entry: Entry, asked: ModelAsked) -> bool:
    """Whether the reply is one that executes lines: others are nobody's words to the user."""
    top = run.top_at(entry.place.path)
    playbook = run.playbook_of(top) if top is not None else None
    return (playbook is None or playbook.kind != "raw") and not str(asked.prompt).startswith(CHECK)


def spoken_in(reader: ReplyReader, text: str) -> list[str]:
    """What is said to the user by the next piece of a reply."""
    return [said for item in reader.feed(text) if (said := _spoken(item)) is not None]


def _spoken(item: ReplyItem) -> str | None:
    """The text of a `Say` to the user, where it stands there as it is."""
    target = item.said_to if isinstance(item, Call) else None
    if not isinstance(item, Call) or target is None or str(_text(target)).strip().lower() not in USER:
        return None
    return _text(interpolated(item.message))  # what is filled in is shown when it is sent


def _text(value: Expression | None) -> str | None:
    match value:
        case Literal(text) if isinstance(text, str):
            return text
        case Words(text):
            return text
    return None
