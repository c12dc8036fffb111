from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.performers.mcp.harness import McpHarness, assert_nothing_left


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[McpHarness]:
    """A harness for MCP servers that checks that none of them is left running."""
    made = McpHarness(tmp_path)
    yield made
    await made.close()
    assert_nothing_left(str(tmp_path))
