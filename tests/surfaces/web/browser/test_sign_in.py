"""Signing in with an identity provider of another author, on another site, in a real browser with its cookie rules."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from cuebook.performers.models.scripted import ScriptedModel
from tests.surfaces.web.served_app import ServedApp

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # the provider's own
]


@pytest.fixture
def provider() -> Iterator[str]:
    """The address of a provider. Its host is another site than 127.0.0.1, where the app is."""
    from oidc_provider_mock import User, run_server_in_thread  # type: ignore[import-untyped]

    claims: dict[str, object] = {"preferred_username": "ann", "groups": ["staff", "bosses"]}
    with run_server_in_thread(user_claims=[User(sub="ann-1", claims=claims)]) as server:
        yield f"http://localhost:{server.server_port}"


async def sign_in_there(page: Page) -> None:
    await page.get_by_role("button", name="ann-1", exact=True).click()


async def test_a_person_signs_in_at_another_site_and_stays_signed_in(
    web: ServedApp, browser: Browser, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OIDC_SECRET", "a-secret-that-it-does-not-check")
    flags: dict[str, Any] = {
        "oidc.issuer": provider,
        "oidc.client_id": "cuebook",
        "oidc.client_secret": "env:OIDC_SECRET",
        "oidc.name": "Acme",
        "oidc.viewer_groups": ("staff",),
        "oidc.admin_groups": ("bosses",),
        "oidc.recheck": 60.0,
    }
    await web.model(ScriptedModel([])).serve(port=0, **flags)
    address = str(web.guest.base_url).rstrip("/")
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(f"{address}/runs?status=failed#below")
    await page.get_by_role("link", name="Sign in with Acme").click()
    await page.wait_for_url(f"{provider}/**")
    await sign_in_there(page)
    await page.wait_for_url(f"{address}/runs?status=failed#below")
    await expect(page.get_by_title("Signed in as")).to_have_text("ann")
    await page.goto(f"{address}/settings/users")
    await expect(page.get_by_role("heading", name="ann")).to_be_visible()

    web.site.sessions._clock = lambda: time.time() + 61
    (session,) = [one for one in await context.cookies() if one.get("name") == web.site.sessions.cookie]
    await page.goto(f"{address}/inbox")  # passes by the provider, which keeps no sessions
    await expect(page.get_by_role("alert")).to_contain_text("Your session at Acme has ended")
    kept = {"Cookie": f"{session.get('name')}={session.get('value')}"}
    assert (await web.guest.get("/api/runs", headers=kept)).status_code == 401, "also for a copy of the cookie"
    await page.get_by_role("link", name="Sign in with Acme").click()
    await sign_in_there(page)
    await page.wait_for_url(f"{address}/inbox")

    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("link", name="Sign out of Acme too")).to_be_visible()
    await page.goto(f"{address}/inbox")
    await expect(page.get_by_role("link", name="Sign in with Acme")).to_be_visible()
    await context.close()
