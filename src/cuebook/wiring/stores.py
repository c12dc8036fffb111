"""Opens the configured store: a SQLite file, or a Postgres database that several machines share."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from cuebook.config import Config
from cuebook.formats.words import with_extra
from cuebook.kernel.errors import BadInput, StoreError
from cuebook.kernel.ports import Store
from cuebook.stores.sqlite import SqliteStore
from cuebook.stores.sqlite.database import LOGS

if TYPE_CHECKING:
    from cuebook.formats.database_url import DatabaseUrl

_BESIDE = ("", *LOGS, ".key")
_SHORTEST_KEY = 32
"""Minimum number of characters, so that the key cannot be guessed."""


def store_files(config: Config) -> list[Path]:
    """The files of the store on this machine; empty for a database."""
    place = config.get("store")
    return [place.with_name(place.name + suffix) for suffix in _BESIDE] if isinstance(place, Path) else []


def has_store(config: Config) -> bool:
    """Whether the store exists. A database is assumed to; opening it creates its tables. Raises `StoreError` for a file of
    which this user cannot know."""
    place = config.get("store")
    try:
        return not isinstance(place, Path) or place.exists()
    except OSError as error:
        raise StoreError(
            f"The store {place} cannot be read: {error.strerror}.",
            fix="Check --store or CUEBOOK_STORE, and who may read it.",
        ) from None


def open_store(config: Config, reveal: Callable[[str], str]) -> Store:
    """Opens the store, and creates it if it is missing. `reveal` returns the value of a secret."""
    place, synchronous = config.get("store"), config.get("synchronous")
    if not isinstance(place, Path):
        _need_driver(place)
        from cuebook.stores.postgres import PostgresStore

        return PostgresStore(place, password=_password(config, reveal), synchronous=synchronous)
    if place.is_dir():
        raise BadInput(f"The store {place} is a folder.", fix="Use the path of a file.")
    return SqliteStore(place, synchronous=synchronous)


class Inspection(Protocol):
    """The state of a store that is not opened."""

    version: int | None
    """The version of its tables; None if there are none."""
    problem: str
    """Why it cannot be used; empty if it can."""

    @property
    def exists(self) -> bool: ...

    def kept(self, tenant: str, kind: str) -> dict[str, dict[str, Any]]:
        """The stored decisions of a kind, by name."""

    def close(self) -> None: ...


def inspect_store(config: Config, reveal: Callable[[str], str]) -> Inspection:
    """Inspects the store without changing it. Raises `BadInput` if a setting that it needs is missing."""
    place = config.get("store")
    if isinstance(place, Path):
        from cuebook.stores.sqlite.inspection import Inspection as InspectedFile

        return InspectedFile(place)
    signing_key(config, reveal)
    _need_driver(place)
    from cuebook.stores.postgres.inspection import Inspection as InspectedDatabase

    return InspectedDatabase(place, _password(config, reveal))


def empty_store() -> Store:
    """A store without runs, in memory."""
    from cuebook.stores.memory import MemoryStore

    return MemoryStore()


def _need_driver(place: DatabaseUrl) -> None:
    if find_spec("psycopg") is None or find_spec("psycopg_pool") is None:
        raise BadInput(
            f"The store {place} needs the Postgres driver, which is not installed.",
            fix=with_extra("postgres"),
        )


def _password(config: Config, reveal: Callable[[str], str]) -> str:
    handle = config.get("store_password")
    return reveal(handle) if handle else config.get("store").password


def signing_key(config: Config, reveal: Callable[[str], str]) -> dict[str, Any]:
    """The key that signs tokens, as an argument for the service. Machines that share a store share the key."""
    place, handle = config.get("store"), config.get("signing_key")
    if handle:
        key = reveal(handle)
        if len(key) < _SHORTEST_KEY:
            raise BadInput(
                f"signing_key: the secret {handle} has fewer than {_SHORTEST_KEY} characters.",
                fix="Make one with `openssl rand -hex 32`.",
            )
        return {"signing_key": key.encode()}
    if not isinstance(place, Path):
        raise BadInput(
            f"The store {place} needs a signing key that all its machines share.",
            fix="Make one with `openssl rand -hex 32`, and set signing_key (CUEBOOK_SIGNING_KEY) to its handle,"
            " for example env:CUEBOOK_KEY.",
        )
    return {"key_file": key_file_of(place)}


def key_file_of(place: Path) -> Path:
    """The file of the key that belongs to a store in a file."""
    return place.with_name(f"{place.name}.key")
