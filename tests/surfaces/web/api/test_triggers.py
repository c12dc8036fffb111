"""Schedules over the API and on their page."""

from __future__ import annotations

import html
import re

import pytest

from tests.surfaces.web.served_app import ServedApp

DEPLOY = "name: Deploy\nsteps:\n  - id: make\n    command: cli touch made\n"


async def test_a_schedule_is_added_shown_paused_fired_and_removed(web: ServedApp) -> None:
    await web.serve()
    book = web.book("deploy.yml", DEPLOY)
    made = await web.post(
        "/api/schedules", 201, playbook=book, cron="0 6 * * *", time_zone="Europe/Berlin", name="nightly"
    )
    assert (made["state"], made["time_zone"], len(made["next"])) == ("active", "Europe/Berlin", 5)
    await web.post("/api/schedules", 409, playbook=book, cron="@daily", name="nightly")
    refused = await web.post("/api/schedules", 422, playbook=book, cron="@daily", time_zone="Europe/Berlni")
    assert refused["fix"] == "Did you mean 'Europe/Berlin'?"
    refused = await web.post("/api/schedules", 422, playbook=book, cron="@daily", name="x", inputs={"nope": 1})
    assert "nope" in refused["detail"]
    assert [one["name"] for one in (await web.get("/api/triggers"))["triggers"]] == ["nightly"]

    assert (await web.post("/api/triggers/schedule/nightly/pause", 200))["state"] == "paused"
    assert (await web.post("/api/triggers/schedule/nightly/resume", 200))["state"] == "active"
    assert (await web.post("/api/triggers/schedule/nightly/run", 202))["waiting"] == 1
    async with web.wiring.background(web.service):
        run = ""
        while not run:
            run = (await web.get("/api/triggers/schedule/nightly"))["run"]
    assert (await web.get(f"/api/runs/{run}"))["trigger"] == "schedule:nightly"

    page = (await web.client.get("/schedules", headers={"Accept": "text/html"})).text
    shown = html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page)))
    assert "Active: '0 6 * * *' in Europe/Berlin" in shown
    assert "06:00 CE" in shown
    assert f'href="/runs/{run}"' in page
    page = (await web.client.get("/schedules/schedule/nightly", headers={"Accept": "text/html"})).text
    assert page.count("06:00 CE") == 5
    assert f'href="/runs/{run}"' in page
    assert (await web.client.get("/schedules/schedule/none", headers={"Accept": "text/html"})).status_code == 404
    assert (await web.client.request("DELETE", "/api/triggers/schedule/nightly", json={})).status_code == 204
    await web.get("/api/triggers/schedule/nightly", 404)
    await web.get("/api/triggers/nothing/nightly", 404)
    assert "There are no schedules" in (await web.client.get("/schedules", headers={"Accept": "text/html"})).text


async def test_only_its_owner_and_admins_change_it_and_only_approvers_allow(web: ServedApp) -> None:
    await web.serve()
    book = web.book("deploy.yml", DEPLOY)
    await web.post("/api/schedules", 201, playbook=book, cron="@daily", name="mine")
    _, token = await web.service.add_user("bob", ["runner"])
    as_bob = {"Authorization": f"Bearer {token}"}
    for verb in ("pause", "resume", "run", "allow"):
        answer = await web.client.post(
            f"/api/triggers/schedule/mine/{verb}", json={"digest": "x"} if verb == "allow" else {}, headers=as_bob
        )
        assert answer.status_code == 403, verb
    assert (await web.client.get("/api/triggers", headers=as_bob)).json()["triggers"][0]["name"] == "mine"
    page = await web.client.get("/schedules", headers={**as_bob, "Accept": "text/html"})
    assert "Run mine now" not in page.text


HOOKED = "name: Note\nargs:\n  what: {type: string, default: x}\nsteps:\n  - id: make\n    command: cli touch made\n"


async def test_a_permission_is_given_only_for_what_the_approver_saw(web: ServedApp) -> None:
    web.rule("")
    await web.serve()
    book = web.book("deploy.yml", DEPLOY)
    seen = await web.post("/api/schedules", 201, playbook=book, cron="@daily", name="nightly")
    page = (await web.client.get("/schedules/schedule/nightly", headers={"Accept": "text/html"})).text
    assert f'name="digest" value="{seen["digest"]}"' in page
    allow = "/api/triggers/schedule/nightly/allow"
    refused = await web.client.post(allow, json={})
    assert refused.status_code in (400, 422)

    web.book("deploy.yml", DEPLOY.replace("touch made", "rm -rf precious"))
    changed = await web.post(allow, 409, digest=seen["digest"])
    assert "is not what you saw; nothing was allowed" in changed["detail"]
    now = await web.get("/api/triggers/schedule/nightly")
    assert (now["standing"], now["asks"][0]["allowed"]) == (None, False)
    allowed = await web.post(allow, 200, digest=now["digest"])
    assert [one["pattern"] for one in allowed["standing"]["allows"]] == ["rm -rf precious"]

    web.book("deploy.yml", DEPLOY)
    assert (await web.get("/api/triggers/schedule/nightly"))["digest"] == seen["digest"]
    await web.client.request("DELETE", "/api/triggers/schedule/nightly", json={})
    await web.post("/api/schedules", 201, playbook=book, cron="@daily", name="nightly")
    await web.post(allow, 409, digest=seen["digest"])  # it is another schedule


async def test_a_trigger_of_somebody_whose_runs_one_does_not_see_is_not_found(
    web: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUEBOOK_ACCESS_RUNS", "owner")
    web.rule("")
    await web.serve()
    book = web.book("note.yml", HOOKED)
    as_user = {}
    for name, role in (("ann", "runner"), ("eve", "viewer"), ("fay", "approver"), ("root", "admin")):
        _, token = await web.service.add_user(name, [role])
        as_user[name] = {"Authorization": f"Bearer {token}"}
    asked = {"playbook": book, "cron": "@daily", "name": "nightly", "inputs": {"what": "ZEBRA"}}
    added = await web.client.post("/api/schedules", json=asked, headers=as_user["ann"])
    assert added.status_code == 201, added.text

    for name, sees in (("ann", True), ("eve", False), ("fay", False), ("root", True)):
        listed = (await web.client.get("/api/triggers", headers=as_user[name])).json()["triggers"]
        assert [one["name"] for one in listed] == (["nightly"] if sees else []), name
        for path in ("/api/triggers", "/schedules", "/api/triggers/schedule/nightly", "/schedules/schedule/nightly"):
            answer = await web.client.get(path, headers={**as_user[name], "Accept": "text/html"})
            assert answer.status_code == (200 if sees or not path.endswith("nightly") else 404), (name, path)
            assert sees == ("nightly" in answer.text) or answer.status_code == 404, (name, path)
            assert sees or "ZEBRA" not in answer.text
    answer = await web.client.post(
        "/api/triggers/schedule/nightly/allow", json={"digest": added.json()["digest"]}, headers=as_user["fay"]
    )
    assert answer.status_code == 404
