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

from cuebook.gate.people import RESERVED, ROLES, NotAllowed, Principal, User, is_reserved
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
        """Adds a user; gives the token that proves who they are, shown only now."""
        who.require("admin", "change users")
        if not _NAME.fullmatch(name):
            raise BadInput(f"'{name}' cannot be the name of a user.", fix="Use letters, digits, and . _ @ -.")
        if is_reserved(name):
            raise BadInput(
                f"'{name}' cannot be the name of a user: Cuebook uses it for itself in journals.",
                fix=f"Choose another: reserved are {', '.join(RESERVED)}, and what begins with 'trigger.'.",
            )
        if name in await self.store.kept(who.tenant, "user"):
            raise BadInput(
                f"There is a user '{name}' already; nothing was changed.",
                fix=f"`cuebook users grant {name} --role ROLE` gives a role, `cuebook users revoke` takes one away, and"
                f" `cuebook users token {name}` makes a new token.",
            )
        return await self._with_token(User(name, _roles(roles), "", self._clock(), who.name), who)

    async def grant(self, name: str, roles: Sequence[str], who: Principal = Principal()) -> User:
        """Gives a user roles besides those that they have. Their token and sessions stay."""
        who.require("admin", "change users")
        user = await self._user(name, who.tenant)
        return await self._with_roles(user, _roles((*user.roles, *_roles(roles))), who)

    async def revoke(self, name: str, roles: Sequence[str], who: Principal = Principal()) -> User:
        """Takes roles from a user. Their token and sessions stay, and can do less."""
        who.require("admin", "change users")
        user, taken = await self._user(name, who.tenant), _roles(roles)
        lacking = [role for role in taken if role not in user.roles]
        if lacking:
            raise BadInput(f"{name} does not have the role {lacking[0]}.", fix=f"{name} has {', '.join(user.roles)}.")
        left = [role for role in user.roles if role not in taken]
        if not left:
            raise BadInput(f"{name} would have no role left.", fix=f"`cuebook users remove {name}` removes them.")
        return await self._with_roles(user, _roles(left), who)

    async def renew_token(self, name: str, who: Principal = Principal()) -> tuple[User, str]:
        """A new token for a user, shown only now. The old one ends, and their sessions with it."""
        who.require("admin", "change users")
        return await self._with_token(await self._user(name, who.tenant), who)

    async def users(self, who: Principal = Principal()) -> list[User]:
        who.require("viewer", "look at users")
        return [msgspec.convert(body, User) for body in (await self.store.kept(who.tenant, "user")).values()]

    async def remove_user(self, name: str, who: Principal = Principal()) -> None:
        who.require("admin", "change users")
        if not await self.store.forget(who.tenant, "user", name):
            raise NotFound(f"There is no user '{name}'.", fix="`cuebook users list` shows who there is.")

    async def principal(self, name: str, tenant: str = "local") -> Principal:
        """A user by name, with the roles that were given to them."""
        user = await self._user(name, tenant)
        if is_reserved(name):
            raise NotAllowed(misnamed(name))
        return Principal(name, tenant, frozenset(user.roles))

    async def principal_with(self, token: str, tenant: str = "local") -> Principal | None:
        """The user whose token this is."""
        given = _digest(token)
        for user in [msgspec.convert(body, User) for body in (await self.store.kept(tenant, "user")).values()]:
            if hmac.compare_digest(user.token, given) and not is_reserved(user.name):
                return Principal(user.name, tenant, frozenset(user.roles))
        return None

    async def _user(self, name: str, tenant: str) -> User:
        body = (await self.store.kept(tenant, "user")).get(name)
        if body is None:
            raise NotFound(f"There is no user '{name}'.", fix=f"`cuebook users add {name} --role ROLE` adds one.")
        return msgspec.convert(body, User)

    async def _with_roles(self, user: User, roles: tuple[str, ...], who: Principal) -> User:
        changed = msgspec.structs.replace(user, roles=roles)
        await self.store.keep(who.tenant, "user", user.name, msgspec.to_builtins(changed))
        return changed

    async def _with_token(self, user: User, who: Principal) -> tuple[User, str]:
        token = secrets.token_urlsafe(32)
        changed = msgspec.structs.replace(user, token=_digest(token))
        await self.store.keep(who.tenant, "user", user.name, msgspec.to_builtins(changed))
        return changed, token

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


def _roles(given: Sequence[str]) -> tuple[str, ...]:
    """These, each once, in their order."""
    unknown = [role for role in given if role not in ROLES]
    if unknown or not given:
        wrong = f"There is no role '{unknown[0]}'." if unknown else "A user needs a role."
        raise BadInput(wrong, fix=f"There are: {', '.join(ROLES)}.")
    return tuple(role for role in ROLES if role in given)


def misnamed(name: str) -> str:
    """What to do about a user of an older store whose name is reserved by now."""
    return (
        f"The user '{name}' has a name that Cuebook uses for itself, and cannot sign in. `cuebook users remove {name}`"
        " and `cuebook users add` with another name."
    )
