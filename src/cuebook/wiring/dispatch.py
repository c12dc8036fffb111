"""Builds the dispatcher that the configuration chooses. Temporal's SDK is imported on demand."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from cuebook.config import Config
from cuebook.formats.words import with_extra
from cuebook.kernel.errors import BadInput

if TYPE_CHECKING:
    from cuebook.service.dispatch.temporal.dispatcher import TemporalDispatcher


def dispatcher_of(config: Config, reveal: Callable[[str], str]) -> TemporalDispatcher:
    """The configured dispatcher, which is not connected yet. `reveal` returns the value of a secret."""
    where, place = config.origin("temporal.address"), config.get("store")
    if isinstance(place, Path):
        raise BadInput(
            f"{where}: workers under Temporal share a Postgres database, but the store is the file {place}.",
            fix="Set store to a postgresql:// URL; `cuebook store copy` takes the runs there.",
        )
    if find_spec("temporalio") is None:
        raise BadInput(f"{where}: Temporal's SDK is not installed.", fix=with_extra("temporal"))
    for one, other in (("tls_cert", "tls_key"), ("tls_key", "tls_cert")):
        if config.get(f"temporal.{one}") is not None and config.get(f"temporal.{other}") is None:
            origin = config.origin(f"temporal.{one}")
            raise BadInput(f"{origin}: temporal.{one} needs temporal.{other}.", fix="Set both, or neither.")
    from cuebook.service.dispatch.temporal.connection import Server
    from cuebook.service.dispatch.temporal.dispatcher import TemporalDispatcher

    key = config.get("temporal.api_key")
    return TemporalDispatcher(
        Server(
            config.get("temporal.address"),
            config.get("temporal.namespace"),
            config.get("temporal.queue"),
            reveal(key) if key else "",
            config.get("temporal.tls"),
            config.get("temporal.tls_ca"),
            config.get("temporal.tls_cert"),
            config.get("temporal.tls_key"),
        )
    )
