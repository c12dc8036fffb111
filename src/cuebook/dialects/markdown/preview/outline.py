"""The steps of a Markdown preview: what each step does, and what its branches depend on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cuebook.dialects.markdown.model import (
    Book,
    Branch,
    Step,
    approves_only,
    branches_on_itself,
    condition_words,
    reaches_branches,
)
from cuebook.dialects.markdown.preview.branches import Foresight, Fork, fork_words, origin_words
from cuebook.dialects.markdown.run.tools import tool_name
from cuebook.dialects.people import approval_words
from cuebook.dialects.presentation import preview

_SHORT = 60
_NOTHING = {True: "does nothing else", False: "does nothing"}


def outline(book: Book, inputs: Mapping[str, str], foresight: Foresight) -> tuple[preview.Step, ...]:
    made = _Outline(book, inputs, foresight)
    return tuple(made.step(step, position) for position, step in enumerate(book.steps))


def does(book: Book, step: Step, around: Step | None) -> list[str]:
    """The kinds of actions that a step performs, in order."""
    approval = ["approval"] if step.approval is not None else []
    if step.tool is not None:
        return [*approval, "tool", "branch"] if reaches_branches(book, step) else [*approval, "tool"]
    found = [*approval, *(["question"] if step.elicitation is not None else [])]
    has_text = bool(step.content or step.prompt is not None)
    outside = around is not None and bool(around.content or around.prompt is not None)
    outside = outside and around is not None and not branches_on_itself(book, around)
    if step.branches and not branches_on_itself(book, step):
        return [*found, "branch"]
    if has_text or (outside and "question" not in found):
        found.append("model")
    return [*found, "branch"] if step.branches else found


class _Outline:
    def __init__(self, book: Book, inputs: Mapping[str, str], foresight: Foresight) -> None:
        self._book = book
        self._inputs = inputs
        self._foresight = foresight

    def step(self, step: Step, position: int, around: Step | None = None) -> preview.Step:
        kinds = does(self._book, step, around)
        branching = around is None and reaches_branches(self._book, step)
        subs = [tuple(self.step(sub, position, step) for sub in branch.steps) for branch in step.branches]
        fork = self._foresight.forks.get(position) if branching else None
        details: dict[str, Any] = {
            "label": step.label,
            "title": step.title,
            "line": step.line,
            "does": kinds,
            "gives": step.output.name if step.output is not None else None,
        }
        if step.tool is not None:
            details["tool"] = tool_name(step.tool)
        if step.prompt is not None and step.tool is None:
            details["prompt"] = step.prompt.argument
        if branching:
            details["depends_on"] = [{"name": name, "from": self._origin(position, name)} for name in _names(step)]
            details["known"] = fork is None or not fork.on
            details["branches"] = [
                {
                    "when": condition_words(branch),
                    "taken": self._taken(position, number),
                    "steps": [dict(sub.details) for sub in subs[number]],
                }
                for number, branch in enumerate(step.branches)
            ]
        return preview.Step(
            label=step.label,
            title=step.title,
            does=tuple(_clause(step, kind) for kind in kinds if kind != "approval") or (_NOTHING[approves_only(step)],),
            asks_approval=step.approval is not None,
            also=tuple(approval_words(step.approval.rule)) if step.approval is not None else (),
            gives=(step.output.name,) if step.output is not None else (),
            decided_by=f"depends on {fork_words(fork)}" if fork is not None else "",
            branches=tuple(self._branches(step, position, fork, subs)) if branching else (),
            details=details,
        )

    def _branches(
        self, step: Step, position: int, fork: Fork | None, subs: list[tuple[preview.Step, ...]]
    ) -> list[preview.Branch]:
        found: list[preview.Branch] = []
        if fork is None and self._foresight.taken[position] is None:
            found.append(preview.Branch(f"no branch matches: {self._values(step)}"))
        for number, branch in enumerate(step.branches):
            taken = self._taken(position, number)
            if taken is not False:
                reason = "" if taken is None else f" (which holds: {self._values(step)})"
                found.append(preview.Branch(f"{_if(branch)}{reason}", subs[number]))
        if fork is not None and any(way.branch is None for way in fork.ways):
            found.append(preview.Branch("otherwise nothing more"))
        return found

    def _origin(self, position: int, name: str) -> str:
        fork = self._foresight.forks.get(position)
        if fork is not None and name in fork.origins:
            return origin_words(fork.origins[name])
        if name in self._inputs:
            return "an input"
        return "known before the run" if name in {one.name for one in self._book.inputs} else "never set"

    def _taken(self, position: int, number: int) -> bool | None:
        """Whether a branch is taken; None if only a run can decide."""
        if position in self._foresight.taken:
            return self._foresight.taken[position] == number
        fork = self._foresight.forks.get(position)
        return None if fork is not None and any(way.branch == number for way in fork.ways) else False

    def _values(self, step: Step) -> str:
        return ", ".join(f"{name} is {_short(self._inputs.get(name, '') or 'empty')}" for name in _names(step))


def _names(step: Step) -> list[str]:
    return list(dict.fromkeys(branch.condition.variable for branch in step.branches if branch.condition is not None))


def _if(branch: Branch) -> str:
    words = condition_words(branch)
    return words if branch.condition is None else f"if {words}"


def _clause(step: Step, kind: str) -> str:
    if kind == "tool" and step.tool is not None:
        return f"calls {tool_name(step.tool)}"
    if kind == "question":
        return f"asks the user ({_question(step)})"
    if kind == "model":
        return "asks the model" + (f", beginning with {step.prompt.argument}" if step.prompt is not None else "")
    return "takes a branch"


def _question(step: Step) -> str:
    asked = step.elicitation
    if asked is None:
        return ""
    words = [asked.type, f'"{_short(asked.prompt or step.title)}"']
    words += [f"one of {', '.join(asked.options)}"] if asked.type == "select" else []
    words += [f"default {asked.default}"] if asked.default is not None else []
    words += [f"only {', '.join(asked.by)} may answer"] if asked.by else []
    return "; ".join(words)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else line[: _SHORT - 1] + "…"
