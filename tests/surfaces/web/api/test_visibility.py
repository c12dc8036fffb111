"""Runs that a user does not see are not there: on no page, in no answer of REST and for no assistant."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cuebook.performers.models.scripted import ScriptedModel
from cuebook.service import admin
from cuebook.surfaces.web.app import ENDPOINTS
from tests.support.runtime import GATED
from tests.surfaces.mcp.clients import over_http
from tests.surfaces.web.served_app import ServedApp

BODIES: dict[str, dict[str, Any]] = {
    "/api/runs/{id}/restart": {"step": "list"},
    "/api/runs/{id}/fork": {"step": "list"},
    "/api/runs/{id}/edit": {"text": GATED},
    "/api/waits/{id}/answer": {"value": "x"},
    "/api/waits/{id}/decide": {"decision": "approve"},
}


def limited(rule: str) -> dict[str, Any]:
    return {"access.runs": rule}


def bearing(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", "Accept": "application/json"}


async def test_a_run_of_someone_else_is_nowhere(web: ServedApp) -> None:
    web.book("gated.yml", GATED)
    await web.model(ScriptedModel([])).serve(port=0, **limited("owner"))
    _, ann = await web.service.add_user("ann", ["runner", "approver"])
    _, bob = await web.service.add_user("bob", ["runner", "approver"])
    begun = await web.guest.post("/api/runs", json={"playbook": "gated"}, headers=bearing(ann))
    assert begun.status_code == 201, begun.text
    run = begun.json()["run"]
    wait = (await web.waiting(run))["wait"]
    asked = 0
    for one in ENDPOINTS:
        name = run if "/runs/{id}" in one.path else wait if "/waits/{id}" in one.path else ""
        if not name or one.needs == "admin":
            continue
        path = one.path.replace("{id}", name).replace("{other}", run).replace("{record}", "1")
        path = path.replace("{digest}", "0" * 64)
        body = BODIES.get(one.path, {}) if one.method != "GET" else None
        answer = await web.guest.request(one.method, path, headers=bearing(bob), json=body)
        assert answer.status_code == 404, (one.method, path, answer.text)
        asked += 1
    assert asked >= 20
    for path in ("/", "/runs", "/inbox", "/playbooks/gated", "/api/runs", "/api/inbox", "/api/runs?playbook=gated"):
        for token, there in ((bob, False), (ann, True)):
            text = (await web.guest.get(path, headers={**bearing(token), "Accept": "text/html"})).text
            assert (run in text or wait in text) is there, path
    assert (await web.guest.get(f"/api/runs?run={run}", headers=bearing(bob))).status_code == 404
    status = await web.guest.post("/playbooks/runtime", json={"action": "status", "runId": run}, headers=bearing(bob))
    assert "There is no run" in status.text

    address = str(web.guest.base_url).rstrip("/") + "/mcp"
    async with over_http(address, bob) as visit:
        assert (await visit.call("list_playbook_executions"))["executions"] == []
        for tool in ("get_playbook_execution", "cancel_playbook_execution", "resume_playbook_execution"):
            found = await visit.raw(tool, execution_id=run)
            assert found.is_error, tool
            assert "There is no run" in str(found.content), tool


@pytest.mark.parametrize("rule", ["owner", "team"])
async def test_no_sum_list_or_report_names_a_playbook_of_someone_else(web: ServedApp, rule: str) -> None:
    await web.model(ScriptedModel([])).serve(port=0, **limited(rule))
    _, ann = await web.service.add_user("ann", ["runner", "approver"])
    _, eve = await web.service.add_user("eve", ["approver"])
    _, boss = await web.service.add_user("boss", ["admin"])
    text = GATED.replace("name: ", "name: hushed-", 1)
    begun = await web.guest.post("/api/runs", json={"text": text, "name": "hushed.yml"}, headers=bearing(ann))
    assert begun.status_code == 201, begun.text
    run = begun.json()["run"]
    await web.waiting(run)
    gets = [one.path for one in ENDPOINTS if one.method == "GET" and "{" not in one.path and one.needs != "anyone"]
    pages = ("/", "/inbox", "/runs", "/usage", "/schedules")
    named: dict[str, set[str]] = {eve: set(), boss: set()}
    for path in gets:
        for token, found in named.items():
            headers = {**bearing(token), "Accept": "text/html" if path in pages else "application/json"}
            text = (await web.guest.get(path, headers=headers)).text
            if "hushed" in text or run in text:
                found.add(path)
    assert named[eve] == set()
    assert {"/runs", "/inbox", "/api/runs", "/api/inbox", "/api/usage"} <= named[boss], "it would be noticed"
    for by in ("playbook", "model", "person"):
        answer = await web.guest.get(f"/api/spending?by={by}", headers=bearing(eve))
        assert (answer.status_code, "hushed" in answer.text, "ann" in answer.text) == (200, False, False)
    refused = await web.guest.get("/api/usage", headers=bearing(eve))
    assert (refused.status_code, refused.json()["code"]) == (403, "not_allowed")


async def test_no_filter_page_or_bulk_action_reaches_a_run_of_someone_else(web: ServedApp) -> None:
    web.book("gated.yml", GATED)
    await web.model(ScriptedModel([])).serve(port=0, **limited("owner"))
    tokens = {name: (await web.service.add_user(name, ["runner"]))[1] for name in ("ann", "bob")}
    runs: dict[str, list[str]] = {"ann": [], "bob": []}
    for name in ("ann", "bob", "ann", "bob", "ann"):
        begun = await web.guest.post("/api/runs", json={"playbook": "gated"}, headers=bearing(tokens[name]))
        runs[name].append(begun.json()["run"])
    for run in (*runs["ann"], *runs["bob"]):
        await web.waiting(run)
    theirs = set(runs["ann"])
    for query in ("owner=ann", "search=Gated", "search=ann", "status=awaiting_approval", "name=gated.yml", "limit=1"):
        shown, cursor = set(), ""
        while True:
            page = (await web.guest.get(f"/api/runs?{query}&cursor={cursor}", headers=bearing(tokens["bob"]))).json()
            shown |= {one["run"] for one in page["runs"]}
            cursor = page["next"] or ""
            if not cursor:
                break
        assert not shown & theirs, query
        if query in ("limit=1", "status=awaiting_approval"):
            assert shown == set(runs["bob"]), query
    body = {"act": "cancel", "where": {"status": ["awaiting_approval"]}}
    done = await web.guest.post("/api/runs/bulk", json=body, headers=bearing(tokens["bob"]))
    assert done.status_code == 200, done.text
    for run in runs["bob"]:
        await web.until(run, "cancelled")
    assert {(await web.get(f"/api/runs/{run}"))["status"] for run in theirs} == {"awaiting_approval"}
    assert not any(run in done.text for run in theirs)


async def test_a_child_is_seen_with_its_parent_and_hidden_with_it(web: ServedApp) -> None:
    web.book("kid.yml", "name: Kid\nsteps: [{id: ask, input: {text: Which?, by: [bob]}}]\n")
    web.book("parent.yml", "name: Parent\nsteps: [{id: kid, playbook: kid.yml}]\n")
    await web.model(ScriptedModel([])).serve(port=0, **limited("owner"))
    tokens = {name: (await web.service.add_user(name, ["runner"]))[1] for name in ("ann", "bob", "eve")}
    begun = await web.guest.post("/api/runs", json={"playbook": "parent"}, headers=bearing(tokens["ann"]))
    assert begun.status_code == 201, begun.text
    parent = begun.json()["run"]
    await web.waiting(parent)
    (child,) = await web.service.children(parent)
    for name, status in (("ann", 200), ("bob", 200), ("eve", 404)):
        for run in (parent, child.id):
            answer = await web.guest.get(f"/api/runs/{run}", headers=bearing(tokens[name]))
            assert answer.status_code == status, (name, run == parent)
    listed = (await web.guest.get("/api/runs", headers=bearing(tokens["bob"]))).json()["runs"]
    assert [one["run"] for one in listed] == [parent]


async def test_a_person_named_in_an_approval_sees_its_run_and_decides(web: ServedApp) -> None:
    web.book("gated.yml", GATED.replace("approval: required", "approval: {text: Really?, by: [bob]}"))
    await web.model(ScriptedModel([])).serve(port=0, **limited("owner"))
    _, ann = await web.service.add_user("ann", ["runner"])
    _, bob = await web.service.add_user("bob", ["approver"])
    begun = await web.guest.post("/api/runs", json={"playbook": "gated"}, headers=bearing(ann))
    assert begun.status_code == 201, begun.text
    run = begun.json()["run"]
    wait = (await web.waiting(run))["wait"]
    html = {**bearing(bob), "Accept": "text/html"}
    assert wait in (await web.guest.get("/inbox", headers=html)).text
    assert (await web.guest.get(f"/runs/{run}", headers=html)).status_code == 200
    done = await web.guest.post(f"/api/waits/{wait}/decide", json={"decision": "approve"}, headers=bearing(bob))
    assert done.status_code == 200, done.text
    await web.until(run, "completed")
    assert (await web.guest.get(f"/runs/{run}", headers=html)).status_code == 200, "the outcome of the decision"


async def test_an_open_stream_ends_when_its_reader_leaves_the_team(
    web: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "RIGHTS_EVERY", 0.05)
    web.book("gated.yml", GATED)
    await web.model(ScriptedModel([])).serve(port=0, **limited("team"))
    _, ann = await web.service.add_user("ann", ["runner"])
    _, bob = await web.service.add_user("bob", ["viewer"])
    for name in ("ann", "bob"):
        await web.service.join(name, ["sales"])
    begun = await web.guest.post("/api/runs", json={"playbook": "gated"}, headers=bearing(ann))
    assert begun.status_code == 201, begun.text
    run = begun.json()["run"]
    await web.waiting(run)
    headers = {**bearing(bob), "Accept": "text/event-stream"}
    async with asyncio.timeout(30), web.guest.stream("GET", f"/api/runs/{run}/stream", headers=headers) as theirs:
        assert theirs.status_code == 200
        lines = theirs.aiter_lines()
        await anext(lines)
        await web.service.leave("bob", ["sales"])
        async for _ in lines:
            pass
    assert (await web.guest.get(f"/api/runs/{run}", headers=bearing(bob))).status_code == 404
