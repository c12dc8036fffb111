"""The world of a test case: a model, tools and texts that say what the case tells them to. Nothing leaves the process.

What was asked of them is kept, with the step that asked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import unquote

import msgspec

from cuebook.config import project_file
from cuebook.dialects.graph.routing import choices_in
from cuebook.kernel.context import Text
from cuebook.kernel.effects import (
    AskModel,
    CallTool,
    CommandResult,
    Effect,
    Failed,
    HttpResponse,
    ReadSource,
    Reply,
    RunCommand,
    SendHttp,
    Source,
    ToolResult,
    ToolSpec,
)
from cuebook.kernel.ports import Call, Performer
from cuebook.performers.http import HttpPerformer
from cuebook.performers.models.port import Model, ModelError, Request, messages_of
from cuebook.performers.models.scripted import Line, ScriptedModel
from cuebook.performers.skills import BUILT_IN
from cuebook.performers.sources import SourcePerformer
from cuebook.testing import model_performer
from cuebook.testing.cases import Case
from cuebook.testing.reading import meant
from cuebook.testing.scripts import Scripts


class Asked(msgspec.Struct, frozen=True):
    """What a model was asked, and by which step."""

    step: str
    system: str
    prompt: str


class ToolRequest(msgspec.Struct, frozen=True):
    step: str
    tool: str
    arguments: dict[str, Any]


class Stage:
    """Everything that a case's run reaches."""

    def __init__(self, case: Case, folder: Path, model: Model | None = None, *, real: bool = False) -> None:
        """With `real`, steps that the case performs for real may be."""
        self.asked: list[Asked] = []
        self.calls: list[ToolRequest] = []
        self.lines = Lines(case)
        self._model = model_performer(model or ScriptedModel(self.lines.next))
        self._tools = case.tools
        self._told: dict[str, int] = {}
        self._texts = case.prompts
        self.scripts = Scripts(case.commands, case.requests, case.real, folder, real)
        # The requests of this performer would reach the network; only files and prompts get as far as it.
        self._sources = SourcePerformer([folder], http=HttpPerformer(), prompts=_libraries(folder))

    def performers(self) -> dict[type[Effect], Performer]:
        return {
            AskModel: _Asking(self),
            CallTool: _Calling(self),
            ReadSource: _Reading(self),
            RunCommand: _Running(self.scripts),
            SendHttp: _Sending(self.scripts),
        }

    async def ask(self, effect: AskModel, call: Call) -> Reply | Failed:
        step = _step_of(call)
        system = "\n\n".join(turn.text for turn in messages_of(effect) if turn.role == "system")
        self.asked.append(Asked(step, system, effect.prompt))
        self.lines.step = step
        self.lines.ways = tuple(choices_in(effect))
        return await self._model.perform(effect, call)

    async def use(self, effect: CallTool, call: Call) -> ToolResult | Failed:
        self.calls.append(ToolRequest(_step_of(call), effect.tool, effect.arguments))
        results = self._tools.get(effect.tool)
        if not results:
            fix = f"Add it under 'tools'. {meant(effect.tool, self._tools)}"
            return Failed("no_such_tool", f"The test has no result for the tool '{effect.tool}'.", fix)
        turn = self._told.get(effect.tool, 0)
        self._told[effect.tool] = turn + 1
        said = results[min(turn, len(results) - 1)]
        return ToolResult(said.value, said.is_error)

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
        """Tools are there if the case has results for them; a skill that comes along has those of its tools."""
        if scheme == "tools":
            specs = [ToolSpec(name, "", {"type": "object"})] if name in self._tools else []
            return _source(specs) if specs else Failed("not_found", f"The test has no tool '{name}'.")
        known = BUILT_IN.get(name)
        if known is None:
            return Failed("not_found", f"There is no skill '{name}' in a test, unless the workflow has it.")
        shown = [{"name": tool.name, "parameters": tool.parameters} for tool in known.tools if tool.name in self._tools]
        return _source({"id": known.id, "name": known.name, "tools": shown})


class Lines:
    """The scripted replies: all in order, or those of each step."""

    def __init__(self, case: Case) -> None:
        self.step = ""
        """The step that asks now."""
        self.ways: tuple[str, ...] = ()
        """What it chooses among, where it asks for the way on."""
        self._routes = {step: list(ways) for step, ways in case.routes.items()}
        self._in_order = case.replies
        self._by_step: Mapping[str, Any] = case.step_replies
        self._given: dict[str, int] = {}
        self.used = 0

    @property
    def left(self) -> int:
        """Replies that nobody asked for, where they are given in order."""
        return max(0, len(self._in_order or ()) - self.used)

    def next(self, request: Request) -> Line:
        if self.ways and self.step in self._routes:
            return self._way()
        self.used += 1
        if self._in_order is not None:
            if self.used <= len(self._in_order):
                return self._in_order[self.used - 1].as_line
            where = "routes" if self.ways else "replies"
            self._none(f"The test has {len(self._in_order)} replies, and step {self.step} asks for one more.", where)
        replies = self._by_step.get(self.step, ())
        turn = self._given.get(self.step, 0)
        self._given[self.step] = turn + 1
        if turn < len(replies):
            line: Line = replies[turn].as_line
            return line
        if self.ways:
            self._none(f"The test does not say which way the run goes from step {self.step}.", "routes")
        more = f" more than the {len(replies)}" if replies else ""
        self._none(f"The test has no reply for step {self.step}{more}.")

    def _way(self) -> Line:
        ways = self._routes[self.step]
        if not ways:
            self._none(f"The test has no further route from step {self.step}.", "routes")
        way = ways.pop(0) if len(ways) > 1 else ways[0]
        if way not in self.ways:
            self._none(f"From step {self.step} there is no way to '{way}': there are {', '.join(self.ways)}.", "routes")
        return json.dumps({"choice": way, "reason": "The test says so."})

    def _none(self, message: str, where: str = "replies") -> NoReturn:
        raise ModelError("bad_request", message, fix=f"Add one under '{where}', or see why the step asks.")


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


def _source(value: Any) -> Source:
    text = Text(msgspec.json.encode(value).decode())
    return Source(text, text.digest)


def _step_of(call: Call) -> str:
    """The key of an effect ends in its step's label, quoted, and its number within the step."""
    return unquote(call.key.rpartition("#")[0].rpartition("/")[2])


def _spellings(scheme: str, name: str) -> tuple[str, ...]:
    """How an author may have written what a step reads: as `@prompt` does."""
    library = (f"library:{name}", name) if scheme == "prompt" else ()
    return (f"{scheme}:{name}", *library)


def _libraries(folder: Path) -> list[Path]:
    """Prompts beside the playbook, then those of its project."""
    project = project_file(folder.absolute())
    return [folder / "prompts", *([project.parent / "prompts"] if project is not None else [])]
