"""One connection to the server: opens it with the right credentials, and says whether another attempt makes sense."""

from __future__ import annotations

import os
import platform
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook import __version__
from cuebook.formats.addresses import Url
from cuebook.kernel.errors import BadInput, CuebookError, Refused
from cuebook.node.identity import Identity
from cuebook.performers.nodes.protocol import (
    CLOSE_CODES,
    MAX_MESSAGE,
    PATH,
    RETRIED,
    SILENCE_SECONDS,
    SUBPROTOCOL,
    VERSION,
    Ask,
    BadMessage,
    Call,
    Forget,
    Goodbye,
    Hello,
    Message,
    Offered,
    Stop,
    Welcome,
    digest,
    encode,
    from_server,
)
from cuebook.system.network import is_loopback

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

_OPENING = 20.0
_CLOSING = 3.0
_LARGEST_BODY = 65_536
_LATER = (408, 425, 429, 500, 502, 503, 504)
"""HTTP answers of a server, or of a proxy in front of it, that may be different later."""


_UNPAIRED = ("paired_already", "revoked", "renewed")
"""The reasons that are about the pairing."""


class Lost(Exception):
    """The connection ended, or there is none now; the message says why. Another attempt makes sense."""


class NotPaired(Refused):
    """The server does not know this node."""

    code = "not_paired"
    exit_code = 5


class Ended(Refused):
    """The server ended the connection, or does not accept it, and another attempt would not help."""

    def __init__(self, code: str, message: str, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.code = code  # type: ignore[misc]
        self.exit_code = 5 if code in _UNPAIRED else 2  # type: ignore[misc]


class WrongServer(BadInput):
    """There is no `cuebook serve` that accepts nodes at this address."""

    code = "wrong_server"


class Connection:
    """An open connection after its `Welcome`."""

    def __init__(self, socket: ClientConnection, welcome: Welcome, say: Callable[[str], None]) -> None:
        self._socket = socket
        self._say = say
        self.node = welcome.node

    async def send(self, message: Message) -> bool:
        """Sends a message; returns False if the connection is gone."""
        from websockets.exceptions import ConnectionClosed

        try:
            await self._socket.send(encode(message))
        except ConnectionClosed:
            return False
        return True

    async def messages(self) -> AsyncIterator[Call | Ask | Stop | Forget]:
        """What the server asks for. Raises `Lost` or `Ended` when there is no more."""
        while True:
            message = await _received(self._socket)
            if isinstance(message, Welcome):
                self._say(f"this node is called {message.node} now.")
            else:
                yield message


@asynccontextmanager
async def connected(
    server: Url, identity: Identity, token: str, offered: Iterable[Offered], say: Callable[[str], None]
) -> AsyncIterator[Connection]:
    """Opens a connection. With a token, it pairs this machine.

    Raises `Lost` if it may work later, otherwise a `CuebookError`; `NotPaired` if the server does not know the key or token.
    """
    socket = await _opened(server, token or identity.key)
    try:
        hello = Hello(
            protocol=VERSION,
            release=__version__,
            host=platform.node(),
            system=f"{platform.system()} {platform.machine()}",
            pid=os.getpid(),
            key=digest(identity.key) if token else "",
            capabilities=tuple(offered),
        )
        await _send_first(socket, hello)
        first = await _received(socket)
        if not isinstance(first, Welcome):
            raise Lost("its first message was unexpected")
        yield Connection(socket, first, say)
    finally:
        await socket.close(1001)


async def _send_first(socket: ClientConnection, hello: Hello) -> None:
    from websockets.exceptions import ConnectionClosed

    try:
        frame = encode(hello)
    except BadMessage:
        raise BadInput(
            "The description of what this node offers is too long.", fix="Offer less, or shorten the schemas."
        ) from None
    with suppress(ConnectionClosed):  # the server says why, which `_received` reads
        await socket.send(frame)


async def _opened(server: Url, credential: str) -> ClientConnection:
    from websockets.asyncio.client import connect
    from websockets.exceptions import (
        InvalidHandshake,
        InvalidMessage,
        InvalidProxy,
        InvalidStatus,
        NegotiationError,
        ProxyError,
    )

    class Direct(connect):
        """Follows no redirects: the key is for this address alone."""

        def process_redirect(self, exc: Exception) -> Exception:
            return exc

    scheme = "wss" if server.scheme == "https" else "ws"
    address = f"{scheme}://{server.authority}{server.path.rstrip('/')}{PATH}"
    try:
        return await Direct(
            address,
            additional_headers={"Authorization": f"Bearer {credential}"},
            subprotocols=[SUBPROTOCOL],  # type: ignore[list-item]
            user_agent_header=f"cuebook/{__version__}",
            compression=None,
            proxy=None if is_loopback(server.host) else True,
            open_timeout=_OPENING,
            close_timeout=_CLOSING,
            ping_interval=SILENCE_SECONDS / 2,
            ping_timeout=SILENCE_SECONDS / 2,
            max_size=MAX_MESSAGE,
        )
    except InvalidStatus as error:
        raise _refusal(server, error.response.status_code, bytes(error.response.body or b"")) from None
    except ssl.SSLCertVerificationError as error:
        raise WrongServer(
            f"The certificate of {server.origin} is not accepted: {error.verify_message}.",
            fix="Correct the address, or the certificate; SSL_CERT_FILE names additional authorities.",
        ) from None
    except ssl.SSLError as error:
        raise WrongServer(
            f"{server.origin} does not speak TLS ({error.reason}).", fix="Check the address, and whether it is https."
        ) from None
    except TimeoutError:
        raise Lost("it does not answer") from None
    except OSError as error:
        raise Lost(error.strerror or str(error)) from None
    except InvalidMessage as error:
        if isinstance(error.__cause__, EOFError):
            raise Lost("it closed the connection") from None
        raise WrongServer(f"{server.origin} does not speak HTTP.", fix="Check the address of --connect.") from None
    except ProxyError as error:
        raise Lost(f"the proxy did not connect to it ({error})") from None
    except InvalidProxy as error:
        raise BadInput(f"The proxy of the environment cannot be used: {error}.", fix="Correct HTTPS_PROXY.") from None
    except NegotiationError:
        raise _other_version(server) from None
    except InvalidHandshake as error:
        raise WrongServer(f"{server.origin} does not accept nodes: {error}.", fix="Check the address.") from None


def _refusal(server: Url, status: int, body: bytes) -> Exception:
    """What an HTTP answer in place of a connection means."""
    said = _body(body)
    message, fix = said.get("detail", ""), said.get("fix", "")
    if status == 401:
        return NotPaired(message or "The server does not know this node.", fix=fix)
    if status in _LATER:
        return Lost(message or f"it answered with HTTP {status}")
    if said.get("code") in CLOSE_CODES:
        return Ended(said["code"], message, fix)
    detail = f": {message}" if message else ""
    return WrongServer(
        f"{server.origin} does not accept nodes (HTTP {status}){detail}",
        fix=fix
        or "Check the address of --connect: it is the one that `cuebook serve` prints, without what follows the host.",
    )


def _body(body: bytes) -> dict[str, str]:
    """The fields of an error's problem details; empty if it is something else."""
    try:
        found: Any = msgspec.json.decode(body[:_LARGEST_BODY])
    except (msgspec.DecodeError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {name: _line(value) for name, value in found.items() if isinstance(value, str)}


def _line(text: str) -> str:
    """Text of the server as part of one line: with line breaks, it could look like a line of ours."""
    return " ".join(text.split())[:2000]


def _other_version(server: Url) -> CuebookError:
    return WrongServer(
        f"{server.origin} does not speak this node's protocol ({SUBPROTOCOL}).",
        fix="Check the address, and install the same version of Cuebook on both machines.",
    )


async def _received(socket: ClientConnection) -> Welcome | Call | Ask | Stop | Forget:
    """The next message. A `Goodbye` and a closed connection are errors."""
    from websockets.exceptions import ConnectionClosed

    try:
        message = from_server(await socket.recv())
    except BadMessage as error:
        await socket.close(CLOSE_CODES["bad_message"], "bad_message")
        raise Lost(f"it sent something that is not a message ({error.message[:200]})") from None
    except ConnectionClosed as error:
        raise _closed(error.rcvd.code if error.rcvd is not None else None) from None
    if isinstance(message, Goodbye):
        if message.code in RETRIED:
            raise Lost(_line(message.message) or message.code)
        raise Ended(message.code, _line(message.message), _line(message.fix))
    return message


def _closed(code: int | None) -> Exception:
    """What a connection that was closed without a `Goodbye` means."""
    named = {number: name for name, number in CLOSE_CODES.items()}.get(code or 0)
    if named is not None and named not in RETRIED:
        return Ended(named, f"The server ended the connection: {named.replace('_', ' ')}.")
    return Lost("the connection was cut" if code is None else f"it closed the connection ({code})")
