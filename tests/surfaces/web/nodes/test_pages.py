"""Nodes in the API, on the page, and on the command line."""

from __future__ import annotations

import re

from tests.support.scripted_node import ScriptedNode, joined
from tests.surfaces.web.served_app import ServedApp


async def test_a_node_is_added_shown_renamed_and_revoked_over_the_api(web: ServedApp) -> None:
    await web.serve()
    added = await web.post("/api/nodes", 201, name="shop")
    assert (added["name"], added["state"]) == ("shop", "not paired yet")
    await web.post("/api/nodes", 422, name="shop")
    await web.post("/api/nodes", 422, name="a b")
    async with joined(ScriptedNode(str(web.client.base_url).rstrip("/"), added["token"])):
        [shown] = (await web.get("/api/nodes"))["nodes"]
        assert shown["connected"] is True
        assert [one["name"] for one in shown["capabilities"]] == ["command", "files"]
        page = (await web.client.get("/settings/nodes", headers={"Accept": "text/html"})).text
        assert "shop" in page
        assert "Connected, far" in re.sub(r"<[^>]+>", "", page)
        assert added["token"] not in page
        assert (await web.post("/api/nodes/shop/rename", 200, name="barn"))["name"] == "barn"
    again = await web.post("/api/nodes/barn/token", 201)
    assert again["token"] != added["token"]
    assert (await web.client.request("DELETE", "/api/nodes/barn", json={})).status_code == 204
    assert (await web.client.request("DELETE", "/api/nodes/barn", json={})).status_code == 404
    assert (await web.get("/api/nodes"))["nodes"] == []
