"""Records that operators maintain for a tenant: users and roles, names of secrets, policy overrides, and trust.

Every record says who created it. No record contains a secret's value.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from cuebook.gate.policy import Override, Policy
from cuebook.gate.roles import RESERVED, ROLES, NotAllowed, Principal, User, is_reserved
from cuebook.gate.secrets import check_handle, check_name
from cuebook.kernel.errors import BadInput, NotFound, StoreError
from cuebook.kernel.ports import Domain, Job, Store

if TYPE_CHECKING:
    from cuebook.kernel.ports.admin_acts import ActRecord, KeptChange
    from cuebook.service.access.departures import Departure

T = TypeVar("T")

log = logging.getLogger("cuebook")

RIGHTS_EVERY = 1.0
"""Seconds between two checks of a user's rights: other processes can remove users too."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}", re.ASCII)
DOMAINS: tuple[Domain, ...] = ("tool", "command", "egress", "secret", "file", "model")

Today = Callable[[str], Awaitable[Policy]]
"""Returns a tenant's current policy."""


async def no_policy(tenant: str) -> Policy:
    """A policy with only the built-in defaults."""
    return Policy(())


class SecretName(msgspec.Struct, frozen=True):
    """A name for the handle of a secret."""

    name: str
    handle: str
    owner: str
    created: float


class Administration:
    """Reads and writes the records that operators maintain."""

    def __init__(self, store: Store, today: Today, clock: Callable[[], float]) -> None:
        self._store = store
        self._today = today
        self._clock = clock

    async def policy(self, who: Principal = Principal()) -> Policy:
        who.require("viewer", "view the policy")
        return await self._today(who.tenant)

    # --- small records that surfaces store, by tenant, kind and name ---

    async def kept(self, tenant: str, kind: str) -> dict[str, dict[str, Any]]:
        return await self._store.kept(tenant, kind)

    async def is_kept(self, tenant: str, kind: str, name: str) -> bool:
        return await self._store.is_kept(tenant, kind, name)

    async def keep(self, tenant: str, kind: str, name: str, body: dict[str, Any]) -> None:
        await self._store.keep(tenant, kind, name, body)

    async def forget(self, tenant: str, kind: str, name: str) -> bool:
        """Removes a record; returns whether it existed."""
        return await self._store.forget(tenant, kind, name)

    async def tenants(self, kind: str) -> list[str]:
        """The tenants that have records of a kind."""
        return await self._store.tenants(kind)

    # --- the audit of administrative acts ---

    async def record_act(
        self,
        what: str,
        subject: str = "",
        who: Principal = Principal(),
        details: Mapping[str, Any] | None = None,
        *,
        refused: bool = False,
        changes: Sequence[KeptChange] = (),
    ) -> ActRecord:
        """Records that this user did something to the installation, such as `schedule.add`, and makes the changes of stored
        decisions that it consists of, if any, in the same transaction.

        The values of secrets are masked, but details should name things, not contain them.
        """
        from cuebook.service.audit.admin import act_of

        act = act_of(what, subject, who, self.masked(dict(details or {})), self._clock(), refused)
        return await self._store.record_act(act, changes)

    def masked(self, value: T) -> T:
        """Masks the secrets in a value, if this service knows any."""
        return value

    # --- users ---

    async def add_user(
        self, name: str, roles: Sequence[str], who: Principal = Principal(), *, same_person: bool = False
    ) -> tuple[User, str]:
        """Adds a user. Returns the user and their token, which is not shown again.

        The name of an earlier user is refused, because their runs would be the new user's, unless it is the `same_person`.
        """
        who.require("admin", "change users")
        if not _NAME.fullmatch(name):
            raise BadInput(f"'{name}' is not a valid user name.", fix="Use letters, digits, and . _ @ -.")
        if is_reserved(name):
            raise BadInput(
                f"The user name '{name}' is reserved, because Cuebook uses it in journals.",
                fix=f"Choose another name. Reserved: {', '.join(RESERVED)}, and names that begin with 'trigger.'.",
            )
        if name in await self._store.kept(who.tenant, "user"):
            raise BadInput(
                f"The user '{name}' already exists; nothing was changed.",
                fix=f"`cuebook users grant {name} --role ROLE` adds a role, `cuebook users revoke` removes one, and"
                f" `cuebook users token {name}` creates a new token.",
            )
        from cuebook.kernel.ports.admin_acts import KeptChange
        from cuebook.service.access.departures import arrivals, check_is_new, taken

        made, token = _with_token(User(name, _roles(roles), "", self._clock(), who.name))
        why = await check_is_new(self._store, who.tenant, name)
        if why and not same_person:
            raise taken(name, why)
        details = {"roles": list(made.roles), **({"same_person": True} if why else {})}
        added = KeptChange(who.tenant, "user", name, None, msgspec.to_builtins(made))
        changes = [added, *await arrivals(self._store, who.tenant, name)]
        await self.record_act("user.add", name, who, details, changes=changes)
        return made, token

    async def grant(self, name: str, roles: Sequence[str], who: Principal = Principal()) -> User:
        """Gives a user more roles. Their token and sessions stay valid."""
        who.require("admin", "change users")
        user, body = await self._known_user(name, who.tenant)
        return await self._with_fields("user.grant", user, body, {"roles": _roles((*user.roles, *_roles(roles)))}, who)

    async def revoke(self, name: str, roles: Sequence[str], who: Principal = Principal()) -> User:
        """Removes roles from a user. Their token and sessions stay valid, with fewer rights."""
        who.require("admin", "change users")
        (user, body), taken = await self._known_user(name, who.tenant), _roles(roles)
        lacking = [role for role in taken if role not in user.roles]
        if lacking and lacking[0] in user.group_roles:
            raise BadInput(
                f"{name} has the role {lacking[0]} because of a group of the identity provider.",
                fix="Remove them from the group there.",
            )
        if lacking:
            raise BadInput(f"{name} does not have the role {lacking[0]}.", fix=f"{name} has {', '.join(user.roles)}.")
        left = [role for role in user.roles if role not in taken]
        if not left and not user.subject:
            raise BadInput(f"{name} would have no role left.", fix=f"`cuebook users remove {name}` removes them.")
        return await self._with_fields("user.revoke", user, body, {"roles": _roles(left) if left else ()}, who)

    async def join(self, name: str, teams: Sequence[str], who: Principal = Principal()) -> User:
        """Adds a user to teams. Members of a team may see each other's runs, if `[access] runs` is `team`."""
        who.require("admin", "change users")
        user, body = await self._known_user(name, who.tenant)
        for team in teams:
            if not _NAME.fullmatch(team):
                raise BadInput(f"'{team}' is not a valid team name.", fix="Use letters, digits, and . _ @ -.")
        return await self._with_fields("user.join", user, body, {"teams": tuple(sorted({*user.teams, *teams}))}, who)

    async def leave(self, name: str, teams: Sequence[str], who: Principal = Principal()) -> User:
        """Removes a user from teams."""
        who.require("admin", "change users")
        user, body = await self._known_user(name, who.tenant)
        for team in teams:
            if team not in user.teams:
                has = f"{name} is in {', '.join(user.teams)}." if user.teams else f"{name} is in no team."
                raise BadInput(f"{name} is not in the team '{team}'.", fix=has)
        left = tuple(team for team in user.teams if team not in teams)
        return await self._with_fields("user.leave", user, body, {"teams": left}, who)

    async def renew_token(self, name: str, who: Principal = Principal()) -> tuple[User, str]:
        """Creates a new token for a user, which is not shown again. The old token and the user's sessions become
        invalid."""
        who.require("admin", "change users")
        user, body = await self._known_user(name, who.tenant)
        made, token = _with_token(user)
        await self._record_change("user.token", "user", name, body, made, who, {})
        return made, token

    async def users(self, who: Principal = Principal()) -> list[User]:
        who.require("viewer", "view users")
        return [msgspec.convert(body, User) for body in (await self._store.kept(who.tenant, "user")).values()]

    async def remove_user(self, name: str, who: Principal = Principal()) -> Departure:
        """Removes a user, and everything that is bound to their name except their runs."""
        who.require("admin", "change users")
        body = (await self._store.kept(who.tenant, "user")).get(name)
        if body is None:
            raise NotFound(f"There is no user '{name}'.", fix="`cuebook users list` lists the users.")
        from cuebook.service.access.departures import depart

        return await depart(self._store, self, msgspec.convert(body, User), body, self._clock(), who)

    async def notify(self, notice: Job) -> None:
        """Puts a notice if there are channels; none without a service."""

    async def principal(self, name: str, tenant: str = "local") -> Principal:
        """The user with this name, with their roles."""
        user = await self._user(name, tenant)
        if is_reserved(name):
            raise NotAllowed(misnamed(name))
        return Principal(name, tenant, frozenset(user.all_roles))

    async def principal_with(self, token: str, tenant: str = "local") -> Principal | None:
        """The user with this token."""
        given = _digest(token)
        for user in [msgspec.convert(body, User) for body in (await self._store.kept(tenant, "user")).values()]:
            if hmac.compare_digest(user.token, given) and not is_reserved(user.name):
                # Not those of groups: nobody would notice when they change.
                return Principal(user.name, tenant, frozenset(user.roles))
        return None

    async def _user(self, name: str, tenant: str) -> User:
        return (await self._known_user(name, tenant))[0]

    async def _known_user(self, name: str, tenant: str) -> tuple[User, dict[str, Any]]:
        """A user, and the record of them."""
        body = (await self._store.kept(tenant, "user")).get(name)
        if body is None:
            raise NotFound(f"There is no user '{name}'.", fix=f"`cuebook users add {name} --role ROLE` adds one.")
        return msgspec.convert(body, User), body

    async def _with_fields(
        self, what: str, user: User, body: dict[str, Any], fields: dict[str, tuple[str, ...]], who: Principal
    ) -> User:
        """The user with these fields. Records the change, unless there is none."""
        changed = msgspec.structs.replace(user, **fields)
        if changed != user:
            before = {name: list(getattr(user, name)) for name in fields}
            after = {name: list(value) for name, value in fields.items()}
            await self._record_change(what, "user", user.name, body, changed, who, {"before": before, "after": after})
        return changed

    async def _record_change(
        self,
        what: str,
        kind: str,
        name: str,
        before: dict[str, Any] | None,
        after: Any,
        who: Principal,
        details: Mapping[str, Any],
    ) -> None:
        """Changes a stored decision and records that, in one transaction."""
        from cuebook.kernel.ports.admin_acts import KeptChange

        made = None if after is None else msgspec.to_builtins(after)
        await self.record_act(what, name, who, details, changes=[KeptChange(who.tenant, kind, name, before, made)])

    # --- names of secrets ---

    async def add_secret(self, name: str, handle: str, who: Principal = Principal()) -> SecretName:
        who.require("admin", "name secrets")
        made = SecretName(check_name(name), check_handle(handle), who.name, self._clock())
        before = (await self._store.kept(who.tenant, "secret")).get(name)
        details = {"handle": handle} if before is None else {"handle": handle, "before": before["handle"]}
        await self._record_change("secret.add", "secret", name, before, made, who, details)
        return made

    async def secrets(self, who: Principal = Principal()) -> list[SecretName]:
        who.require("viewer", "view the names of secrets")
        return [msgspec.convert(body, SecretName) for body in (await self._store.kept(who.tenant, "secret")).values()]

    async def remove_secret(self, name: str, who: Principal = Principal()) -> bool:
        who.require("admin", "name secrets")
        before = (await self._store.kept(who.tenant, "secret")).get(name)
        if before is not None:
            await self._record_change("secret.remove", "secret", name, before, None, who, {"handle": before["handle"]})
        return before is not None

    # --- overrides, which answer the policy's `ask` in advance ---

    async def add_override(
        self, domain: Domain, pattern: str, expires_after: float | None, who: Principal = Principal()
    ) -> Override:
        who.require("approver", "allow actions in advance")
        if domain not in DOMAINS:
            raise BadInput(f"There is no domain '{domain}'.", fix=f"The domains are {', '.join(DOMAINS)}.")
        from cuebook.gate.policy.overrides import check_override

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
        details = {"domain": domain, "pattern": pattern, "expires": made.expires}
        await self._record_change("override.add", "override", made.id, None, made, who, details)
        return made

    async def overrides(self, who: Principal = Principal()) -> list[Override]:
        who.require("viewer", "view overrides")
        found = [msgspec.convert(body, Override) for body in (await self._store.kept(who.tenant, "override")).values()]
        return sorted(found, key=lambda override: override.created)

    async def revoke_override(self, name: str, who: Principal = Principal()) -> None:
        """Ends an override for all runs. It stays in the list to explain what it allowed before."""
        who.require("approver", "revoke overrides")
        body = (await self._store.kept(who.tenant, "override")).get(name)
        if body is None:
            raise NotFound(f"There is no override '{name}'.", fix="`cuebook policy overrides` lists them.")
        if not body.get("revoked"):
            ended = {"revoked": True, "revoked_by": who.name, "revoked_at": self._clock()}
            details = {"domain": body["domain"], "pattern": body["pattern"]}
            await self._record_change("override.revoke", "override", name, body, {**body, **ended}, who, details)

    # --- trust ---

    async def trust(self, subject: str, digest: str, who: Principal = Principal()) -> None:
        who.require("admin", "trust things for everyone")
        before = (await self._store.kept(who.tenant, "trust")).get(subject)
        after = {"digest": digest, "by": who.name, "at": self._clock()}
        await self._record_change("trust.add", "trust", subject, before, after, who, {"digest": digest})

    async def trusts(self, subject: str, who: Principal = Principal()) -> str | None:
        """The trusted digest of a subject."""
        who.require("viewer", "view trusted subjects")
        found = (await self._store.kept(who.tenant, "trust")).get(subject)
        return None if found is None else str(found["digest"])

    async def untrust(self, subject: str, who: Principal = Principal()) -> bool:
        who.require("admin", "trust things for everyone")
        before = (await self._store.kept(who.tenant, "trust")).get(subject)
        if before is not None:
            await self._record_change(
                "trust.remove", "trust", subject, before, None, who, {"digest": before.get("digest")}
            )
        return before is not None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _with_token(user: User) -> tuple[User, str]:
    token = secrets.token_urlsafe(32)
    return msgspec.structs.replace(user, token=_digest(token)), token


def _roles(given: Sequence[str]) -> tuple[str, ...]:
    """The given roles, each once, in the order of `ROLES`."""
    unknown = [role for role in given if role not in ROLES]
    if unknown or not given:
        wrong = f"There is no role '{unknown[0]}'." if unknown else "A user needs a role."
        raise BadInput(wrong, fix=f"The roles are {', '.join(ROLES)}.")
    return tuple(role for role in ROLES if role in given)


def misnamed(name: str) -> str:
    """Error for a user in an older store whose name has become reserved."""
    return (
        f"The user '{name}' has a name that Cuebook reserves, and cannot sign in. Run `cuebook users remove {name}`,"
        " then `cuebook users add` with another name."
    )


async def revoked(permitted: Callable[[], Awaitable[bool]]) -> None:
    """Returns when a user has lost the right to something in progress, for example an open stream."""
    while True:
        await asyncio.sleep(RIGHTS_EVERY)
        try:
            if not await permitted():
                return
        except StoreError as error:  # a lock or a full disk may be temporary
            log.warning("%s", error)
