"""Stores that the processes of a test share: a file, or a Postgres database whose URL is in a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from cuebook.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from cuebook.stores.postgres import PostgresStore

SharedStore: TypeAlias = "SqliteStore | PostgresStore"


def open_shared(folder: Path) -> SharedStore:
    """Opens the store of a test's folder."""
    url = url_of(folder)
    if not url:
        return SqliteStore(folder / "store.db")
    from cuebook.stores.postgres import PostgresStore

    return PostgresStore(url)


def url_of(folder: Path) -> str:
    """The URL of the store of a test's folder; empty if it is a file."""
    url = folder / "store.url"
    return url.read_text() if url.exists() else ""


@contextmanager
def shared_place(kind: str, folder: Path) -> Iterator[None]:
    """Makes the store of a test's folder one of this kind."""
    if kind == "sqlite":
        yield
        return
    from tests.support.postgres import server

    with server().schema() as url:
        (folder / "store.url").write_text(url)
        yield
