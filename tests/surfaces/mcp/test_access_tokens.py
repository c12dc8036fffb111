"""`/mcp` as a resource server: what it says about itself, and which access tokens of the identity provider it accepts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey
from starlette.requests import Request

from cuebook.gate.identity import provider as provider_module
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.service import admin
from cuebook.service.access.people import FORMER
from cuebook.surfaces.web.auth import oidc
from tests.support.oidc_provider import ASSISTANT, CLIENT, OidcProvider, oidc_provider, unsigned
from tests.surfaces.mcp.clients import over_http
from tests.surfaces.mcp.test_http import ACCEPT, HELLO
from tests.surfaces.web.served_app import ServedApp


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[OidcProvider]:
    monkeypatch.setattr(provider_module, "REFETCH_EVERY", 0.0)
    with oidc_provider() as made:
        yield made


@pytest.fixture
async def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, provider: OidcProvider) -> AsyncIterator[ServedApp]:
    made = ServedApp(tmp_path, monkeypatch)
    flags: dict[str, Any] = {
        "oidc.issuer": provider.address,
        "oidc.client_id": CLIENT,
        "oidc.viewer_groups": ("staff",),
        "oidc.runner_groups": ("engineers",),
        "oidc.mcp_scopes": ("openid", "cuebook:runner"),
    }
    await made.model(ScriptedModel([])).serve(port=0, **flags)
    yield made
    await made.stop()


def resource(web: ServedApp) -> str:
    return f"{str(web.guest.base_url).rstrip('/')}/mcp"


async def ask(web: ServedApp, token: str) -> httpx2.Response:
    headers = {**ACCEPT, **({"Authorization": f"Bearer {token}"} if token else {})}
    return await web.guest.post("/mcp", json=HELLO, headers=headers)


async def test_it_says_where_tokens_come_from(web: ServedApp, provider: OidcProvider) -> None:
    refused = await ask(web, "")
    place = f"{str(web.guest.base_url).rstrip('/')}/.well-known/oauth-protected-resource/mcp"
    assert refused.status_code == 401
    assert f'resource_metadata="{place}"' in refused.headers["www-authenticate"]
    assert "invalid_token" not in refused.headers["www-authenticate"]
    assert 'error="invalid_token"' in (await ask(web, "a.b.c")).headers["www-authenticate"]
    found = (await web.guest.get(place)).json()
    assert found["resource"] == resource(web)
    assert found["authorization_servers"] == [provider.address]
    assert found["scopes_supported"] == ["openid", "cuebook:runner"]
    from mcp.shared.auth import ProtectedResourceMetadata

    assert ProtectedResourceMetadata.model_validate(found).bearer_methods_supported == ["header"]


@pytest.mark.parametrize(
    ("host", "configured", "expected"),
    [
        ("127.0.0.1:8000", "", "http://127.0.0.1:8000/mcp"),
        ("cue.example.com", "", "http://cue.example.com/mcp"),
        ("192.0.2.7:8000", "", ""),
        ("[2001:db8::7]:8000", "", ""),
        ("192.0.2.7:8000", "https://cue.example.com", "https://cue.example.com/mcp"),
    ],
)
def test_who_sends_a_token_does_not_choose_its_audience(host: str, configured: str, expected: str) -> None:
    site = Mock()
    site.wiring.config.get = {"serve.public_url": configured}.get
    scope = {
        "type": "http",
        "scheme": "http",
        "path": "/mcp",
        "query_string": b"",
        "headers": [(b"host", host.encode())],
    }
    assert oidc.resource_address(Request(scope), site) == expected


async def test_without_a_provider_there_is_no_such_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = ServedApp(tmp_path, monkeypatch)
    await made.model(ScriptedModel([])).serve()
    assert (await made.guest.get("/.well-known/oauth-protected-resource/mcp")).status_code == 404
    assert (await ask(made, "")).headers["www-authenticate"] == "Bearer"
    await made.stop()


async def test_an_assistant_works_with_an_access_token(web: ServedApp, provider: OidcProvider) -> None:
    provider.person["groups"] = ["staff", "engineers"]
    async with over_http(resource(web), provider.access_token(resource(web))) as visit:
        assert "execute_playbook" in await visit.tools()
    (ann,) = await web.service.users()
    assert (ann.name, ann.all_roles) == ("ann", ("viewer", "runner"))
    signed_in = [one.act for one in await web.service.admin_audit.acts() if one.act.what == "sign_in"]
    assert [(one.by, one.surface, one.details["way"]) for one in signed_in] == [("ann", "mcp", "access token")]
    _, token = await web.service.add_user("bob", ["viewer"])
    assert (await ask(web, token)).status_code == 200, "tokens of Cuebook go on"


class Storage:
    """What an assistant keeps: its registration at the provider, and its tokens."""

    def __init__(self, client: Any) -> None:
        self.client, self.tokens = client, None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


async def test_the_official_client_finds_the_provider_and_signs_its_user_in(
    web: ServedApp, provider: OidcProvider
) -> None:
    from mcp import Client
    from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata

    provider.person["groups"] = ["engineers"]
    came_back: dict[str, str] = {}

    async def visit(url: str) -> None:
        async with httpx2.AsyncClient(trust_env=False) as browser:
            place = (await browser.get(url)).json()["location"]
        came_back.update({name: one[0] for name, one in parse_qs(urlsplit(place).query).items()})

    async def result() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=came_back["code"], state=came_back["state"], iss=came_back["iss"])

    about: dict[str, Any] = {
        "redirect_uris": ["http://127.0.0.1:9/callback"],
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code"],
    }
    known = OAuthClientInformationFull(client_id=ASSISTANT, issuer=provider.address, **about)
    auth = OAuthClientProvider(
        resource(web),
        OAuthClientMetadata(client_name="Assistant", **about),
        Storage(known),
        redirect_handler=visit,
        callback_handler=result,
    )
    async with (
        httpx2.AsyncClient(auth=auth, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(resource(web), http_client=http)) as client,
    ):
        assert "execute_playbook" in [one.name for one in (await client.list_tools()).tools]
    assert [one.name for one in await web.service.users()] == ["ann"]


async def test_scopes_limit_what_it_may_do(web: ServedApp, provider: OidcProvider) -> None:
    provider.person["groups"] = ["engineers"]
    token = provider.access_token(resource(web), scope="openid cuebook:viewer")
    async with over_http(resource(web), token) as visit:
        assert "execute_playbook" not in await visit.tools()
    provider.person = {"sub": "subject-2", "preferred_username": "eve", "groups": []}
    nobody = provider.access_token(resource(web), scope="openid cuebook:runner cuebook:admin")
    assert (await ask(web, nobody)).status_code == 401, "a scope gives no role"


async def test_without_groups_what_is_known_of_the_person_counts(web: ServedApp, provider: OidcProvider) -> None:
    assert (await ask(web, provider.access_token(resource(web), groups=None))).status_code == 401
    assert (await ask(web, provider.access_token(resource(web)))).status_code == 200
    assert (await ask(web, provider.access_token(resource(web), groups=None, jti="2"))).status_code == 200


BENT: dict[str, dict[str, Any]] = {
    "expired": {"exp": 1_700_000_000},
    "without an end": {"exp": None},
    "of the future": {"nbf": 4_000_000_000},
    "for another resource": {"aud": "https://other.example/mcp"},
    "for the client": {"aud": CLIENT},
    "for nobody": {"aud": None},
    "of another issuer": {"iss": "https://evil.example"},
    "without a subject": {"sub": None},
    "an ID token": {"nonce": "n"},
    "a refresh token": {"typ": "Refresh"},
}


async def test_another_token_is_refused(web: ServedApp, provider: OidcProvider) -> None:
    for name, bent in BENT.items():
        assert (await ask(web, provider.access_token(resource(web), **bent))).status_code == 401, name
    assert await web.service.users() == []
    assert (await ask(web, provider.access_token(resource(web)))).status_code == 200, "the right one"


async def test_a_token_without_a_signature_of_the_provider_is_refused(web: ServedApp, provider: OidcProvider) -> None:
    key, shared = RSAKey.generate_key(2048), OctKey.import_key("x" * 40)
    provider.sign = unsigned
    claims = provider.access_token(resource(web))
    assert (await ask(web, claims)).status_code == 401
    now = int(time.time())
    good = {"iss": provider.address, "aud": resource(web), "exp": now + 60, **provider.person}
    kid = provider.keys[-1].kid
    for forged in (
        jwt.encode({"alg": "RS256", "kid": kid}, good, key),
        jwt.encode({"alg": "HS256", "kid": kid}, good, shared, algorithms=["HS256"]),
    ):
        assert (await ask(web, forged)).status_code == 401
    provider.sign = provider._signed
    provider.rotate()
    assert (await ask(web, provider.access_token(resource(web)))).status_code == 200, "a new key is fetched"


async def test_a_token_ends_with_its_user_its_groups_and_its_time(
    web: ServedApp, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "RIGHTS_EVERY", 0.05)
    token = provider.access_token(resource(web))
    assert (await ask(web, token)).status_code == 200
    provider.person["groups"] = []
    assert (await ask(web, provider.access_token(resource(web)))).status_code == 401
    assert (await ask(web, token)).status_code == 401, "what a newer token says counts for the older one"
    provider.person["groups"] = ["staff"]
    assert (await ask(web, provider.access_token(resource(web), jti="3"))).status_code == 200
    assert (await ask(web, token)).status_code == 200
    web.site.identities._clock = lambda: time.time() + 400  # type: ignore[union-attr]
    assert (await ask(web, token)).status_code == 401
    web.site.identities._clock = time.time  # type: ignore[union-attr]
    await web.service.remove_user("ann")
    assert (await ask(web, token)).status_code == 401


async def test_an_old_token_brings_back_neither_lost_groups_nor_a_removed_user(
    web: ServedApp, provider: OidcProvider
) -> None:
    now = int(time.time())
    provider.person["groups"] = ["staff", "engineers"]
    kept = [provider.access_token(resource(web), iat=now - 60, jti=str(one)) for one in range(4)]
    assert (await ask(web, provider.access_token(resource(web), iat=now - 90))).status_code == 200
    provider.person["groups"] = ["staff"]
    assert (await ask(web, provider.access_token(resource(web), iat=now - 30))).status_code == 200
    for _ in range(2):
        assert (await ask(web, kept.pop())).status_code == 200
        assert [one.all_roles for one in await web.service.users()] == [("viewer",)]
        web.site.identities._seen.clear()  # type: ignore[union-attr]  # as after a restart
    await web.service.remove_user("ann")
    for token in (kept.pop(), provider.access_token(resource(web), iat=None)):
        assert (await ask(web, token)).status_code == 401
    assert await web.service.users() == []
    (former,) = (await web.service.kept("local", FORMER)).values()
    await web.service.keep("local", FORMER, "ann", {**former, "at": now - 90.0})
    assert (await ask(web, provider.access_token(resource(web), iat=now - 50))).status_code == 200, "a newer one"


async def test_it_is_accepted_at_mcp_alone(web: ServedApp, provider: OidcProvider) -> None:
    bearer = {"Authorization": f"Bearer {provider.access_token(resource(web))}"}
    assert (await web.guest.get("/api/runs", headers=bearer)).status_code == 401
