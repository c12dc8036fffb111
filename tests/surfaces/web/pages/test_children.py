"""Parent and child on their pages, in the inbox and in the API: the question is listed once, under the parent."""

from __future__ import annotations

from tests.service.children.test_children import PIPELINE, calls
from tests.surfaces.web.served_app import ServedApp


async def test_the_question_of_a_child_is_decided_on_the_page_of_its_parent(web: ServedApp) -> None:
    web.book("kid.yml", PIPELINE)
    book = web.book("parent.yml", calls("kid.yml"))
    await web.serve()
    run = await web.begin(playbook=book)
    wait = await web.waiting(run)
    child = wait["child"]["run"]
    assert wait["child"] == {"run": child, "playbook": "kid.yml", "step": "check"}
    assert (wait["run"], wait["step"]) == (run, "greet")
    inbox = await web.get("/api/inbox")
    assert [one["wait"] for one in inbox["waits"]] == [wait["wait"]]
    assert [one["run"] for one in (await web.get("/api/runs"))["runs"]] == [run]
    page = (await web.client.get(f"/runs/{run}")).text
    assert f'<a href="/runs/{child}">kid.yml</a>, step check' in page
    assert f'id="wait-{wait["wait"]}"' in page
    below = (await web.client.get(f"/runs/{child}")).text
    assert f'as a child of <a href="/runs/{run}">run {run}</a>' in below
    assert f'id="wait-{wait["wait"]}"' not in below
    assert (await web.get(f"/api/runs/{child}"))["started_by"] == run
    await web.post(f"/api/waits/{wait['wait']}/decide", 200, decision="approve")
    while (message := await web.until(run, "completed", "awaiting_approval"))["status"] != "completed":
        for one in message["waits"]:
            await web.client.post(f"/api/waits/{one['wait']}/decide", json={"decision": "approve"})
    assert [one["run"] for one in message["children"]] == [child]
    page = (await web.client.get(f"/runs/{run}")).text
    assert f'<a href="/runs/{child}">kid.yml <code>{child}</code></a>' in page


async def test_a_child_is_cancelled_with_its_parent_from_the_page(web: ServedApp) -> None:
    web.book("kid.yml", PIPELINE)
    book = web.book("parent.yml", calls("kid.yml"))
    await web.serve()
    run = await web.begin(playbook=book)
    child = (await web.waiting(run))["child"]["run"]
    refused = await web.post(f"/api/runs/{child}/cancel", 409)
    assert run in refused["detail"]
    await web.post(f"/api/runs/{run}/cancel", 202)
    await web.until(run, "cancelled")
    assert (await web.get(f"/api/runs/{child}"))["status"] == "cancelled"
    assert (await web.get("/api/inbox"))["waits"] == []
