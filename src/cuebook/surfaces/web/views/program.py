"""A program: the conversation, the listing with its current line, the stack of calls, and why replies were rejected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from markupsafe import Markup

from cuebook.dialects.program.draw import ways
from cuebook.dialects.program.listing import Listing
from cuebook.dialects.program.model import Agent, Playbook, ProgramText
from cuebook.dialects.program.observe import Projection, Standing
from cuebook.dialects.program.prompts import shown
from cuebook.dialects.program.shape import Shaped, shape_of
from cuebook.kernel.events import Noted, Rewound, RunFinished, StepStarted, ValueSet
from cuebook.kernel.journal import Entry
from cuebook.surfaces.web.drawing import Arrow, Box, Drawing
from cuebook.surfaces.web.picture import Picture
from cuebook.surfaces.web.rendering import part, piece
from cuebook.surfaces.web.talk import EARLIER, GONE, TALK, TURN, Talk
from cuebook.surfaces.web.views import About, DialectView, Need

_ASKS, _LISTING, _LINE, _STACK, _REFUSED, _OUTCOME, _VARIABLE = (
    "asks",
    "listing",
    "line-",
    "stack",
    "refused",
    "outcome",
    "var-",
)
_MOST_REFUSED = 10
"""Refusals that are shown, the last ones."""
_LONGEST = 120
"""Characters of an argument that the stack shows."""
_KINDS = {"react": "a model works it out", "raw": "asks a model once", "python": "Python"}

_Shown = tuple[str, str]
"""An agent, and a playbook of it."""


def about(program: ProgramText) -> About:
    shaped = shape_of(program)
    calls = sum(sum(line.asks for line in one.lines) or one.asks for one in shaped)
    return About(
        drawing(program),
        tuple(_needs(program, shaped)),
        calls,
        besides=piece("view-agents.html", agents=_agents(program, shaped), kinds=_KINDS),
        asked=piece("view-call.html", shaped=shaped),
    )


def view(program: ProgramText) -> ProgramView:
    return ProgramView(program)


class ProgramView(DialectView):
    talks = True

    def __init__(self, program: ProgramText) -> None:
        self._program = program
        self._run = Projection(program)
        self._talk = Talk()
        self.order = list(dict.fromkeys(step.label for step in (*program.plan, *program.walk())))
        self._types = {param.name: param.wanted for param in program.params if param.wanted}
        self.types = self._types
        self._untold: set[str] = set()
        """Variables whose types the tracker does not show yet."""
        self._times: dict[str, int] = {}
        """How often each line was gone through."""
        begins = next(((agent.name, one.name) for agent, one in program.beginning if one.steps), ("", ""))
        self._listed: _Shown = begins
        """The playbook whose listing is shown."""
        self._line = ""
        """Where it stands; empty once it is over."""
        self._stack: list[dict[str, Any]] = []
        self._asked: tuple[Any, ...] = ()

    def see(self, entry: Entry, run: Picture) -> Sequence[str]:
        said = self._run.see(entry)
        changed = self._talk.see(entry, self._run, said)
        back = isinstance(entry.event, Rewound)
        if back:
            self._times = self._run.visits
        changed += self._stands(entry)
        changed += self._typed(entry, run)
        now = (*self._questions(run), run.status, *self._at_work())
        if now != self._asked:
            self._asked = now
            changed.append(_ASKS)
        if back or (isinstance(entry.event, Noted) and entry.event.name == "refused"):
            changed.append(_REFUSED)
        if back or isinstance(entry.event, RunFinished):
            changed += [_LISTING, _OUTCOME]
        return list(dict.fromkeys(changed))

    def hear(self, asked: Entry, text: str, sent: int) -> str:
        turn = self._talk.hear(asked, text, sent)
        return "" if turn is None else self._said([turn])

    def part(self, name: str, run: Picture) -> str:
        if name.startswith(TURN):
            return self._said([self._talk.turn(name)])
        if name.startswith(GONE):
            return str(Markup('<i id="said-{}" data-part data-gone></i>').format(name.removeprefix(GONE)))
        if name.startswith(_LINE):
            return self._lines(int(name.removeprefix(_LINE)))
        if name.startswith(_VARIABLE):
            variable = name.removeprefix(_VARIABLE)
            value = run.values.get(variable, run.inputs.get(variable))
            return part("variable", variable, value, self._types[variable])
        return str(self._whole(name, run))

    def panels(self, run: Picture) -> str:
        names = (TALK, EARLIER, _ASKS, _OUTCOME, _LISTING, _STACK, _REFUSED)
        return str(piece("view-program.html", **{name: self._whole(name, run) for name in names}))

    # --- seeing ---

    def _stands(self, entry: Entry) -> list[str]:
        """What of the listing and the stack changed."""
        changed: list[str] = []
        stack = [_frame(one) for one in self._run.stack]
        if stack != self._stack:
            self._stack = stack
            changed.append(_STACK)
        listed, line = self._standing()
        touched = {self._line, line} if line != self._line else set()
        if isinstance(entry.event, StepStarted):
            label = entry.event.label
            self._times[label] = self._times.get(label, 0) + 1
            playbook, _, number = label.rpartition(":")
            if playbook == listed[1]:
                touched.add(number)
        same = listed == self._listed
        self._listed, self._line = listed, line
        if not same:
            return [*changed, _LISTING]
        playbook_now = self._playbook()
        lines = playbook_now.steps if playbook_now is not None else ()
        return changed + [f"{_LINE}{place}" for place, one in enumerate(lines) if one.number in touched]

    def _standing(self) -> tuple[_Shown, str]:
        """The playbook with a listing that is nearest to where the run stands, and the line there."""
        for frame in reversed(self._run.stack):
            playbook = self._run.playbook_of(frame)
            if playbook is not None and playbook.steps:
                return (frame.agent, frame.playbook), frame.line
        return self._listed, ""

    def _playbook(self) -> Playbook | None:
        agent = self._program.agents.get(self._listed[0])
        return agent.playbooks.get(self._listed[1]) if agent is not None else None

    def _typed(self, entry: Entry, run: Picture) -> list[str]:
        """The variables whose lines in the tracker need another type; their values come when the picture has them."""
        event = entry.event
        if isinstance(event, ValueSet):
            agent = self._run.agent_at(entry.place.path)
            words = self._run.type_of(agent, event.name, event.value)
            words = f"{words}, {agent}" if len(self._program.agents) > 1 and agent else words
            if self._types.get(event.name) != words:
                self._types[event.name] = words
                self._untold.add(event.name)
        told = sorted(name for name in self._untold if name in run.values or name in run.inputs)
        self._untold -= set(told)
        return [f"{_VARIABLE}{name}" for name in told]

    def _questions(self, run: Picture) -> tuple[str, ...]:
        return tuple(wait.id for wait in run.waits.values() if wait.kind == "question")

    def _at_work(self) -> list[str]:
        """What models are asked about now: lines of playbooks, or playbooks that have none."""
        found = [self._run.top_at(path) for path in self._talk.asked_at]
        return [f"line {one.line} of {one.playbook}" if one.line else one.playbook for one in found if one is not None]

    # --- drawing ---

    def _said(self, turns: Sequence[Any]) -> str:
        return str(piece("view-said.html", turns=turns, whole=False))

    def _lines(self, place: int) -> str:
        return str(self._listing(slice(place, place + 1), whole=False))

    def _listing(self, which: slice, *, whole: bool) -> Markup:
        playbook = self._playbook()
        numbered = list(enumerate(playbook.steps if playbook is not None else ()))[which]
        return piece(
            "view-listing.html",
            name=".".join(self._listed),
            times={line.number: self._times.get(f"{self._listed[1]}:{line.number}", 0) for _, line in numbered},
            lines=numbered,
            current=self._line,
            failed=self._run.failed,
            whole=whole,
        )

    def _whole(self, name: str, run: Picture) -> Markup:
        match name:
            case "said":
                return piece("view-said.html", turns=self._talk.turns, whole=True)
            case "earlier":
                return piece("view-earlier.html", earlier=self._talk.earlier)
            case "asks":
                said = [one.text for one in self._run.said[-3:]]
                return piece("view-asks.html", run=run, said=said, at_work=self._at_work())
            case "listing":
                return self._listing(slice(None), whole=True)
            case "stack":
                return piece("view-stack.html", stack=self._stack[::-1])
            case "refused":
                refused = self._run.refused[-_MOST_REFUSED:]
                return piece("view-refused.html", refused=refused, earlier=len(self._run.refused) - len(refused))
            case _:
                return piece("view-outcome.html", run=run, **self._outcome())

    def _outcome(self) -> dict[str, Any]:
        result = self._run.result if isinstance(self._run.result, dict) else {}
        return {
            "value": result.get("value"),
            "exited": bool(result.get("exited")),
            "turns": result.get("model_calls", self._run.model_calls),
            "lines": sum(times for label, times in self._times.items() if ":" in label),
            "without_model": self._run.without_model or 0,
        }


def _frame(one: Standing) -> dict[str, Any]:
    given = {name: _short(shown(value)) for name, value in one.arguments.items()}
    return {"name": f"{one.agent}.{one.playbook}", "line": one.line, "given": given, "pending": one.pending}


def _short(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[:_LONGEST]}…"


# --- before a run ---


def drawing(program: ProgramText) -> Drawing:
    """Each playbook's lines with the ways between them, and who calls whom."""
    begins = {f"{agent.name}.{playbook.name}" for agent, playbook in program.beginning}
    several = len(program.agents) > 1
    boxes, arrows = list[Box](), list[Arrow]()
    for one in shape_of(program):
        signature = f"{one.agent.name}.{one.signature}" if several else one.signature
        does = _KINDS.get(one.playbook.kind, "")
        more = (*((does,) if does else ()), *(("asks you",) if one.waits and not one.lines else ()))
        kind = "tool" if one.playbook.kind == "python" else "start"
        boxes.append(Box(one.id, (f"{signature} ▸" if one.id in begins else signature, *more), kind))
        boxes += _line_boxes(one)
        arrows += _line_arrows(one)
    return Drawing(tuple(boxes), tuple(arrows))


def _line_boxes(one: Shaped) -> Iterator[Box]:
    for place, shaped in enumerate(one.lines):
        kind = "person" if shaped.waits else {"CND": "choice", "RET": "end"}.get(shaped.line.code, "step")
        more = [words for words, holds in (("asks a model", shaped.asks), ("asks you", shaped.waits)) if holds]
        yield Box(_line_id(one, place), (f"{shaped.line.number} {shaped.line.title}", *more), kind)


def _line_arrows(one: Shaped) -> Iterator[Arrow]:
    if one.lines:
        yield Arrow(one.id, _line_id(one, 0))
        for from_, to, word in ways(Listing.of(one.playbook)):
            yield Arrow(_line_id(one, from_), _line_id(one, to), word)
    in_lines = set[str]()
    for place, shaped in enumerate(one.lines):
        in_lines.update(shaped.calls)
        yield from (Arrow(_line_id(one, place), called, kind="call") for called in shaped.calls)
    yield from (Arrow(one.id, called, kind="call") for called in one.calls if called not in in_lines)


def _line_id(one: Shaped, place: int) -> str:
    return f"{one.id}\0{place}"


def _agents(program: ProgramText, shaped: Sequence[Shaped]) -> list[tuple[Agent, list[Shaped]]]:
    return [(agent, [one for one in shaped if one.agent is agent]) for agent in program.agents.values()]


def _needs(program: ProgramText, shaped: Sequence[Shaped]) -> Iterator[Need]:
    for agent in program.agents.values():
        if agent.remote is not None:
            yield Need("host", agent.remote.url or " ".join(agent.remote.command))
            if agent.remote.auth is not None:
                yield Need("secret", agent.remote.auth.handle)
    if any(agent.python for agent in program.agents.values()):
        yield Need("python", "its own functions")
    if any(one.waits for one in shaped):
        yield Need("you", "talks with you")
