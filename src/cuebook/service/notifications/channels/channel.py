"""`Channel`, which each way to send a message implements, and `Poster`, which they send HTTP requests with."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from cuebook import __version__
from cuebook.config.notifications import ChannelSettings
from cuebook.formats.addresses import Url, parse_url
from cuebook.kernel.errors import BadInput
from cuebook.service.notifications.message import Message

Reveal = Callable[[str], Awaitable[str]]
"""Returns the value of a secret's handle. The manager that has it may be slow."""
PATIENCE = 20.0
"""Seconds for one attempt."""
_ANSWER = 16_384


class Undelivered(Exception):
    """A message was not delivered. The words contain no secret and nothing of the message."""

    def __init__(self, why: str, *, after: float | None = None, final: bool = False, down: bool = False) -> None:
        """`after` is for how many seconds the receiver does not want to be asked again; `final` messages are given up. `down`
        says that other messages would not be delivered now either.
        """
        super().__init__(why)
        self.why = why
        self.after = after
        self.final = final
        self.down = down or after is not None


class Recipient(msgspec.Struct, frozen=True):
    """One person, as a channel knows them."""

    name: str
    address: str
    """An e-mail address, or the id of a Slack account."""


class Channel(Protocol):
    """Sends messages to one place."""

    settings: ChannelSettings

    async def send(self, message: Message, now: float, to: Recipient | None) -> dict[str, Any]:
        """Sends a message, and returns what is needed to change it later, if anything. Raises `Undelivered`."""
        ...


async def revealed(reveal: Reveal, handle: str) -> str:
    """The value of a secret."""
    try:
        return await reveal(handle)
    except BadInput as problem:
        raise Undelivered(str(problem)) from None


class Answer(msgspec.Struct, frozen=True):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def is_down(self) -> bool:
        return self.status == 429 or self.status >= 500

    @property
    def after(self) -> float | None:
        """For how many seconds the server does not want to be asked again."""
        given = self.headers.get("retry-after", "")
        return float(given) if given.isascii() and given.isdigit() and len(given) <= 6 else None

    def json(self) -> dict[str, Any]:
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


async def post(url: str, body: bytes, headers: Mapping[str, str], *, shown: str) -> Answer:
    """Sends a request to a configured address, and follows no redirect. `shown` names the receiver in errors: the URL itself
    may be a secret.
    """
    from cuebook.kernel.engine.descriptors import NoDescriptors
    from cuebook.performers.http.exchange import Ended, Outgoing, Progress, exchange
    from cuebook.system.network import look_up

    try:
        target = parse_url(url)
    except BadInput:
        raise Undelivered(f"The address of {shown} is not a valid URL.") from None

    def configured(host: str, port: int) -> bool:
        return (host, port) == (target.host, target.port)

    given = {"User-Agent": f"cuebook/{__version__}", "Content-Type": "application/json", **headers}
    outgoing = Outgoing("POST", target, tuple(given.items()), body)
    try:
        async with asyncio.timeout(PATIENCE):
            found = await exchange(outgoing, limit=_ANSWER, private=configured, resolve=look_up, progress=Progress())
    except TimeoutError:
        raise Undelivered(f"{shown} did not answer within {PATIENCE:g} s.", down=True) from None
    except Ended as ended:
        raise Undelivered(_without(ended.failed.message, target, shown), down=True) from None
    except NoDescriptors:
        raise Undelivered("This process has no file descriptors left.") from None
    except BadInput as refused:
        raise Undelivered(_without(refused.message, target, shown)) from None
    return Answer(found.status, found.headers, found.body)


def _without(words: str, url: Url, shown: str) -> str:
    """An error without the URL, whose path or query may be a secret, and without what a terminal would interpret."""
    words = words.replace(str(url), shown)[:300]
    return "".join(one if one.isprintable() else "?" for one in words)
