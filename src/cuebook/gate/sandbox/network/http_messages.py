"""HTTP/1 messages as they pass through a proxy: their heads, checked and rewritten, and the framing of their bodies.

Whatever two servers could read differently is refused, so that nothing hides a second request in the first.
"""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple, NoReturn

from cuebook.formats.addresses import BadHost, Place, parse_place

MOST_BYTES = 1 << 16
"""The largest head."""
PIECE = 1 << 16

_REQUEST = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,40}) ([\x21-\x7e]+) HTTP/1\.([01])")
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9][0-9])(?: [\x09\x20-\x7e\x80-\xff]*)?")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\x09\x20-\x7e\x80-\xff]*?)[ \t]*")
_NUMBER = re.compile(rb"[0-9]{1,18}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\x09\x20-\x7e]*)?")
_OF_A_CONNECTION = frozenset(
    (
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"proxy-authorization",
        b"proxy-authenticate",
        b"upgrade",
        b"te",
    )
)
_ENDS = b"connection"

Fields = list[tuple[bytes, bytes]]


class BadMessage(Exception):
    """The message is not HTTP that everybody reads alike. The text completes a sentence."""


class Request(NamedTuple):
    method: bytes
    place: Place
    target: bytes
    """The path and the query; empty for a tunnel."""
    fields: Fields

    @property
    def tunnel(self) -> bool:
        return self.method == b"CONNECT"

    def head(self) -> bytes:
        """The request as it is sent on: in the form for a server, with one `Host`, for one answer."""
        host = self.place.url.authority if self.place.port == 80 else str(self.place)
        kept = [(name, value) for name, value in _own(self.fields) if name.lower() != b"host"]
        fields = [(b"Host", host.encode()), *kept, (b"Connection", b"close")]
        return _joined(self.method + b" " + self.target + b" HTTP/1.1", fields)


def parse_request(head: bytes) -> Request:
    line, fields = _parsed(head)
    found = _REQUEST.fullmatch(line)
    if found is None:
        _refuse("does not begin as an HTTP request does")
    method, target, minor = found.groups()
    if method == b"CONNECT":
        return Request(method, _place(target, None), b"", fields)
    if target[:7].lower() != b"http://":
        _refuse("does not name its host: expected an absolute http URL, or CONNECT for https")
    rest = target[7:]
    end = min((at for at in (rest.find(b"/"), rest.find(b"?")) if at >= 0), default=len(rest))
    place, path = _place(rest[:end], 80), rest[end:].partition(b"#")[0]
    named = _values(fields, b"host")
    if len(named) > 1 or (named and _place(named[0], 80) != place):
        _refuse("has a Host header that differs from its URL")
    if minor == b"0" and _values(fields, b"transfer-encoding"):
        _refuse("has a transfer encoding, which HTTP/1.0 does not know")
    return Request(method, place, path if path.startswith(b"/") else b"/" + path, fields)


class Answer(NamedTuple):
    status: int
    head: bytes
    """The head as it is passed on: it says that the connection ends with this answer."""


def parse_answer(head: bytes) -> Answer:
    line, fields = _parsed(head)
    found = _STATUS.fullmatch(line)
    if found is None:
        _refuse("does not begin as an HTTP answer does")
    status = int(found[1])
    ending = [(b"Connection", b"close")] if status >= 200 else []
    return Answer(status, _joined(line, [*_own(fields), *ending]))


async def pass_body(fields: Fields, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Passes on exactly the body that the fields announce, and nothing that follows it."""
    encodings, sizes = _values(fields, b"transfer-encoding"), _values(fields, b"content-length")
    if encodings and (sizes or encodings[0].lower() != b"chunked" or len(encodings) > 1):
        _refuse("has a body of uncertain length")
    if len(sizes) > 1 or not all(map(_NUMBER.fullmatch, sizes)):
        _refuse("has a body of uncertain length")
    if not encodings:
        await _pass(int(sizes[0]) if sizes else 0, reader, writer)
        return
    while True:
        found = _CHUNK.fullmatch((await reader.readuntil(b"\r\n"))[:-2])
        if found is None:
            _refuse("has a malformed chunk")
        size = int(found[1], 16)
        if not size:
            break
        writer.write(b"%x\r\n" % size)
        await _pass(size, reader, writer)
        if await reader.readexactly(2) != b"\r\n":
            _refuse("has a malformed chunk")
        writer.write(b"\r\n")
    while await reader.readuntil(b"\r\n") != b"\r\n":  # trailers are dropped
        pass
    writer.write(b"0\r\n\r\n")
    await writer.drain()


async def _pass(size: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while size:
        piece = await reader.read(min(size, PIECE))
        if not piece:
            _refuse("ends before its body does")
        size -= len(piece)
        writer.write(piece)
        await writer.drain()


def _parsed(head: bytes) -> tuple[bytes, Fields]:
    line, *lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    fields = []
    for one in lines:
        found = _FIELD.fullmatch(one)
        if found is None:
            _refuse("has a malformed header")
        fields.append((found[1], found[2]))
    return line, fields


def _place(text: bytes, port: int | None) -> Place:
    """The host and the port. Without a default, the port must be stated."""
    try:
        given = text.decode("ascii")
        stated = re.fullmatch(r"(?:[^:\[\]]+|\[[^\[\]]*\])(:[0-9]+)?", given)
        if stated is None or (port is None and not stated[1]):
            raise BadHost(given)
        return parse_place(given if stated[1] else f"{given}:{port}")
    except (BadHost, UnicodeDecodeError):
        _refuse("names a malformed host")


def _values(fields: Fields, name: bytes) -> list[bytes]:
    return [value for found, value in fields if found.lower() == name]


def _own(fields: Fields) -> Fields:
    """The fields that are not about the connection."""
    listed = {part.strip().lower() for value in _values(fields, _ENDS) for part in value.split(b",")}
    # A field that frames the body is passed on, whatever the sender calls it.
    dropped = _OF_A_CONNECTION | (listed - {b"content-length", b"transfer-encoding", b"host"})
    return [(name, value) for name, value in fields if name.lower() not in dropped]


def _joined(line: bytes, fields: Fields) -> bytes:
    return b"".join([line, b"\r\n", *(b"%b: %b\r\n" % field for field in fields), b"\r\n"])


def _refuse(why: str) -> NoReturn:
    raise BadMessage(why)
