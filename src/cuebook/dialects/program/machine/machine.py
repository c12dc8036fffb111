"""The machine that executes a program: a stack of frames, the agents' memory, and the limits of a run.

Its whole state is plain data that checkpoints store, so resuming from any of them costs the same. `turns` calls the
model, `calls` runs calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.dialects.program.catalogue import AgentView, Callee, Catalogue
from cuebook.dialects.program.listing import Position
from cuebook.dialects.program.machine.context import History
from cuebook.dialects.program.machine.frames import AgentState, Error, Frame, QueuedCall, Saved, Variables, is_private
from cuebook.dialects.program.machine.prompts import (
    CONTRACT,
    LONG_RESULT,
    call_text,
    calls_in,
    frame_text,
    others_text,
    program_text,
    rendered,
    shown,
)
from cuebook.dialects.program.model import Playbook, ProgramText
from cuebook.dialects.program.values.evaluate import DoesNotCoerce, coerced
from cuebook.kernel.context import EMPTY, Context, Text, digest_of
from cuebook.kernel.effects import Bound, Breakpoint, Checkpoint, Program
from cuebook.kernel.events import Noted, StepFinished, StepStarted, ValueSet, Warned
from cuebook.kernel.outcomes import Answer, Failed, Resumed

MOST_FRAMES = 64
MOST_LINES = 20_000
"""The maximum number of lines to execute without outside input."""
MOST_TURNS = 2_000
"""The maximum number of model turns without outside input."""
CHECKPOINT_EVERY = 32
"""Lines and replies between two checkpoints. The cost of a checkpoint does not grow with the run."""
_MOST_LOGGED = 40
_MOST_RESULTS = 64
MOST_IDLE = 20
"""The maximum number of model replies in one frame that change nothing: the same message, or a call with the same result."""
_MOST_EMPTY = 5
"""How often the same question may get an empty answer."""
_MOST_SAME = 100
"""How often the same question may be answered in advance."""
_MOST_UNATTENDED = 1_000
"""The maximum number of automatic answers to all questions together."""


class Spent(msgspec.Struct):
    """Lines and turns since the last outside input, in a run and all its concurrent calls."""

    lines: int = 0
    turns: int = 0


class UnattendedAnswers(msgspec.Struct):
    """Counts automatic answers since the user last answered, so a program that asks until an answer is valid does
    end."""

    times: int = 0
    question: str = ""
    same: int = 0
    """How often this question was asked in a row."""

    def note(self, answer: Answer, question: str, label: str) -> Bound | None:
        """Count one more answer. Return a bound that ends the run if there were too many."""
        self.times += 1
        self.same = self.same + 1 if question == self.question else 1
        self.question = question
        if self.same < (_MOST_SAME if answer.value else _MOST_EMPTY) and self.times < _MOST_UNATTENDED:
            return None
        with_ = f"answered with {answer.value!r:.60}" if answer.value else "left without an answer"
        words = f"Nobody is present, and '{question:.200}' was {with_} {self.same} times in a row."
        fix = f"Provide an answer to {label or 'it'} that the program accepts, or run it with someone present."
        return Bound("answers", Failed("unanswered", words, fix))


class Machine:
    """A run of a program, or one of several concurrent calls."""

    def __init__(self, catalogue: Catalogue, options: Mapping[str, Any]) -> None:
        self.catalogue = catalogue
        self.options = options
        self.agents: dict[str, AgentState] = {name: AgentState() for name in self.program.agents}
        self.stack: list[Frame] = []
        self.todo: list[QueuedCall] = []
        """The calls to make when the stack is empty, by full name."""
        self.frames = 0
        self.exited = False
        self.outcome: Any = None
        """The result of the last frame at the bottom of the stack: a value or an `Error`."""
        self.summary = ""
        self.lines = 0
        self.turns = 0
        self.model_calls = 0
        self.without_model = 0
        self.spent = Spent()
        self.unattended = UnattendedAnswers()
        self.depth = 0
        """In a concurrent call: the number of frames below it."""
        self.level = 0
        """The nesting level of concurrent calls."""
        self.written: dict[str, list[str]] = {}
        """In a concurrent call: the variables it has set, by agent."""
        self.base: Context | None = None
        """In a concurrent call: the context of its caller."""
        self._histories: dict[int, History] = {}
        self._since = 0

    # --- access ---

    @property
    def program(self) -> ProgramText:
        return self.catalogue.program

    @property
    def top(self) -> Frame:
        return self.stack[-1]

    @property
    def is_concurrent(self) -> bool:
        return self.base is not None

    def view(self, frame: Frame) -> AgentView:
        return self.catalogue.dispatching(frame.agent) if self._for_any(frame) else self.catalogue.view(frame.agent)

    def _for_any(self, frame: Frame) -> bool:
        """Whether it decides what the user's message triggers, in any agent."""
        return frame.playbook == self.catalogue.messages and not frame.arguments.get("message")

    def playbook(self, frame: Frame) -> Playbook:
        return self.catalogue.playbook(frame.agent, frame.playbook)

    def memory(self, frame: Frame) -> AgentState:
        return self.agents[frame.agent]

    def variables(self, frame: Frame) -> Variables:
        return Variables(frame, self.agents[frame.agent])

    def type_of(self, frame: Frame, name: str) -> str:
        """The type that the playbook declares or, except for parameters, that another playbook of the agent has
        declared."""
        declared = self.catalogue.listing(frame.agent, frame.playbook).declared.get(name, "")
        return declared if declared or name in frame.arguments else self.memory(frame).types.get(name, "")

    # --- frames ---

    def push(self, callee: Callee, arguments: dict[str, Any], extra: list[Any] | None = None) -> Program[None]:
        """Begin a call. The calls in its description run first."""
        playbook = callee.playbook
        if self.depth + len(self.stack) >= MOST_FRAMES:
            error = Error(
                "too_deep",
                f"{playbook.name} is called more than {MOST_FRAMES} levels deep.",
                "Check why it calls itself.",
            )
            yield from self.give_back(error, "")
            return
        self.frames += 1
        frame = Frame(self.frames, callee.agent.name, playbook.name, playbook.kind, arguments, extra=extra or [])
        given = {name: value for name, value in arguments.items() if not name.startswith("_")}
        yield Noted("called", {"agent": frame.agent, "playbook": frame.playbook, "arguments": given})
        self.stack.append(frame)
        for text, call in calls_in(playbook.description, self.view(frame).knows):
            frame.running.append(QueuedCall(f"#{len(frame.running) + 1}", call, text))
        if playbook.kind != "listing":
            yield from self.open_step(frame, playbook.name, playbook.heading)

    def finish(self, frame: Frame, outcome: Any, summary: str = "") -> Program[None]:
        """End a frame with its value, or with an `Error`."""
        yield from self.close_step(frame, outcome)
        note: dict[str, Any] = {"playbook": frame.playbook, "agent": frame.agent}
        note |= {"error": outcome.value} if isinstance(outcome, Error) else {"value": outcome}
        yield Noted("returned", note | ({"summary": summary} if summary else {}))
        self.stack.pop()
        self._histories.pop(frame.id, None)
        if isinstance(outcome, Error) and not self.stack and frame.playbook == self.catalogue.messages:
            yield Warned("message", f"A message had no effect: {outcome.message}")
            return
        yield from self.give_back(outcome, summary)

    def give_back(self, outcome: Any, summary: str) -> Program[None]:
        """Return the result of a call to its caller: the new top frame, or the run."""
        if not self.stack:
            self.outcome, self.summary = outcome, summary
            return
        caller = self.top
        yield from self.give(caller, caller.running.pop(0), outcome, summary)

    def give(
        self, frame: Frame, queued: QueuedCall, outcome: Any, summary: str = "", *, quiet: bool = False
    ) -> Program[None]:
        """Deliver the result of a call to the frame that made it."""
        failed = isinstance(outcome, Error)
        value = outcome.value if failed else outcome
        if not quiet or failed:
            frame.news()
            self._notice_result(frame, queued, value)
        if queued.target.startswith("{"):
            frame.slots[queued.target] = f"({outcome.message})" if failed else value
            return
        if frame.kind == "python":
            call = [queued.name, [one.value for one in queued.call.args], {k: v.value for k, v in queued.call.named}]  # type: ignore[union-attr]
            frame.replies.append(
                {"call": call, **({"error": outcome.message, "code": outcome.code} if failed else {"value": value})}
            )
            return
        if not quiet or value is not None:
            frame.gives(value)
        if queued.target:
            yield from self._assign(frame, queued, value, failed)
        if failed:
            frame.heard = True
            yield Warned("call", f"{queued.name} failed: {outcome.message}")
        if not quiet or failed:
            artifact = "" if failed else (yield from self._kept_apart(frame, queued, value))
            self.remember(frame, "user", call_text(queued, outcome, summary, artifact))

    def _notice_result(self, frame: Frame, queued: QueuedCall, value: Any) -> None:
        """Count the result of a call as progress, unless the same call has had the same result before."""
        known = digest_of(shown([queued.name, msgspec.to_builtins(queued.call), value]))
        if known not in frame.results:
            frame.results = [*frame.results[1 - _MOST_RESULTS :], known]
            frame.progress()

    def _kept_apart(self, frame: Frame, queued: QueuedCall, value: Any) -> Program[str]:
        """Store a long result as an artifact. Return its name; empty if the result is short."""
        if frame.kind not in ("listing", "react") or is_private(queued.target):
            return ""
        text = value if isinstance(value, str) else shown(value)
        if len(text) <= LONG_RESULT:
            return ""
        digest = digest_of(text)
        name = queued.target
        if not name or name in frame.arguments:
            name = f"a_{digest.rpartition(':')[2][:8]}"
            yield from self.set(frame, name, value)
        summary = f"result of {queued.name}, {len(text)} characters"
        self.memory(frame).artifacts[name] = Saved(summary, digest)
        return name

    def _assign(self, frame: Frame, queued: QueuedCall, value: Any, failed: bool) -> Program[None]:
        type = self.type_of(frame, queued.target) or queued.type
        if not failed:
            try:
                value = coerced(value, type).value
            except DoesNotCoerce:
                words = f"${queued.target} must be of type {type}, but {queued.name} returned another type: the value is kept as it is."
                yield Warned("type", words)
        yield from self.set(frame, queued.target, value, queued.type)
        frame.heard |= queued.target in self.view(frame).watched

    # --- variables and triggers ---

    def set(self, frame: Frame, name: str, value: Any, type: str = "", *, fire: bool = True) -> Program[None]:
        """Set a variable. Triggers whose condition becomes true are now due. Parameters trigger nothing."""
        self._put(frame, name, value)
        yield ValueSet(name, value)
        if name not in frame.arguments:
            type = self.type_of(frame, name) or type
            if type:
                self.memory(frame).types[name] = type
            self.notice(frame.agent, name, fire=fire)

    def _put(self, frame: Frame, name: str, value: Any) -> None:
        self.variables(frame).set(name, value)
        if name in frame.arguments:
            return
        self.memory(frame).artifacts.pop(name, None)  # the artifact of that name is replaced
        if name in frame.loaded:
            frame.loaded.remove(name)
        written = self.written.setdefault(frame.agent, []) if self.is_concurrent else []
        if name not in written:
            written.append(name)

    def notice(self, agent: str, name: str, *, fire: bool = True) -> None:
        """Check the triggers that watch a variable after it was set."""
        memory, view = self.agents[agent], self.catalogue.view(agent)
        for id in view.watchers.get(name, ()):
            holds = view.holds(id, memory.variables)
            if fire and holds and not memory.held.get(id) and id not in memory.due:
                memory.due.append(id)
            memory.held[id] = holds

    def save(self, frame: Frame, name: str, summary: str, content: Any) -> Program[None]:
        """Store an artifact. Its frame has seen the content; other frames have to load it."""
        text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
        yield from self.set(frame, name, content)
        self.memory(frame).artifacts[name] = Saved(summary, digest_of(text))
        if name not in frame.loaded:
            frame.loaded.append(name)

    def override(self, frame: Frame, changed: Mapping[str, Any]) -> None:
        """Apply values that the user changed."""
        for name, value in changed.items():
            self._put(frame, name.removeprefix("$"), value)

    # --- steps ---

    def open_step(self, frame: Frame, label: str, title: str = "") -> Program[None]:
        yield from self.close_step(frame)
        frame.open = label
        changed = yield StepStarted(label, title)
        if changed:
            self.override(frame, changed)

    def open_line(self, frame: Frame, number: str) -> Program[None]:
        listing = self.catalogue.listing(frame.agent, frame.playbook)
        line = listing.lines[listing.by_number[number][0]]
        frame.log = [*frame.log[1 - _MOST_LOGGED :], number]
        yield from self.open_step(frame, f"{frame.playbook}:{number}", line.title)

    def arrive(self, frame: Frame, here: Position) -> Program[None]:
        """Move to a line that has yet to be executed, unless the frame is already there."""
        if frame.position != here or frame.open != f"{frame.playbook}:{here.line}":
            yield from self.open_line(frame, here.line)
        frame.position = here

    def close_step(self, frame: Frame, outcome: Any = None) -> Program[None]:
        if not frame.open:
            return
        label, frame.open = frame.open, ""
        if isinstance(outcome, Error):
            yield StepFinished(label, "failed", outcome.message)
            return
        yield StepFinished(label)
        passed: Resumed = yield Breakpoint(label)
        if passed.overrides:
            self.override(frame, passed.overrides)

    def exit(self) -> Program[None]:
        """End the program. Every frame is left at its position."""
        self.exited = True
        for frame in reversed(self.stack):
            if frame.open:
                yield StepFinished(frame.open)
        self.stack.clear()
        self.todo.clear()

    def already_fired(self, frame: Frame) -> tuple[str, ...]:
        """The triggers that have fired for the last message; semantic triggers count only while the state is the
        same."""
        memory = self.memory(frame)
        now = self._situation(frame) if memory.fired else ""
        return tuple(id for id, then in memory.fired.items() if then in ("", now))

    def fires(self, frame: Frame, id: str) -> None:
        """Record that a semantic trigger has fired: an event once per message, a condition once per state."""
        memory = self.memory(frame)
        known = self.view(frame).triggers.get(id)
        if known is not None and id not in self.view(frame).conditions:
            memory.fired[id] = "" if known.kind == "EVT" else self._situation(frame)

    def _situation(self, frame: Frame) -> str:
        return digest_of(shown(self.memory(frame).variables))

    # --- the model's context ---

    def history(self, frame: Frame) -> History:
        """The history of a frame, created on first use: many frames never call a model."""
        if frame.id not in self._histories:
            below = self._below(frame)
            playbook = self.playbook(frame)
            header = frame_text(playbook, self.description(frame), frame.arguments)
            if below is not None and below[1] != frame.agent:
                header = f"{program_text(self.program, self.program.agents[frame.agent])}\n\n{header}"
            base = self._beginning(frame) if below is None else below[0]
            self._histories[frame.id] = History(base, header)
        return self._histories[frame.id]

    def _below(self, frame: Frame) -> tuple[Context, str] | None:
        """The context and the agent of the nearest frame below that has a context."""
        for other in reversed(self.stack[: self.stack.index(frame)]):
            if other.id in self._histories:
                return self._histories[other.id].context, other.agent
        return None if self.base is None else (self.base, frame.agent)

    def _beginning(self, frame: Frame) -> Context:
        agent = self.program.agents[frame.agent]
        return EMPTY.add("system", CONTRACT).add("system", program_text(self.program, agent))

    def description(self, frame: Frame) -> str:
        words = rendered(self.playbook(frame).description, self.variables(frame), frame.slots)
        others = others_text(self.program, frame.agent, self.view(frame).triggers) if self._for_any(frame) else ""
        return f"{words}\n\n{others}" if others else words

    def remember(self, frame: Frame, role: Any, text: str) -> None:
        if frame.kind in ("listing", "react"):
            self.history(frame).add(role, text)

    # --- limits ---

    def count_line(self) -> Program[None]:
        self.lines += 1
        self.spent.lines += 1
        self._since += 1
        most = self.options.get("max_lines") or MOST_LINES
        if self.spent.lines > most:
            yield from self._does_not_end(f"{most} lines were executed", "max_lines")

    def count_turn(self) -> Program[None]:
        self.turns += 1
        self.spent.turns += 1
        self.model_calls += 1
        self._since += 1
        most = self.options.get("max_turns") or MOST_TURNS
        if self.spent.turns > most:
            yield from self._does_not_end(f"The model was called {most} times", "max_turns")

    def repeats_itself(self, frame: Frame) -> Error | None:
        """Return an error if the model's last replies changed nothing, so it is not called again."""
        frame.idle += 1
        if frame.idle <= MOST_IDLE:
            return None
        where = frame.open or frame.playbook
        words = f"The model was called {MOST_IDLE} times at {where} without any change: it keeps repeating the same messages or calls."
        return Error("livelock", words, f"State in {frame.playbook} when it is done, or use a stronger model.")

    def _does_not_end(self, what: str, option: str) -> Program[None]:
        """End the run. If it is resumed, the counts start again from zero."""
        frame = self.top
        where = frame.open or f"{frame.playbook}:{frame.position.line}".rstrip(":")
        words = f"{what} without outside input. The run is at {where}."
        fix = (
            f"Check why {frame.playbook} does not end. A retry starts counting from zero; a new run can raise {option}."
        )
        yield Bound(option, Failed("livelock", words, fix))
        self.heard()

    def heard(self) -> None:
        """Reset the counts, because there was outside input."""
        self.lines = self.turns = self.spent.lines = self.spent.turns = 0
        self.unattended = UnattendedAnswers()

    def not_heard(self, answer: Answer, question: str, label: str) -> Program[None]:
        """Record an automatic answer. It does not count as outside input."""
        bound = self.unattended.note(answer, question, label)
        if bound is not None:
            yield bound
            self.heard()

    # --- checkpoints ---

    def checkpoint(self, *, least: int | None = None) -> Program[None]:
        if self._since >= (least or CHECKPOINT_EVERY):
            self._since = 0
            yield self.kept()

    def kept(self) -> Checkpoint:
        """Everything needed to resume. Long text is stored by reference."""
        histories = {str(frame.id): self._histories[frame.id] for frame in self.stack if frame.id in self._histories}
        state = {
            "frames": self.frames,
            "stack": msgspec.to_builtins(self.stack),
            "todo": msgspec.to_builtins(self.todo),
            "agents": msgspec.to_builtins(self.agents),
            "served": msgspec.to_builtins(self.catalogue.served),
            "counts": [self.lines, self.turns, self.model_calls, self.without_model],
            "alone": msgspec.to_builtins(self.unattended),
            "came": msgspec.to_builtins(self.outcome),
            "failed": isinstance(self.outcome, Error),
            "written": self.written,
            "histories": {id: history.kept() for id, history in histories.items()},
        }
        return Checkpoint(state, (Text(""), *(text for history in histories.values() for text in history.texts())))

    def restore(self, state: Mapping[str, Any], texts: tuple[Text, ...]) -> None:
        self.frames = state["frames"]
        self.stack = msgspec.convert(state["stack"], list[Frame])
        self.todo = msgspec.convert(state["todo"], list[QueuedCall])
        self.agents = msgspec.convert(state["agents"], dict[str, AgentState])
        for name, tools in msgspec.convert(state["served"], dict[str, list[Playbook]]).items():
            self.catalogue.learn(name, tools)
        self.lines, self.turns, self.model_calls, self.without_model = state["counts"]
        self.unattended = msgspec.convert(state["alone"], UnattendedAnswers)
        self.spent.lines += self.lines
        self.spent.turns += self.turns
        self.written = {name: list(names) for name, names in state.get("written", {}).items()}
        self.outcome = msgspec.convert(state["came"], Error) if state["failed"] else state["came"]
        left = iter(texts[1:])
        for frame in self.stack:
            kept = state["histories"].get(str(frame.id))
            if kept is not None:
                below = self._below(frame)
                base = self._beginning(frame) if below is None else below[0]
                self._histories[frame.id] = History.restored(base, kept, left)

    # --- concurrent calls ---

    def branched(self, caller: Frame) -> Machine:
        """A machine for one of several concurrent calls. It starts from the current state; due triggers stay with the
        caller."""
        made = Machine(self.catalogue, self.options)
        made.agents = {name: msgspec.convert(msgspec.to_builtins(one), AgentState) for name, one in self.agents.items()}
        for memory in made.agents.values():
            memory.due = []
        made.spent, made.depth, made.level = self.spent, self.depth + len(self.stack), self.level + 1
        made.base = self.history(caller).context if caller.kind in ("listing", "react") else self.base or EMPTY
        made.frames = self.frames
        return made
