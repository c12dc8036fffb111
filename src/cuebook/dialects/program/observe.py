"""Projects a program's run for pages and watchers: speech appears once it is verified, while the reply still streams.

The streamed part of a reply has been verified. A `Say` in it is shown when it is complete; the message sent later is
identical. Computed text, and text said without a model, is shown when it is sent.
"""

from __future__ import annotations

from typing import Any

from cuebook.dialects.presentation.panels import Call, Calls, Field, Listing, Panel, Record, Table
from cuebook.dialects.presentation.projection import Projection, Refusal, RunEvent, Said, StackFrame, Update
from cuebook.dialects.program.conversation import ProgramConversation, spoken_in
from cuebook.dialects.program.machine.prompts import shown
from cuebook.dialects.program.model import Playbook, ProgramText
from cuebook.dialects.program.reply.reader import ReplyReader
from cuebook.kernel.events import (
    Noted,
    Rewound,
    RunFinished,
    StepStarted,
    TextChunk,
    TextReset,
    ValueSet,
)
from cuebook.kernel.journal import Entry

_LISTING, _STACK, _REFUSED, _OUTCOME = "listing", "stack", "refused", "outcome"
PANELS = (
    Panel("conversation", "said", "Conversation"),
    Panel("table", _OUTCOME, "Outcome"),
    Panel("listing", _LISTING, "Listing", beside=True),
    Panel("calls", _STACK, "Call stack", beside=True),
    Panel("table", _REFUSED, "Rejected replies"),
)
_CHANGES: dict[type, tuple[str, ...]] = {
    StepStarted: (_STACK, _LISTING),
    Noted: (_STACK, _REFUSED),
    Rewound: (_STACK, _REFUSED, _LISTING, _OUTCOME),
    RunFinished: (_STACK, _LISTING, _OUTCOME),
}
"""The panels that an entry may change, by the type of its event. Other events may change the stack."""
_MOST_REFUSED = 10
"""The maximum number of refusals in a panel; older refusals are left out."""
_LONGEST = 120
"""The maximum length of an argument in a panel, in characters."""


class _Reply:
    """A streaming reply: its speaker, and how much of it has arrived."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.said: list[str] = []
        self.begin()

    def begin(self) -> None:
        self.reader = ReplyReader()
        self.length = 0


class ProgramProjection(Projection):
    conversation: ProgramConversation

    def __init__(self, program: ProgramText | None = None) -> None:
        self.conversation = ProgramConversation(program)
        begins = program.beginning if program is not None else ()
        first = next(((agent.name, playbook) for agent, playbook in begins if playbook.steps), None)
        self._listed: tuple[str, Playbook] | None = first
        """The playbook whose listing is shown, and its agent."""
        self._line = ""
        """Its current line."""
        self._program = program
        params = program.params if program is not None else ()
        self.types: dict[str, str] = {param.name: param.value_type for param in params if param.value_type}
        steps = (*program.plan, *program.every_step) if program is not None else ()
        self.order = tuple(dict.fromkeys(step.label for step in steps))
        self._replies: dict[int, _Reply] = {}
        """By the sequence number of the model call."""
        self._ahead: list[str] = []
        """Messages shown but not sent yet."""
        self._void: list[str] = []
        """Messages shown from a reply that was restarted."""
        self._early: dict[int, list[TextChunk]] = {}
        """Text that arrived before the record of its model call, which is written without waiting for the disk."""
        self._seq = 0

    def see(self, event: RunEvent) -> Update:
        if isinstance(event, TextChunk):
            return Update(self._streamed(event))
        if isinstance(event, TextReset):
            self._reset(event.seq)
            return Update()
        said = self._said_by(event)
        self._type(event)
        changed = _CHANGES.get(type(event.event), (_STACK,))
        return Update(said, panels=(*changed, _LISTING) if self._list() and _LISTING not in changed else changed)

    def values(self) -> dict[str, Any]:
        """Its variables, by name."""
        return {one.name: one.value for several in self.conversation.typed().values() for one in several}

    def trace(self) -> dict[str, Any]:
        trace = self.conversation.as_object()
        return {"trace": trace, "results": trace["variables"]}

    # --- conversation ---

    def _said_by(self, entry: Entry) -> list[Said]:
        said = self.conversation.see(entry)
        self._seq = entry.seq
        early = self._early.pop(entry.seq, [])
        agent = self.conversation.speaker(entry)
        if agent is not None:
            self._void = []
            self._replies = {entry.seq: _Reply(agent), **self._recent()}
            return [one for chunk in early for one in self._streamed(chunk)]
        return [one for one in said if not self._was_shown(one)]

    def _recent(self) -> dict[int, _Reply]:
        """The latest replies: several may stream at once, and older replies have ended."""
        return dict(list(self._replies.items())[:15])

    def _streamed(self, chunk: TextChunk) -> list[Said]:
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

    # --- panels ---

    def panel(self, name: str) -> Listing | Calls | Table | None:
        match name:
            case "listing":
                return self._listing()
            case "stack":
                frames = tuple(_call(frame) for frame in reversed(self.conversation.stack))
                return Calls(frames, empty="It is empty.")
            case "refused":
                refused = self.conversation.refused
                last = refused[-_MOST_REFUSED:]
                return Table(tuple(_record(one) for one in last), earlier=len(refused) - len(last))
            case "outcome":
                return self._outcome()
        return None

    def _list(self) -> bool:
        """Find the innermost playbook with a listing, and its line; keep the previous playbook if there is none. Return
        whether either changed."""
        before = self._listed_name, self._line
        self._line = ""
        for frame in reversed(self.conversation.stack):
            playbook = self.conversation.playbook_of(frame)
            if playbook is not None and playbook.steps:
                self._listed, self._line = (frame.agent, playbook), frame.line
                break
        return before != (self._listed_name, self._line)

    @property
    def _listed_name(self) -> str:
        return f"{self._listed[0]}.{self._listed[1].name}" if self._listed is not None else ""

    def _type(self, entry: Entry) -> None:
        """Store the type of a variable that was set, with the agent's name if there are several agents."""
        if not isinstance(entry.event, ValueSet):
            return
        agent = self.conversation.agent_at(entry.place.path)
        words = self.conversation.type_of(agent, entry.event.name, entry.event.value)
        several = self._program is not None and len(self._program.agents) > 1
        self.types[entry.event.name] = f"{words}, {agent}" if several and agent else words

    def _listing(self) -> Listing:
        empty = "No listing: a model or Python does the work."
        if self._listed is None:
            return Listing(empty=empty)
        lines = self.conversation.lines_of(self._listed[1], self._line)
        return Listing(self._listed_name, lines, empty=empty)

    def _outcome(self) -> Table:
        run = self.conversation
        if not run.ended:
            return Table()
        result = run.result if isinstance(run.result, dict) else {}
        value, exited = result.get("value"), bool(result.get("exited"))
        turns = result.get("model_calls", run.model_calls)
        figures = (
            Field("Model turns", (f"{turns:,}",)),
            Field("Lines executed", (f"{run.line_count:,}",)),
            Field("Executed without a model", (f"{run.without_model:,}",), unit="lines"),
        )
        words = "The program exited" if exited else "Returned" if value is not None else "Returned nothing"
        return Table(figures=figures, result=None if run.failed else (words, value))


def _call(frame: StackFrame) -> Call:
    arguments = {f"${name}": _brief(shown(value)) for name, value in frame.arguments.items()}
    return Call(f"{frame.agent}.{frame.playbook}", frame.line, arguments, frame.pending)


def _brief(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


def _record(one: Refusal) -> Record:
    again = f"retried with these details ({one.attempt} of {one.retries})"
    return Record(
        one.rule,
        one.problem,
        (
            Field("Rule", (one.asks,)),
            Field("In the reply", (one.at,), is_code=True),
            Field("Position", (one.position,)),
            Field("Legal next", one.legal, is_code=True) if one.legal else Field("Legal next", (_NO_LINE,)),
            Field("Took effect", one.applied, is_code=True) if one.applied else Field("Took effect", ("nothing",)),
            Field("Then", (again if one.attempt <= one.retries else "not retried",)),
        ),
        good=False,
    )


_NO_LINE = "none: only a return or a yield"
