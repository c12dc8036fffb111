"""A playbook's test cases as values: the inputs of a run and its expected result. Read from YAML, with their lines.

It does not depend on how a case is run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from cuebook.formats.suggestions import meant
from cuebook.formats.values import Value
from cuebook.kernel.context import ToolCall
from cuebook.kernel.events import RunStatus
from cuebook.performers.models.model import ErrorKind, Finish, ModelError
from cuebook.performers.models.scripted import Line, Says
from cuebook.testing.reader import CaseReader
from cuebook.testing.scripts import CommandSaid, ResponseSaid, commands_said, decisions_said, responses_said

STATUSES: tuple[str, ...] = tuple(status for status in get_args(RunStatus) if status not in ("pending", "running"))
ERRORS: tuple[str, ...] = get_args(ErrorKind)
FINISHES: tuple[str, ...] = get_args(Finish)


_REPLY = ["text", "data", "calls", "finish", "error", "kind"]
_WORDS = ("equals", "contains", "not_contains")


class Words(msgspec.Struct, frozen=True):
    """Expectations about a string: what it must equal, contain and not contain."""

    line: int
    equals: str | None = None
    contains: tuple[str, ...] = ()
    not_contains: tuple[str, ...] = ()


class Listed(msgspec.Struct, frozen=True):
    """A list of strings in order, and its line."""

    line: int
    texts: tuple[str, ...]


class Messages(msgspec.Struct, frozen=True):
    """All messages of a run to the user, in order."""

    line: int
    words: tuple[Words, ...]


class Artifact(msgspec.Struct, frozen=True):
    words: Words
    type: str | None = None


class Called(msgspec.Struct, frozen=True):
    """A tool call that must have been made, with these arguments among others."""

    line: int
    tool: str
    arguments: dict[str, Any]


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """The expected result of a run. Unspecified parts are not checked, except that the run must complete."""

    line: int = 0
    status: Listed | None = None
    refused: Words | None = None
    """The run must be rejected for this reason."""
    error: Words | None = None
    ran: Listed | None = None
    skipped: Listed | None = None
    path: Listed | None = None
    """Every visit to a step, in order."""
    results: dict[str, tuple[int, Any]] = {}
    """By step: the line, and what its result must contain."""
    events: Listed | None = None
    """Event names of the playbook's format, in this order; other events may occur in between."""
    variables: dict[str, Words] = {}
    outputs: dict[str, Words] = {}
    prompts: dict[str, Words] = {}
    system: dict[str, Words] = {}
    """By step; the empty label applies to every request."""
    artifact: Artifact | None = None
    warnings: Listed | None = None
    questions: Listed | None = None
    """All steps that asked a question, in order."""
    asked: dict[str, Words] = {}
    calls: tuple[Called, ...] = ()
    commands: dict[str, Words] = {}
    """By step: each command as it would be typed, followed by its stdin."""
    requests: dict[str, Words] = {}
    """By step: method and URL, then headers and body."""
    approvals: Listed | None = None
    """All steps that asked for approval, in order."""
    messages: Messages | None = None
    result: tuple[int, Any] | None = None
    """The line, and what the run's result must contain."""
    refusals: Listed | None = None
    """All rules that rejected replies, in order."""
    triggers: Listed | None = None
    """All triggers that fired, in order."""


class Said(msgspec.Struct, frozen=True):
    """A scripted reply."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish: str | None = None
    error: str | None = None
    kind: str = "bad_request"
    """The error code. The error is not retried unless the case says so."""

    @property
    def as_line(self) -> Line:
        if self.error is not None:
            kind: Any = self.kind
            return ModelError(kind, self.error)
        finish: Any = self.finish
        return Says(self.text, self.calls, finish)


class ToolSaid(msgspec.Struct, frozen=True):
    """A scripted tool result."""

    value: Any = None
    is_error: bool = False


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a playbook in a test."""

    name: str
    line: int
    inputs: dict[str, Any] = {}
    replies: tuple[Said, ...] | None = None
    """In the order of the model calls."""
    step_replies: dict[str, tuple[Said, ...]] = {}
    routes: dict[str, tuple[str, ...]] = {}
    """By step: the next steps that a model chooses, in turn."""
    options: dict[str, Any] = {}
    """The options of the run, as for `cuebook run`."""
    recorded: Path | None = None
    model: str = ""
    answers: dict[str, tuple[str, ...]] = {}
    """Answers by step; if an answer is not valid, the next is used."""
    answers_in_order: tuple[str, ...] | None = None
    """Answers in the order of the questions."""
    tools: dict[str, tuple[ToolSaid, ...]] = {}
    commands: dict[str, tuple[CommandSaid, ...]] = {}
    requests: dict[str, tuple[ResponseSaid, ...]] = {}
    """By step: the results of its commands and requests, in turn."""
    approvals: dict[str, tuple[str, ...]] = {}
    """By step: the approver's decisions, in turn. A step that is not listed keeps waiting."""
    real: tuple[str, ...] = ()
    """Steps whose commands and requests, and Python playbooks whose calls, are performed for real."""
    prompts: dict[str, str] = {}
    """The text that replaces each `@prompt` argument."""
    breakpoints: tuple[str, ...] = ()
    """Steps at which the run stays paused."""
    overrides: dict[str, dict[str, Any]] = {}
    """By step: the values with which the run continues after it pauses there."""
    unattended: bool = False
    expect: Expected = Expected()


def cases_in(
    root: Value,
    reader: CaseReader,
    folder: Path,
    steps: Collection[str] | None,
    *,
    plain: bool = False,
    tools: Collection[str] | None = None,
    rules: Sequence[str] = (),
) -> tuple[Case, ...]:
    """The cases in a file. `steps` contains the playbook's labels, or is None if it cannot be parsed. With `plain`,
    inputs keep the types they are written with. `tools` contains the known tools; a name that ends in `.` is a prefix,
    and None allows any tool. `rules` contains the rules by which replies are rejected.
    """
    reading = _Cases(reader, folder, steps, plain, tools, rules)
    if root.kind != "seq" or not root.items:
        reader.wrong(root.line, "A test file is a list of cases.", "Write each as '- name: ...'.")
        return ()
    return tuple(reading.case(node) for node in root.items)


class _Cases:
    def __init__(
        self,
        reader: CaseReader,
        folder: Path,
        steps: Collection[str] | None,
        plain: bool,
        tools: Collection[str] | None,
        rules: Sequence[str],
    ) -> None:
        self._known_rules = rules
        self._plain = plain
        self._known_tools = tools
        self._reader = reader
        self._folder = folder
        self._steps = steps
        self._names: dict[str, int] = {}

    def case(self, node: Value) -> Case:
        readers: dict[str, Callable[[Value], Any]] = {
            "inputs": self._values("inputs"),
            "model": lambda one: self._reader.text(one, "model"),
            "recorded": self._recorded,
            "routes": self._by_step("routes", self._routes),
            "options": lambda one: {name: value.plain for name, value in self._reader.fields(one, "options").items()},
            "tools": self._tools,
            "commands": self._by_step("commands", lambda one: commands_said(self._reader, one)),
            "requests": self._by_step("requests", lambda one: responses_said(self._reader, one)),
            "approvals": self._by_step("approvals", lambda one: decisions_said(self._reader, one)),
            "real": self._labels("real"),
            "prompts": self._prompts,
            "breakpoints": self._labels("breakpoints"),
            "overrides": self._by_step("overrides", self._values("the overrides of a step")),
            "unattended": lambda one: self._reader.flag(one, "unattended"),
            "expect": self._expected,
        }
        fields = self._reader.table(node, ["name", "replies", "answers", *readers], "a case")
        made = {name: readers[name](one) for name, one in fields.items() if name in readers}
        if "replies" in fields:
            self._replies(fields["replies"], made)
            if "recorded" in fields:
                self._reader.wrong(
                    fields["recorded"].line, "'replies' and 'recorded' are mutually exclusive.", "Remove one."
                )
        if "answers" in fields:
            self._answers(fields["answers"], made)
        made.setdefault("expect", Expected(line=node.line))
        return Case(name=self._name(fields.get("name"), node), line=node.line, **made)

    def _name(self, given: Value | None, case: Value) -> str:
        name = self._reader.text(given, "name").strip() if given is not None else ""
        if not name:
            self._reader.wrong(case.line, "A case needs a name.", "Write it as 'name: what it shows'.")
        elif name in self._names:
            self._reader.wrong(
                case.line, f"The case on line {self._names[name]} is also named '{name}'.", "Choose another name."
            )
        self._names.setdefault(name, case.line)
        return " ".join(name.split())

    # --- the inputs of a run ---

    def _values(self, what: str) -> Callable[[Value], dict[str, Any]]:
        def read(node: Value) -> dict[str, Any]:
            fields = self._reader.fields(node, what)
            return {name: one.plain if self._plain else one.written for name, one in fields.items()}

        return read

    def _replies(self, node: Value, made: dict[str, Any]) -> None:
        if node.kind == "map":
            made["step_replies"] = self._by_step("replies", self._said_in_turn)(node)
        else:
            made["replies"] = self._said_in_turn(node)

    def _answers(self, node: Value, made: dict[str, Any]) -> None:
        if node.kind == "map":
            made["answers"] = self._by_step("answers", lambda one: self._reader.texts(one, "an answer"))(node)
            return
        made["answers_in_order"] = self._reader.texts(node, "an answer")
        if made.get("unattended"):
            self._reader.wrong(node.line, "An unattended run needs its answers by step.", "Write 'STEP: ANSWER'.")

    def _said_in_turn(self, node: Value) -> tuple[Said, ...]:
        return tuple(self._said(one) for one in self._reader.several(node))

    def _said(self, node: Value) -> Said:
        if node.kind != "map":
            return Said(self._reader.text(node, "a reply"))
        fields = dict(self._reader.table(node, _REPLY, "a reply"))
        calls = self._made_calls(fields.pop("calls")) if "calls" in fields else ()
        data = json.dumps(fields.pop("data").plain, ensure_ascii=False) if "data" in fields else None
        texts = {name: self._reader.text(one, name) for name, one in fields.items()}
        if data is not None:
            texts.setdefault("text", data)
        for name, known in (("finish", FINISHES), ("kind", ERRORS)):
            if name in fields:
                self._reader.choice(fields[name], name, known)
        if calls and "error" not in texts:
            return Said(texts.get("text", ""), calls, texts.get("finish"))
        if ("error" in texts) == ("text" in texts):
            self._reader.wrong(
                node.line, "A reply needs either 'text' or 'error'.", "Write 'text: ...' or 'error: ...'."
            )
        if "kind" in texts and "error" not in texts:
            self._reader.wrong(node.line, "'kind' requires 'error'.", "Add 'error: MESSAGE'.")
        return Said(
            texts.get("text", ""), (), texts.get("finish"), texts.get("error"), texts.get("kind", "bad_request")
        )

    def _made_calls(self, node: Value) -> tuple[ToolCall, ...]:
        """The tool calls that the model makes, each as `Tool: {arguments}`."""
        made: list[ToolCall] = []
        for one in self._reader.several(node):
            for tool, arguments in self._reader.fields(one, "a call").items():
                given = self._reader.fields(arguments, "the arguments of a call")
                values = {name: value.plain for name, value in given.items()}
                made.append(ToolCall(f"call-{len(made) + 1}", tool, values))
        return tuple(made)

    def _routes(self, node: Value) -> tuple[str, ...]:
        return self._reader.texts(node, "a route")

    def _recorded(self, node: Value) -> Path:
        given = self._reader.text(node, "recorded")
        if not given:
            self._reader.wrong(node.line, "'recorded' must be a file name.")
        return self._folder / given

    def _tools(self, node: Value) -> dict[str, tuple[ToolSaid, ...]]:
        fields = self._reader.fields(node, "tools")
        if self._known_tools is not None:
            self._check_tools(node, self._known_tools)
        return {name: tuple(map(_tool_said, self._reader.several(one))) for name, one in fields.items()}

    def _check_tools(self, node: Value, known: Collection[str]) -> None:
        for name, line in node.lines.items():
            if name not in known and f"{name.partition('.')[0]}." not in known:
                words = f"The playbook has no tool '{name}', and no remote agent that offers it."
                self._reader.wrong(line, words, meant(name, [one for one in known if not one.endswith(".")]))

    def _prompts(self, node: Value) -> dict[str, str]:
        return {name: self._reader.text(one, "a prompt") for name, one in self._reader.fields(node, "prompts").items()}

    # --- the expected result ---

    def _expected(self, node: Value) -> Expected:
        readers: dict[str, Callable[[Value], Any]] = {
            "status": self._status,
            "refused": self._words("refused"),
            "error": self._words("error"),
            "ran": self._listed_steps("ran"),
            "skipped": self._listed_steps("skipped"),
            "path": self._listed_steps("path"),
            "results": self._by_step("results", lambda one: (one.line, one.plain)),
            "events": lambda one: Listed(one.line, self._reader.texts(one, "an event")),
            "variables": self._variables,
            "outputs": self._by_step("outputs", self._words("an output")),
            "prompts": self._by_step("prompts", self._words("a prompt")),
            "system": self._system,
            "artifact": self._artifact,
            "warnings": lambda one: Listed(one.line, self._reader.texts(one, "a warning")),
            "questions": self._questions,
            "calls": self._calls,
            "commands": self._by_step("commands", self._words("a command")),
            "requests": self._by_step("requests", self._words("a request")),
            "approvals": self._listed_steps("approvals"),
            "messages": self._messages,
            "result": lambda one: (one.line, one.plain),
            "refusals": self._rules,
            "triggers": lambda one: Listed(one.line, self._reader.texts(one, "a trigger")),
        }
        null = [name for name, one in node.fields.items() if one.kind == "null" and name in readers]
        nothing = [name for name in null if name != "result"]
        for name in nothing:
            self._reader.wrong(node.lines[name], f"'{name}' has no value.", "Write [] to expect none, or remove it.")
        fields = self._reader.table(node, list(readers), "expect")
        made: dict[str, Any] = {name: readers[name](one) for name, one in fields.items()}
        if "result" in null:  # a run may be expected to return nothing
            made["result"] = (node.lines["result"], None)
        if isinstance(made.get("questions"), dict):
            made["asked"] = made.pop("questions")
        if "refused" in made and len(made) > 1:
            others = ", ".join(name for name in made if name != "refused")
            self._reader.wrong(node.line, f"A refused run has no {others}.", "Expect only 'refused'.")
        return Expected(line=node.line, **made)

    def _status(self, node: Value) -> Listed:
        return Listed(node.line, (self._reader.choice(node, "status", STATUSES),))

    def _words(self, what: str, *, exactly: bool = False) -> Callable[[Value], Words]:
        """The text must contain a plain string, or with `exactly` be equal to it."""

        def read(node: Value) -> Words:
            if node.kind != "map":
                if exactly:
                    return Words(node.line, equals=self._reader.text(node, what))
                return Words(node.line, contains=self._reader.texts(node, what))
            fields = self._reader.table(node, _WORDS, what)
            if not fields:
                self._reader.wrong(node.line, f"There is no expectation for {what}.", "Add 'equals' or 'contains'.")
            equals = self._reader.text(fields["equals"], "equals") if "equals" in fields else None
            several = {
                name: self._reader.texts(fields[name], name) for name in ("contains", "not_contains") if name in fields
            }
            return Words(node.line, equals, **several)

        return read

    def _rules(self, node: Value) -> Listed:
        known = self._known_rules
        return Listed(node.line, tuple(self._reader.choice(one, "a rule", known) for one in self._reader.several(node)))

    def _variables(self, node: Value) -> dict[str, Words]:
        read = self._words("a variable", exactly=True)

        def value(one: Value) -> Words:
            if one.is_scalar or (one.kind == "map" and one.fields and set(one.fields) <= set(_WORDS)):
                return read(one)
            return Words(one.line, equals=json.dumps(one.plain, ensure_ascii=False))

        return {name: value(one) for name, one in self._reader.fields(node, "variables").items()}

    def _messages(self, node: Value) -> Messages:
        read = self._words("a message", exactly=True)
        return Messages(node.line, tuple(read(one) for one in self._reader.several(node)))

    def _system(self, node: Value) -> dict[str, Words]:
        read = self._words("system")
        if node.kind == "map" and not set(_WORDS) & set(node.fields):
            return self._by_step("system", read)(node)
        return {"": read(node)}

    def _artifact(self, node: Value) -> Artifact:
        if node.kind != "map":
            return Artifact(Words(node.line, equals=self._reader.text(node, "artifact")))
        fields = self._reader.table(node, [*_WORDS, "type"], "artifact")
        kind = self._reader.text(fields.pop("type"), "type") if "type" in fields else None
        if not fields:
            return Artifact(Words(node.line), kind)
        words = self._words("artifact")(Value(node.line, "map", fields=fields, lines=node.lines))
        return Artifact(words, kind)

    def _questions(self, node: Value) -> Listed | dict[str, Words]:
        if node.kind == "map":
            return self._by_step("questions", self._words("a question"))(node)
        return self._listed_steps("questions")(node)

    def _calls(self, node: Value) -> tuple[Called, ...]:
        found = []
        for one in self._reader.several(node):
            for tool, arguments in self._reader.fields(one, "a call").items():
                given = self._reader.fields(arguments, "the arguments of a call")
                found.append(Called(one.lines[tool], tool, {name: value.plain for name, value in given.items()}))
        return tuple(found)

    # --- steps ---

    def _by_step(self, what: str, read: Callable[[Value], Any]) -> Callable[[Value], dict[str, Any]]:
        def by_step(node: Value) -> dict[str, Any]:
            fields = self._reader.fields(node, what)
            for label in fields:
                self._check_step(label, node.lines[label])
            return {label: read(one) for label, one in fields.items()}

        return by_step

    def _labels(self, what: str) -> Callable[[Value], tuple[str, ...]]:
        def labels(node: Value) -> tuple[str, ...]:
            found = []
            for one in self._reader.several(node):
                found.append(self._reader.text(one, what))
                self._check_step(found[-1], one.line)
            return tuple(found)

        return labels

    def _listed_steps(self, what: str) -> Callable[[Value], Listed]:
        return lambda node: Listed(node.line, self._labels(what)(node))

    def _check_step(self, label: str, line: int) -> None:
        if self._steps is not None and label.partition("[")[0] not in self._steps and label not in self._steps:
            self._reader.wrong(line, f"The playbook has no step {label}.", meant(label, self._steps))


def _tool_said(node: Value) -> ToolSaid:
    if node.kind == "map" and set(node.fields) == {"error"} and node.fields["error"].is_scalar:
        return ToolSaid(node.fields["error"].text, is_error=True)
    return ToolSaid(node.plain)
