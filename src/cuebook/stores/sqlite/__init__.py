"""A store in one SQLite file."""

from __future__ import annotations

from cuebook.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
