"""Notices when a user loses the right to something under way, such as reading an open stream."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from cuebook.kernel.errors import StoreError

log = logging.getLogger("cuebook")

EVERY = 1.0
"""Seconds between two looks: users are removed by other processes, too."""


async def revoked(permitted: Callable[[], Awaitable[bool]]) -> None:
    """Returns once it is permitted no longer."""
    while True:
        await asyncio.sleep(EVERY)
        try:
            if not await permitted():
                return
        except StoreError as error:  # a lock or a full disk may pass
            log.warning("%s", error)
