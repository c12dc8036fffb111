"""Imports heavy libraries when they are first needed, outside the event loop.

A module that another thread is still importing is already in `sys.modules`, but incomplete. Therefore only completely
imported modules are returned, and only one import runs at a time.
"""

from __future__ import annotations

import asyncio
import importlib
import threading
from typing import Any

_importing = threading.Lock()
_imported: dict[str, Any] = {}


async def load(name: str) -> Any:
    """Returns the completely imported module. Raises `ImportError` like an import statement."""
    loaded = _imported.get(name)
    return loaded if loaded is not None else await asyncio.to_thread(_load, name)


def _load(name: str) -> Any:
    with _importing:
        _imported[name] = importlib.import_module(name)
        return _imported[name]
