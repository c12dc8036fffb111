"""Every endpoint of the app: it refuses requests without a token, for another host, from another site, or with a
body that a form of another site could send.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from cuebook.gate.roles import ROLES
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web.app import ENDPOINTS
from cuebook.surfaces.web.auth.guard import CHANGES, LARGEST_BODY
from cuebook.surfaces.web.site import Endpoint
from tests.surfaces.web.served_app import ServedApp

BOOK = "# T\n\n## STEP 1: A\n\nDo A.\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ServedApp]:
    """One server for all routes: none of these requests changes anything."""
    with pytest.MonkeyPatch.context() as patch:
        made = ServedApp(tmp_path_factory.mktemp("web"), patch)
        made.book("t.md", BOOK)
        await made.model(ScriptedModel(["A."], cycle=True)).serve()
        yield made
        await made.stop()


def address_of(endpoint: Endpoint) -> str:
    named = {"{id}": "t", "{other}": "t", "{provider}": "openai", "{name}": "app.css"}
    path = endpoint.path
    for mark, value in named.items():
        path = path.replace(mark, value)
    return path


def endpoint_id(endpoint: Endpoint) -> str:
    return f"{endpoint.method} {endpoint.path}"


async def asked(
    web: ServedApp, endpoint: Endpoint, headers: dict[str, str] | None = None, *, token: bool = True
) -> httpx2.Response:
    given = {"Content-Type": "application/json", **(headers or {})}
    client = web.client if token else web.guest
    content = b"{}" if endpoint.method in CHANGES else None
    return await client.request(endpoint.method, address_of(endpoint), headers=given, content=content)


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    "endpoint", [endpoint for endpoint in ENDPOINTS if endpoint.needs != "anyone"], ids=endpoint_id
)
async def test_without_a_token_every_request_is_refused(served: ServedApp, endpoint: Endpoint) -> None:
    response = await asked(served, endpoint, token=False)
    assert response.status_code == 401
    scheme = "Signature" if endpoint.path.startswith("/hooks/") else "Bearer"
    assert response.headers["www-authenticate"] == scheme
    wrong = await asked(served, endpoint, {"Authorization": "Bearer wrong"}, token=False)
    assert wrong.status_code == 401


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=endpoint_id)
async def test_another_host_is_refused(served: ServedApp, endpoint: Endpoint) -> None:
    port = served.client.base_url.port
    for host in (
        "evil.example",
        "127.0.0.1",
        "127.0.0.1:1",
        f"localhost.evil.example:{port}",
        f"@127.0.0.1:{port}",
        "",
    ):
        assert (await asked(served, endpoint, {"Host": host})).status_code in (400, 421)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=endpoint_id)
async def test_another_origin_is_refused(served: ServedApp, endpoint: Endpoint) -> None:
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "http://localhost:3000", ""):
        response = await asked(served, endpoint, {"Origin": origin})
        assert (response.status_code, response.json()["code"]) == (403, "foreign_origin")


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=endpoint_id)
async def test_a_fetch_from_another_sites_page_is_refused(served: ServedApp, endpoint: Endpoint) -> None:
    for site in ("cross-site", "same-site"):
        for mode, dest in (("no-cors", "script"), ("cors", "empty"), ("navigate", "iframe")):
            headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
            assert (await asked(served, endpoint, headers)).status_code == 403


@pytest.mark.parametrize(
    "endpoint", [endpoint for endpoint in ENDPOINTS if endpoint.method in CHANGES], ids=endpoint_id
)
async def test_a_change_must_be_json(served: ServedApp, endpoint: Endpoint) -> None:
    refused = ["text/plain", "multipart/form-data; boundary=x", "", "application/jsonx"]
    refused += [] if endpoint.kind == "form" else ["application/x-www-form-urlencoded"]
    for content_type in refused:
        response = await asked(served, endpoint, {"Content-Type": content_type})
        assert (response.status_code, content_type) == (415, content_type)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=endpoint_id)
async def test_every_response_has_the_security_headers(served: ServedApp, endpoint: Endpoint) -> None:
    if endpoint.kind == "stream" and endpoint.path.endswith("stream"):
        return  # there is no run to stream; the guard adds them to every response
    headers = (await asked(served, endpoint)).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["cache-control"] == (
        "no-cache" if endpoint.path == "/static/{name}" and headers.get("etag") else "no-store"
    )


async def test_a_link_on_another_site_may_lead_to_a_page(served: ServedApp) -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    response = await asked(served, ENDPOINTS[0], headers, token=False)
    assert response.status_code == 401
    assert "text/html" in response.headers["content-type"]


async def test_a_body_that_is_too_large_is_refused(served: ServedApp) -> None:
    for content in (b" " * (LARGEST_BODY + 1), None):

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(LARGEST_BODY // 100_000 + 2):
                yield b" " * 100_000

        response = await served.client.post(
            "/api/runs", content=content or endless(), headers={"Content-Type": "application/json"}
        )
        assert (response.status_code, response.json()["code"]) == (413, "too_large")


async def test_nonces_are_not_repeated(served: ServedApp) -> None:
    policies = {(await served.client.get("/healthz")).headers["content-security-policy"] for _ in range(3)}
    assert len(policies) == 3


async def test_an_unknown_path_is_a_problem(served: ServedApp) -> None:
    missing = await served.client.get("/api/nothing")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    assert missing.headers["content-type"] == "application/problem+json"
    wrong = await served.client.post("/api/models", json={})
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET, HEAD")
    page = await served.client.get("/nothing", headers={"Accept": "text/html"})
    assert page.status_code == 404
    assert page.headers["content-type"].startswith("text/html")


ROLE_OF = {
    endpoint_id(endpoint): endpoint for endpoint in ENDPOINTS if endpoint.needs in ROLES and endpoint.needs != "viewer"
}


@pytest.mark.parametrize("name", ROLE_OF)
async def test_a_role_that_is_missing_is_refused(served: ServedApp, name: str) -> None:
    endpoint = ROLE_OF[name]
    others = [role for role in ROLES if role not in (endpoint.needs, "admin")]
    user = f"not-{endpoint.needs}-{list(ROLE_OF).index(name)}"
    _, token = await served.service.add_user(user, others)
    response = await asked(served, endpoint, {"Authorization": f"Bearer {token}"})
    assert response.status_code == 403


async def test_static_files_stay_in_their_folder(served: ServedApp) -> None:
    for name in ("..%2fapp.py", "%2e%2e%2fapp.py", "..%5capp.py", "app.py", "%00.css", "nothing.css"):
        assert (await served.client.get(f"/static/{name}")).status_code == 404


async def test_the_folder_of_static_files_is_flat() -> None:
    from cuebook.surfaces import web

    assert web.__file__ is not None
    assert all(path.is_file() for path in (Path(web.__file__).parent / "static").iterdir())
