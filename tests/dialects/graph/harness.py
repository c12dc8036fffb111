"""A harness for workflow runs on the real engine: a service over a store, with scripted replies for each node."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from cuebook.dialects.graph.model import Workflow
from cuebook.dialects.graph.observe import GraphProjection, events
from cuebook.dialects.graph.parse import parse
from cuebook.dialects.playbook import Playbook
from cuebook.dialects.presentation.projection import seen
from cuebook.kernel.context import Text, ToolCall
from cuebook.kernel.effects import AskModel, CallTool, Effect, ReadSource
from cuebook.kernel.journal import Entry
from cuebook.kernel.outcomes import Failed, Reply, Source, ToolResult
from cuebook.kernel.ports import Call, Store
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.service import Service
from cuebook.testing import Line, ModelError, Says, ScriptedModel, model_performer

Said = Any
"""A reply: text, an object with data, `{"calls": [...], ...}`, `{"fails": "words"}`, or a function that returns one."""


class Asked(msgspec.Struct, frozen=True):
    """A model request: for a node's reply, for the route after it, or for a judgement of it."""

    kind: str
    node: str
    effect: AskModel

    @property
    def prompt(self) -> str:
        return self.effect.prompt

    @property
    def tools(self) -> list[str]:
        return [tool.name for tool in self.effect.tools]

    @property
    def blocks(self) -> list[str]:
        return [str(block.text) for block in self.effect.context]

    @property
    def context(self) -> dict[str, Any]:
        """The last block for the input and for each node in the request."""
        shown: dict[str, Any] = {}
        for block in self.blocks:
            head, _, body = block.partition("\n")
            if head.startswith("Input of the workflow"):
                shown["input"] = json.loads(body)
            elif head.startswith("Result of node "):
                shown[head.split()[3].rstrip(",")] = json.loads(body)
        return shown

    @property
    def choices(self) -> list[str]:
        return list((self.effect.schema or {})["properties"]["choice"]["enum"])


class Script:
    """Performs `AskModel` with scripted replies: `run` by node, `route` by the node that the edges leave, and `ask`."""

    def __init__(self, run: Mapping[str, Any], route: Mapping[str, Any], ask: Iterable[Any]) -> None:
        self._run = {node: _listed(said) for node, said in run.items()}
        self._route = {node: _listed(said) for node, said in route.items()}
        self._ask = list(ask)
        self.asked: list[Asked] = []
        self._talks: dict[str, list[Said]] = {}

    async def perform(self, effect: AskModel, call: Call) -> Reply | Failed:
        node, aside = where(call)
        kind = "ask" if aside else "route" if _is_route(effect) else "run"
        self.asked.append(Asked(kind, node, effect))
        line = self._line(kind, node, effect)
        return await model_performer(ScriptedModel([line])).perform(effect, call)

    def _line(self, kind: str, node: str, effect: AskModel) -> Line:
        if kind == "ask":
            return line_of(_next(self._ask, {"fails": "nothing is left to say"}))
        if kind == "route":
            return line_of(_next(self._route.get(node, []), {"fails": f"no way on from {node} was written down"}))
        waiting = self._talks.get(node)
        if waiting:
            return line_of(waiting.pop(0))
        said = _next(self._run.get(node, []), f"{node} is done.")
        if isinstance(said, dict) and "calls" in said:
            rest = {name: value for name, value in said.items() if name != "calls"}
            self._talks[node] = [rest.get("then", rest.get("data", "Done."))]
        return line_of(said)


def where(call: Call) -> tuple[str, bool]:
    """The node that an effect belongs to, and whether the effect is outside of its conversation."""
    path, _, last = call.key.partition("/")[2].rpartition("/")
    step = unquote(last.partition("#")[0])
    return (step, False) if step else (unquote(path.rpartition("/")[2].partition("#")[0]), True)


def _is_route(effect: AskModel) -> bool:
    return (
        "choice" in (effect.schema or {}).get("properties", {})
        and not effect.tools
        and "Which of these"
        in (effect.prompt + "".join(str(block.text) for block in effect.context if block.role == "user"))
    )


def _listed(said: Any) -> list[Any]:
    return list(said) if isinstance(said, list) else [said]


def _next(left: list[Any], otherwise: Any) -> Any:
    if not left:
        return otherwise
    return left.pop(0) if len(left) > 1 else left[0]


def line_of(said: Said) -> Line:
    if callable(said):
        said = said()
    if isinstance(said, dict) and "calls" in said:
        calls = tuple(
            ToolCall(str(number), one["tool"], one.get("input", {})) for number, one in enumerate(said["calls"])
        )
        return Says(said.get("text", ""), calls)
    if isinstance(said, dict) and set(said) == {"fails"}:
        return ModelError("bad_request", said["fails"])
    if said == {"times_out": True}:
        return ModelError("timeout", "The model did not answer in time.", retryable=False)
    return said if isinstance(said, str | Says) else json.dumps(said)


class Tools:
    """Performs `CallTool`: each tool returns its results in order, and repeats the last one."""

    def __init__(self, results: Mapping[str, Any]) -> None:
        self._left = {name: _listed(values) for name, values in results.items()}
        self.called: list[tuple[str, dict[str, Any]]] = []

    async def perform(self, effect: CallTool, call: Call) -> ToolResult | Failed:
        self.called.append((effect.tool, effect.arguments))
        result = _next(self._left.get(effect.tool, []), {"fails": f"There is no tool '{effect.tool}'."})
        result = result(effect.arguments) if callable(result) else result
        if isinstance(result, dict) and set(result) == {"fails"}:
            return Failed("tool_failed", result["fails"])
        return ToolResult(result)


class Texts:
    """Performs `ReadSource`: files, URLs, skills and tools by name."""

    def __init__(self, texts: Mapping[str, Any]) -> None:
        self.texts = dict(texts)
        self.read: list[str] = []

    async def perform(self, effect: ReadSource, call: Call) -> Source | Failed:
        self.read.append(effect.source)
        found = self.texts.get(effect.source)
        if found is None and effect.source.startswith("tools:"):
            found = []
        if found is None:
            return Failed("not_found", f"There is no {effect.source}.")
        if isinstance(found, Failed):
            return found
        text = Text(found if isinstance(found, str) else json.dumps(found))
        return Source(text, text.digest)


def skill(id: str, *tools: str, **more: Any) -> dict[str, Any]:
    """A skill as the performers return it."""
    listed = [{"name": tool, "description": f"Does {tool}", "parameters": {"type": "object"}} for tool in tools]
    return {"id": id, "name": id.title(), "tools": listed, "configured": True, "missing": [], "mcp": None, **more}


def tool(name: str) -> list[dict[str, Any]]:
    return [{"name": name, "description": f"Does {name}", "parameters": {"type": "object"}}]


class GraphHarness:
    """A service with a script. `texts` are the readable texts, by source; the source of a skill is `skill:ID`."""

    def __init__(
        self,
        store: Store,
        *,
        run: Mapping[str, Any] | None = None,
        route: Mapping[str, Any] | None = None,
        ask: Iterable[Any] = (),
        tools: Mapping[str, Any] | None = None,
        texts: Mapping[str, Any] | None = None,
    ) -> None:
        self.store = store
        self.script = Script(run or {}, route or {}, ask)
        self.tools = Tools(tools or {})
        self.texts = Texts(texts or {})
        performers: dict[type[Effect], Any] = {AskModel: self.script, CallTool: self.tools, ReadSource: self.texts}
        self.service = Service(store, performers, listen_every=0.02)
        self.workflow: Workflow
        self.live: list[dict[str, Any]] = []
        """The events as an observer saw them."""

    async def start(self, text: str, inputs: Mapping[str, Any] | None = None, **options: Any) -> RunRow:
        self.workflow = parse(text, "flow.yml")
        settings = Settings(model="test/scripted", options=options)
        return await self.service.start(Playbook.from_text(text, "flow.yml"), inputs or {}, settings)

    async def run(self, text: str, inputs: Mapping[str, Any] | None = None, **options: Any) -> RunRow:
        projection: GraphProjection | None = None

        def observe(seen: Any) -> None:
            nonlocal projection
            if projection is None:
                projection = GraphProjection(self.workflow)
            self.live.extend(map(dict, projection.see(seen).published))

        stop = self.service.observe(observe)
        try:
            row = await self.start(text, inputs, **options)
            return await self.service.drive(row.id)
        finally:
            stop()

    async def paused(self, text: str, inputs: Mapping[str, Any], *breakpoints: str, **options: Any) -> RunRow:
        """A run that is paused at a breakpoint."""
        self.workflow = parse(text, "flow.yml")
        settings = Settings(model="test/scripted", breakpoints=breakpoints, options=options)
        row = await self.service.start(Playbook.from_text(text, "flow.yml"), inputs, settings)
        row = await self.service.drive(row.id)
        assert row.status == "paused", row.error
        return row

    # --- looking ---

    async def entries(self, run: str) -> list[Entry]:
        return [entry async for entry in self.service.entries(run)]

    async def events(self, run: str) -> list[dict[str, Any]]:
        return events(self.workflow, await self.entries(run))

    async def trace(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.left(run))["trace"]
        return found

    async def results(self, run: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.left(run))["results"]
        return found

    async def left(self, run: str) -> dict[str, Any]:
        """The trace and the results."""
        return seen(GraphProjection(self.workflow), await self.entries(run)).trace() or {}

    async def way(self, run: str) -> list[str]:
        return [step["node"] for step in (await self.trace(run))["steps"]]

    def asked(self, kind: str = "run", node: str | None = None) -> list[Asked]:
        return [one for one in self.script.asked if one.kind == kind and node in (None, one.node)]

    @property
    def calls(self) -> list[str]:
        return [f"{one.kind} {one.node}" for one in self.script.asked]


def flow(*nodes: str, **changes: Any) -> str:
    """A linear workflow as text, with the first node as the entry. `changes` are merged into it, nodes field by field."""
    made: dict[str, Any] = {
        "id": "flow",
        "name": "Flow",
        "entry": nodes[0],
        "nodes": {node: {"name": node.title(), "instruction": f"Do {node}."} for node in nodes},
        "edges": [{"from": one, "to": other} for one, other in itertools.pairwise(nodes)],
    }
    for node, fields in changes.pop("nodes", {}).items():
        made["nodes"].setdefault(node, {"name": node, "instruction": f"Do {node}."}).update(fields)
    return json.dumps({**made, **changes})


def way(*edges: str) -> list[dict[str, Any]]:
    """Edges, each written as `a b` or `a b when it holds`, with ` x2` at the end for its bound."""
    made = []
    for edge in edges:
        edge, _, bound = edge.partition(" x")
        from_, to, *rest = edge.split(" ", 2)
        one: dict[str, Any] = {"from": from_, "to": to}
        one |= {"when": rest[0].removeprefix("when ")} if rest else {}
        made.append(one | ({"max_iterations": int(bound)} if bound else {}))
    return made


Made = Callable[..., GraphHarness]
