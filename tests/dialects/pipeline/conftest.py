from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.dialects.pipeline.bench import Bench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path)
    yield made
    await made.close()
