"""Signing in with an identity provider, against a real one on loopback with real keys."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
import pytest
from joserfc.jwk import OctKey, RSAKey
from starlette.requests import Request

from cuebook.gate.identity import provider as provider_module
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web.auth.oidc import CALLBACK
from cuebook.surfaces.web.auth.sessions import Sessions, Ticket
from tests.support.http_servers import Server, hang
from tests.support.oidc_provider import CLIENT, SECRET, OidcProvider, oidc_provider, unsigned
from tests.surfaces.web.served_app import ServedApp

HTML = {"Accept": "text/html"}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[OidcProvider]:
    monkeypatch.setattr(provider_module, "FAILED_FOR", 0.0)
    monkeypatch.setattr(provider_module, "REFETCH_EVERY", 0.0)
    with oidc_provider() as made:
        yield made


class Visitor:
    """A browser that signs in at a provider."""

    def __init__(self, web: ServedApp, provider: OidcProvider) -> None:
        self.client = web.guest
        self._provider = provider

    async def leave(self, path: str = "/sign-in/oidc") -> str:
        """Goes to the provider; returns where that leads back to."""
        away = await self.client.get(path, headers=HTML)
        assert away.status_code == 303, away.text
        async with httpx2.AsyncClient(trust_env=False) as other:
            return str((await other.get(away.headers["location"])).json()["location"])

    async def come_back(self, place: str) -> httpx2.Response:
        """Follows the provider's redirect. From another site, a browser does not send the cookie of the session."""
        cross = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        strict = [one for one in self.client.cookies.jar if "-" not in one.name.removeprefix("cuebook-")]
        for one in strict:
            self.client.cookies.jar.clear(one.domain, one.path, one.name)
        answer = await self.client.get(place, headers={**HTML, **cross})
        if not any(one.name in str(answer.headers.get_list("set-cookie")) for one in strict):
            for one in strict:
                self.client.cookies.jar.set_cookie(one)
        return answer

    async def sign_in(self, path: str = "/sign-in/oidc") -> httpx2.Response:
        return await self.come_back(await self.leave(path))

    async def sees(self, path: str = "/runs") -> int:
        return (await self.client.get(path, headers=HTML)).status_code


Serve = Callable[..., Any]


@pytest.fixture
def serve(web: ServedApp, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch) -> Serve:
    async def begin(**more: Any) -> Visitor:
        monkeypatch.setenv("OIDC_SECRET", SECRET)
        flags = {
            "oidc.issuer": provider.address,
            "oidc.client_id": CLIENT,
            "oidc.client_secret": "env:OIDC_SECRET",
            "oidc.viewer_groups": ("staff",),
            "oidc.admin_groups": ("bosses",),
            **more,
        }
        await web.model(ScriptedModel([])).serve(port=0, **flags)
        return Visitor(web, provider)

    return begin


async def acts(web: ServedApp, what: str) -> list[Any]:
    return [one.act for one in await web.service.admin_audit.acts() if one.act.what == what]


# --- it works ---


async def test_a_person_signs_in_sees_the_page_they_wanted_and_signs_out(
    web: ServedApp, serve: Serve, provider: OidcProvider
) -> None:
    visitor = await serve()
    refused = await visitor.client.get("/runs?status=failed", headers=HTML)
    assert refused.status_code == 401
    assert 'href="/sign-in/oidc?next=/runs%3Fstatus%3Dfailed"' in refused.text
    assert "use a token" not in refused.text
    back = await visitor.sign_in("/sign-in/oidc?next=/runs%3Fstatus%3Dfailed")
    assert back.status_code == 200
    assert 'content="0;url=/runs?status=failed"' in back.text, "a page of ours first: the cookie is strict"
    cookies = back.headers.get_list("set-cookie")
    (session,) = [one for one in cookies if one.startswith(f"{web.site.sessions.cookie}=")]
    assert "HttpOnly" in session
    assert "SameSite=strict" in session
    page = await visitor.client.get("/runs", headers=HTML)
    assert (page.status_code, ">ann<" in page.text) == (200, True)
    (ann,) = await web.service.users()
    assert (ann.name, ann.subject, ann.all_roles) == ("ann", "subject-1", ("viewer",))
    assert (await visitor.client.get("/api/runs")).status_code == 200
    (act,) = await acts(web, "sign_in")
    assert (act.by, act.surface, act.address, act.refused) == ("ann", "web", "127.0.0.1", False)
    assert [one.by for one in await acts(web, "user.add")] == ["ann"]
    out = await visitor.client.post("/sign-out", headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert out.headers["location"] == "/sign-in?out=1"
    assert f"{provider.address}/logout" in (await visitor.client.get("/sign-in?out=1", headers=HTML)).text
    assert await visitor.sees() == 401


async def test_the_subject_is_the_person_whatever_their_name_is(
    web: ServedApp, serve: Serve, provider: OidcProvider
) -> None:
    visitor = await serve()
    await visitor.sign_in()
    provider.person["preferred_username"] = "ann.smith"
    await visitor.sign_in()
    assert [one.name for one in await web.service.users()] == ["ann"], "renamed at the provider, the same here"
    provider.person = {"sub": "subject-2", "preferred_username": "ann", "groups": ["bosses"]}
    taken = await visitor.sign_in()
    assert taken.status_code == 403
    assert "already a user named ann" in taken.text
    assert (await web.service.users())[0].all_roles == ("viewer",), "nothing of it reached the other one"


async def test_a_user_added_by_hand_is_not_taken_over_but_linked_by_an_admin(
    web: ServedApp, serve: Serve, provider: OidcProvider
) -> None:
    visitor = await serve()
    await web.service.add_user("ann", ["approver"])
    assert (await visitor.sign_in()).status_code == 403
    await web.service.people.link("ann", provider.address, "subject-1", web_admin())
    assert (await visitor.sign_in()).status_code == 200
    (ann,) = await web.service.users()
    assert ann.all_roles == ("viewer", "approver")
    await web.service.people.link("ann", "", "", web_admin())
    assert await visitor.sees() == 401, "the session ends with the link"


async def test_a_first_sign_in_under_the_name_of_a_removed_user_is_refused(
    web: ServedApp, serve: Serve, provider: OidcProvider
) -> None:
    visitor = await serve()
    await visitor.sign_in()
    stolen = dict(visitor.client.cookies)
    await web.service.remove_user("ann")
    provider.person = {"sub": "subject-2", "preferred_username": "ann", "groups": ["staff"]}
    refused = await visitor.sign_in()
    assert refused.status_code == 403
    assert "An earlier user named ann was removed" in refused.text
    assert await web.service.users() == []
    provider.person["sub"] = "subject-1"
    assert (await visitor.sign_in()).status_code == 200, "the same subject is the same person"
    visitor.client.cookies.clear()
    visitor.client.cookies.update(stolen)
    assert await visitor.sees() == 401, "a session from before the removal stays ended"


def web_admin() -> Any:
    from cuebook.service.service import Principal

    return Principal()


async def test_groups_of_userinfo_count_if_the_token_has_none(
    web: ServedApp, serve: Serve, provider: OidcProvider
) -> None:
    visitor = await serve()
    provider.user_info = {"sub": "subject-1", "groups": ["staff"]}
    del provider.person["groups"]
    assert (await visitor.sign_in()).status_code == 200
    provider.user_info = {"sub": "someone else", "groups": ["bosses"]}
    assert (await visitor.sign_in()).status_code == 403


async def test_a_key_that_was_rotated_is_fetched(serve: Serve, provider: OidcProvider) -> None:
    visitor = await serve()
    assert (await visitor.sign_in()).status_code == 200
    provider.rotate()
    assert (await visitor.sign_in()).status_code == 200
    fetched = provider.server.lines.count("GET /keys")
    assert (await visitor.sign_in()).status_code == 200
    assert provider.server.lines.count("GET /keys") == fetched, "known keys are kept"


# --- groups ---


async def test_a_person_without_a_role_gets_a_clear_page_and_no_record(
    web: ServedApp, serve: Serve, provider: OidcProvider
) -> None:
    visitor = await serve()
    provider.person["groups"] = ["others"]
    page = await visitor.sign_in()
    assert page.status_code == 403
    assert "none of their groups has a role here" in page.text
    assert await web.service.users() == []
    (act,) = await acts(web, "sign_in")
    assert (act.refused, act.subject) == (True, "subject-1")


async def test_a_group_that_was_removed_ends_what_it_allowed(
    web: ServedApp, serve: Serve, provider: OidcProvider
) -> None:
    visitor = await serve(**{"oidc.recheck": 60.0})
    provider.person["groups"] = ["staff", "bosses"]
    await visitor.sign_in()
    assert (await visitor.client.get("/api/users")).status_code == 200
    provider.person["groups"] = ["staff"]
    web.site.sessions._clock = lambda: time.time() + 61
    again = await visitor.client.get("/runs?playbook=", headers=HTML)
    assert (again.status_code, "silent=1" in again.headers["location"]) == (303, True)
    assert (await visitor.sign_in(again.headers["location"])).status_code == 200
    assert (await visitor.client.get("/api/users")).status_code == 403
    (change,) = await acts(web, "user.groups")
    assert change.details["after"] == {"roles": ["viewer"], "teams": []}
    assert len(await acts(web, "sign_in")) == 1, "a check in between is no sign-in"
    provider.person["groups"] = []
    web.site.sessions._clock = lambda: time.time() + 200
    assert (await visitor.sign_in("/sign-in/oidc?silent=1&next=/")).status_code == 403
    assert await visitor.sees() == 401
    assert (await visitor.client.get("/api/runs")).status_code == 401


async def test_a_program_with_the_cookie_of_a_page_does_not_evade_the_check(
    web: ServedApp, serve: Serve, provider: OidcProvider
) -> None:
    visitor = await serve(**{"oidc.recheck": 60.0})
    provider.person["groups"] = ["staff", "bosses"]
    await visitor.sign_in()
    script = {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Site": "same-origin"}
    web.site.sessions._clock = lambda: time.time() + 100
    assert (await visitor.client.get("/api/users")).status_code == 200, "a page may stay open for a while"
    web.site.sessions._clock = lambda: time.time() + 121
    for path in ("/api/users", "/runs"):
        refused = await visitor.client.get(path, headers={**script, "Accept": "application/json"})
        assert (refused.status_code, refused.json()["code"]) == (401, "not_checked"), path
    page = await visitor.client.get("/runs", headers={**HTML, **script})
    assert page.status_code == 401
    provider.down = True
    assert (await visitor.client.get("/api/users")).status_code == 200
    provider.down = False
    web.site.identities.provider._down_until = 0.0  # type: ignore[union-attr]
    provider.person["groups"] = ["staff"]
    await visitor.sign_in((await visitor.client.get("/runs", headers=HTML)).headers["location"])
    assert (await visitor.client.get("/api/runs")).status_code == 200
    assert (await visitor.client.get("/api/users")).status_code == 403


async def test_signing_out_ends_the_cookies_from_before_a_check_too(
    web: ServedApp, serve: Serve, provider: OidcProvider
) -> None:
    visitor = await serve(**{"oidc.recheck": 60.0})
    await visitor.sign_in()
    name = web.site.sessions.cookie
    copies = [visitor.client.cookies[name]]
    web.site.sessions._clock = lambda: time.time() + 61
    await visitor.sign_in((await visitor.client.get("/runs", headers=HTML)).headers["location"])
    copies.append(visitor.client.cookies[name])
    assert copies[0] != copies[1]
    await visitor.client.post("/sign-out", headers={"Content-Type": "application/x-www-form-urlencoded"})
    for copy in copies:
        visitor.client.cookies.set(name, copy)
        assert await visitor.sees() == 401
    visitor.client.cookies.clear()
    assert (await visitor.sign_in()).status_code == 200, "a new session is another one"
    assert await visitor.sees() == 200


async def test_a_check_that_finds_someone_else_ends_the_session_of_the_first(
    web: ServedApp, serve: Serve, provider: OidcProvider
) -> None:
    visitor = await serve(**{"oidc.recheck": 60.0})
    await visitor.sign_in()
    first = visitor.client.cookies[web.site.sessions.cookie]
    provider.person = {"sub": "subject-2", "preferred_username": "bob", "groups": ["staff"]}
    web.site.sessions._clock = lambda: time.time() + 61
    page = await visitor.sign_in((await visitor.client.get("/runs", headers=HTML)).headers["location"])
    assert 'content="0;url=/"' in page.text
    assert ">bob<" in (await visitor.client.get("/runs", headers=HTML)).text
    visitor.client.cookies.clear()
    visitor.client.cookies.set(web.site.sessions.cookie, first)
    assert await visitor.sees() == 401


@pytest.mark.parametrize(
    ("scheme", "host", "public", "expected"),
    [
        ("https", "cue.example.com", "", True),
        ("http", "Cue.example.com", "https://cue.example.com", True),
        ("http", "127.0.0.1:8765", "https://cue.example.com", False),
        ("http", "cue.example.com", "http://cue.example.com", False),
        ("http", "127.0.0.1:8765", "", False),
    ],
)
def test_cookies_require_tls_at_a_public_address_that_does(scheme: str, host: str, public: str, expected: bool) -> None:
    """Also behind a proxy on another machine, whose X-Forwarded-Proto is not believed."""
    service = Mock()
    service.tokens.signer.return_value = lambda words: "0" * 64
    sessions = Sessions(service, public_url=public)
    headers = [(b"host", host.encode())]
    request = Request({"type": "http", "scheme": scheme, "path": "/", "query_string": b"", "headers": headers})
    assert sessions.is_over_tls(request) is expected
    assert sessions.cookie_of(request).startswith("__Host-") is expected


async def test_with_tls_no_other_host_of_the_domain_can_set_a_cookie(web: ServedApp, serve: Serve) -> None:
    visitor = await serve()
    tls = {**HTML, "X-Forwarded-Proto": "https"}  # as a proxy on this machine says
    away = await visitor.client.get("/sign-in/oidc", headers=tls)
    async with httpx2.AsyncClient(trust_env=False) as other:
        place = str((await other.get(away.headers["location"])).json()["location"])
    (attempt,) = away.headers.get_list("set-cookie")
    place = place.replace("https://", "http://")
    sent = {**tls, "Cookie": attempt.partition(";")[0]}
    plain = {**tls, "Cookie": sent["Cookie"].removeprefix("__Host-")}
    assert (await visitor.client.get(place, headers=plain)).status_code == 403
    back = await visitor.client.get(place, headers=sent)
    assert back.status_code == 200, back.text
    session, removed = back.headers.get_list("set-cookie")
    for cookie in (attempt, session, removed):
        assert cookie.startswith("__Host-cuebook-")
        assert "Secure" in cookie
        assert "Path=/;" in f"{cookie};"
    for prefix, status in (("", 200), ("__Host-", 401)):
        kept = {**tls, "Cookie": session.partition(";")[0].removeprefix(prefix)}
        assert (await visitor.client.get("/runs", headers=kept)).status_code == status
    out = {"X-Forwarded-Proto": "https", "Cookie": session.partition(";")[0]}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    gone = await visitor.client.post("/sign-out", headers={**out, **form})
    assert gone.headers["set-cookie"].startswith("__Host-cuebook-")
    assert "Secure" in gone.headers["set-cookie"]


async def test_a_session_ends_with_that_at_the_provider_but_not_while_it_is_down(
    web: ServedApp, serve: Serve, provider: OidcProvider
) -> None:
    visitor = await serve(**{"oidc.recheck": 60.0})
    await visitor.sign_in()
    web.site.sessions._clock = lambda: time.time() + 61
    provider.down = True
    assert await visitor.sees() == 200
    provider.down = False
    web.site.identities.provider._down_until = 0.0  # type: ignore[union-attr]
    provider.signed_in = False
    ended = await visitor.sign_in((await visitor.client.get("/runs", headers=HTML)).headers["location"])
    assert ended.status_code == 403
    assert "has ended" in ended.text
    assert await visitor.sees() == 401


async def test_teams_come_from_groups(web: ServedApp, serve: Serve, provider: OidcProvider) -> None:
    visitor = await serve(**{"oidc.team_groups": ("sales",), "access.runs": "team"})
    provider.person["groups"] = ["staff", "sales", "others"]
    await visitor.sign_in()
    assert (await web.service.users())[0].all_teams == ("sales",)
    await web.service.add_user("bob", ["runner"])
    await web.service.join("bob", ["sales"])
    owners = await web.service.visibility.owners(await web.service.principal("ann"))
    assert owners == frozenset({"ann", "bob"})


# --- what is not accepted ---


def other_key(claims: dict[str, Any]) -> str:
    from joserfc import jwt

    key = RSAKey.generate_key(2048)
    return jwt.encode({"alg": "RS256"}, claims, key)


def with_client_secret(claims: dict[str, Any]) -> str:
    from joserfc import jwt

    return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET.encode() * 2), algorithms=["HS256"])


BENT: dict[str, dict[str, Any]] = {
    "expired": {"exp": 1_700_000_000},
    "of the future": {"nbf": 4_000_000_000},
    "for another audience": {"aud": "another-client"},
    "for several audiences": {"aud": [CLIENT, "another-client"]},
    "of another issuer": {"iss": "https://login.example.com"},
    "of another attempt": {"nonce": "another"},
    "without a nonce": {"nonce": None},
    "without an end": {"exp": None},
    "without a subject": {"sub": None},
}


async def test_a_wrong_token_is_refused(web: ServedApp, serve: Serve, provider: OidcProvider) -> None:
    visitor = await serve()
    for name, bent in BENT.items():
        provider.bend = lambda claims, bent=bent: {k: v for k, v in {**claims, **bent}.items() if v is not None}  # type: ignore[misc]
        page = await visitor.sign_in()
        assert page.status_code == 403, name
        assert "not valid" in page.text or "several clients" in page.text, name
        assert await visitor.sees() == 401, name
    assert await web.service.users() == []
    provider.bend = lambda claims: claims
    assert (await visitor.sign_in()).status_code == 200, "the right one"


async def test_a_token_that_no_key_of_the_provider_signed_is_refused(serve: Serve, provider: OidcProvider) -> None:
    visitor = await serve()
    for sign in (unsigned, other_key, with_client_secret, lambda claims: "x.y.z"):
        provider.sign = sign
        assert (await visitor.sign_in()).status_code == 403
        assert await visitor.sees() == 401


async def test_an_answer_counts_once_and_only_in_the_browser_that_asked(
    web: ServedApp, serve: Serve, provider: OidcProvider
) -> None:
    visitor = await serve()
    place = await visitor.leave()
    async with httpx2.AsyncClient(base_url=visitor.client.base_url, trust_env=False) as other:
        stolen = await other.get(place, headers=HTML)
        assert (stolen.status_code, "not begun in this browser" in stolen.text) == (403, True)
    kept = dict(visitor.client.cookies)
    assert (await visitor.come_back(place)).status_code == 200
    for name, value in kept.items():  # someone who copied the cookies
        visitor.client.cookies.set(name, value)
    replayed = await visitor.come_back(place)
    assert (replayed.status_code, "already used" in replayed.text) == (403, True)
    web.site.used_states.clear()  # as in another process: the provider still knows its codes
    assert (await visitor.come_back(place)).status_code == 403
    assert provider.errors == ["invalid_grant"]
    forged = await visitor.leave()
    parts = parse_qs(urlsplit(forged).query)
    changed = await visitor.come_back(f"{CALLBACK}?code={parts['code'][0]}&state={'x' * 43}")
    assert changed.status_code == 403
    odd = await visitor.client.get(f"{CALLBACK}?state=a%3Bb%0d%0aSet-Cookie:x&code=c", headers=HTML)
    assert (odd.status_code, "x" in odd.cookies) == (403, False)
    mixed = await visitor.come_back(f"{CALLBACK}?code=c&state={parts['state'][0]}&iss=https://other.example")
    assert (mixed.status_code, "another provider" in mixed.text) == (403, True)


async def test_nobody_is_led_to_another_site(serve: Serve) -> None:
    visitor = await serve()
    for path in ("//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"):
        page = await visitor.sign_in(f"/sign-in/oidc?next={path}")
        assert 'content="0;url=/"' in page.text
        assert "evil" not in page.text


# --- the way out, and the provider's absence ---


async def test_a_token_has_only_what_an_admin_granted(web: ServedApp, serve: Serve, provider: OidcProvider) -> None:
    visitor = await serve()
    provider.person["groups"] = ["bosses"]
    await visitor.sign_in()
    _, token = await web.service.renew_token("ann")
    bearer = {"Authorization": f"Bearer {token}"}
    assert (await visitor.client.get("/api/runs", headers=bearer)).status_code == 403
    await web.service.grant("ann", ["viewer"])
    assert (await visitor.client.get("/api/runs", headers=bearer)).status_code == 200
    assert (await visitor.client.get("/api/users", headers=bearer)).status_code == 403


async def test_sessions_of_another_issuer_end(web: ServedApp, serve: Serve, provider: OidcProvider) -> None:
    visitor = await serve()
    await visitor.sign_in()
    assert await visitor.sees() == 200
    moved = msgspec.structs.replace(provider_of(web).settings, issuer="https://new.example.com")
    provider_of(web).settings = moved
    assert await visitor.sees() == 401


def provider_of(web: ServedApp) -> provider_module.Provider:
    assert web.site.identities is not None
    return web.site.identities.provider


async def test_links_and_tokens_sign_in_only_if_configured(web: ServedApp, serve: Serve) -> None:
    visitor = await serve()
    assert "start=" not in web.link
    _, token = await web.service.add_user("bob", ["viewer"])
    assert (await visitor.client.post("/sign-in", data={"token": token})).status_code == 401
    bearer = {"Authorization": f"Bearer {token}"}
    assert (await visitor.client.get("/api/runs", headers=bearer)).status_code == 200, "programs go on"
    before = Ticket("", "local", "", int(time.time()) + 600, "from-before-the-provider")
    visitor.client.cookies.set(web.site.sessions.cookie, web.site.sessions.sealed("session", before))
    assert await visitor.sees() == 401


async def test_the_way_out_is_a_setting(web: ServedApp, serve: Serve) -> None:
    visitor = await serve(**{"oidc.local_sign_in": True})
    page = (await visitor.client.get("/sign-in", headers=HTML)).text
    assert "use a token" in page
    assert "/sign-in/oidc" in page
    assert (await visitor.client.get(web.link, headers=HTML)).status_code == 303
    assert await visitor.sees() == 200


async def test_an_attempt_to_sign_in_ends_after_ten_minutes(
    web: ServedApp, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = await serve()
    place = await visitor.leave()
    monkeypatch.setattr(web.service, "clock", lambda: time.time() + 601)
    late = await visitor.come_back(place)
    assert (late.status_code, "is too old" in late.text) == (403, True)


async def test_a_provider_that_is_down_gets_a_clear_page_and_then_works(serve: Serve, provider: OidcProvider) -> None:
    visitor = await serve()
    provider.down = True
    page = await visitor.client.get("/sign-in/oidc", headers=HTML)
    assert page.status_code == 503
    assert "answered 503" in page.text
    provider.down = False
    assert (await visitor.sign_in()).status_code == 200


async def test_a_missing_secret_of_the_client_is_no_business_of_visitors(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    visitor = await serve()
    monkeypatch.delenv("OIDC_SECRET")
    page = await visitor.sign_in()
    assert (page.status_code, "This server has no secret for" in page.text) == (503, True)
    assert "OIDC_SECRET" not in page.text
    assert "env:OIDC_SECRET has no value" in caplog.text
    monkeypatch.setenv("OIDC_SECRET", SECRET)
    assert (await visitor.sign_in()).status_code == 200


async def test_a_provider_that_hangs_gets_a_clear_page(
    web: ServedApp, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_module, "PATIENCE", 0.2)
    async with Server(hang) as silent, asyncio.timeout(20):
        visitor = await serve(**{"oidc.issuer": silent.url().rstrip("/")})
        page = await visitor.client.get("/sign-in/oidc", headers=HTML)
        assert page.status_code == 503
        assert "does not answer" in page.text
        assert (await visitor.client.get("/healthz")).status_code == 200


async def test_a_provider_that_hangs_in_the_middle_holds_up_nobody_else(
    serve: Serve, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    visitor = await serve()
    place = await visitor.leave()
    monkeypatch.setattr(provider_module, "PATIENCE", 0.5)
    provider.hold = threading.Event()
    try:
        signing_in = asyncio.create_task(visitor.come_back(place))
        assert (await visitor.client.get("/healthz")).status_code == 200
        page = await signing_in
        assert (page.status_code, "does not answer" in page.text) == (503, True)
    finally:
        provider.hold.set()
        provider.hold = None
    assert (await visitor.sign_in()).status_code == 200


async def test_an_account_in_too_many_groups_is_told_so(serve: Serve, provider: OidcProvider) -> None:
    visitor = await serve()
    provider.person = {"sub": "subject-1", "preferred_username": "ann", "_claim_names": {"groups": "src1"}}
    page = await visitor.sign_in()
    assert (page.status_code, "too many groups" in page.text) == (403, True)


async def test_a_provider_that_calls_itself_something_else_is_refused(serve: Serve, provider: OidcProvider) -> None:
    visitor = await serve()
    provider.issuer = "https://evil.example"
    page = await visitor.client.get("/sign-in/oidc", headers=HTML)
    assert (page.status_code, "calls itself" in page.text) == (503, True)


async def test_the_clients_secret_is_nowhere(
    web: ServedApp, serve: Serve, provider: OidcProvider, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    visitor = await serve()
    provider.sign = unsigned
    shown = (await visitor.sign_in()).text
    provider.sign = provider._signed
    shown += (await visitor.sign_in()).text + (await visitor.client.get("/", headers=HTML)).text
    shown += str(await web.service.admin_audit.acts()) + caplog.text
    assert SECRET not in shown
    await web.stop()
    assert holding(tmp_path, b"subject-1"), "it looks at the right files"
    assert not holding(tmp_path, SECRET.encode())


def holding(folder: Path, words: bytes) -> list[Path]:
    return [one for one in folder.rglob("*") if one.is_file() and words in one.read_bytes()]


async def test_failures_do_not_flood_the_audit(web: ServedApp, serve: Serve) -> None:
    visitor = await serve()
    for _ in range(20):
        await visitor.client.get(f"{CALLBACK}?code=x&state=y", headers=HTML)
        await visitor.client.post("/sign-in", data={"token": "wrong"})
    assert len(await acts(web, "sign_in")) == 5
    await visitor.sign_in()
    last = (await acts(web, "sign_in"))[-1]
    assert (last.by, last.details["unrecorded_failures"]) == ("ann", 35)
