from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.surfaces.web.house import House


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    """A house whose server a test starts."""
    made = House(tmp_path, monkeypatch)
    yield made
    await made.stop()
