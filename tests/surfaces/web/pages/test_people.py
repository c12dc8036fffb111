"""The pages of users and of the audit, and the routes that their forms use."""

from __future__ import annotations

from tests.surfaces.web.served_app import ServedApp

HTML = {"Accept": "text/html"}


async def test_an_admin_manages_users_and_each_change_is_recorded(web: ServedApp) -> None:
    await web.serve()
    made = await web.post("/api/users", 201, name="ann", roles=["viewer", "runner"])
    assert len(made["token"]) > 20
    ann = {"Authorization": f"Bearer {made['token']}"}
    assert (await web.guest.get("/api/users", headers=ann)).status_code == 403
    assert (await web.guest.get("/settings/users", headers={**ann, **HTML})).status_code == 403
    assert (await web.guest.get("/settings/audit", headers={**ann, **HTML})).status_code == 403
    assert (await web.post("/api/users/ann/grant", 200, role="approver"))["roles"] == ["viewer", "runner", "approver"]
    assert (await web.post("/api/users/ann/revoke", 200, role="runner"))["granted"] == ["viewer", "approver"]
    assert (await web.post("/api/users/ann/join", 200, team="sales"))["teams"] == ["sales"]
    page = (await web.client.get("/settings/users", headers=HTML)).text
    assert "viewer, approver" in page
    assert "In sales." in page
    assert made["token"] not in page
    await web.post("/api/users/ann/leave", 200, team="sales")
    renewed = (await web.post("/api/users/ann/token", 201))["token"]
    assert (await web.guest.get("/api/runs", headers=ann)).status_code == 401
    assert (await web.guest.get("/api/runs", headers={"Authorization": f"Bearer {renewed}"})).status_code == 200
    refused = await web.client.post("/api/users/ann/link", json={"subject": "x"})
    assert (refused.status_code, "identity provider" in refused.text) == (422, True)
    assert (await web.client.request("DELETE", "/api/users/ann", json={})).status_code == 204
    acts = [one for one in (await web.get("/api/acts"))["acts"] if one["subject"] == "ann"]
    assert [one["what"] for one in acts] == [
        "user.add", "user.grant", "user.revoke", "user.join", "user.leave", "user.token", "user.remove",
    ]  # fmt: skip
    assert {(one["surface"], one["address"]) for one in acts} == {("api", "127.0.0.1")}
    shown = (await web.client.get("/settings/audit", headers=HTML)).text
    assert "user.revoke" in shown
    assert "the chain is unbroken" in (await web.client.get("/settings/audit?verify=1", headers=HTML)).text
    assert "no users" in (await web.client.get("/settings/users", headers=HTML)).text


async def test_an_earlier_user_is_added_again_only_on_purpose(web: ServedApp) -> None:
    await web.serve()
    asked = {"name": "ann", "roles": ["viewer"]}
    assert (await web.client.post("/api/users", json=asked)).status_code == 201
    assert (await web.client.request("DELETE", "/api/users/ann", json={})).status_code == 204
    refused = await web.client.post("/api/users", json=asked)
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_input")
    assert "An earlier user named 'ann' was removed" in refused.json()["detail"]
    assert 'name="same_person"' in (await web.client.get("/settings/users", headers=HTML)).text
    assert (await web.client.post("/api/users", json={**asked, "same_person": False})).status_code == 422
    assert (await web.client.post("/api/users", json={**asked, "same_person": True})).status_code == 201


async def test_signing_in_with_a_link_and_with_a_token_is_recorded(web: ServedApp) -> None:
    await web.serve()
    _, token = await web.service.add_user("ann", ["viewer"])
    await web.guest.get(web.link, headers=HTML)
    await web.guest.get(web.link.replace("start=", "start=x"), headers={**HTML, "Cookie": ""})
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    await web.guest.post("/sign-in", data={"token": token})
    await web.guest.post("/sign-out", headers=form)
    await web.guest.post("/sign-in", data={"token": "wrong"})
    acts = (await web.get("/api/acts"))["acts"]
    found = [
        (one["what"], one["by"], one["details"].get("way"), one["refused"]) for one in acts if "sign" in one["what"]
    ]
    assert ("sign_in", "local", "start link", False) in found
    assert ("sign_in", "ann", "token", False) in found
    assert ("sign_out", "ann", None, False) in found
    assert found[-1] == ("sign_in", "nobody", "token", True)
    assert token not in str(acts)


async def test_the_audit_has_pages(web: ServedApp) -> None:
    await web.serve()
    for number in range(130):
        await web.service.record_act("test.act", f"number-{number}")
    newest = (await web.client.get("/settings/audit", headers=HTML)).text
    assert "number-129" in newest
    assert "number-29<" not in newest
    assert '<a href="/settings/audit?before=31">Older</a>' in newest
    older = (await web.client.get("/settings/audit?before=31", headers=HTML)).text
    assert "number-29<" in older
    assert "number-30<" not in older
    assert "Newest" in older
    assert len((await web.get("/api/acts?after=100&limit=5"))["acts"]) == 5
    assert (await web.client.get("/api/acts?limit=0")).status_code == 422
