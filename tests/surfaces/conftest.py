from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.surfaces.desk import Desk
from tests.surfaces.model_server import ModelServer


@pytest.fixture
def server() -> Iterator[ModelServer]:
    made = ModelServer()
    yield made
    made.close()


@pytest.fixture
def desk(tmp_path: Path, server: ModelServer) -> Desk:
    """A desk whose model is the local server's."""
    return Desk(tmp_path, server.url)


@pytest.fixture
def bare_desk(tmp_path: Path) -> Desk:
    """A desk where nothing is configured."""
    return Desk(tmp_path)
