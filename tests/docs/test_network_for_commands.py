"""The guide to agents, about commands that only read and commands with hosts: its examples do what it says."""

from __future__ import annotations

import json
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cuebook.kernel.effects import CallTool
from tests.gate.harness import GateHarness
from tests.support.documentation import DOCS, blocks

BLOCKS = blocks(DOCS / "guides" / "agents.md")
(POLICY,) = [
    tomllib.loads(block.text) for block in BLOCKS if block.language == "toml" and "registry.npmjs" in block.text
]
READING, PUSHING = (json.loads(block.text) for block in BLOCKS if block.language == "json" and "git " in block.text)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[GateHarness]:
    made = GateHarness(tmp_path)
    yield made
    await made.close()


async def test_reading_needs_no_approval_and_pushing_does(harness: GateHarness) -> None:
    assert (await harness.run(CallTool("Bash", READING))).status == "completed"
    assert (await harness.run(CallTool("Bash", PUSHING))).status == "awaiting_approval"


@pytest.mark.parametrize(
    ("hosts", "status"),
    [
        (["github.com"], "completed"),
        (["registry.npmjs.org", "github.com"], "completed"),
        (["pypi.org"], "awaiting_approval"),
        (["gist.github.com"], "failed"),
    ],
)
async def test_the_policy_decides_on_each_host(harness: GateHarness, hosts: list[str], status: str) -> None:
    harness.allow(POLICY)
    assert (await harness.run(CallTool("Bash", {"command": "true", "network": hosts}))).status == status
