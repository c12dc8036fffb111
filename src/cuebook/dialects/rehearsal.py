"""Runs a program of any dialect with stand-ins for all outcomes and records its effects, without performing any.

The real outcomes are unknown, so a rehearsal shows one possible course of a run.
"""

from __future__ import annotations

from typing import Any

from cuebook.dialects.presentation.preview import Act, likely_answer, question_details, report, unread
from cuebook.kernel.context import Text
from cuebook.kernel.effects import (
    All,
    AskHuman,
    AskModel,
    Branch,
    Breakpoint,
    CallTool,
    Checkpoint,
    Effect,
    Program,
    ReadSource,
    Wait,
)
from cuebook.kernel.events import StepFinished, StepSkipped, StepStarted, Warned
from cuebook.kernel.outcomes import Answer, Done, EffectFailed, Elapsed, Reply, Resumed, ToolResult

MOST_ACTS = 1_000
"""The maximum number of acts. With stand-ins, a program may never end."""


class _Enough(Exception):
    """Raised when the limit of acts is reached."""


class Rehearsal:
    """The acts of one program."""

    def __init__(self) -> None:
        self.acts: list[Act] = []
        self.failed = False
        self._steps: list[StepStarted] = []

    def follow(self, program: Program[Any]) -> None:
        """Follows the program to its end, or to the point where only a run can continue."""
        try:
            self._follow(program)
        except _Enough:
            self._report("unclear", f"only the first {MOST_ACTS:,} acts are shown")
        except EffectFailed as error:
            self.failed = True
            self._report("failed", str(error.failed))
        except Exception:  # the program cannot use a stand-in, so the rest depends on the real outcome
            self._report("unclear", "only a run can show what follows")

    def _follow(self, program: Program[Any]) -> Any:
        send: Any = None
        while True:
            try:
                asked = program.send(send)
            except StopIteration as stop:
                return stop.value
            send = self._played(asked)

    def _played(self, asked: Any) -> Any:
        match asked:
            case StepStarted():
                self._steps.append(asked)
                return {}
            case StepFinished():
                if self._steps:
                    self._steps.pop()
            case StepSkipped(label=label, title=title, reason=reason):
                self._add(Act(label=label, title=title, report=("skipped", reason), details=_details(label, title)))
            case Warned(message=message):
                self._report("warning", message)
            case All(branches=branches):
                return tuple(
                    self._follow(one.start(None)) if isinstance(one, Branch) else self._outcome(one) for one in branches
                )
            case Effect():
                return self._outcome(asked)
        return None

    def _outcome(self, effect: Effect) -> Any:
        label = self._steps[-1].label if self._steps else ""
        stand_in = f"<output of step {label}>"
        match effect:
            case Breakpoint() | Checkpoint():
                return Resumed()
            case Wait():
                return Elapsed()
            case AskModel(prompt=prompt):
                self._show(effect, {"prompt": prompt})
                return Reply(Text(stand_in))
            case CallTool(tool=tool, arguments=arguments):
                self._show(effect, {"tool": tool, "arguments": arguments})
                return ToolResult(stand_in)
            case AskHuman():
                answer = likely_answer(effect, label)
                details = {"question": question_details(effect), "as_if": answer}
                self._show(effect, details, answer=answer, is_assumed=True)
                return Answer(answer)
            case ReadSource(source=source):
                self._show(effect, {"source": source, "read": False})
                return unread(effect)
            case _:
                self._show(effect, {"effect": effect.fingerprint})
                return Done()

    def _show(self, effect: Effect, details: dict[str, Any], **known: Any) -> None:
        step = self._steps[-1] if self._steps else StepStarted("")
        details = {**_details(step.label, step.title), **details}
        self._add(Act(label=step.label, title=step.title, effect=effect, details=details, **known))

    def _report(self, kind: str, words: str) -> None:
        step = self._steps[-1] if self._steps else StepStarted("")
        self.acts.append(report(step.label, step.title, kind, words))

    def _add(self, act: Act) -> None:
        if len(self.acts) >= MOST_ACTS:
            raise _Enough
        self.acts.append(act)


def _details(label: str, title: str) -> dict[str, Any]:
    return {"step": label, "title": title}
