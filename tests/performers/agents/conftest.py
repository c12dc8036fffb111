from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.performers.agents.harness import AgentHarness


@pytest.fixture
async def harness(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AgentHarness]:
    made = AgentHarness(tmp_path, monkeypatch)
    yield made
    await made.close()
