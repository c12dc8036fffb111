"""The connection of this process to a Temporal server. Requests under way are finished before it is closed, because what
they ask for, such as a wake-up, would otherwise be lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoRequest
from temporalio.client import Client
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.service import RetryConfig, RPCError, RPCStatusCode, TLSConfig

from cuebook.kernel.errors import BadInput
from cuebook.service.dispatch.dispatcher import Unreachable

log = logging.getLogger("cuebook")

T = TypeVar("T")

PATIENCE = timedelta(seconds=5)
"""The longest time that a request may take, and that connecting may take."""
_PARTING = 1.0
"""Seconds for the requests under way when the connection is closed. Then they are cut off."""
_SILENT = "it does not answer"


class Server(msgspec.Struct, frozen=True):
    """A Temporal server, as configured."""

    address: str
    namespace: str = "default"
    queue: str = "cuebook"
    api_key: str = ""
    tls: bool | None = None
    """Whether to use TLS; None if the other settings decide."""
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def __repr__(self) -> str:
        return f"Server({self.address!r}, {self.namespace!r}, {self.queue!r})"  # without the key


@cache
def _runtime() -> Runtime:
    """The threads that all connections of this process share. They log nothing: an outage would fill the log, and the code
    that meets a failure reports it.
    """
    return Runtime(telemetry=TelemetryConfig(logging=None))


class Connection:
    """Connects when it is first used, and again after a failure."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._client: Client | None = None
        self._connecting: asyncio.Task[Client] | None = None
        self._under_way: set[asyncio.Task[Any]] = set()
        self._is_lost = False

    def lost(self, error: Unreachable, run: str = "") -> None:
        """Warns that a request failed, once until the server responds again. `run` is what the request was about."""
        if not self._is_lost:
            self._is_lost = True
            about = f"run {run}: " if run else ""
            log.warning(
                "%s%s Until it is back, runs in progress continue, and waiting runs stay as they are.", about, error
            )

    def back(self) -> None:
        """Says that the server responds again, if it was lost."""
        if self._is_lost:
            self._is_lost = False
            log.warning("Temporal at %s responds again.", self.server.address)

    async def check(self) -> None:
        """Asks the server for a sign of life, and reports if it was lost or is back."""
        try:
            client = await self.client()
            await self.finished(client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=PATIENCE))
        except (Unreachable, RPCError) as error:
            self.lost(error if isinstance(error, Unreachable) else unreachable(self.server, error))
        else:
            self.back()

    async def client(self) -> Client:
        """The connected client. Raises `Unreachable`."""
        if self._client is None:
            if self._connecting is None or self._connecting.done():
                self._connecting = self._begin(self._connect())  # for all callers, who would wait one after the other
            self._client = await asyncio.shield(self._connecting)
        return self._client

    async def finished(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits a request. If the caller is cancelled, the request continues until it is finished."""
        return await asyncio.shield(self._begin(work))

    async def close(self) -> None:
        if self._under_way:
            _, late = await asyncio.wait(list(self._under_way), timeout=_PARTING)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self._client = self._connecting = None

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # the caller has seen it, or does not wait for it any more

    async def _connect(self) -> Client:
        server = self.server
        try:
            async with asyncio.timeout(PATIENCE.total_seconds()):  # the SDK waits longer for a server that is silent
                client = await Client.connect(
                    server.address,
                    namespace=server.namespace,
                    api_key=server.api_key or None,
                    tls=_tls(server),
                    connect_timeout=PATIENCE,
                    retry_config=RetryConfig(max_elapsed_time_millis=2_000, max_retries=4),
                    runtime=_runtime(),
                )
                asked = DescribeNamespaceRequest(namespace=server.namespace)
                await client.workflow_service.describe_namespace(asked, timeout=PATIENCE)
        except TimeoutError:
            raise unreachable(server, _SILENT) from None
        except RPCError as error:
            raise unreachable(server, error) from None
        except (RuntimeError, ValueError) as error:
            why = "refused" if "refused" in str(error) else "it does not answer as Temporal does"
            why = _SILENT if "imed out" in str(error) or "Timeout" in str(error) else why
            why = "unknown host" if "dns error" in str(error) else why
            why = "TLS failed" if "Invalid" in str(error) or "certificate" in str(error) else why
            raise unreachable(server, why) from None
        return client


def unreachable(server: Server, why: RPCError | str) -> Unreachable:
    """One line about a request that failed."""
    where = f"Temporal at {server.address}"
    if isinstance(why, RPCError):
        if why.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED):
            return Unreachable(
                f"{where} does not accept this client.", fix="Check temporal.api_key and temporal.tls_cert."
            )
        if why.status == RPCStatusCode.NOT_FOUND:
            return Unreachable(f"{where} has no namespace '{server.namespace}'.", fix="Check temporal.namespace.")
        timed_out = why.status in (RPCStatusCode.CANCELLED, RPCStatusCode.DEADLINE_EXCEEDED)
        why = _SILENT if timed_out else why.status.name.lower().replace("_", " ")
    return Unreachable(
        f"{where} cannot be reached: {why}.",
        fix="Check that it is running, and temporal.address and temporal.tls.",
    )


def _tls(server: Server) -> bool | TLSConfig:
    if server.tls is False:
        return False
    if server.ca is None and server.certificate is None:
        return bool(server.tls or server.api_key)
    return TLSConfig(
        server_root_ca_cert=_read(server.ca, "temporal.tls_ca"),
        client_cert=_read(server.certificate, "temporal.tls_cert"),
        client_private_key=_read(server.key, "temporal.tls_key"),
    )


def _read(path: Path | None, setting: str) -> bytes | None:
    try:
        return None if path is None else path.read_bytes()
    except OSError as error:
        raise BadInput(
            f"{setting}: cannot read {path}: {error.strerror}.", fix="Check the path and its permissions."
        ) from None
