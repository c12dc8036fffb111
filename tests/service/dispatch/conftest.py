from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.dispatch.team import Team


@pytest.fixture
async def team(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Team]:
    """A surface that shares a database and a Temporal server with the workers that the test starts."""
    from tests.support.postgres import server

    with server().schema() as url:
        made = Team(tmp_path, url, monkeypatch)
        try:
            yield made
        finally:
            await made.close()
