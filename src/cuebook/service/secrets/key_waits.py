"""Runs that wait because a provider rejected their key: continues them when the key has been changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from cuebook.gate.roles import Principal
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.outcomes import REJECTED_BY
from cuebook.kernel.ports import Store
from cuebook.kernel.run import WaitRow

log = logging.getLogger("cuebook")

EVERY = 5.0
"""Seconds between two looks at the keys that runs wait for."""

Resume = Callable[[WaitRow, Principal], Awaitable[None]]
"""Ends a wait of a run, which then continues."""


class KeyWaits:
    """The runs in a store that wait for a provider's key."""

    def __init__(self, store: Store, resume: Resume) -> None:
        self._store = store
        self._resume = resume

    async def waiting(self) -> list[WaitRow]:
        """The waits of all tenants: the keys belong to the installation."""
        return [one for one in await self._store.waits(kinds=("secret",)) if one.details.get(REJECTED_BY)]

    async def continue_with(self, provider: str, by: str = "local") -> list[str]:
        """Continues the runs that wait for this provider's key, which was changed. Returns their ids."""
        runs: dict[str, None] = {}
        for wait in await self.waiting():
            if wait.details[REJECTED_BY] == provider:
                await self._resume(wait, Principal(by, wait.tenant))
                runs[wait.run] = None
        return list(runs)

    @asynccontextmanager
    async def watched(self, may_try: Callable[[str], bool], every: float = EVERY) -> AsyncIterator[None]:
        """Until the end of the block, continues runs whose provider has a key here that it has not rejected, as after a restart
        with another key in the environment, or a change of the keyring by another program.
        """
        watching = asyncio.create_task(self._watch(may_try, every))
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, may_try: Callable[[str], bool], every: float) -> None:
        while True:
            try:
                for provider in sorted({str(one.details[REJECTED_BY]) for one in await self.waiting()}):
                    if await asyncio.to_thread(may_try, provider):
                        await self.continue_with(provider)
            except CuebookError as error:  # a store that is briefly out of reach
                log.warning("%s", error)
            await asyncio.sleep(every)
