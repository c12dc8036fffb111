"""Imports of heavy libraries when they are first needed, away from the event loop.

A module that another thread is still importing is in `sys.modules` already, half made: only what was imported to the end
is handed out, and one import is under way at a time.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from typing import Any

_importing = threading.Lock()
_imported: dict[str, Any] = {}


async def load(name: str) -> Any:
    """The module, whole. Raises `ImportError` as an import statement does."""
    loaded = _imported.get(name)
    return loaded if loaded is not None else await asyncio.to_thread(_load, name)


def _load(name: str) -> Any:
    with _importing:
        _imported[name] = importlib.import_module(name)
        return _imported[name]
