from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.surfaces.web.served_app import ServedApp


@pytest.fixture
async def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedApp]:
    """The web app, which a test starts."""
    made = ServedApp(tmp_path, monkeypatch)
    yield made
    await made.stop()
