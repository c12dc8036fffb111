"""What the claims of a token say about a person, as the operator configured it: name, roles and teams. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from cuebook.gate.roles import ROLES, Role

EVERYONE = "*"
"""In place of a group: everyone whom the provider signs in."""
SCOPE = "cuebook:"
"""How scopes begin that limit what a token may do, as in `cuebook:viewer`."""
_OVERAGE = "_claim_names"
"""With this claim, Entra says that someone has too many groups for a token."""


class IdentitySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The table `[oidc]`."""

    issuer: str
    client_id: str
    secret: str = ""
    """The handle of the client's secret; empty for a public client."""
    name: str = ""
    """What people call the provider."""
    scopes: str = "openid profile email"
    name_claim: str = "preferred_username"
    groups_claim: str = "groups"
    groups: Mapping[Role, tuple[str, ...]] = {}
    """The groups whose members have a role."""
    team_groups: tuple[str, ...] = ()
    """The groups that are teams of the same name."""
    session: float = 8 * 3600.0
    recheck: float = 1800.0
    """Seconds after which the provider is asked again, when a signed-in person opens a page."""
    local_sign_in: bool = False
    audience: str = ""
    """The audience of access tokens; empty means the address of `/mcp`."""
    mcp_scopes: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.name or self.issuer.partition("://")[2].partition("/")[0]


class Identity(msgspec.Struct, frozen=True):
    """A person or a program as the provider knows it. The subject never changes; the name may."""

    issuer: str
    subject: str
    name: str
    roles: tuple[Role, ...]
    teams: tuple[str, ...]
    has_groups: bool = True
    """Whether the token said anything about groups. Otherwise, what is known of the person stays."""
    limit: frozenset[str] | None = None
    """The roles that the token's scopes allow; None if they do not limit it."""
    issued: float = 0.0
    """When the token was made, by the clock of the provider; 0 if it does not say."""
    is_answer: bool = False
    """Whether the provider made the token just now, in answer to this server. Any other may be old."""


def identity_of(claims: Mapping[str, Any], settings: IdentitySettings) -> Identity:
    """The identity that verified claims describe."""
    given = claim(claims, settings.groups_claim)
    groups = {given} if isinstance(given, str) else {one for one in given or () if isinstance(one, str)}
    roles = tuple(
        role for role in ROLES if any(one in groups or one == EVERYONE for one in settings.groups.get(role, ()))
    )
    named = [claim(claims, one) for one in (settings.name_claim, "email") if one != "email" or _is_confirmed(claims)]
    name = next((one for one in named if isinstance(one, str)), "")
    return Identity(
        settings.issuer,
        str(claims["sub"]),
        name or str(claims["sub"]),
        roles,
        tuple(one for one in settings.team_groups if one in groups),
        given is not None,
        _limit(claims),
        _issued(claims),
    )


def claim(claims: Mapping[str, Any], path: str) -> Any:
    """A claim by its name, or by a path with dots, as in `realm_access.roles`; None if there is none."""
    if path in claims:
        return claims[path]
    value: Any = claims
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def has_too_many_groups(claims: Mapping[str, Any], settings: IdentitySettings) -> bool:
    named = claims.get(_OVERAGE)
    return isinstance(named, Mapping) and settings.groups_claim in named


def _is_confirmed(claims: Mapping[str, Any]) -> bool:
    """Whether the e-mail address may be someone's name: not if the provider says that they only entered it."""
    return claims.get("email_verified", True) not in (False, "false")


def _issued(claims: Mapping[str, Any]) -> float:
    at = claims.get("iat")
    return float(at) if isinstance(at, int | float) else 0.0


def _limit(claims: Mapping[str, Any]) -> frozenset[str] | None:
    """The roles in the scopes of an access token, which is a list or a text with spaces."""
    given = claims.get("scope", claims.get("scp", ""))
    scopes = given.split() if isinstance(given, str) else [str(one) for one in given or ()]
    roles = frozenset(one.removeprefix(SCOPE) for one in scopes if one.startswith(SCOPE))
    return roles or None
