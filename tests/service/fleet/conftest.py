from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.fleet.fleet import Fleet
from tests.support.postgres import server


@pytest.fixture
async def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    """Machines on a database of the server that the tests share."""
    with server().schema() as url:
        made = Fleet(tmp_path, monkeypatch, url)
        made.open()
        yield made
        await made.shut_down()
