"""The configuration of an identity provider: what it needs, and what is refused before anyone signs in."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cuebook.config import load
from cuebook.kernel.errors import BadInput
from cuebook.wiring import identity
from cuebook.wiring.identity import identity_settings

GOOD = {"oidc.issuer": "https://login.example.com/", "oidc.client_id": "cuebook"}


def settings(folder: Path, **more: Any) -> Any:
    return identity_settings(load({**GOOD, **more}, environ={"HOME": str(folder)}, folder=folder))


def test_without_an_issuer_there_is_none(tmp_path: Path) -> None:
    assert identity_settings(load(environ={"HOME": str(tmp_path)}, folder=tmp_path)) is None


def test_the_groups_of_each_role_and_the_name_of_the_provider(tmp_path: Path) -> None:
    found = settings(tmp_path, **{"oidc.viewer_groups": ["staff", "guests"], "oidc.admin_groups": "bosses"})
    assert (found.issuer, found.label) == ("https://login.example.com/", "login.example.com")
    assert found.groups == {"viewer": ("staff", "guests"), "runner": (), "approver": (), "admin": ("bosses",)}
    assert settings(tmp_path, **{"oidc.name": "Acme"}).label == "Acme"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"oidc.client_id": None}, "oidc.issuer needs oidc.client_id"),
        ({"oidc.issuer": "http://login.example.com"}, "https address"),
        ({"oidc.issuer": "https://login.example.com?x=1"}, "https address"),
        ({"oidc.client_secret": "the secret itself"}, "expected the handle of a secret"),
        ({"oidc.scopes": "profile"}, "must contain openid"),
        ({"oidc.session": "1s"}, "from a minute to 30 days"),
        ({"oidc.issuer": "https://accounts.google.com", "oidc.viewer_groups": "*"}, "anyone in the world"),
    ],
)
def test_what_cannot_be_right_is_refused(tmp_path: Path, more: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words) as error:
        settings(tmp_path, **more)
    assert "the secret itself" not in str(error.value)


@pytest.mark.parametrize("missing", ["authlib", "joserfc"])
def test_a_missing_library_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr(identity, "find_spec", lambda name: None if name == missing else find_spec(name))
    with pytest.raises(BadInput, match="libraries for signing in are not installed") as error:
        settings(tmp_path)
    assert "identity" in error.value.fix
