"""The requests that this node has begun, and their outcomes, on disk: none is performed twice, and none is lost.

Each request has up to two files, named after the digest of its id: one is written before it begins, the other when its
outcome is known. A request with only the first one was interrupted, unless it is still running.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import msgspec

from cuebook.kernel.errors import CuebookError
from cuebook.node.identity import sync_folder, write_durably
from cuebook.performers.nodes.protocol import KEPT_DAYS, Finished, Outcome, Refused

_BEGAN, _OUTCOME = ".began", ".outcome"
_DAY = 86400.0
_BETWEEN_PRUNINGS = 3600.0
MOST = 10_000
"""How many requests are kept. With more, new ones are refused, because forgetting one could repeat it."""

T = TypeVar("T")


class LedgerFull(CuebookError):
    """This node keeps too many requests that its server has not acknowledged."""

    code = "ledger_full"


class Known(msgspec.Struct, frozen=True):
    """A request that began, with its outcome if there is one."""

    outcome: Outcome | None


class Ledger:
    """Its methods write in one background thread, in the order of the calls, also if a caller is cancelled."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._now = now
        self._thread = ThreadPoolExecutor(1, "cuebook-ledger")
        folder.mkdir(mode=0o700, exist_ok=True)
        self._count = 0
        self._pruned = 0.0
        self._prune()

    def close(self) -> None:
        self._thread.shutdown()

    async def look(self, id: str) -> Known | None:
        """What is known of a request; None if it never began."""
        return await self._run(lambda: self._look(id))

    async def begin(self, id: str, about: dict[str, str]) -> None:
        """Records that a request begins. When this returns, it is on disk. Raises `LedgerFull` or `OSError`."""
        await self._run(lambda: self._begin(id, about))

    async def finish(self, outcome: Outcome) -> None:
        """Records the outcome of a request. When this returns, it is on disk. Raises `OSError`."""
        data = msgspec.json.encode(outcome)
        await self._run(lambda: write_durably(self._path(outcome.id, _OUTCOME), data))

    async def forget(self, ids: Iterable[str]) -> None:
        """Removes requests that have an outcome. Others stay: they may be under way."""
        await self._run(lambda: self._forget(ids))

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # --- in the thread ---

    def _look(self, id: str) -> Known | None:
        try:
            return Known(msgspec.json.decode(self._path(id, _OUTCOME).read_bytes(), type=Finished | Refused))
        except FileNotFoundError:
            pass
        except msgspec.DecodeError:  # damaged, so the outcome is unknown
            return Known(None)
        return Known(None) if self._path(id, _BEGAN).exists() else None

    def _begin(self, id: str, about: dict[str, str]) -> None:
        if self._now() - self._pruned > _BETWEEN_PRUNINGS:
            self._prune()
        if self._count >= MOST:
            raise LedgerFull(
                f"This node keeps {self._count:,} requests that its server has not acknowledged.",
                fix=f"They are dropped after {KEPT_DAYS} days.",
            )
        data = msgspec.json.encode({"id": id, **about})
        descriptor = os.open(self._path(id, _BEGAN), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._count += 1
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        sync_folder(self._folder)

    def _forget(self, ids: Iterable[str]) -> None:
        for id in ids:
            if self._path(id, _OUTCOME).exists():
                self._remove(self._path(id, ""))

    def _remove(self, path: Path) -> None:
        # The outcome goes last: without it, the request would count as interrupted.
        if path.with_suffix(_BEGAN).exists():
            path.with_suffix(_BEGAN).unlink()
            self._count -= 1
        path.with_suffix(_OUTCOME).unlink(missing_ok=True)

    def _prune(self) -> None:
        """Removes what is older than it has to be kept, and what a killed process left half-written."""
        self._pruned = now = self._now()
        self._count = 0
        newest: dict[str, float] = {}
        for path in list(self._folder.iterdir()):
            if path.suffix in (_BEGAN, _OUTCOME):
                newest[path.stem] = max(newest.get(path.stem, 0.0), path.stat().st_mtime)
                self._count += path.suffix == _BEGAN
            else:
                path.unlink()
        for name, written in newest.items():
            if now - written > KEPT_DAYS * _DAY:
                self._remove(self._folder / name)

    def _path(self, id: str, suffix: str) -> Path:
        return self._folder / f"{sha256(id.encode()).hexdigest()}{suffix}"
