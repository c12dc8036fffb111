"""Authentication: the start link that works once, the cookie it is exchanged for, and bearer tokens.

A cookie is signed with the store's key, so it survives a restart of the server. It names a user and holds no secrets. The
user's roles are looked up with every request.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response

from cuebook.gate.roles import User, is_reserved
from cuebook.service.access.identity import WAY, Identities
from cuebook.service.service import Principal, Service

T = TypeVar("T", bound=msgspec.Struct)

LIVES = 7 * 24 * 3600
"""Seconds for which a cookie is valid."""
ENDED = "ended_session"
"""The kind of store record for sessions that ended early, kept until they would have expired."""
_EVERYONE = ""
_LOCAL = ""
"""The person at this machine, who is not a user and may do everything."""


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """The content of a cookie."""

    user: str
    tenant: str
    proof: str
    """The beginning of the digest of the token used to sign in: a new token ends old sessions."""
    until: int
    id: str = ""
    """The id of this session, so that it can be ended individually."""
    way: str = ""
    """`oidc` if the identity provider opened it."""
    recheck: int = 0
    """When the provider is asked again whether they are still signed in there, and in which groups."""


class Sessions:
    """Issues and checks start links, cookies and tokens."""

    def __init__(
        self,
        service: Service,
        serve_token: str = "",
        clock: Callable[[], float] = time.time,
        identities: Identities | None = None,
        public_url: str = "",
    ) -> None:
        """`public_url` is the address at which a proxy answers for this server, if it is known."""
        self._service = service
        self._identities = identities
        self.local = identities is None or identities.settings.local_sign_in
        """Whether people sign in with the start link and with tokens. Programs always send tokens."""
        self._sign = service.tokens.signer()
        self._clock = clock
        self._serve_token = serve_token
        self._start = ""
        self.linked = False
        """Whether this server gave out a start link. One whose output others read does not."""
        self._public = urlsplit(public_url)
        self.cookie = f"cuebook-{self._sign('cookie name')[:8]}"
        """The cookie's name without TLS. All ports of a machine share cookies, so each store uses a different name."""

    # --- signing in ---

    def new_start(self) -> str:
        """A new token for the start link: 256 bits, valid once. It replaces the previous one."""
        self._start, self.linked = secrets.token_urlsafe(32), True
        return self._start

    def take_start(self, given: str) -> Ticket | None:
        """The local person's ticket for the start link's token, which is then used up."""
        if not self.local or not self._start or not _same(given, self._start):
            return None
        self._start = ""
        return self._ticket(_LOCAL, "local", "")

    async def take_token(self, given: str) -> Ticket | None:
        """The ticket for the holder of this token."""
        who = await self.holder(given) if self.local else None
        if who is None:
            return None
        if self._serves(given):
            return self._ticket(_LOCAL, who.tenant, _proof(_digest(given)))
        return self._ticket(who.name, who.tenant, _proof(_digest(given)))

    async def ticket_of(self, who: Principal, session: Ticket | None = None) -> Ticket | None:
        """The ticket for someone whom the identity provider has signed in. If that continues a session of theirs, it stays the
        same one: when it ends, so do the cookies that it had before.
        """
        body = (await self._service.kept(who.tenant, "user")).get(who.name)
        if body is None or self._identities is None:
            return None
        settings, now = self._identities.settings, self._clock()
        proof = _identity_proof(msgspec.convert(body, User))
        same = session is not None and (session.user, session.tenant) == (who.name, who.tenant)
        return Ticket(
            who.name,
            who.tenant,
            proof,
            int(now + settings.session),
            session.id if session is not None and same else secrets.token_urlsafe(12),
            WAY,
            int(now + min(settings.recheck, settings.session)),
        )

    def open(self, connection: HTTPConnection, response: Response, ticket: Ticket) -> None:
        value, lives = self._sealed(ticket), max(1, ticket.until - int(self._clock()))
        name, secure = self.cookie_of(connection), self.is_over_tls(connection)
        response.set_cookie(name, value, max_age=lives, httponly=True, samesite="strict", secure=secure)

    def drop(self, connection: HTTPConnection, response: Response) -> None:
        """Removes the cookie from the browser."""
        name, secure = self.cookie_of(connection), self.is_over_tls(connection)
        response.delete_cookie(name, httponly=True, samesite="strict", secure=secure)

    def cookie_of(self, connection: HTTPConnection) -> str:
        """The cookie's name. With TLS, it is one that no other host of the domain can set: a cookie of an attacker's own session
        would otherwise make someone work as the attacker.
        """
        return f"__Host-{self.cookie}" if self.is_over_tls(connection) else self.cookie

    def is_over_tls(self, connection: HTTPConnection) -> bool:
        """Whether the browser reached this server over TLS, so that its cookies may require that."""
        public, host = self._public, connection.headers.get("host", "").lower()
        return connection.url.scheme in ("https", "wss") or (public.scheme == "https" and host == public.netloc.lower())

    def of_provider(self, connection: HTTPConnection) -> Ticket | None:
        """The ticket of a session that the identity provider opened."""
        ticket = self._ticket_of(connection)
        return ticket if ticket is not None and ticket.way == WAY else None

    def is_to_recheck(self, connection: HTTPConnection) -> bool:
        """Whether the identity provider is to be asked again about the session of a request."""
        ticket = self.of_provider(connection)
        return ticket is not None and not bearer_of(connection) and ticket.recheck <= self._clock()

    def is_overdue(self, connection: HTTPConnection) -> bool:
        """Whether the provider should have been asked long ago about the session of a request: twice as long as configured."""
        ticket, identities = self.of_provider(connection), self._identities
        if ticket is None or identities is None or bearer_of(connection):
            return False
        return ticket.recheck + identities.settings.recheck <= self._clock()

    async def close(self, connection: HTTPConnection, response: Response) -> None:
        """End the session of a request: its cookie and all copies of it become invalid."""
        self.drop(connection, response)
        await self.end(self._ticket_of(connection))

    async def end(self, ticket: Ticket | None) -> None:
        """End a session whose ticket is known: all of its cookies become invalid."""
        if ticket is None:
            return
        service, now = self._service, self._clock()
        for name, kept in (await service.kept(_EVERYONE, ENDED)).items():
            if kept["until"] < now:
                await service.forget(_EVERYONE, ENDED, name)
        longest = 0.0 if self._identities is None else now + self._identities.settings.session
        await service.keep(_EVERYONE, ENDED, _named(ticket), {"until": max(ticket.until, int(longest) + 1)})

    # --- authentication ---

    async def who(self, connection: HTTPConnection) -> Principal | None:
        """The principal of a request, by bearer token or cookie."""
        bearer = bearer_of(connection)
        if bearer:
            return await self.holder(bearer)
        return await self._of_ticket(self._ticket_of(connection))

    async def holder(self, token: str) -> Principal | None:
        """The holder of a token: the server's own token, or the token of a user of any tenant."""
        if self._serves(token):
            return Principal()
        for tenant in await self._service.tenants("user"):
            found = await self._service.principal_with(token, tenant)
            if found is not None:
                return found
        return None

    async def _of_ticket(self, ticket: Ticket | None) -> Principal | None:
        if ticket is None or ticket.until < self._clock():
            return None
        if _named(ticket) in await self._service.kept(_EVERYONE, ENDED):
            return None
        if ticket.way != WAY and not self.local:
            return None
        if ticket.user == _LOCAL:
            by_token = bool(ticket.proof)
            known = self._serve_token and _same(ticket.proof, _proof(_digest(self._serve_token)))
            return None if by_token and not known else Principal()
        body = (await self._service.kept(ticket.tenant, "user")).get(ticket.user)
        if body is None or is_reserved(ticket.user):
            return None
        user = msgspec.convert(body, User)
        if ticket.way != WAY:
            known = _same(_proof(user.token), ticket.proof)
            return Principal(ticket.user, ticket.tenant, frozenset(user.roles)) if known else None
        if self._identities is None or user.issuer != self._identities.settings.issuer:
            return None
        if not user.all_roles or not _same(_identity_proof(user), ticket.proof):
            return None
        return Principal(ticket.user, ticket.tenant, frozenset(user.all_roles))

    # --- inside ---

    def _serves(self, token: str) -> bool:
        return bool(self._serve_token) and _same(token, self._serve_token)

    def _ticket(self, user: str, tenant: str, proof: str) -> Ticket:
        return Ticket(user, tenant, proof, int(self._clock()) + LIVES, secrets.token_urlsafe(12))

    def _ticket_of(self, connection: HTTPConnection) -> Ticket | None:
        return self._read(connection.cookies.get(self.cookie_of(connection), ""))

    def _sealed(self, ticket: Ticket) -> str:
        return self.sealed("session", ticket)

    def _read(self, value: str) -> Ticket | None:
        return self.unsealed("session", value, Ticket)

    def sealed(self, what: str, value: msgspec.Struct) -> str:
        """A value for a cookie, signed for this purpose."""
        body = urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")
        return f"{body}.{self._sign(f'{what} {body}')}"

    def unsealed(self, what: str, value: str, kind: type[T]) -> T | None:
        """The value of a cookie that this server signed for this purpose."""
        body, dot, seal = value.partition(".")
        if not dot or not _same(seal, self._sign(f"{what} {body}")):
            return None
        try:
            return msgspec.json.decode(urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=kind)
        except (ValueError, msgspec.DecodeError):
            return None


def _named(ticket: Ticket) -> str:
    """The name of the store record that marks a session as ended."""
    return ticket.id or _digest(f"{ticket.user} {ticket.tenant} {ticket.until}")


def bearer_of(connection: HTTPConnection) -> str:
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


def _same(given: str, kept: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), kept.encode())


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _proof(digest: str) -> str:
    return digest[:16]


def _identity_proof(user: User) -> str:
    """Changes when someone is linked to another subject, gets a new token, or is removed and added again, which ends their
    sessions."""
    return _proof(_digest(f"{user.issuer} {user.subject} {user.token} {user.created!r}"))
