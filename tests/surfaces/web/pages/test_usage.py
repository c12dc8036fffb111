"""What runs used and the budgets that limit it: over REST, and on the page with its plots."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from cuebook.kernel.spending import Spending
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web.drawing.bars import Bar, plot, summary
from tests.surfaces.web.served_app import ServedApp

HTML = {"Accept": "text/html"}
BOOK = "# Tea\n\n## STEP 1: Brew\n\nBrew it.\n"


async def text_of(web: ServedApp, path: str, **headers: str) -> str:
    answer = await web.client.get(path, headers={**HTML, **headers})
    assert answer.status_code == 200, answer.text
    return answer.text


async def used_on(web: ServedApp, *days: str, cost: float = 1.0, unknown: int = 0) -> None:
    rows = [Spending("local", day, "ann", "tea.md", "lab/one", 0, 2, 10, 20, 0, 0, cost, unknown) for day in days]
    rows += [Spending("local", day, "ann", "tea.md", runs=1) for day in days]
    await web.service._store.add_spending(rows)


async def test_budgets_are_set_changed_and_removed_over_rest(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    made = await web.post("/api/budgets", 200, name="person:ann", day=5, month_tokens=1000)
    assert (made["day"], made["month_tokens"], made["soft"], made["continued"]) == (5.0, 1000, 0.8, [])
    changed = await web.post("/api/budgets", 200, name="person:ann", day=None, unknown_cost=True)
    assert (changed["day"], changed["month_tokens"], changed["unknown_cost"]) == (None, 1000, True)
    await web.post("/api/budgets", 422, name="person:ann", day=-1)
    await web.post("/api/budgets", 422, name="team:ann", day=1)
    _, token = await web.service.add_user("ann", ["approver"])
    ann = {"Authorization": f"Bearer {token}"}
    assert [one["name"] for one in (await web.guest.get("/api/budgets", headers=ann)).json()["budgets"]] == [
        "person:ann"
    ]
    assert (await web.guest.post("/api/budgets", json={"name": "all", "day": 9}, headers=ann)).status_code == 403
    assert (await web.client.request("DELETE", "/api/budgets/person%3Aann", json={})).json() == {"continued": []}
    assert (await web.client.request("DELETE", "/api/budgets/person%3Aann", json={})).status_code == 404
    acts = [one["what"] for one in (await web.get("/api/acts"))["acts"]]
    assert [what for what in acts if what.startswith("budget")] == ["budget.set", "budget.set", "budget.remove"]


async def test_a_run_that_waits_for_a_budget_is_let_go_on_from_its_page(web: ServedApp) -> None:
    web.book("tea.md", BOOK)
    await web.model(ScriptedModel(["Brewed."], cycle=True)).serve()
    await web.post("/api/budgets", 200, name="all", day_tokens=1)
    assert "The budget &#39;all&#39; is spent" not in await text_of(web, "/playbooks/tea/run")
    run = await web.begin(playbook="tea")
    await web.until(run, "paused")
    for path in (f"/runs/{run}", "/inbox"):
        shown = await text_of(web, path)
        assert "never fits in the budget &#39;all&#39; of 1 tokens a day" in shown
        assert f'data-api="/api/runs/{run}/allow"' in shown
        assert "Let this run continue" in shown
    shown = await text_of(web, "/usage")
    assert f'<a href="/runs/{run}"><code>{run}</code></a>' in shown
    (allowed,) = (await web.post(f"/api/runs/{run}/allow", 200, reason="demo"))["allowed"]
    assert (allowed["run"], allowed["budget"], allowed["reason"]) == (run, "all", "demo")
    await web.until(run, "completed")
    assert "The budget &#39;all&#39; is spent" in await text_of(web, "/playbooks/tea/run")
    await web.post(f"/api/runs/{run}/allow", 409)


async def test_the_page_shows_what_was_used_with_plots_and_tables(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    assert "Nothing was used" in await text_of(web, "/usage")
    await used_on(web, "2026-03-08", "2026-03-10")
    await used_on(web, "2026-03-09", cost=0.0, unknown=2)
    await web.post("/api/budgets", 200, name="playbook:tea.md", day=5, month=50)
    shown = await text_of(web, "/usage?since=2026-03-01&until=2026-03-10")
    plots = re.findall(r"<svg class=\"plot\".*?</svg>", shown, re.S)
    assert len(plots) == 3
    money = ElementTree.fromstring(plots[0])
    assert money.attrib["role"] == "img"
    assert money.attrib["aria-label"] == (
        "Money from 2026-03-01 to 2026-03-10: $2.0000 + unknown (2 calls); most on 2026-03-08, $1.0000"
    )
    titles = [one.text for one in money.iter("title")]
    assert titles == ["2026-03-08: $1.0000", "2026-03-09: unknown (2 calls)", "2026-03-10: $1.0000"]
    assert plots[0].count('class="plot-unknown"') == 1
    assert "the cost of 2 calls is unknown" in shown
    assert re.search(r'<th scope="row">2026-03-09</th>.*?<td class="number">unknown \(2 calls\)</td>', shown)
    for words in ("By playbook", "By model", "By person", "lab/one", "tea.md", "ann"):
        assert words in shown
    assert "style=" not in shown
    assert shown.count("<meter ") == 2
    by_month = await text_of(web, "/usage?since=365d&until=2026-03-31")
    assert "By month, as a table" in by_month
    assert '<th scope="row">2026-03</th>' in by_month


async def test_a_person_sees_their_own_use_and_no_forms_of_admins(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    await used_on(web, "2026-03-10")
    _, token = await web.service.add_user("bob", ["viewer"])
    bob = {"Authorization": f"Bearer {token}", **HTML}
    shown = (await web.guest.get("/usage?since=2026-03-10&until=2026-03-10", headers=bob)).text
    assert "Nothing was used" in shown
    assert "There are no budgets for you" in shown
    found = (await web.guest.get("/api/spending?by=person&since=2026-03-10&until=2026-03-10", headers=bob)).json()
    assert (found["owner"], found["groups"]) == ("bob", [])
    found = await web.get("/api/spending?by=person&since=2026-03-10&until=2026-03-10")
    assert [(one["person"], one["cost"]) for one in found["groups"]] == [("ann", 1.0)]


@pytest.mark.parametrize(
    "query", ["by=week", "since=x", "until=x", "since=9999999d", "since=2026-03-02&until=2026-03-01"]
)
async def test_a_report_that_cannot_be_made_is_refused(web: ServedApp, query: str) -> None:
    await web.model(ScriptedModel([])).serve()
    assert (await web.client.get(f"/api/spending?{query}")).status_code == 422
    if not query.startswith("by"):
        assert (await web.client.get(f"/usage?{query}", headers=HTML)).status_code == 422


@pytest.mark.parametrize("number", [0, 1, 3, 120, 366])
def test_a_plot_stays_in_its_frame(number: int) -> None:
    bars = [Bar(f"<{one}>", float(one % 7), str(one), one % 2 == 0) for one in range(number)]
    drawn = ElementTree.fromstring(plot(bars, summary("Use", bars, "all"), str))
    for rect in drawn.iter("rect"):
        x, y, wide, high = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
        assert x >= 60 - 0.1
        assert y >= 13.9
        assert x + wide <= 430.1
        assert y + high <= 128.1
    assert sum(1 for one in drawn.iter("text")) <= 7


def test_the_scale_of_a_plot_has_room_for_small_sums() -> None:
    bars = [Bar(f"day {one}", 0.00125 * one, "") for one in range(8)]
    drawn = ElementTree.fromstring(plot(bars, "Money", lambda value: f"${value:.6f}"))
    scale = [one for one in drawn.iter("text") if one.attrib["text-anchor"] == "end"]
    assert [one.text for one in scale] == ["$0.000000", "$0.004375", "$0.008750"]
    for one in scale:
        assert float(one.attrib["x"]) >= 7.5 * len(one.text or "")
    assert min(float(one.attrib["x"]) for one in drawn.iter("rect")) > float(scale[0].attrib["x"])
