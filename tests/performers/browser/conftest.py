from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.performers.browser import site as sites
from tests.performers.browser.harness import BrowserHarness
from tests.performers.browser.site import Site


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[BrowserHarness]:
    made = BrowserHarness(tmp_path, environ={"PASSWORD": "open-sesame-4711"})
    yield made
    await made.close()


@pytest.fixture
def site() -> Iterator[Site]:
    with sites.site() as made:
        yield made


@pytest.fixture
def elsewhere() -> Iterator[Site]:
    """A site that no rule allows."""
    with sites.site() as made:
        yield made
