from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.performers.mcp_bench import Bench, assert_nothing_left


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A bench for MCP servers, after which none of them is left."""
    made = Bench(tmp_path)
    yield made
    await made.close()
    assert_nothing_left(str(tmp_path))
