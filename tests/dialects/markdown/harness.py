"""A harness for Markdown runs: a real service with a scripted model, real tools and sources, and people who answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from cuebook.dialects.markdown.observe import MarkdownProjection
from cuebook.dialects.markdown.parse import parse
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.effects import AskModel, CallTool, Effect, ReadSource, ToolSpec
from cuebook.kernel.events import Warned
from cuebook.kernel.fold.replay import Recorded
from cuebook.kernel.outcomes import Failed, ToolResult
from cuebook.kernel.ports import Call, Description, Limits, Store
from cuebook.kernel.run import RunRow, Settings, WaitRow
from cuebook.performers.http.performer import HttpPerformer
from cuebook.performers.sources import SourcePerformer
from cuebook.performers.tools.functions import python_tool
from cuebook.performers.tools.toolbox import SimpleTool, Tool, Toolbox, no_such_tool
from cuebook.service.service import Service
from cuebook.testing import Line, ScriptedModel, model_performer

Answering = Callable[[dict[str, Any]], Any]


class Server:
    """A tool server in this process: its tools are functions of their arguments."""

    def __init__(self, name: str, tools: Mapping[str, Answering]) -> None:
        self._tools = {tool: _tool(f"{name}.{tool}", function) for tool, function in tools.items()}

    async def find(self, tool: str, seconds: float | None = None) -> Tool | Failed:
        return self._tools.get(tool) or no_such_tool(tool, self._tools)

    async def tools(self) -> list[Tool] | Failed:
        return list(self._tools.values())

    async def describe(self) -> Description | Failed:
        return Description((), "List its tools")

    async def close(self) -> None:
        return None


def _tool(name: str, function: Answering) -> Tool:
    async def run(arguments: dict[str, Any], call: Call) -> ToolResult | Failed:
        result = function(arguments)
        return result if isinstance(result, ToolResult | Failed) else ToolResult(result)

    return SimpleTool(ToolSpec(name, "", {"type": "object"}), run)


class Hasty:
    """Performs with shorter time limits than usual."""

    def __init__(self, performer: Toolbox, seconds: float) -> None:
        self._performer = performer
        self._limits = Limits(seconds=seconds, grace=0.0)

    async def perform(self, effect: CallTool, call: Call) -> Any:
        return await self._performer.perform(effect, msgspec.structs.replace(call, limits=self._limits))


class MarkdownHarness:
    """A service over a store."""

    def __init__(
        self,
        store: Store,
        script: Iterable[Line] | Any = (),
        *,
        folder: Path | None = None,
        servers: Mapping[str, Mapping[str, Answering]] | None = None,
        functions: Iterable[Callable[..., Any]] = (),
        patience: float = 30.0,
        now: float | None = None,
        model: Any = None,
    ) -> None:
        self.store = store
        self.model = ScriptedModel(script)
        self.now = now
        made = {name: Server(name, tools) for name, tools in (servers or {}).items()}
        tools = Toolbox([python_tool(function) for function in functions], made)
        performers: dict[type[Effect], Any] = {
            AskModel: model or model_performer(self.model),
            CallTool: Hasty(tools, patience),
        }
        if folder is not None:
            performers[ReadSource] = SourcePerformer([folder], http=HttpPerformer(), prompts=[folder / "library"])
        clock: dict[str, Any] = {} if now is None else {"clock": lambda: self.now}
        self.service = Service(store, performers, listen_every=0.02, **clock)

    async def run(self, text: str, inputs: dict[str, Any] | None = None, **settings: Any) -> RunRow:
        row = await self.service.start(
            Playbook.from_text(text, "book.md"), inputs or {}, Settings(model="test/x", **settings)
        )
        return await self.service.drive(row.id)

    async def answer(self, run: str, value: str) -> RunRow:
        await self.service.answer((await self.wait(run)).id, value)
        return await self.service.drive(run)

    async def resume(self, run: str, **overrides: Any) -> RunRow:
        await self.service.resume(run, overrides=overrides)
        return await self.service.drive(run)

    async def retry(self, run: str, **how: Any) -> RunRow:
        await self.service.retry(run, **how)
        return await self.service.drive(run)

    async def restart(self, run: str, step: str, **edits: Any) -> RunRow:
        row = await self.service.fork(run, step, **edits)
        return await self.service.drive(row.id)

    async def later(self, run: str, seconds: float) -> RunRow:
        """Lets time pass, then performs everything that is due for the run."""
        assert self.now is not None
        self.now += seconds
        await self.store.expire(self.now)
        return await self.service.drive(run)

    # --- looking ---

    async def wait(self, run: str) -> WaitRow:
        (wait,) = await self.store.waits(run=run)
        return wait

    async def steps(self, run: str) -> dict[str, str]:
        return {step.label: step.status for step in (await self.service.view(run)).steps}

    async def reasons(self, run: str) -> dict[str, str]:
        return {step.label: step.reason for step in await self.store.steps(run) if step.reason}

    async def values(self, run: str) -> dict[str, Any]:
        return (await self.service.view(run)).values

    async def outputs(self, run: str) -> dict[str, str]:
        return {label: str(text) for label, text in (await self.service.view(run)).outputs.items()}

    async def artifact(self, run: str) -> tuple[str, str]:
        made = (await self.service.view(run)).artifact
        assert made is not None
        return str(made.content), made.type

    async def warnings(self, run: str) -> list[str]:
        return [event.message for event in await self.events(run, Warned)]

    async def events(self, run: str, *kinds: type) -> list[Any]:
        return [entry.event async for entry in self.service.entries(run) if isinstance(entry.event, kinds)]

    async def state(self, run: str) -> dict[str, Any]:
        row = await self.store.run(run)
        text = await self.store.playbook(row.playbook)
        entries = [entry async for entry in self.service.entries(run)]
        waits = await self.store.waits(run=run)
        projection = MarkdownProjection(parse(text, row.name))
        for entry in entries:
            projection.see(entry)
        return projection.state(row, waits, text, Recorded(entries, 0).settings)

    @property
    def prompts(self) -> list[str]:
        return [request.messages[-1].text for request in self.model.requests]

    def system(self, number: int) -> str:
        first = self.model.requests[number].messages[0]
        return first.text if first.role == "system" else ""
