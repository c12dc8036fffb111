"""Requests that nobody's page sends: each gets an answer in words, and changes nothing that it should not."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from typing import Any

import pytest

from cuebook.kernel.rates import Rate
from cuebook.performers.models.scripted import Says, ScriptedModel
from cuebook.service import Principal
from tests.surfaces.web.house import House
from tests.surfaces.web.test_driving import ASKS, PLAIN
from tests.surfaces.web.test_rest import TEA

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
async def test_what_is_asked_oddly(house: House, path: str, headers: list[tuple[str, str]], status: int) -> None:
    await house.model(ScriptedModel([])).serve()
    host = house.client.base_url.netloc.decode()
    response = await house.client.get(path, headers=[(name, value.format(host=host)) for name, value in headers])
    assert response.status_code == status
    if status != 200:
        assert response.headers["content-type"] == "application/problem+json"
        assert "Content-Security-Policy" in response.headers


async def test_who_was_signed_out_elsewhere_is_led_to_sign_in(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    page = {"Origin": str(house.client.base_url).rstrip("/"), "Sec-Fetch-Mode": "cors"}
    by_page = (await house.guest.post("/api/runs", json={}, headers=page)).json()
    by_program = (await house.guest.post("/api/runs", json={})).json()
    assert by_page["code"] == by_program["code"] == "not_signed_in"
    by_token = (await house.guest.post("/api/runs", json={}, headers={"Authorization": "Bearer wrong"})).json()
    assert (by_program["detail"], by_token["detail"]) == ("You are not signed in.", "Invalid token.")
    assert by_page["fix"].startswith("Sign in")
    assert "Authorization: Bearer" in by_program["fix"]


async def test_a_form_of_any_size_is_answered(house: House) -> None:
    await house.model(ScriptedModel(["sencha", "done"])).serve()
    large = await house.guest.post("/sign-in", content=b"token=" + b"a" * 1_100_000, headers=FORM)
    assert large.status_code == 401
    run = await house.begin(playbook=house.book("tea.md", TEA), breakpoints="1")
    await house.waiting(run)
    many = b"&".join(b"var_chosen=%d" % one for one in range(1500))
    refused = await house.client.post(f"/api/runs/{run}/resume", content=many, headers=FORM)
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_body")
    capitals = {"Content-Type": "Application/X-WWW-Form-Urlencoded; charset=UTF-8"}
    taken = await house.client.post(f"/api/runs/{run}/resume", content=b"var_chosen=matcha", headers=capitals)
    assert taken.status_code == 202
    assert (await house.until(run, "completed"))["values"]["chosen"] == "matcha"


async def test_each_playbook_has_an_id_of_its_own(house: House) -> None:
    for name in ("a b.md", "a-b.md", "质量.md", "報告.md"):
        house.book(name, f"# Of {name}\n\n## STEP 1: A\n\nDo A.\n")
    model = ScriptedModel(["done"], cycle=True)
    await house.model(model).serve()
    listed = (await house.get("/api/playbooks"))["playbooks"]
    assert len({one["id"] for one in listed}) == 4
    for one in listed:
        run = await house.begin(playbook=one["id"])
        assert (await house.until(run, "completed"))["playbook"] == one["name"]
    assert "a-b" in {one["id"] for one in listed}


async def test_a_pipe_among_the_playbooks_holds_up_nobody(house: House) -> None:
    house.book("tea.md", TEA)
    os.mkfifo(house.books / "zz.md")
    await house.model(ScriptedModel([])).serve()
    async with asyncio.timeout(10):
        assert [one["id"] for one in (await house.get("/api/playbooks"))["playbooks"]] == ["tea"]


async def test_starts_at_once_do_not_pass_the_limit(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    await house.model(ScriptedModel(["done"], cycle=True)).serve()
    monkeypatch.setattr(house.service, "_rate", Rate(6, "hour"))
    book = house.book("plain.md", PLAIN)
    asked = [house.client.post("/api/runs", json={"playbook": book}) for _ in range(15)]
    assert Counter(one.status_code for one in await asyncio.gather(*asked)) == {201: 6, 429: 9}


async def test_the_servers_keys_are_changed_by_nobody_elses_admin(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    _, token = await house.service.add_user("boss", ["admin"], Principal("root", "acme"))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    for method, body in (("PUT", b'{"key": "sk-x"}'), ("DELETE", b"")):
        refused = await house.guest.request(method, "/api/connections/openai/key", content=body, headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")


async def test_what_may_be_secret_in_an_address_is_not_shown(house: House) -> None:
    settings = '[providers.own]\nbase_url = "https://llm.example/v1?api_key=query1"\n'
    (house.config / "cuebook.toml").write_text(settings)
    await house.model(ScriptedModel([])).serve()
    told = await house.get("/api/connections")
    page = (await house.client.get("/settings/connections")).text
    assert next(one["address"] for one in told["providers"] if one["name"] == "own") == "https://llm.example/v1?..."
    assert "query1" not in page
    assert "llm.example" in page


async def test_a_model_that_cannot_be_asked_leaves_the_pause(house: House) -> None:
    await house.model(ScriptedModel(["sencha", "done"])).serve()
    run = await house.begin(playbook=house.book("tea.md", TEA), breakpoints="1")
    await house.waiting(run)
    for path, more in ((f"/api/runs/{run}/resume", {}), (f"/api/runs/{run}/fork", {"step": "1"})):
        refused = await house.client.post(path, json={"settings": {"model": "nobodys/model"}, **more})
        assert (refused.status_code, refused.json()["code"]) == (422, "unknown_model")
    assert (await house.get(f"/api/runs/{run}"))["status"] == "paused"
    assert len((await house.get("/api/runs"))["runs"]) == 1


async def test_changes_to_a_run_that_goes_on_are_refused(house: House) -> None:
    gate = asyncio.Event()
    await house.model(ScriptedModel([Says("sencha", wait_for=gate), "done"])).serve()
    run = await house.begin(playbook=house.book("tea.md", TEA))
    await house.until(run, "running")
    refused = await house.client.post(f"/api/runs/{run}/resume", json={"variables": {"kind": "black"}})
    assert (refused.status_code, refused.json()["code"]) == (409, "refused")
    gate.set()
    await house.until(run, "completed")


@pytest.mark.parametrize(
    "more", [{"model": "test/two"}, {"breakpoints": "1"}, {"budget": {"steps": 9}}, {"unattended": True}]
)
async def test_a_key_is_for_one_way_of_running(house: House, more: dict[str, Any]) -> None:
    await house.model(ScriptedModel(["a"], cycle=True)).serve()
    book = house.book("tea.md", TEA)
    run = await house.begin(playbook=book, key="k")
    other = await house.client.post("/api/runs", json={"playbook": book, "key": "k", **more})
    assert (other.status_code, other.json()["code"]) == (409, "conflict")
    assert await house.begin(playbook=book, key="k") == run


async def test_a_key_that_is_too_long_for_a_trigger_is_refused(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    book = house.book("tea.md", TEA)
    token = (await house.post(f"/api/playbooks/{book}/token", 201))["token"]
    headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": "k" * 201}
    refused = await house.guest.post(f"/api/playbooks/{book}/trigger", json={}, headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_key")
    assert (await house.get("/api/runs"))["runs"] == []


async def test_a_secret_is_refused_wherever_it_is_given(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", SECRET)
    await house.model(ScriptedModel(["sencha"], cycle=True)).serve()
    run = await house.begin(playbook=house.book("tea.md", TEA), breakpoints="1")
    await house.waiting(run)
    asks = await house.begin(playbook=house.book("asks.md", ASKS))
    wait = (await house.waiting(asks))["wait"]
    for path, body in (
        (f"/api/runs/{run}/resume", {"variables": {"chosen": SECRET}}),
        (f"/api/waits/{wait}/answer", {"value": f"It is {SECRET}."}),
    ):
        refused = await house.client.post(path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "bad_input")
        assert SECRET not in refused.text
    assert (await house.get(f"/api/runs/{run}"))["status"] == "paused"
    assert (await house.get(f"/api/waits/{wait}"))["state"] == "open"
