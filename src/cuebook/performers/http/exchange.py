"""One request and its response over a connection to a checked address.

The name is looked up once, every address it resolves to is checked, and the connection goes to one of these. Redirects
are not followed, nothing is kept between requests, and nothing is read from the environment. Policies are applied
elsewhere.
"""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import msgspec

from cuebook.formats.addresses import Private, Url, check_addresses, check_host
from cuebook.kernel.engine.descriptors import NoDescriptors, exhausted, lacks_descriptors
from cuebook.kernel.files import Pieces
from cuebook.kernel.outcomes import Failed
from cuebook.performers.files.spool import LARGEST
from cuebook.system import lazy_imports
from cuebook.system.network import Resolver, is_loopback, system_tls

HEADER_BYTES = 65_536
"""Larger response headers are treated as an attack. Each header counts as 32 bytes more than its length, as in HTTP/2."""

_MOVED = (301, 302, 303, 307, 308)

_TRY_SECONDS = 5.0
"""How many seconds to try one of several addresses before the next."""

_FRAMING_SLACK = 1 << 20
_FRAMING_FACTOR = 8
"""A one-byte chunk takes six bytes on the wire; a server that sends much more than that wants to keep us busy."""


_UNPACKED = 1 << 20
"""How many bytes are decompressed at once."""


class Ended(Exception):
    """The exchange failed."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.message)
        self.failed = failed


class Outgoing(msgspec.Struct, frozen=True):
    """A request, ready to be sent."""

    method: str
    url: Url
    headers: tuple[tuple[str, str], ...]
    body: bytes = b""
    stream: Pieces | None = None
    """The body, if it is too large to be in memory."""
    length: int = 0
    """Of the stream, in bytes."""

    @property
    def has_body(self) -> bool:
        return bool(self.body) or self.stream is not None


class Incoming(msgspec.Struct, frozen=True):
    """The response. The body is decoded and cut at the limit."""

    status: int
    headers: dict[str, str]
    locations: tuple[str, ...]
    """The `Location` headers of the response."""
    body: bytes = b""
    truncated: bool = False
    size: int = 0
    """The full size of a body that was cut; 0 if the server did not announce it."""

    @property
    def moved(self) -> bool:
        return self.status in _MOVED and bool(self.locations)


class Progress:
    """The progress of an exchange, for the error if it is cut short."""

    def __init__(self) -> None:
        self.sent = False
        """Whether anything may have reached a server, this one or one that redirected to it."""
        self.origin = ""
        self.status = 0
        self.received = 0

    def begin(self, url: Url) -> None:
        self.origin, self.status, self.received = url.origin, 0, 0


async def exchange(
    outgoing: Outgoing,
    *,
    limit: int,
    private: Private,
    resolve: Resolver,
    progress: Progress,
    tls: ssl.SSLContext | None = None,
    sink: Callable[[bytes], None] | None = None,
) -> Incoming:
    """Sends the request and reads at most `limit` bytes of the body. Raises `Ended`, `BadUrl` or `RefusedAddress`. The body
    of a successful response goes to the `sink`, if there is one, and is limited by it alone.
    """
    url = outgoing.url
    progress.begin(url)
    http = await lazy_imports.load("httpcore2")
    wire = _Wire(
        http, url, private, resolve, progress, _FRAMING_SLACK + _FRAMING_FACTOR * (limit if sink is None else LARGEST)
    )
    if tls is None and url.scheme == "https":
        tls = system_tls()
    connection = http.AsyncHTTPConnection(
        http.Origin(url.scheme.encode(), url.host.encode(), url.port),
        ssl_context=tls,
        network_backend=wire,
    )
    request = http.Request(
        outgoing.method,
        http.URL(scheme=url.scheme.encode(), host=url.host.encode(), port=url.port, target=url.target.encode("ascii")),
        headers=[(name.encode(), value.encode()) for name, value in _framed(outgoing)],
        content=outgoing.body if outgoing.stream is None else outgoing.stream(),
    )
    try:
        response = await connection.handle_async_request(request)
        return await _read(response, outgoing, limit, progress, sink)
    except http.LocalProtocolError:
        # Its message may quote a header, which may contain a secret.
        raise Ended(
            Failed("bad_request", f"The request to {url.origin} cannot be sent as HTTP.", "Check its headers.")
        ) from None
    except (http.ProtocolError, http.NetworkError) as error:
        raise Ended(_broken(error, url, wire)) from None
    finally:
        await wire.aclose()


def _framed(outgoing: Outgoing) -> list[tuple[str, str]]:
    headers = [("Host", outgoing.url.authority), *outgoing.headers, ("Connection", "close")]
    if outgoing.has_body or outgoing.method in ("POST", "PUT", "PATCH"):
        length = len(outgoing.body) if outgoing.stream is None else outgoing.length
        headers.append(("Content-Length", str(length)))
    return headers


def _broken(error: Exception, url: Url, wire: _Wire) -> Failed:
    if wire.ended:
        return Failed("dropped", f"{url.origin} closed the connection before its response was complete.")
    return Failed(
        "bad_response",
        f"{url.origin} sent something that is not HTTP: {str(error)[:200]}.",
        fix="Check the address and port.",
    )


# --- the wire ---------------------------------------------------------------------------------------


class _Wire:
    """Opens the connection. This is the only place where a name becomes an address."""

    def __init__(
        self, http: Any, url: Url, private: Private, resolve: Resolver, progress: Progress, limit: int
    ) -> None:
        self.http = http
        self._url = url
        self._private = private
        self._resolve = resolve
        self.progress = progress
        self.limit = limit
        self._connected: Any = None
        self._received = 0
        self.ended = False
        """Whether the server has closed its side."""

    async def connect_tcp(self, host: str, port: int, **options: Any) -> _Stream:
        addresses = await self._addresses()
        backend = self.http.AnyIOBackend()
        reason = ""
        for index, address in enumerate(addresses):
            last = index == len(addresses) - 1
            try:
                self._connected = await backend.connect_tcp(
                    address, self._url.port, timeout=None if last else _TRY_SECONDS
                )
            except (self.http.ConnectError, self.http.ConnectTimeout) as error:
                if lacks_descriptors(error):
                    raise NoDescriptors from None
                reason = str(error) or "no answer"
                continue
            return _Stream(self._connected, self)
        raise Ended(
            Failed(
                "unreachable",
                f"{self._url.origin} cannot be reached: {reason}.",
                fix="Check that the server is up, and check the port.",
            )
        )

    async def aclose(self) -> None:
        if self._connected is not None:
            await self._connected.aclose()

    async def _addresses(self) -> list[str]:
        url = self._url
        check_host(url, self._private)
        if url.address is not None:
            return [url.host]
        if is_loopback(url.host):
            return ["127.0.0.1", "::1"]  # these names mean this machine, even if a resolver says otherwise
        try:
            found = list(await self._resolve(url.host, url.port))
        except (OSError, UnicodeError) as error:
            if lacks_descriptors(error) or exhausted():
                raise NoDescriptors from None
            raise Ended(self._unknown(getattr(error, "strerror", "") or "no such name")) from None
        if not found:
            raise Ended(self._unknown("it has no address"))
        return check_addresses(url, found, self._private)

    def _unknown(self, why: str) -> Failed:
        message = f"The name {self._url.host} cannot be looked up: {why}."
        return Failed("unreachable", message, fix="Check its spelling and the network.")

    def count(self, data: bytes) -> bytes:
        self.ended = not data
        self._received += len(data)
        if self._received > self.limit:
            raise Ended(
                Failed(
                    "bad_response",
                    f"{self._url.origin} sent far more data than its response contains.",
                    fix="Check the server.",
                )
            )
        return data

    def tls_failed(self, error: Exception) -> Failed:
        reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
        return Failed(
            "tls",
            f"Could not establish a secure connection to {self._url.origin}: {str(reason).strip().rstrip('.')}.",
            fix="Check the name and the server's certificate.",
        )

    def dropped(self, during: str) -> Failed:
        return Failed("dropped", f"{self._url.origin} dropped the connection {during}.")


class _Stream:
    """A connection that counts the received bytes and translates its errors."""

    def __init__(self, raw: Any, wire: _Wire) -> None:
        self._raw = raw
        self._wire = wire

    async def read(self, max_bytes: int, **options: Any) -> bytes:
        try:
            data: bytes = await self._raw.read(max_bytes, **options)
        except ssl.SSLError as error:
            raise Ended(self._wire.tls_failed(error)) from None
        except (self._wire.http.ReadError, OSError):
            raise Ended(self._wire.dropped("before its response was complete")) from None
        return self._wire.count(data)

    async def write(self, buffer: bytes, **options: Any) -> None:
        self._wire.progress.sent = True
        try:
            await self._raw.write(buffer, **options)
        except ssl.SSLError as error:
            raise Ended(self._wire.tls_failed(error)) from None

    async def aclose(self) -> None:
        await self._raw.aclose()

    async def start_tls(self, ssl_context: ssl.SSLContext, **options: Any) -> _Stream:
        try:
            secured = await self._raw.start_tls(ssl_context, **options)
        except (self._wire.http.ConnectError, OSError) as error:
            cause = error if isinstance(error, ssl.SSLError) else error.__cause__
            if isinstance(cause, ssl.SSLError):
                raise Ended(self._wire.tls_failed(cause)) from None
            raise Ended(self._wire.dropped("while it was being secured")) from None
        return _Stream(secured, self._wire)

    def get_extra_info(self, info: str) -> Any:
        return self._raw.get_extra_info(info)


# --- the response -----------------------------------------------------------------------------------


async def _read(
    response: Any, outgoing: Outgoing, limit: int, progress: Progress, sink: Callable[[bytes], None] | None
) -> Incoming:
    origin = outgoing.url.origin
    progress.status = response.status
    headers = _headers(response.headers, origin)
    if response.status == 101:
        raise Ended(Failed("bad_response", f"{origin} changed the protocol without being asked."))
    locations = tuple(_text(value) for name, value in response.headers if name.lower() == b"location")
    incoming = Incoming(response.status, headers, locations)
    if incoming.moved:
        return incoming  # its body is not used
    if sink is not None and response.status < 400:
        limit = LARGEST
    else:
        sink = None
    body = _Body(limit, headers.get("content-encoding", ""), origin, sink)
    async with aclosing(response.aiter_stream()) as pieces:
        async for piece in pieces:
            progress.received += len(piece)
            if body.take(piece):
                break
    size = _announced(headers) if body.truncated else 0
    return msgspec.structs.replace(incoming, body=body.finish(), truncated=body.truncated, size=size)


def _announced(headers: Mapping[str, str]) -> int:
    """The size of a body as announced by its server; 0 if it is missing, or is the size of a compressed body."""
    given = headers.get("content-length", "")
    packed = headers.get("content-encoding", "") not in ("", "identity")
    return int(given) if given.isdecimal() and len(given) < 16 and not packed else 0


def _headers(raw: Sequence[tuple[bytes, bytes]], origin: str) -> dict[str, str]:
    if sum(len(name) + len(value) + 32 for name, value in raw) > HEADER_BYTES:
        raise Ended(Failed("bad_response", f"{origin} sent more than {HEADER_BYTES} bytes of headers."))
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), _text(value)
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def _text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


class _Body:
    """Keeps the first bytes of a body, decompressed if necessary, and never decompresses more than it keeps."""

    def __init__(self, limit: int, encoding: str, origin: str, sink: Callable[[bytes], None] | None = None) -> None:
        self._limit = limit
        self._sink = sink
        self._origin = origin
        self._pieces: list[bytes] = []
        self._kept = 0
        self._encoding = encoding.strip().lower()
        self._unpacker: Any = None
        self._began = False
        self.truncated = False

    def take(self, piece: bytes) -> bool:
        """Returns whether the limit is reached."""
        if self._encoding in ("", "identity"):
            self._keep(piece)
        elif self._encoding in ("gzip", "x-gzip", "deflate"):
            self._unpack(piece)
        else:
            raise Ended(self._unreadable(f"is compressed as {self._encoding[:40]!a}, which was not requested"))
        return self.truncated

    def finish(self) -> bytes:
        if self._began and not self.truncated and not self._unpacker.eof:
            raise Ended(self._unreadable("ends in the middle of its compressed data"))
        return b"".join(self._pieces)

    def _keep(self, piece: bytes) -> None:
        room = self._limit - self._kept
        self.truncated = len(piece) > room
        kept = piece[:room]
        if self._sink is None:
            self._pieces.append(kept)
        else:
            self._sink(kept)
        self._kept += len(kept)

    def _unpack(self, packed: bytes) -> None:
        if not self._began:
            self._began = True
            # Some servers send `deflate` without its header; the first byte shows which.
            bare = self._encoding == "deflate" and packed[:1] and packed[0] & 0x0F != 8
            self._unpacker = zlib.decompressobj(-zlib.MAX_WBITS if bare else zlib.MAX_WBITS | 32)
        while packed and not self.truncated:
            if self._unpacker.eof:
                packed = packed.lstrip(b"\0")  # padding, which the format allows at the end
                if self._encoding == "deflate" or not packed:
                    return
                self._unpacker = zlib.decompressobj(zlib.MAX_WBITS | 32)
            try:
                piece = self._unpacker.decompress(packed, min(self._limit - self._kept + 1, _UNPACKED))
            except zlib.error:
                raise Ended(
                    self._unreadable(f"is not compressed as {self._encoding}, although its headers say so")
                ) from None
            self._keep(piece)
            packed = self._unpacker.unused_data or self._unpacker.unconsumed_tail

    def _unreadable(self, why: str) -> Failed:
        return Failed("bad_response", f"The response from {self._origin} {why}.", fix="Request it uncompressed.")
