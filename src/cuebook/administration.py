"""What operators decide for all runs of a tenant: users and their roles, names of secrets, overrides of the policy,
and what they trust. Every change says who made it; a secret's value never comes here.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from cuebook.gate.people import ROLES, Principal, User
from cuebook.gate.policy import Override, Policy, check_override
from cuebook.gate.secrets import check_handle, check_name
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.kernel.ports import Domain, Store

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
DOMAINS: tuple[Domain, ...] = ("tool", "command", "egress", "secret", "file", "model")

Today = Callable[[str], Awaitable[Policy]]
"""The policy that holds now, for a tenant."""


async def no_policy(tenant: str) -> Policy:
    """Nothing but the built-in defaults."""
    return Policy(())


class SecretName(msgspec.Struct, frozen=True):
    """A name for the place where a secret's value is found."""

    name: str
    handle: str
    owner: str
    created: float


class Administration:
    """Reads and writes what is decided for all runs."""

    def __init__(self, store: Store, today: Today, clock: Callable[[], float]) -> None:
        self.store = store
        self._today = today
        self._clock = clock

    async def policy(self, who: Principal = Principal()) -> Policy:
        who.require("viewer", "look at the policy")
        return await self._today(who.tenant)

    # --- users ---

    async def add_user(self, name: str, roles: Sequence[str], who: Principal = Principal()) -> tuple[User, str]:
        """Adds a user, or changes the roles of one; gives the token that proves who they are, shown only now."""
        who.require("admin", "change users")
        if not _NAME.fullmatch(name):
            raise BadInput(f"'{name}' cannot be the name of a user.", fix="Use letters, digits, and . _ @ -.")
        unknown = [role for role in roles if role not in ROLES]
        if unknown or not roles:
            wrong = f"There is no role '{unknown[0]}'." if unknown else "A user needs a role."
            raise BadInput(wrong, fix=f"There are: {', '.join(ROLES)}.")
        token = secrets.token_urlsafe(32)
        user = User(name, tuple(role for role in ROLES if role in roles), _digest(token), self._clock(), who.name)
        await self.store.keep(who.tenant, "user", name, msgspec.to_builtins(user))
        return user, token

    async def users(self, who: Principal = Principal()) -> list[User]:
        who.require("viewer", "look at users")
        return [msgspec.convert(body, User) for body in (await self.store.kept(who.tenant, "user")).values()]

    async def remove_user(self, name: str, who: Principal = Principal()) -> None:
        who.require("admin", "change users")
        if not await self.store.forget(who.tenant, "user", name):
            raise NotFound(f"There is no user '{name}'.", fix="`cuebook users list` shows who there is.")

    async def principal(self, name: str, tenant: str = "local") -> Principal:
        """A user by name, with the roles that were given to them."""
        body = (await self.store.kept(tenant, "user")).get(name)
        if body is None:
            raise NotFound(f"There is no user '{name}'.", fix=f"`cuebook users add {name} --role ROLE` adds one.")
        return Principal(name, tenant, frozenset(body["roles"]))

    async def principal_with(self, token: str, tenant: str = "local") -> Principal | None:
        """The user whose token this is."""
        given = _digest(token)
        for user in [msgspec.convert(body, User) for body in (await self.store.kept(tenant, "user")).values()]:
            if hmac.compare_digest(user.token, given):
                return Principal(user.name, tenant, frozenset(user.roles))
        return None

    # --- names of secrets ---

    async def add_secret(self, name: str, handle: str, who: Principal = Principal()) -> SecretName:
        who.require("admin", "name secrets")
        made = SecretName(check_name(name), check_handle(handle), who.name, self._clock())
        await self.store.keep(who.tenant, "secret", name, msgspec.to_builtins(made))
        return made

    async def secrets(self, who: Principal = Principal()) -> list[SecretName]:
        who.require("viewer", "look at the names of secrets")
        return [msgspec.convert(body, SecretName) for body in (await self.store.kept(who.tenant, "secret")).values()]

    async def remove_secret(self, name: str, who: Principal = Principal()) -> bool:
        who.require("admin", "name secrets")
        return await self.store.forget(who.tenant, "secret", name)

    # --- overrides: an `ask` of the policy that is answered beforehand ---

    async def add_override(
        self, domain: Domain, pattern: str, expires_after: float | None, who: Principal = Principal()
    ) -> Override:
        who.require("approver", "allow things beforehand")
        if domain not in DOMAINS:
            raise BadInput(f"There is no domain '{domain}'.", fix=f"There are: {', '.join(DOMAINS)}.")
        check_override(domain, pattern)
        now = self._clock()
        made = Override(
            id=f"o{secrets.token_hex(4)}",
            domain=domain,
            pattern=pattern,
            by=who.name,
            created=now,
            expires=None if expires_after is None else now + expires_after,
            tenant=who.tenant,
        )
        await self.store.keep(who.tenant, "override", made.id, msgspec.to_builtins(made))
        return made

    async def overrides(self, who: Principal = Principal()) -> list[Override]:
        who.require("viewer", "look at overrides")
        found = [msgspec.convert(body, Override) for body in (await self.store.kept(who.tenant, "override")).values()]
        return sorted(found, key=lambda override: override.created)

    async def revoke_override(self, name: str, who: Principal = Principal()) -> None:
        """It stays in the list, so that what it let through can be explained."""
        who.require("approver", "take back what was allowed")
        body = (await self.store.kept(who.tenant, "override")).get(name)
        if body is None:
            raise NotFound(f"There is no override '{name}'.", fix="`cuebook policy overrides` lists them.")
        await self.store.keep(who.tenant, "override", name, {**body, "revoked": True})

    # --- what was seen and is trusted ---

    async def trust(self, subject: str, digest: str, who: Principal = Principal()) -> None:
        who.require("admin", "trust things for everyone")
        await self.store.keep(who.tenant, "trust", subject, {"digest": digest, "by": who.name, "at": self._clock()})

    async def trusts(self, subject: str, who: Principal = Principal()) -> str | None:
        """The digest of what was trusted under this name."""
        who.require("viewer", "look at what is trusted")
        found = (await self.store.kept(who.tenant, "trust")).get(subject)
        return None if found is None else str(found["digest"])

    async def untrust(self, subject: str, who: Principal = Principal()) -> bool:
        who.require("admin", "trust things for everyone")
        return await self.store.forget(who.tenant, "trust", subject)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
