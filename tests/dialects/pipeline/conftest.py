from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.dialects.pipeline.harness import PipelineHarness


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[PipelineHarness]:
    made = PipelineHarness(tmp_path)
    yield made
    await made.close()
