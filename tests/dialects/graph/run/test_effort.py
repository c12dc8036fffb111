"""Reasoning effort of a node: from the node, the workflow or the run, as it reaches each provider."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.effects import AskModel, Effort, ReadSource
from cuebook.kernel.run import Settings
from cuebook.performers.models import ModelPerformer
from cuebook.service.service import Service
from cuebook.stores.memory import MemoryStore
from tests.dialects.graph.harness import Texts
from tests.performers.models.calls import Sleeper, providers_at
from tests.performers.models.provider_server import ProviderServer, anthropic_reply, openai_reply

NODES = ("think", "plain", "hurry")
FLOW = json.dumps(
    {
        "id": "w", "name": "W", "entry": "think",
        "nodes": {node: {"name": node, "instruction": f"Do {node}."} for node in NODES},
        "edges": [{"from": "think", "to": "plain"}, {"from": "plain", "to": "hurry"}],
        "x_cuebook": {"nodes": {"think": {"effort": "high"}, "hurry": {"effort": "low"}}},
    }
)  # fmt: skip


async def requests(protocol: str, model: str, flow: str = FLOW, effort: Effort | None = None) -> list[dict[str, Any]]:
    """The requests of a run's nodes on the wire."""
    answer = openai_reply if protocol == "openai" else anthropic_reply
    async with ProviderServer(*(answer("Done.") for _ in NODES)) as server:
        performer = ModelPerformer(providers_at(server.url, protocol), sleep=Sleeper())
        service = Service(MemoryStore(), {AskModel: performer, ReadSource: Texts({})}, listen_every=0.02)
        settings = Settings(model=model, effort=effort, max_tokens=50_000)
        row = await service.start(Playbook.from_text(flow, "flow.json"), {}, settings)
        row = await service.drive(row.id)
        assert row.status == "completed", row.error
        await service.close()
        return server.requests


@pytest.mark.parametrize(("run", "plain"), [(None, None), ("medium", "medium")])
async def test_openai_gets_the_effort_of_each_node(run: Effort | None, plain: str | None) -> None:
    sent = await requests("openai", "test/gpt-5", effort=run)
    assert [request.get("reasoning_effort") for request in sent] == ["high", plain, "low"]


async def test_anthropic_gets_the_effort_of_each_node() -> None:
    sent = await requests("anthropic", "test/claude-opus-4-6")
    assert [request.get("output_config", {}).get("effort") for request in sent] == ["high", None, "low"]
    assert [request.get("thinking") for request in sent] == [{"type": "adaptive"}, None, {"type": "adaptive"}]


async def test_an_earlier_model_of_anthropic_gets_a_budget_for_each_node() -> None:
    sent = await requests("anthropic", "test/claude-sonnet-4-5", effort="medium")
    assert [request["thinking"]["budget_tokens"] for request in sent] == [24_576, 8_192, 2_048]


async def test_the_effort_of_the_workflow_holds_for_nodes_without_their_own() -> None:
    flow = json.loads(FLOW)
    flow["x_cuebook"]["effort"] = "medium"
    sent = await requests("openai", "test/gpt-5", json.dumps(flow), effort="low")
    assert [request.get("reasoning_effort") for request in sent] == ["high", "medium", "low"]
