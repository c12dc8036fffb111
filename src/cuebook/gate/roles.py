"""Users, their roles and what each role may do. On a laptop, the user at the terminal has every role.

This module does not depend on any surface: surfaces pass a `Principal` for the user they act for.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from cuebook.kernel.errors import CuebookError

Role = Literal["viewer", "runner", "approver", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)

MEANING: dict[Role, str] = {
    "viewer": "view runs",
    "runner": "start, schedule, answer, resume and cancel runs",
    "approver": "approve or deny actions of runs, also in advance",
    "admin": "do everything, and manage users, secrets and overrides",
}


RESERVED = ("local", "assistant", "nobody", "retention", "cuebook", "trigger")
"""Names that journals, sessions and audits use: the user at the machine, an assistant over stdio, a visitor without a token,
automatic retention, Cuebook itself, and the token of a playbook (`trigger.` followed by its name).
"""


def is_reserved(name: str) -> bool:
    """Whether a user with this name could be mistaken for one of these."""
    return name.partition(".")[0].casefold() == "trigger" or name.casefold() in RESERVED


class NotAllowed(CuebookError):
    """You are not allowed to do that."""

    code = "not_allowed"
    exit_code = 5


class Origin(msgspec.Struct, frozen=True):
    """Where a request came from."""

    surface: str = "terminal"
    """The way in: `terminal`, `web`, `api`, `mcp`, `slack` or `server`, which is Cuebook itself."""
    address: str = ""
    """The network address of the client; empty if it is this process."""


class Principal(msgspec.Struct, frozen=True):
    """The user on whose behalf something is done. On a laptop, the user at the terminal."""

    name: str = "local"
    tenant: str = "local"
    roles: frozenset[str] = frozenset(ROLES)
    through: str = ""
    """The third-party program that they answer and decide with; it is recorded with their answers."""
    origin: Origin = Origin()

    def may(self, role: Role) -> bool:
        """An admin may do everything; anyone with a role may view."""
        return role in self.roles or "admin" in self.roles or (role == "viewer" and bool(self.roles))

    def require(self, role: Role, what: str) -> None:
        if not self.may(role):
            has = ", ".join(sorted(self.roles)) or "no role"
            raise NotAllowed(
                f"{self.name} may not {what}: this requires the role {role}, and {self.name} has {has}.",
                fix=f"Ask someone with that role, or ask an admin to run `cuebook users grant {self.name} --role {role}`.",
            )


def check_may_cancel(who: Principal, rule: str, owner: str) -> None:
    """Raises `NotAllowed` if the policy's rule does not let this user cancel this owner's runs."""
    what = "cancel runs"
    if rule == "approver":
        who.require("approver", f"{what} here")
        return
    who.require("runner", what)
    if rule == "owner" and who.name != owner and not who.may("admin"):
        raise NotAllowed(
            f"{who.name} may not cancel this run: {owner} started it, and the policy lets only them cancel it.",
            fix=f"Ask {owner}, or an admin.",
        )


class User(msgspec.Struct, frozen=True):
    """A person with roles. Only the digest of the token is stored."""

    name: str
    roles: tuple[str, ...]
    """Those that an admin gave them."""
    token: str
    """Empty if they have none, because they sign in with the identity provider."""
    created: float
    by: str = ""
    teams: tuple[str, ...] = ()
    """Users of the same team may see each other's runs, if `[access] runs` is `team`."""
    issuer: str = ""
    subject: str = ""
    """Who they are for the identity provider with which they sign in; empty if they do not."""
    group_roles: tuple[str, ...] = ()
    """The roles that their groups at the identity provider give them, as of their last sign-in."""
    group_teams: tuple[str, ...] = ()

    @property
    def all_roles(self) -> tuple[str, ...]:
        return tuple(role for role in ROLES if role in self.roles or role in self.group_roles)

    @property
    def all_teams(self) -> tuple[str, ...]:
        return tuple(sorted({*self.teams, *self.group_teams}))
