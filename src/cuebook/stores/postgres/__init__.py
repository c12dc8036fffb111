"""A store in a Postgres database, which several machines can share."""

from __future__ import annotations

from cuebook.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
