"""People choose over the API and on the page what they are notified of."""

from __future__ import annotations

from typing import Any

from cuebook.kernel.notices import notice
from tests.surfaces.web.served_app import ServedApp

CONFIG = """
[notifications.channels.mail]
kind = "email"
host = "127.0.0.1"
port = 1
security = "none"
sender = "cuebook@example.com"
domains = ["example.com"]
"""


async def served(web: ServedApp, config: str = CONFIG) -> dict[str, str]:
    """The headers of a viewer."""
    (web.config / "cuebook.toml").write_text(config)
    await web.serve()
    _, token = await web.service.add_user("ana", ["viewer"])
    return {"Authorization": f"Bearer {token}"}


async def put(web: ServedApp, headers: dict[str, str], **fields: Any) -> Any:
    return await web.guest.put("/api/notifications/preferences", json=fields, headers=headers)


async def test_a_person_replaces_their_own_preferences(web: ServedApp) -> None:
    ana = await served(web)
    wanted = {"events": ["failed", "waiting"], "channels": ["mail"], "address": "ana@example.com"}
    set = await put(web, ana, **wanted, playbooks="deploy*, tea.md", quiet_hours="20:00-8:00", time_zone="Asia/Tokyo")
    assert set.status_code == 200
    expected = {
        **wanted,
        "runs": "mine",
        "playbooks": ["deploy*", "tea.md"],
        "quiet_hours": "20:00-08:00",
        "time_zone": "Asia/Tokyo",
    }
    assert set.json() == expected
    got = await web.guest.get("/api/notifications/preferences", headers=ana)
    assert got.json() == expected
    assert (await web.get("/api/notifications/preferences"))["events"] == []
    assert (await put(web, ana, runs="all")).json() == {
        **dict.fromkeys(("address", "quiet_hours", "time_zone"), ""),
        **{name: [] for name in ("events", "channels", "playbooks")},
        "runs": "all",
    }


async def test_what_cannot_be_meant_is_refused(web: ServedApp) -> None:
    ana = await served(web)
    for wrong in (
        {"events": ["wating"]},
        {"channels": ["pager"]},
        {"address": "ana@example.org"},
        {"quiet_hours": "late"},
        {"time_zone": "../etc/passwd"},
        {"colour": "red"},
    ):
        assert (await put(web, ana, **wrong)).status_code == 422, wrong


async def test_the_page_shows_what_is_chosen_and_what_was_not_delivered(web: ServedApp) -> None:
    ana = await served(web)
    await put(web, ana, events=["failed"], channels=["mail"], address="ana@example.com", runs="all")
    await web.service.notify(notice("local", "failed", at=web.service.clock(), key="k", owner="ana", playbook="x.md"))
    await web.site.notifier.send_now(30)
    page = (await web.guest.get("/settings/notifications", headers={**ana, "Accept": "text/html"})).text
    assert 'value="failed" checked' in page
    assert 'value="waiting" checked' not in page
    assert 'value="ana@example.com"' in page
    assert "127.0.0.1:1 cannot be reached" in page
    status = (await web.guest.get("/api/notifications/status", headers=ana)).json()
    (message,) = status["messages"]
    assert (message["to"], message["state"], message["attempts"]) == ("ana", "pending", 1)
    others = (await web.get("/api/notifications/status"))["messages"]
    assert [one["to"] for one in others] == ["ana"]


async def test_only_an_admin_tests_channels(web: ServedApp) -> None:
    ana = await served(web)
    assert (await web.guest.post("/api/notifications/test", json={}, headers=ana)).status_code == 403
    (result,) = (await web.post("/api/notifications/test", 200, channel="mail"))["results"]
    assert (result["channel"], result["sent"]) == ("mail", False)
    assert (await web.client.post("/api/notifications/test", json={"channel": "other"})).status_code == 422


async def test_what_was_given_up_is_sent_again_from_the_page(web: ServedApp) -> None:
    await served(web, CONFIG + '[notifications]\nsend_to = ["mail"]\n')  # which has no recipients
    await web.service.notify(notice("local", "failed", at=web.service.clock(), key="k", playbook="x.md"))
    await web.site.notifier.send_now(30)
    page = (await web.client.get("/settings/notifications", headers={"Accept": "text/html"})).text
    assert 'data-api="/api/notifications/retry"' in page
    assert await web.post("/api/notifications/retry", 200, channel="mail") == {"messages": 1}
    page = (await web.client.get("/settings/notifications", headers={"Accept": "text/html"})).text
    assert 'data-api="/api/notifications/retry"' not in page


async def test_without_channels_the_page_says_how_to_add_one(web: ServedApp) -> None:
    await served(web, "")
    page = (await web.client.get("/settings/notifications", headers={"Accept": "text/html"})).text
    assert "No channel reaches people one by one" in page
    assert "No channels are configured" in page
