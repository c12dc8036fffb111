"""Signing in with an identity provider: who its tokens are for, and what is recorded about that."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256

import msgspec

from cuebook.gate.identity import Identity, IdentitySettings, Provider
from cuebook.gate.identity.claims import has_too_many_groups, identity_of
from cuebook.gate.identity.provider import LEEWAY, Login
from cuebook.gate.roles import ROLES, NotAllowed, Origin, Principal
from cuebook.service.access.people import People
from cuebook.service.access.sign_ins import SignIns

WAY = "oidc"
_REMEMBERED = 10_000


class _Seen(msgspec.Struct, frozen=True):
    """An access token that was checked: whose it is, and until when it holds."""

    name: str
    subject: str
    until: float
    limit: frozenset[str] | None


class Identities:
    """Turns codes and access tokens of the provider into principals of the store."""

    def __init__(self, provider: Provider, people: People, sign_ins: SignIns, clock: Callable[[], float]) -> None:
        self.provider = provider
        self._people = people
        self._sign_ins = sign_ins
        self._clock = clock
        self._seen: OrderedDict[str, _Seen] = OrderedDict()

    @property
    def settings(self) -> IdentitySettings:
        return self.provider.settings

    async def signed_in(
        self, code: str, login: Login, redirect_uri: str, origin: Origin, *, known: str = ""
    ) -> Principal:
        """Who comes back from the provider with this code. Raises `NotAllowed` or `ProviderDown`.

        `known` is who was signed in before, which is not recorded a second time.
        """
        subject = ""
        try:
            claims = await self.provider.claims_of_code(code, login, redirect_uri)
            subject = str(claims["sub"])
            if has_too_many_groups(claims, self.settings):
                raise NotAllowed(
                    f"{self.settings.label} says that this account is in too many groups to list them.",
                    fix="Ask an admin to configure groups_claim with roles of the application.",
                )
            # A sign-in without groups is one of someone who is in none.
            found = identity_of(claims, self.settings)
            identity = msgspec.structs.replace(found, has_groups=True, limit=None, is_answer=True)
            who = await self._principal(identity, origin)
        except NotAllowed as error:
            await self._sign_ins.failed(WAY, error.message, origin, subject)
            raise
        if who.name != known:
            await self._sign_ins.succeeded(who, WAY, subject=subject)
        return who

    async def bearer(self, token: str, audience: str, origin: Origin) -> Principal | None:
        """Whom an access token for this audience is for; None if it is not valid. Raises `ProviderDown`."""
        key = sha256(f"{audience} {token}".encode()).hexdigest()
        seen = self._seen.get(key)
        if seen is not None:
            return await self._still(seen)
        try:
            claims = await self.provider.access_claims(token, audience)
            identity = identity_of(claims, self.settings)
            who = await self._principal(identity, origin)
        except NotAllowed as error:
            await self._sign_ins.failed("access token", error.message, origin)
            return None
        self._seen[key] = _Seen(who.name, identity.subject, float(claims["exp"]) + LEEWAY, identity.limit)
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        await self._sign_ins.succeeded(who, "access token", subject=identity.subject)
        return _limited(who, identity.limit)

    async def _principal(self, identity: Identity, origin: Origin) -> Principal:
        who = await self._people.sign_in(identity, Principal(origin=origin))
        return msgspec.structs.replace(who, origin=origin)

    async def _still(self, seen: _Seen) -> Principal | None:
        if self._clock() >= seen.until:
            return None
        user = await self._people.find(self.settings.issuer, seen.subject)
        if user is None or not user.all_roles:
            return None
        return _limited(self._people.principal(user), seen.limit)


def _limited(who: Principal, limit: frozenset[str] | None) -> Principal:
    """The principal with the roles that the scopes of its token allow."""
    if limit is None:
        return who
    return msgspec.structs.replace(who, roles=frozenset(role for role in ROLES if role in limit and who.may(role)))
