"""Conversations: all messages in order, each once, and a form for the answer.

A model's message is shown as soon as it is verified, while the reply is still streaming. It then belongs to that reply,
and the message sent later is the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from cuebook.dialects.presentation.panels import Panel
from cuebook.dialects.presentation.projection import Conversation, Projection, Said, Update
from cuebook.kernel.events import Performed, Rewound
from cuebook.kernel.journal import Entry, same_line
from cuebook.kernel.outcomes import Reply
from cuebook.service.stream import Calls
from cuebook.surfaces.web.live.run_page import Picture
from cuebook.surfaces.web.pages.render import macro, piece
from cuebook.surfaces.web.panels.view import PanelView

MOST = 200
"""Number of turns to show, so that the page of a long conversation stays readable."""
_TEMPLATE = "panels/conversation.html"
_TURNS, _TURN, _GONE, _EARLIER, _ANSWER = "said", "turn-", "gone-", "earlier", "asks"
"""Names of the parts: all turns, one turn, a removed turn, the number of hidden turns, and the form."""
_RECENT = 3
"""Number of recent messages that may already contain the text of a question."""


@dataclass(eq=False)
class Turn:
    """The messages of one model reply, or of one entry."""

    seq: int
    path: str
    said: list[Said] = field(default_factory=list)
    agent: str = ""
    of_model: bool = False
    streams: bool = False
    """Whether it is a reply that is still streaming."""
    sent: list[tuple[int, str]] = field(default_factory=list)
    """The messages of a reply that were sent, each with its record."""

    @property
    def id(self) -> str:
        return f"said-{self.seq}"


class ConversationView(PanelView):
    def __init__(self, panel: Panel, projection: Projection) -> None:
        super().__init__(panel, projection)
        assert projection.conversation is not None
        self._conversation: Conversation = projection.conversation
        self._turns: list[Turn] = []
        self._earlier = 0
        """Number of turns that are no longer shown."""
        self._calls = Calls()
        self._answer: tuple[object, ...] = ()
        """The state that the form was last drawn from."""

    def see(self, entry: Entry, run: Picture, update: Update, *, changed: bool) -> Sequence[str]:
        parts = self._see(entry, update.said)
        questions = tuple(wait.id for wait in run.waits.values() if wait.kind == "question")
        answer = (questions, run.status, *self._positions())
        if answer != self._answer:
            self._answer = answer
            parts.append(_ANSWER)
        return parts

    def stream(self, asked: Entry, text: str, sent: int) -> str:
        turn = next((one for one in self._turns if one.seq == asked.seq), None)
        if turn is None:
            return ""
        before, now = self._conversation.spoken(text[:sent]), self._conversation.spoken(text)
        self._say(turn, now)
        return str(macro(_TEMPLATE, "line", turn)) if len(now) > len(before) or not text else ""

    def part(self, name: str, run: Picture) -> str:
        if name.startswith(_TURN):
            seq = int(name.removeprefix(_TURN))
            return str(macro(_TEMPLATE, "line", next(one for one in self._turns if one.seq == seq)))
        if name.startswith(_GONE):
            return str(macro(_TEMPLATE, "gone", name.removeprefix(_GONE)))
        if name == _EARLIER:
            return str(macro(_TEMPLATE, "earlier", self._earlier))
        return str(self._form(run) if name == _ANSWER else macro(_TEMPLATE, "turns", self._turns))

    def html(self, run: Picture) -> Markup:
        earlier, turns = (macro(_TEMPLATE, "earlier", self._earlier), macro(_TEMPLATE, "turns", self._turns))
        room = Markup('<div class="talk-room" tabindex="0"><div>{}{}</div></div>').format(earlier, turns)
        return room + self._form(run)

    # --- inside ---

    def _form(self, run: Picture) -> Markup:
        said = [one.text for one in self._conversation.said[-_RECENT:]]
        return piece("parts/conversation-answer.html", run=run, said=said, at_work=self._positions())

    def _positions(self) -> list[str]:
        """The names of the steps whose models are working now."""
        paths = dict.fromkeys(asked.place.path for asked in self._calls.open.values())
        return [words for words in map(self._conversation.position, paths) if words]

    def _see(self, entry: Entry, said: Sequence[Said]) -> list[str]:
        ended = self._calls.see(entry)
        if isinstance(entry.event, Rewound):
            self._rewind(entry.event)
            return [_TURNS]
        outcome = entry.event.outcome if isinstance(entry.event, Performed) else None
        changed = self._end(ended, outcome if isinstance(outcome, Reply) else None)
        agent = self._conversation.speaker(entry)
        if agent is not None:
            changed += self._add(Turn(entry.seq, entry.place.path, agent=agent, of_model=True, streams=True))
        new = [one for one in said if not self._was_shown(one, entry)]
        if new:
            changed += self._add(Turn(entry.seq, entry.place.path, new))
        return changed

    def _add(self, turn: Turn) -> list[str]:
        self._turns.append(turn)
        if len(self._turns) <= MOST:
            return [f"{_TURN}{turn.seq}"]
        first = self._turns.pop(0)
        self._earlier += 1
        return [_EARLIER, f"{_GONE}{first.seq}", f"{_TURN}{turn.seq}"]

    def _say(self, turn: Turn, texts: Sequence[str]) -> None:
        turn.said = [Said("program", text, "user", turn.agent) for text in texts]

    def _end(self, ended: int | None = None, reply: Reply | None = None) -> list[str]:
        """Complete the replies that have ended, and remove those without a message."""
        changed: list[str] = []
        for turn in [one for one in self._turns if one.streams and one.seq not in self._calls.open]:
            turn.streams = False
            text = reply.text[: reply.released] if reply is not None and turn.seq == ended else ""
            self._say(turn, self._conversation.spoken(text))
            if not turn.said:
                self._turns.remove(turn)
                changed.append(f"{_GONE}{turn.seq}")
        return changed

    def _was_shown(self, said: Said, entry: Entry) -> bool:
        """Whether the message is part of a reply, so that this entry only sends it."""
        if said.by != "program" or said.to != "user":
            return False
        for turn in self._turns:
            spoken = [one.text for one in turn.said].count(said.text) if turn.of_model and not turn.streams else 0
            if spoken > [text for _, text in turn.sent].count(said.text):
                turn.sent.append((entry.seq, said.text))
                return True
        return False

    def _rewind(self, event: Rewound) -> None:
        """Remove the messages that a rewind invalidates."""
        for turn in self._turns:
            turn.sent = [(seq, text) for seq, text in turn.sent if seq < event.seq]
        self._turns = [one for one in self._turns if one.seq < event.seq or not same_line(one.path, event.path)]
        self._end()
