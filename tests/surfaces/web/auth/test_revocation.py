"""Revoked permissions: open streams end, and no part of a request does more than its sender may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from cuebook.performers.models.scripted import ScriptedModel
from cuebook.service import admin
from tests.support.runtime import ALLOWED, GATED
from tests.surfaces.web.served_app import ServedApp

SECRET = "s3cr3t-of-the-house"
SECRETIVE = """
name: Secretive
args:
  note: {type: string, default: ""}
steps:
  - {id: early, command: cli cat leak.txt, effect: read}
  - {id: use, command: cli sh -c 'test -n "$T"', env: {T: "secret:env:HOUSE_SECRET"}, effect: read}
"""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "RIGHTS_EVERY", 0.05)


async def _taken(web: ServedApp) -> None:
    await web.service.remove_user("eve")


async def _renewed(web: ServedApp) -> None:
    await web.service.renew_token("eve")


@pytest.mark.parametrize("kind", ["stream", "events"])
@pytest.mark.parametrize("end", [_taken, _renewed])
@pytest.mark.parametrize("by", ["bearer", "cookie"])
async def test_an_open_stream_ends_with_its_user(
    web: ServedApp, kind: str, end: Callable[[ServedApp], Awaitable[None]], by: str
) -> None:
    await web.model(ScriptedModel([])).serve()
    _, token = await web.service.add_user("eve", ["viewer"])
    run = await web.begin(playbook=web.book("gated.yml", GATED))
    await web.waiting(run)
    headers = {"Accept": "text/event-stream"}
    if by == "bearer":
        headers["Authorization"] = f"Bearer {token}"
    else:
        await web.guest.post("/sign-in", data={"token": token})
    async with (
        asyncio.timeout(30),
        web.stream(run, kind=kind) as ours,
        web.guest.stream("GET", f"/api/runs/{run}/{kind}", headers=headers) as theirs,
    ):
        assert theirs.status_code == 200
        lines = theirs.aiter_lines()
        await anext(lines)
        await end(web)
        async for _ in lines:
            pass
        await web.post(f"/api/waits/{(await web.waiting(run))['wait']}/decide", decision="deny")
        assert [event async for event in ours], "others read on"


async def test_a_stream_ends_with_a_session(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    _, token = await web.service.add_user("eve", ["viewer"])
    run = await web.begin(playbook=web.book("gated.yml", GATED))
    await web.waiting(run)
    await web.guest.post("/sign-in", data={"token": token})
    async with (
        asyncio.timeout(30),
        web.guest.stream("GET", f"/api/runs/{run}/stream", headers={"Accept": "text/event-stream"}) as theirs,
    ):
        lines = theirs.aiter_lines()
        await anext(lines)
        assert (await web.guest.post("/sign-out", json={})).status_code == 303
        async for _ in lines:
            pass


async def test_settings_in_a_decision_need_the_role_that_they_need_anywhere(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    run = await web.begin(playbook=web.book("gated.yml", GATED))
    wait = (await web.waiting(run))["wait"]
    tokens = {
        name: (await web.service.add_user(name, roles))[1]
        for name, roles in {"ann": ["approver"], "bob": ["approver", "runner"]}.items()
    }
    settings = {"model": "test/other", "budget": {"money": 1000}}

    async def decide(name: str, **fields: Any) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {tokens[name]}"}
        response = await web.guest.post(f"/api/waits/{wait}/decide", json=fields, headers=headers)
        return response.status_code, response.json()

    before = (await web.get(f"/api/runs/{run}/events"))["events"]
    status, refused = await decide("ann", decision="approve", settings=settings)
    assert (status, refused["code"]) == (403, "not_allowed")
    assert "users grant ann --role runner" in refused["fix"]
    answered = await web.guest.post(
        "/playbooks/runtime",
        json={"action": "resume", "token": wait, "approve": True, "timeoutMs": 1000},
        headers={"Authorization": f"Bearer {tokens['ann']}"},
    )
    assert answered.json()["error"]["code"] == "not_allowed"
    assert (await web.get(f"/api/runs/{run}/events"))["events"] == before
    assert not web.made()
    assert (await decide("bob", decision="approve", settings=settings))[0] == 200
    message = await web.until(run, "completed")
    assert message["model"] == "test/other"


async def test_a_missing_secret_is_reported_and_the_run_continues_once_it_is_set(
    web: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    web.rule(ALLOWED + '[secrets]\nallow = ["*"]\n')
    (web.work / "leak.txt").write_text(SECRET)
    monkeypatch.delenv("HOUSE_SECRET", raising=False)
    await web.model(ScriptedModel([])).serve()
    run = await web.begin(playbook=web.book("secretive.yml", SECRETIVE))
    message = await web.until(run, "paused")
    assert (message["reason"], [wait["kind"] for wait in message["waits"]]) == ("secret", ["secret"])
    assert "env:HOUSE_SECRET has no value" in message["waits"][0]["prompt"]
    listed = await web.get("/api/inbox")
    assert "env:HOUSE_SECRET has no value" in str(listed)
    for address in ("/inbox", f"/runs/{run}"):
        page = (await web.client.get(address, headers={"Accept": "text/html"})).text
        assert "env:HOUSE_SECRET has no value" in page
        assert f'action="/api/runs/{run}/resume"' in page
    monkeypatch.setenv("HOUSE_SECRET", SECRET)
    refused = await web.post("/api/runs", 422, playbook="secretive", inputs={"note": f"it is {SECRET}"})
    assert "the input 'note'" in refused["detail"]
    await web.post(f"/api/runs/{run}/resume", 202)
    await web.until(run, "completed")
    page = (await web.client.get(f"/runs/{run}", headers={"Accept": "text/html"})).text
    assert "[secret env:HOUSE_SECRET]" in page
    kept = b"".join(path.read_bytes() for path in web.store.parent.iterdir())
    assert SECRET not in page
    assert SECRET.encode() not in kept
    assert len((await web.get("/api/runs"))["runs"]) == 1
