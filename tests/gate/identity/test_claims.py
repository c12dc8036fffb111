"""What the claims of providers of different makers say about a person."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.gate.identity import IdentitySettings
from cuebook.gate.identity.claims import has_too_many_groups, identity_of
from cuebook.gate.roles import Role

GROUPS: dict[Role, tuple[str, ...]] = {"viewer": ("staff",), "admin": ("bosses", "/top")}


def settings(**more: Any) -> IdentitySettings:
    given = {"issuer": "https://login.example.com", "client_id": "c", "groups": GROUPS, **more}
    return IdentitySettings(**given)


@pytest.mark.parametrize(
    ("claims", "more", "roles"),
    [
        ({"groups": ["staff", "others"]}, {}, ("viewer",)),
        ({"groups": "staff"}, {}, ("viewer",)),
        ({"groups": ["bosses", "staff"]}, {}, ("viewer", "admin")),
        ({"groups": ["/top"]}, {}, ("admin",)),
        ({"groups": ["Staff"]}, {}, ()),
        ({"groups": [7, None, {"a": 1}]}, {}, ()),
        ({"realm_access": {"roles": ["staff"]}}, {"groups_claim": "realm_access.roles"}, ("viewer",)),
        ({"realm_access.roles": ["staff"]}, {"groups_claim": "realm_access.roles"}, ("viewer",)),
        ({"https://example.com/groups": ["staff"]}, {"groups_claim": "https://example.com/groups"}, ("viewer",)),
        ({"hd": "example.com"}, {"groups_claim": "hd", "groups": {"viewer": ("example.com",)}}, ("viewer",)),
        ({}, {"groups": {"viewer": ("*",)}}, ("viewer",)),
        ({"groups": ["*"]}, {}, ()),
    ],
)
def test_groups_become_roles(claims: dict[str, Any], more: dict[str, Any], roles: tuple[Role, ...]) -> None:
    found = identity_of({"sub": "1", **claims}, settings(**more))
    assert found.roles == roles


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"preferred_username": "ann", "email": "a@example.com"}, "ann"),
        ({"email": "a@example.com"}, "a@example.com"),
        ({"email": "a@example.com", "email_verified": True}, "a@example.com"),
        ({"email": "a@example.com", "email_verified": False}, "1"),
        ({"preferred_username": {"odd": 1}}, "1"),
        ({}, "1"),
    ],
)
def test_a_person_has_a_name(claims: dict[str, Any], name: str) -> None:
    assert identity_of({"sub": "1", **claims}, settings()).name == name


def test_an_unconfirmed_address_is_not_a_name_even_if_addresses_are() -> None:
    claims = {"sub": "1", "email": "boss@example.com", "email_verified": "false"}
    assert identity_of(claims, settings(name_claim="email")).name == "1"


@pytest.mark.parametrize(
    ("claims", "limit"),
    [
        ({}, None),
        ({"scope": "openid profile"}, None),
        ({"scope": "openid cuebook:viewer cuebook:runner"}, {"viewer", "runner"}),
        ({"scp": ["cuebook:viewer"]}, {"viewer"}),
        ({"scp": "cuebook:viewer"}, {"viewer"}),
    ],
)
def test_scopes_are_a_text_or_a_list(claims: dict[str, Any], limit: set[str] | None) -> None:
    found = identity_of({"sub": "1", **claims}, settings())
    assert (None if found.limit is None else set(found.limit)) == limit


def test_a_token_may_say_that_there_are_too_many_groups() -> None:
    assert has_too_many_groups({"_claim_names": {"groups": "src1"}}, settings())
    assert not has_too_many_groups({"_claim_names": {"groups": "src1"}}, settings(groups_claim="roles"))
    assert not has_too_many_groups({"groups": ["staff"]}, settings())
