"""The host that a TLS client asks for, read from its first message. Nothing is decrypted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D
_MOST = 1 << 16
"""The largest first message, in bytes. With several key shares, it has a few thousand."""
_RECORD = 1 << 14


class NotTls(Exception):
    """The client does not begin as TLS does, or hides the host that it asks for. The message completes a sentence."""


async def read(exactly: Callable[[int], Awaitable[bytes]]) -> tuple[bytes, str]:
    """The bytes of the client's first message, and the server name in it; empty if it has none."""
    raw, message = b"", b""
    while len(message) < 4 or len(message) < 4 + int.from_bytes(message[1:4]):
        header = await exactly(5)
        size = int.from_bytes(header[3:5])
        if header[0] != _HANDSHAKE or header[1] != 3 or not 0 < size <= _RECORD:
            raise NotTls("it does not begin with a TLS handshake")
        record = await exactly(size)
        raw, message = raw + header + record, message + record
        if message[0] != _CLIENT_HELLO or len(message) > _MOST:
            raise NotTls("it does not begin with a TLS handshake")
    return raw, _server_name(message[4 : 4 + int.from_bytes(message[1:4])])


def _server_name(hello: bytes) -> str:
    names: list[bytes] = []
    body = _Bytes(hello)
    body.take(2 + 32)  # the version and the random bytes
    body.vector(1)  # the session
    body.vector(2)  # the ciphers
    body.vector(1)  # the compression methods
    extensions = _Bytes(body.vector(2)) if body.left else _Bytes(b"")
    while extensions.left:
        kind, data = int.from_bytes(extensions.take(2)), extensions.vector(2)
        if kind == _ENCRYPTED_HELLO:
            raise NotTls("it encrypts the name of the host (ECH)")
        if kind == _SERVER_NAME:
            listed = _Bytes(_Bytes(data).vector(2))
            while listed.left:
                if listed.take(1) != b"\0":
                    raise NotTls("it names the host in an unknown form")
                names.append(listed.vector(2))
    if len(names) > 1:
        raise NotTls("it names more than one host")
    try:
        return names[0].decode("ascii").lower() if names else ""
    except UnicodeDecodeError:
        raise NotTls("it names the host in an unknown form") from None


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        if self.left < count:
            raise NotTls("its TLS handshake is malformed")
        self._at += count
        return self._data[self._at - count : self._at]

    def vector(self, prefix: int) -> bytes:
        """The bytes after their length, which is given in so many bytes."""
        return self.take(int.from_bytes(self.take(prefix)))
