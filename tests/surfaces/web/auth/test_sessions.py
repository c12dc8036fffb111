"""Signing in: a link that works once, a cookie that outlives the server but not the user, and tokens."""

from __future__ import annotations

from http.cookies import SimpleCookie

import httpx2
import pytest

from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web.server import hosts_for, make_server
from cuebook.system.network import is_loopback
from tests.surfaces.web.served_app import TOKEN, ServedApp


async def served(web: ServedApp) -> ServedApp:
    return await web.model(ScriptedModel([])).serve()


def cookie_of(response: httpx2.Response) -> tuple[dict[str, str], SimpleCookie]:
    parsed = SimpleCookie(response.headers["set-cookie"])
    return {name: one.value for name, one in parsed.items()}, parsed


async def test_the_start_link_works_once(web: ServedApp) -> None:
    await served(web)
    assert len(web.link.partition("start=")[2]) >= 43  # 256 bits
    first = await web.guest.get(web.link)
    assert (first.status_code, first.headers["location"]) == (303, "/")
    values, parsed = cookie_of(first)
    (one,) = parsed.values()
    assert one["httponly"]
    assert one["samesite"].lower() == "strict"
    assert one["path"] == "/"
    web.guest.cookies.clear()
    second = await web.guest.get(web.link)
    assert second.status_code == 401
    assert "set-cookie" not in second.headers
    assert (
        await web.guest.get("/api/runs", headers={"Cookie": "; ".join(f"{k}={v}" for k, v in values.items())})
    ).status_code == 200
    assert (await web.guest.get("/api/runs")).status_code == 401


async def test_a_link_that_is_followed_from_another_page_signs_in_too(web: ServedApp) -> None:
    """A browser does not send a new strict cookie along with what another site's page began."""
    await served(web)
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    response = await web.guest.get(web.link, headers=headers)
    assert response.status_code == 200
    assert "set-cookie" in response.headers
    assert "refresh" in response.text


async def test_a_cookie_outlives_a_restart_of_the_server(web: ServedApp) -> None:
    await served(web)
    values, _ = cookie_of(await web.guest.get(web.link))
    await web.stop()
    await served(web)
    cookie = "; ".join(f"{name}={value}" for name, value in values.items())
    assert (await web.guest.get("/api/runs", headers={"Cookie": cookie})).status_code == 200


async def test_a_cookie_that_was_changed_is_none(web: ServedApp) -> None:
    await served(web)
    values, _ = cookie_of(await web.guest.get(web.link))
    web.guest.cookies.clear()
    ((name, value),) = values.items()
    body, _, seal = value.partition(".")
    flipped = ("A" if seal[0] != "A" else "B") + seal[1:]
    for wrong in ("", "x", ".", f"{body}.", f"{body}.{flipped}", f"{body}x.{seal}", f".{seal}", f"{body}.{seal}é"):
        assert (await web.guest.get("/api/runs", headers={b"Cookie": f"{name}={wrong}".encode()})).status_code == 401


async def test_a_cookie_ends(web: ServedApp) -> None:
    await served(web)
    values, _ = cookie_of(await web.guest.get(web.link))
    cookie = {"Cookie": "; ".join(f"{name}={value}" for name, value in values.items())}
    now = web.site.sessions._clock()
    web.site.sessions._clock = lambda: now + 6.9 * 24 * 3600
    assert (await web.guest.get("/api/runs", headers=cookie)).status_code == 200
    web.site.sessions._clock = lambda: now + 7.1 * 24 * 3600
    assert (await web.guest.get("/api/runs", headers=cookie)).status_code == 401


async def test_a_user_signs_in_with_a_token_and_has_their_roles(web: ServedApp) -> None:
    await served(web)
    _, token = await web.service.add_user("eve", ["viewer"])
    signed_in = await web.guest.post("/sign-in", data={"token": token})
    assert signed_in.status_code == 303
    assert (await web.guest.get("/api/runs")).status_code == 200
    refused = await web.guest.post("/api/runs", json={"playbook": "x"})
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")
    await web.service.grant("eve", ["runner"])
    assert (await web.guest.post("/api/runs", json={"playbook": "x"})).status_code == 404, "their roles are looked up"
    _, token = await web.service.renew_token("eve")
    assert (await web.guest.get("/api/runs")).status_code == 401
    await web.guest.post("/sign-in", data={"token": token})
    assert (await web.guest.get("/api/runs")).status_code == 200
    await web.service.remove_user("eve")
    assert (await web.guest.get("/api/runs")).status_code == 401


async def test_the_servers_token_signs_in_until_it_is_another(web: ServedApp) -> None:
    await served(web)
    assert (await web.guest.post("/sign-in", data={"token": "wrong"})).status_code == 401
    assert (await web.guest.post("/sign-in", data={"token": TOKEN})).status_code == 303
    assert (await web.guest.get("/api/runs")).status_code == 200
    web.site.sessions._serve_token = "another-token-of-the-server"
    assert (await web.guest.get("/api/runs")).status_code == 401


async def test_signing_out_ends_it_in_this_browser(web: ServedApp) -> None:
    await served(web)
    await web.guest.get(web.link)
    assert (await web.guest.get("/api/runs")).status_code == 200
    assert (await web.guest.post("/sign-out", json={})).status_code == 303
    assert (await web.guest.get("/api/runs")).status_code == 401


async def test_a_copy_of_a_cookie_ends_with_its_session_and_no_other_does(web: ServedApp) -> None:
    await served(web)
    copies = []
    for _ in range(2):
        values, _ = cookie_of(await web.guest.post("/sign-in", data={"token": TOKEN}))
        web.guest.cookies.clear()
        copies.append({"Cookie": "; ".join(f"{name}={value}" for name, value in values.items())})
    await web.guest.post("/sign-out", json={}, headers=copies[0])
    await web.stop()
    await served(web)
    assert [(await web.guest.get("/api/runs", headers=copy)).status_code for copy in copies] == [401, 200]


async def test_a_link_preview_does_not_use_up_the_start_link(web: ServedApp) -> None:
    await served(web)
    looked = await web.guest.head(web.link)
    assert "set-cookie" not in looked.headers
    assert (await web.guest.get(web.link)).status_code == 303


@pytest.mark.parametrize(
    ("accept", "type"), [("application/json", "application/problem+json"), ("text/html", "text/html; charset=utf-8")]
)
async def test_an_invalid_token_is_refused_as_a_page_or_as_json(web: ServedApp, accept: str, type: str) -> None:
    await served(web)
    refused = await web.guest.post("/sign-in", data={"token": "wrong"}, headers={"Accept": accept})
    assert (refused.status_code, refused.headers["content-type"]) == (401, type)
    mcp = await web.guest.post("/mcp", json={})
    assert (mcp.status_code, mcp.json()["type"]) == (401, "urn:cuebook:problem:bad_token")


@pytest.mark.parametrize("host", ["::1", "[::1]"])
async def test_the_start_link_of_an_ipv6_address_can_be_opened(web: ServedApp, host: str) -> None:
    await served(web)
    message: list[str] = []
    make_server(web.site, host, 8765, on_ready=message.append)._on_ready()
    assert message[0].startswith("http://[::1]:8765/sign-in?start=")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3", "[::1]"])
def test_loopback_addresses_are_recognised(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.1", "example.com", ""])
def test_other_addresses_are_not_loopback(host: str) -> None:
    assert not is_loopback(host)


def test_the_host_names_of_a_server() -> None:
    local = hosts_for("127.0.0.1", 8765)
    assert all(name in local for name in ("127.0.0.1:8765", "localhost:8765", "[::1]:8765", "LOCALHOST:8765"))
    assert not any(name in local for name in ("127.0.0.1", "example.com:8765", "10.0.0.1:8765", "", ":8765"))
    wide = hosts_for("0.0.0.0", 80, ["cue.example.com"])
    assert all(name in wide for name in ("cue.example.com", "cue.example.com:80", "10.0.0.1:80", "10.0.0.1"))
    assert "evil.example" not in wide


async def test_sign_in_redirects_to_the_requested_page(web: ServedApp) -> None:
    await served(web)
    browser = {"Accept": "text/html"}
    refused = await web.guest.get("/runs?status=failed&playbook=a%20b", headers=browser)
    assert "/sign-in?next=/runs%3Fstatus%3Dfailed%26playbook%3Da%2520b" in refused.text
    form = await web.guest.get("/sign-in?next=/runs%3Fstatus%3Dfailed%26playbook%3Da%2520b", headers=browser)
    assert 'name="next" value="/runs?status=failed&amp;playbook=a%20b"' in form.text
    wrong = await web.guest.post("/sign-in", data={"token": "wrong", "next": "/inbox"}, headers=browser)
    assert wrong.status_code == 401
    assert 'name="next" value="/inbox"' in wrong.text
    given = {"token": TOKEN, "next": "/runs/x?a=1#wait-2"}
    assert (await web.guest.post("/sign-in", data=given)).headers["location"] == "/runs/x?a=1#wait-2"
    # A link on another site does not send the cookie; a page of this server does.
    signed_in = await web.guest.get("/sign-in?next=/inbox", headers=browser)
    assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/inbox")
    assert (await web.guest.get("/sign-in", headers=browser)).status_code == 200


@pytest.mark.parametrize(
    "elsewhere",
    [
        *("//evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example/", "evil.example", "/a\\b"),
        *(
            "javascript:alert(1)",
            "/\t/evil.example",
            "/\r\nLocation: x",
            "/ /evil.example",
            "\x00/",
            "/é",
            "",
            "/" + "a" * 3000,
        ),
        *("///evil.example", " //evil.example", "http:evil.example", "/\x7f"),
    ],
)
async def test_sign_in_never_redirects_to_another_site(web: ServedApp, elsewhere: str) -> None:
    await served(web)
    sent = await web.guest.post("/sign-in", data={"token": TOKEN, "next": elsewhere})
    assert (sent.status_code, sent.headers["location"]) == (303, "/")
    web.guest.cookies.clear()
    start = web.link.rpartition("/")[2]
    followed = await web.guest.get(f"/{start}", params={"next": elsewhere, "start": start.partition("=")[2]})
    assert followed.headers.get("location") == "/"
    again = await web.guest.get("/sign-in", params={"next": elsewhere}, headers={"Accept": "text/html"})
    assert again.status_code == 200, "a signed-in user with no page to return to"
    assert 'name="next"' not in again.text


async def test_every_page_shows_the_sign_in_form_to_a_stranger(web: ServedApp) -> None:
    web.book("tea.md", "# T\n\n## STEP 1: A\n\nDo A.\n")
    await web.serve()
    for path, onward in (
        ("/", ""),
        ("/runs?status=failed", "/runs?status=failed"),
        ("/playbooks/tea", "/playbooks/tea"),
    ):
        answer = await web.guest.get(path, headers={"Accept": "text/html"})
        assert answer.status_code == 401
        assert 'name="token"' in answer.text
        assert (f'name="next" value="{onward}"' in answer.text) == bool(onward)
    assert (await web.guest.get("/api/runs", headers={"Accept": "application/json"})).json()["code"] == "not_signed_in"
    led = await web.client.get("/playbooks", headers={"Accept": "text/html"}, follow_redirects=False)
    assert (led.status_code, led.headers["location"]) == (303, "/")
