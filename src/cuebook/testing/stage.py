"""The environment of a test case: a scripted model, tools and texts. Nothing leaves the process.

It records every request, with the step that made it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

import msgspec

from cuebook.config import project_file
from cuebook.dialects.dialect import Dialect
from cuebook.formats.suggestions import meant
from cuebook.gate.sandbox import choose
from cuebook.kernel.context import Text
from cuebook.kernel.effects import (
    AskModel,
    Browse,
    CallNode,
    CallTool,
    Effect,
    ReadSource,
    RunCommand,
    RunPython,
    Send,
    SendHttp,
    ToolSpec,
)
from cuebook.kernel.errors import with_fix
from cuebook.kernel.outcomes import (
    Called,
    CommandResult,
    Failed,
    HttpResponse,
    Page,
    Reply,
    Returned,
    Source,
    ToolResult,
)
from cuebook.kernel.ports import Call, Performer
from cuebook.performers.http.performer import HttpPerformer
from cuebook.performers.messages import MessagePerformer
from cuebook.performers.models.model import Model, ModelError, Request, messages_of
from cuebook.performers.models.scripted import Line, ScriptedModel
from cuebook.performers.python.performer import PythonPerformer
from cuebook.performers.skills.library import BUILT_IN
from cuebook.performers.sources import SourcePerformer
from cuebook.testing import model_performer
from cuebook.testing.cases import Case, ToolSaid
from cuebook.testing.scripts import Scripts, not_allowed, unsaid

_asking: ContextVar[tuple[str, tuple[str, ...]]] = ContextVar("asking", default=("", ()))
"""The step that is calling a model, and its choices. Several steps may call models at the same time."""


class Asked(msgspec.Struct, frozen=True):
    """A request to a model, and the step that made it."""

    step: str
    group: str
    """The step's group; empty if it has none."""
    system: str
    prompt: str


class ToolRequest(msgspec.Struct, frozen=True):
    step: str
    tool: str
    arguments: dict[str, Any]


class Stage:
    """Everything that a case's run can reach."""

    def __init__(
        self, case: Case, folder: Path, dialect: Dialect, model: Model | None = None, *, real: bool = False
    ) -> None:
        """With `real`, the steps that the case lists under `real` are performed."""
        self.asked: list[Asked] = []
        self.calls: list[ToolRequest] = []
        self.missing: dict[str, str] = {}
        """By Python playbook: why it has no result. A program may ignore this."""
        self._dialect = dialect
        self.lines = Lines(case, dialect)
        self._model = model_performer(model or ScriptedModel(self.lines.next))
        self._tools = case.tools
        self._turns: dict[str, int] = {}
        self._texts = case.prompts
        self.scripts = Scripts(case.commands, case.requests, case.real, folder, real, dialect.step_group)
        self._real, self._allow_real = frozenset(case.real), real
        self._python = PythonPerformer(choose("auto"))
        # This performer could use the network, but only files and prompts are read through it.
        self._sources = SourcePerformer([folder], http=HttpPerformer(), prompts=_libraries(folder))

    def performers(self) -> dict[type[Effect], Performer]:
        return {
            AskModel: _Asking(self),
            CallTool: _Calling(self),
            ReadSource: _Reading(self),
            RunCommand: _Running(self.scripts),
            RunPython: _Computing(self),
            Send: MessagePerformer(),
            SendHttp: _Sending(self.scripts),
            Browse: _Browsing(self.scripts),
            CallNode: _OnNode(self.scripts),
        }

    async def ask(self, effect: AskModel, call: Call) -> Reply | Failed:
        step = _step_of(call)
        system = "\n\n".join(turn.text for turn in messages_of(effect) if turn.role == "system")
        self.asked.append(Asked(step, self._dialect.step_group(step), system, effect.prompt))
        _asking.set((step, self._dialect.choices(effect)))
        return await self._model.perform(effect, call)

    async def use(self, effect: CallTool, call: Call) -> ToolResult | Failed:
        self.calls.append(ToolRequest(_step_of(call), effect.tool, effect.arguments))
        said = self._next(effect.tool)
        if said is None:
            fix = f"Add it under 'tools'. {meant(effect.tool, self._tools)}"
            return Failed("no_such_tool", f"The test has no result for the tool '{effect.tool}'.", fix)
        return ToolResult(said.value, said.is_error)

    async def compute(self, effect: RunPython, call: Call) -> Called | Returned | Failed:
        """Returns the scripted result of a Python playbook, or runs it, again after each call it makes."""
        name = effect.function
        if not effect.replies:
            self.calls.append(ToolRequest(_step_of(call), name, effect.arguments.get("named", {})))
        said = self._next(name)
        if name in self._real and self._allow_real:
            return await self._python.perform(effect, call)
        if name in self._real or said is None:
            failed = not_allowed(name) if name in self._real else unsaid(name, "tools")
            self.missing[name] = with_fix(failed.message, failed.fix)
            return failed
        return Failed("python_error", str(said.value)) if said.is_error else Returned(said.value)

    def _next(self, tool: str) -> ToolSaid | None:
        results = self._tools.get(tool)
        if not results:
            return None
        turn = self._turns.get(tool, 0)
        self._turns[tool] = turn + 1
        return results[min(turn, len(results) - 1)]

    async def read(self, effect: ReadSource, call: Call) -> Source | Failed:
        scheme, _, name = effect.source.partition(":")
        for known in _spellings(scheme, name):
            if known in self._texts:
                text = Text(self._texts[known])
                return Source(text, text.digest)
        if scheme in ("file", "prompt"):
            return await self._sources.perform(effect, call)
        if scheme in ("tools", "skill"):
            return self._listed(scheme, name)
        return Failed(
            "not_found", f"The test has no text for {effect.source}.", f"Add '{effect.source}: ...' under 'prompts'."
        )

    def _listed(self, scheme: str, name: str) -> Source | Failed:
        """Lists the tools that the case has results for; a built-in skill lists only its own tools."""
        if scheme == "tools":
            server = name.removesuffix("*") if name.endswith(".*") else None
            known_tools = [one for one in self._tools if one == name or (server and one.startswith(server))]
            specs = [ToolSpec(one, "", {"type": "object"}) for one in known_tools]
            return _source(specs) if specs else Failed("not_found", f"The test has no tool '{name}'.")
        known = BUILT_IN.get(name)
        if known is None:
            return Failed("not_found", f"A test has no skill '{name}', unless the playbook defines it.")
        shown = [{"name": tool.name, "parameters": tool.parameters} for tool in known.tools if tool.name in self._tools]
        return _source({"id": known.id, "name": known.name, "tools": shown})


class Lines:
    """The scripted replies, in order or by step."""

    def __init__(self, case: Case, dialect: Dialect) -> None:
        self._dialect = dialect
        self._routes = {step: list(ways) for step, ways in case.routes.items()}
        self._in_order = case.replies
        self._by_step: Mapping[str, Any] = case.step_replies
        self._given: dict[str, int] = {}
        self.used = 0

    @property
    def left(self) -> int:
        """The number of unused replies, if they are in order."""
        return max(0, len(self._in_order or ()) - self.used)

    def next(self, request: Request) -> Line:
        step, ways = _asking.get()
        if ways and step in self._routes:
            return self._way(step, ways)
        self.used += 1
        if self._in_order is not None:
            if self.used <= len(self._in_order):
                return self._in_order[self.used - 1].as_line
            where = "routes" if ways else "replies"
            self._none(f"The test has no reply left for step {step} ({len(self._in_order)} used).", where)
        label = step if step in self._by_step else self._dialect.step_group(step) or step
        replies = self._by_step.get(label, ())
        turn = self._given.get(label, 0)
        self._given[label] = turn + 1
        if turn < len(replies):
            line: Line = replies[turn].as_line
            return line
        if ways:
            self._none(f"The test has no route from step {step}.", "routes")
        more = f" after the first {len(replies)}" if replies else ""
        self._none(f"The test has no reply for step {step}{more}.")

    def _way(self, step: str, known: tuple[str, ...]) -> Line:
        ways = self._routes[step]
        if not ways:
            self._none(f"The test has no further route from step {step}.", "routes")
        way = ways.pop(0) if len(ways) > 1 else ways[0]
        if way not in known:
            self._none(f"There is no route from step {step} to '{way}', only to {', '.join(known)}.", "routes")
        return json.dumps({"choice": way, "reason": "The test says so."})

    def _none(self, message: str, where: str = "replies") -> NoReturn:
        raise ModelError("bad_request", message, fix=f"Add one under '{where}', or check why the step calls the model.")


class _Asking:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def perform(self, effect: AskModel, call: Call) -> Reply | Failed:
        return await self._stage.ask(effect, call)


class _Calling:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def perform(self, effect: CallTool, call: Call) -> ToolResult | Failed:
        return await self._stage.use(effect, call)


class _Computing:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def perform(self, effect: RunPython, call: Call) -> Called | Returned | Failed:
        return await self._stage.compute(effect, call)


class _Reading:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    async def perform(self, effect: ReadSource, call: Call) -> Source | Failed:
        return await self._stage.read(effect, call)


class _Running:
    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def perform(self, effect: RunCommand, call: Call) -> CommandResult | Failed:
        return await self._scripts.run(_step_of(call), effect, call)


class _Sending:
    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def perform(self, effect: SendHttp, call: Call) -> HttpResponse | Failed:
        return await self._scripts.send(_step_of(call), effect, call)


class _Browsing:
    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def perform(self, effect: Browse, call: Call) -> Page | Failed:
        return await self._scripts.browse(_step_of(call), effect, call)


class _OnNode:
    def __init__(self, scripts: Scripts) -> None:
        self._scripts = scripts

    async def perform(self, effect: CallNode, call: Call) -> CommandResult | Failed:
        return await self._scripts.on_node(_step_of(call), effect, call)


def _source(value: Any) -> Source:
    text = Text(msgspec.json.encode(value).decode())
    return Source(text, text.digest)


def _step_of(call: Call) -> str:
    """An effect's key ends with its step's label, quoted, and the effect's number within the step."""
    return unquote(call.key.rpartition("#")[0].rpartition("/")[2])


def _spellings(scheme: str, name: str) -> tuple[str, ...]:
    """The ways in which an author may have spelled a source, as in `@prompt`."""
    library = (f"library:{name}", name) if scheme == "prompt" else ()
    return (f"{scheme}:{name}", *library)


def _libraries(folder: Path) -> list[Path]:
    """The prompt folders: next to the playbook, then in its project."""
    project = project_file(folder.absolute())
    return [folder / "prompts", *([project.parent / "prompts"] if project is not None else [])]
