"""Edit and continue over REST: the plan first, then the run; a plan that is out of date changes nothing."""

from __future__ import annotations

from tests.service.test_edits import PIPELINE
from tests.surfaces.web.served_app import ServedApp


async def test_the_plan_is_shown_and_confirmed(web: ServedApp) -> None:
    book = web.book("log.yml", PIPELINE)
    await web.serve()
    run = await web.begin(playbook=book)
    wait = await web.waiting(run)
    text = PIPELINE.replace("echo four", "echo vier")
    plan = await web.post(f"/api/runs/{run}/edit", 200, text=text)
    assert [(one["step"], one["verdict"]) for one in plan["steps"]] == [
        ("one", "kept"),
        ("two", "kept"),
        ("three", "redone"),
        ("four", "changed"),
    ]
    assert (await web.get(f"/api/runs/{run}"))["status"] == "awaiting_approval"
    await web.post(f"/api/runs/{run}/edit", 409, text=text, plan="another")
    await web.post(f"/api/runs/{run}/edit", 409, text=PIPELINE)
    broken = await web.post(f"/api/runs/{run}/edit", 422, text="name: x\nsteps: []\n")
    assert broken["code"] == "invalid_playbook"
    assert [one["run"] for one in (await web.get("/api/runs"))["runs"]] == [run]
    made = await web.post(f"/api/runs/{run}/edit", 201, text=text, plan=plan["plan"])
    await web.post(f"/api/waits/{wait['wait']}/decide", 410, decision="approve")
    again = await web.waiting(made["run"])
    await web.post(f"/api/waits/{again['wait']}/decide", 200, decision="approve")
    await web.until(made["run"], "completed")
    assert (web.work / "log").read_text().split() == ["one", "two", "three", "vier"]
    assert (await web.get(f"/api/runs/{run}"))["status"] == "cancelled"


async def test_the_page_shows_the_steps_of_the_changed_text(web: ServedApp) -> None:
    book = web.book("log.yml", PIPELINE)
    await web.serve()
    run = await web.begin(playbook=book)
    await web.waiting(run)
    text = PIPELINE.replace("- id: four", "- id: vier")
    plan = await web.post(f"/api/runs/{run}/edit", 200, text=text)
    made = await web.post(f"/api/runs/{run}/edit", 201, text=text, plan=plan["plan"])
    await web.waiting(made["run"])
    page = (await web.client.get(f"/runs/{made['run']}")).text
    rail = page[page.index('id="rail"') : page.index("</ol>", page.index('id="rail"'))]
    assert [name for name in ("one", "two", "three", "vier") if name in rail] == ["one", "two", "three", "vier"]
    assert "four" not in rail
    assert f'from <a href="/runs/{run}">' in page
    assert f'by <a href="/runs/{made["run"]}">' in (await web.client.get(f"/runs/{run}")).text
