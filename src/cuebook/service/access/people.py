"""The people whom an identity provider signs in: each is a user of the store, found by the subject that never changes.

A user who was added by hand is never taken over by someone whose name at the provider is the same: an admin links the two.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cuebook.gate.identity.claims import Identity
from cuebook.gate.identity.provider import LEEWAY
from cuebook.gate.roles import NotAllowed, Principal, User, is_reserved
from cuebook.kernel.errors import BadInput, Conflict
from cuebook.kernel.ports import Store
from cuebook.kernel.ports.admin_acts import KeptChange

if TYPE_CHECKING:
    from cuebook.service.admin import Administration

FORMER = "former_user"
"""The kind of the records of users who were removed."""
GROUPS = "groups_of_user"
"""The kind of the records of when the token that gave a user their groups was issued."""
_ODD = re.compile(r"[^A-Za-z0-9._@-]+")
_LONGEST = 64


class NameTaken(NotAllowed):
    """Another user has the name of the person who signs in."""

    code = "name_taken"


class NoRole(NotAllowed):
    """The person who signs in has no role here."""

    code = "no_role"


class People:
    """Finds, adds and updates the users that an identity provider knows."""

    def __init__(
        self, store: Store, records: Administration, clock: Callable[[], float], tenant: str = "local"
    ) -> None:
        self._store = store
        self._records = records
        self._clock = clock
        self._tenant = tenant

    async def find(self, issuer: str, subject: str) -> User | None:
        return next((one for one in await self._all() if (one.issuer, one.subject) == (issuer, subject)), None)

    async def sign_in(self, identity: Identity, by: Principal) -> Principal:
        """The person, with the roles and teams that the provider's groups give them now. Raises `NotAllowed`."""
        for _ in range(3):  # again if another process adds or changes the same user at this moment
            try:
                user = await self._updated(identity, by)
                break
            except Conflict:
                continue
        else:
            raise Conflict(f"The user {identity.name} is being changed.", fix="Sign in again.")
        if not user.all_roles:
            raise NoRole(
                f"{user.name} is signed in, but has no role here.",
                fix="Ask an admin to put you into a group that has a role, or to give you one.",
            )
        return self.principal(user)

    def principal(self, user: User) -> Principal:
        return Principal(user.name, self._tenant, frozenset(user.all_roles))

    async def link(self, name: str, issuer: str, subject: str, who: Principal) -> User:
        """Lets a user sign in as this subject of the provider; an empty subject ends that."""
        who.require("admin", "change users")
        body = (await self._records.kept(who.tenant, "user")).get(name)
        if body is None:
            raise BadInput(f"There is no user '{name}'.", fix="`cuebook users list` lists the users.")
        user = msgspec.convert(body, User)
        other = await self.find(issuer, subject) if subject else None
        if other is not None and other.name != name:
            fix = f"`cuebook users remove {other.name}` or `cuebook users unlink {other.name}` frees it."
            raise Conflict(f"This subject already signs in as {other.name}; nothing was changed.", fix=fix)
        if subject and (user.issuer, user.subject) == (issuer, subject):
            return user
        if subject and user.subject and user.issuer == issuer:
            raise Conflict(
                f"{name} already signs in as the subject {user.subject}; nothing was changed.",
                fix=f"`cuebook users unlink {name}` ends that.",
            )
        gone = {"group_roles": (), "group_teams": ()}
        linked = msgspec.structs.replace(user, issuer=issuer if subject else "", subject=subject, **gone)
        if linked != user:
            what = "user.link" if subject else "user.unlink"
            details = {"issuer": issuer, "subject": subject} if subject else {"subject": user.subject}
            await self._change(what, name, body, linked, who, details)
        return linked

    # --- inside ---

    async def _all(self) -> list[User]:
        return [msgspec.convert(body, User) for body in (await self._records.kept(self._tenant, "user")).values()]

    async def _updated(self, identity: Identity, by: Principal) -> User:
        known = await self.find(identity.issuer, identity.subject)
        if known is None:
            return await self._add(identity, by)
        noted = (await self._records.kept(self._tenant, GROUPS)).get(known.name)
        if not identity.has_groups or _is_outdated(identity, noted):
            return known
        note = _note(identity)
        now = msgspec.structs.replace(known, group_roles=identity.roles, group_teams=identity.teams)
        if now != known:
            body = (await self._records.kept(self._tenant, "user"))[known.name]
            before = {"roles": list(known.group_roles), "teams": list(known.group_teams)}
            after = {"roles": list(now.group_roles), "teams": list(now.group_teams)}
            who = msgspec.structs.replace(by, name=known.name, tenant=self._tenant)
            details, more = (
                {"before": before, "after": after},
                KeptChange(self._tenant, GROUPS, known.name, noted, note),
            )
            await self._change("user.groups", known.name, body, now, who, details, [more])
        elif note != noted:
            await self._records.keep(self._tenant, GROUPS, known.name, note)
        return now

    async def _add(self, identity: Identity, by: Principal) -> User:
        name = user_name(identity)
        if not identity.roles:  # someone without a role leaves no record
            raise NoRole(
                f"{name} is signed in, but none of their groups has a role here.",
                fix="Ask an admin to put you into a group that has one.",
            )
        if name in {one.name for one in await self._all()}:
            raise NameTaken(
                f"There is already a user named {name}, who signs in in another way.",
                fix=f"An admin can link the two: `cuebook users link {name} --subject {shlex.quote(identity.subject)}`",
            )
        from cuebook.service.access.departures import arrivals, check_is_new, is_former, removed_at

        store = self._store
        removed = await removed_at(store, self._tenant, identity.issuer, identity.subject)
        if removed and not identity.is_answer and identity.issued <= removed + LEEWAY:
            raise NotAllowed(f"{name} was removed here after this token was made.", fix="Get a new token.")
        why = await check_is_new(store, self._tenant, name)
        if why and not await is_former(store, self._tenant, name, identity.issuer, identity.subject):
            add, link = (
                f"`cuebook users add {name} --role viewer --same-person`",
                f"--subject {shlex.quote(identity.subject)}`",
            )
            raise NameTaken(
                f"An earlier user named {name} {why}, which would be yours.",
                fix=f"If this is the same person, an admin can add and link them: {add}, then `cuebook users link {name} {link};"
                " otherwise the same with another name, without --same-person.",
            )
        made = User(
            name,
            (),
            "",
            self._clock(),
            f"sign-in at {identity.issuer}",
            issuer=identity.issuer,
            subject=identity.subject,
            group_roles=identity.roles,
            group_teams=identity.teams,
        )
        who = msgspec.structs.replace(by, name=name, tenant=self._tenant)
        details = {"roles": list(identity.roles), "issuer": identity.issuer, "subject": identity.subject}
        await self._change("user.add", name, None, made, who, details, await arrivals(store, self._tenant, name))
        await self._records.keep(self._tenant, GROUPS, name, _note(identity))
        return made

    async def _change(
        self,
        what: str,
        name: str,
        before: dict[str, Any] | None,
        after: User,
        who: Principal,
        details: Mapping[str, Any],
        more: Sequence[KeptChange] = (),
    ) -> None:
        change = KeptChange(self._tenant, "user", name, before, msgspec.to_builtins(after))
        await self._records.record_act(what, name, who, details, changes=[change, *more])


def _is_outdated(identity: Identity, noted: dict[str, Any] | None) -> bool:
    """Whether a newer token has already said in which groups someone is: one from before must not bring back others."""
    if identity.is_answer or noted is None or noted["subject"] != identity.subject:
        return False
    return identity.issued < float(noted["issued"])


def _note(identity: Identity) -> dict[str, Any]:
    return {"subject": identity.subject, "issued": identity.issued}


def user_name(identity: Identity) -> str:
    """The name under which a new person is known here."""
    name = _ODD.sub("-", identity.name).strip("-._@")[:_LONGEST]
    if not name or is_reserved(name):
        name = f"user-{_ODD.sub('-', identity.subject).strip('-._@')}"[:_LONGEST]
    return name
