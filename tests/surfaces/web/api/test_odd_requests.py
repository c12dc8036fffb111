"""Requests that no page sends: each gets a readable error and changes nothing."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any

import pytest

from cuebook.config.settings import Rate
from cuebook.performers.models.scripted import Says, ScriptedModel
from cuebook.service.service import Principal
from tests.surfaces.web.api.test_runs import TEA
from tests.surfaces.web.served_app import ServedApp
from tests.surfaces.web.test_worker import ASKS, PLAIN

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
SECRET = "sk-or-a-secret-of-this-test"


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/healthz", [("Origin", "http://[")], 403),
        ("/healthz", [("Origin", "http://{host}"), ("Origin", "http://elsewhere.example")], 403),
        ("/healthz", [("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Site", "cross-site")], 403),
        (f"/static/{'a' * 300}.css", [], 404),
        ("/api/runs?limit=000000001999999999999999999999", [], 422),
        ("/api/runs?limit=000000001999999", [], 422),
        ("/api/runs?limit=0000", [], 422),
        ("/api/runs?limit=0010", [], 200),
    ],
)
async def test_odd_requests_are_refused(web: ServedApp, path: str, headers: list[tuple[str, str]], status: int) -> None:
    await web.model(ScriptedModel([])).serve()
    host = web.client.base_url.netloc.decode()
    response = await web.client.get(path, headers=[(name, value.format(host=host)) for name, value in headers])
    assert response.status_code == status
    if status != 200:
        assert response.headers["content-type"] == "application/problem+json"
        assert "Content-Security-Policy" in response.headers


async def test_a_user_signed_out_elsewhere_is_sent_to_sign_in(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    page = {"Origin": str(web.client.base_url).rstrip("/"), "Sec-Fetch-Mode": "cors"}
    by_page = (await web.guest.post("/api/runs", json={}, headers=page)).json()
    by_program = (await web.guest.post("/api/runs", json={})).json()
    assert by_page["code"] == by_program["code"] == "not_signed_in"
    by_token = (await web.guest.post("/api/runs", json={}, headers={"Authorization": "Bearer wrong"})).json()
    assert (by_program["detail"], by_token["detail"]) == ("You are not signed in.", "Invalid token.")
    assert by_page["fix"].startswith("Sign in")
    assert "Authorization: Bearer" in by_program["fix"]


async def test_a_form_of_any_size_is_answered(web: ServedApp) -> None:
    await web.model(ScriptedModel(["sencha", "done"])).serve()
    large = await web.guest.post("/sign-in", content=b"token=" + b"a" * 1_100_000, headers=FORM)
    assert large.status_code == 401
    run = await web.begin(playbook=web.book("tea.md", TEA), breakpoints="1")
    await web.waiting(run)
    many = b"&".join(b"var_chosen=%d" % one for one in range(1500))
    refused = await web.client.post(f"/api/runs/{run}/resume", content=many, headers=FORM)
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_body")
    capitals = {"Content-Type": "Application/X-WWW-Form-Urlencoded; charset=UTF-8"}
    taken = await web.client.post(f"/api/runs/{run}/resume", content=b"var_chosen=matcha", headers=capitals)
    assert taken.status_code == 202
    assert (await web.until(run, "completed"))["values"]["chosen"] == "matcha"


async def test_each_playbook_has_a_unique_id(web: ServedApp) -> None:
    for name in ("a b.md", "a-b.md", "质量.md", "報告.md"):
        web.book(name, f"# Of {name}\n\n## STEP 1: A\n\nDo A.\n")
    model = ScriptedModel(["done"], cycle=True)
    await web.model(model).serve()
    listed = (await web.get("/api/playbooks"))["playbooks"]
    assert len({one["id"] for one in listed}) == 4
    for one in listed:
        run = await web.begin(playbook=one["id"])
        assert (await web.until(run, "completed"))["playbook"] == one["name"]
    assert "a-b" in {one["id"] for one in listed}


async def test_a_pipe_among_the_playbooks_blocks_no_request(web: ServedApp) -> None:
    web.book("tea.md", TEA)
    os.mkfifo(web.books / "zz.md")
    await web.model(ScriptedModel([])).serve()
    async with asyncio.timeout(10):
        assert [one["id"] for one in (await web.get("/api/playbooks"))["playbooks"]] == ["tea"]


async def test_concurrent_starts_do_not_exceed_the_limit(web: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    await web.model(ScriptedModel(["done"], cycle=True)).serve()
    monkeypatch.setattr(web.service, "_rate", Rate(6, "hour"))
    book = web.book("plain.md", PLAIN)
    asked = [web.client.post("/api/runs", json={"playbook": book}) for _ in range(15)]
    assert Counter(one.status_code for one in await asyncio.gather(*asked)) == {201: 6, 429: 9}


async def test_admins_of_other_tenants_cannot_change_the_servers_keys(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    _, token = await web.service.add_user("boss", ["admin"], Principal("root", "acme"))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    for method, body in (("PUT", b'{"key": "sk-x"}'), ("DELETE", b"")):
        refused = await web.guest.request(method, "/api/connections/openai/key", content=body, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")


async def test_secret_parts_of_a_url_are_not_shown(web: ServedApp) -> None:
    settings = '[providers.own]\nbase_url = "https://llm.example/v1?api_key=query1"\n'
    (web.config / "cuebook.toml").write_text(settings)
    await web.model(ScriptedModel([])).serve()
    message = await web.get("/api/connections")
    page = (await web.client.get("/settings/connections")).text
    assert next(one["address"] for one in message["providers"] if one["name"] == "own") == "https://llm.example/v1?..."
    assert "query1" not in page
    assert "llm.example" in page


async def test_a_model_that_cannot_be_asked_leaves_the_pause(web: ServedApp) -> None:
    await web.model(ScriptedModel(["sencha", "done"])).serve()
    run = await web.begin(playbook=web.book("tea.md", TEA), breakpoints="1")
    await web.waiting(run)
    for path, more in ((f"/api/runs/{run}/resume", {}), (f"/api/runs/{run}/fork", {"step": "1"})):
        refused = await web.client.post(path, json={"settings": {"model": "nobodys/model"}, **more})
        assert (refused.status_code, refused.json()["code"]) == (422, "unknown_model")
    assert (await web.get(f"/api/runs/{run}"))["status"] == "paused"
    assert len((await web.get("/api/runs"))["runs"]) == 1


async def test_changes_to_a_running_run_are_refused(web: ServedApp) -> None:
    gate = asyncio.Event()
    await web.model(ScriptedModel([Says("sencha", wait_for=gate), "done"])).serve()
    run = await web.begin(playbook=web.book("tea.md", TEA))
    await web.until(run, "running")
    refused = await web.client.post(f"/api/runs/{run}/resume", json={"variables": {"kind": "black"}})
    assert (refused.status_code, refused.json()["code"]) == (409, "refused")
    gate.set()
    await web.until(run, "completed")


@pytest.mark.parametrize(
    "more", [{"model": "test/two"}, {"breakpoints": "1"}, {"budget": {"steps": 9}}, {"unattended": True}]
)
async def test_a_key_belongs_to_one_kind_of_start(web: ServedApp, more: dict[str, Any]) -> None:
    await web.model(ScriptedModel(["a"], cycle=True)).serve()
    book = web.book("tea.md", TEA)
    run = await web.begin(playbook=book, key="k")
    other = await web.client.post("/api/runs", json={"playbook": book, "key": "k", **more})
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert await web.begin(playbook=book, key="k") == run


async def test_a_key_that_is_too_long_for_a_trigger_is_refused(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    book = web.book("tea.md", TEA)
    token = (await web.post(f"/api/playbooks/{book}/token", 201))["token"]
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k" * 201}
    refused = await web.guest.post(f"/api/playbooks/{book}/trigger", json={}, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_key")
    assert (await web.get("/api/runs"))["runs"] == []


async def test_a_secret_is_refused_wherever_it_is_given(web: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", SECRET)
    await web.model(ScriptedModel(["sencha"], cycle=True)).serve()
    run = await web.begin(playbook=web.book("tea.md", TEA), breakpoints="1")
    await web.waiting(run)
    asks = await web.begin(playbook=web.book("asks.md", ASKS))
    wait = (await web.waiting(asks))["wait"]
    for path, body in (
        (f"/api/runs/{run}/resume", {"variables": {"chosen": SECRET}}),
        (f"/api/waits/{wait}/answer", {"value": f"It is {SECRET}."}),
    ):
        refused = await web.client.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "bad_input")
        assert SECRET not in refused.text
    assert (await web.get(f"/api/runs/{run}"))["status"] == "paused"
    assert (await web.get(f"/api/waits/{wait}"))["state"] == "open"
