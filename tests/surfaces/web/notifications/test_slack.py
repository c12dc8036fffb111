"""Clicks in Slack decide as the linked person, once, and only if Slack signed them just now."""

from __future__ import annotations

import hmac
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from cuebook.gate.roles import Principal, Role
from cuebook.kernel.run import WaitRow
from tests.support.runtime import GATED
from tests.support.web_service import Received, WebService, web_service
from tests.surfaces.web.served_app import ServedApp

SECRET = "the-signing-secret-of-the-app"
ANA = "T01.Uana"
CONFIG = """
[serve]
public_url = "https://cuebook.example.com"

[notifications.channels.team]
kind = "slack"
token = "env:SLACK_TOKEN"
signing_secret = "env:SLACK_SIGNING"
to = "C123"
api = "http://{}/api"
"""


def signature(body: bytes, at: str, secret: str = SECRET) -> str:
    return "v0=" + hmac.new(secret.encode(), b"v0:" + at.encode() + b":" + body, sha256).hexdigest()


class Workspace:
    """Slack, as the app knows it: what it was sent, and clicks of its users."""

    def __init__(self, web: ServedApp, api: WebService) -> None:
        self.web = web
        self.api = api
        self.clicks = 0

    async def deliver(self) -> None:
        notifier = self.web.site.notifier
        await notifier.send_now(30)

    def sent(self, method: str) -> list[dict[str, Any]]:
        return [one.json for one in self.api.requests if one.path == f"/api/{method}"]

    def button(self, action: str = "approve") -> dict[str, Any]:
        """A button of the last message."""
        blocks = self.sent("chat.postMessage")[-1]["blocks"]
        elements = [one for block in blocks if block["type"] == "actions" for one in block["elements"]]
        return next(one for one in elements if one["action_id"] == action)

    async def waits(self, pipeline: str = GATED) -> tuple[str, dict[str, Any]]:
        """A run that waits for an approval, of which Slack was told."""
        self.web.book("gated.yml", pipeline)
        run = await self.web.begin(playbook="gated")
        wait = await self.web.waiting(run)
        await self.deliver()
        return run, wait

    def payload(self, button: dict[str, Any], account: str = ANA, number: int = 0) -> bytes:
        team, _, user = account.partition(".")
        said = {
            "type": "block_actions",
            "trigger_id": str(number),
            "team": {"id": team},
            "user": {"id": user, "username": "ana"},
            "container": {"type": "message", "channel_id": "C123", "message_ts": "17.1"},
            "actions": [button],
        }
        return urlencode({"payload": json.dumps(said)}).encode()

    async def post(
        self, body: bytes, *, at: float | None = None, secret: str = SECRET, channel: str = "team", **headers: str
    ) -> httpx2.Response:
        moment = str(int(time.time() if at is None else at))
        given = {
            "Content-Type": "application/x-www-form-urlencoded",
            "X-Slack-Request-Timestamp": moment,
            "X-Slack-Signature": signature(body, moment, secret),
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        return await self.web.guest.post(f"/api/notifications/slack/{channel}", content=body, headers=given)

    async def click(self, action: str = "approve", account: str = ANA, **more: Any) -> httpx2.Response:
        """A click. Each has an id of its own."""
        self.clicks += 1
        return await self.post(self.payload(self.button(action), account, self.clicks), **more)

    async def person(self, name: str, role: Role, account: str = ANA) -> None:
        """A user who linked their Slack account, by clicking and entering the code."""
        _, token = await self.web.service.add_user(name, [role])
        assert (await self.click(account=account)).status_code == 200
        await self.deliver()
        code = self.code(account)
        headers = {"Authorization": f"Bearer {token}"}
        linked = await self.web.guest.post("/api/notifications/links", json={"code": code}, headers=headers)
        assert linked.status_code == 201, linked.text
        assert linked.json()["account"] == account

    def code(self, account: str = ANA) -> str:
        user = account.partition(".")[2]
        (*_, told) = [one["text"] for one in self.sent("chat.postEphemeral") if one["user"] == user]
        found = re.search(r"notify link (\w+)`", told)
        assert found is not None
        return found[1]

    async def wait(self, wait: str) -> WaitRow:
        return await self.web.service.wait_row(wait)

    async def refusals(self) -> list[dict[str, Any]]:
        acts = [one.act for one in await self.web.service.admin_audit.acts(Principal())]
        return [{"by": act.by, **act.details} for act in acts if act.what == "notify.slack" and act.refused]


@pytest.fixture
async def workspace(web: ServedApp, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Workspace]:
    async with served(web, monkeypatch) as made:
        yield made


def accepted(received: Received) -> tuple[int, Any]:
    return 200, {"ok": True, "channel": "C123", "ts": "17.1"}


@asynccontextmanager
async def served(
    web: ServedApp, monkeypatch: pytest.MonkeyPatch, answer: Callable[[Received], tuple[int, Any]] = accepted
) -> AsyncIterator[Workspace]:
    monkeypatch.setenv("SLACK_TOKEN", "xoxb-the-token-of-the-app")
    monkeypatch.setenv("SLACK_SIGNING", SECRET)
    with web_service(answer) as api:
        (web.config / "cuebook.toml").write_text(CONFIG.format(api.place))
        await web.serve()
        yield Workspace(web, api)


async def test_a_linked_approver_decides_with_a_click_and_the_journal_says_so(workspace: Workspace) -> None:
    run, wait = await workspace.waits()
    await workspace.person("ana", "approver")
    assert (await workspace.wait(wait["wait"])).state == "open"
    assert (await workspace.click()).status_code == 200
    await workspace.web.until(run, "completed")
    row = await workspace.wait(wait["wait"])
    assert (row.by, row.answer["decision"], row.answer["through"]) == ("ana", "approve", f"Slack account {ANA}")
    assert row.answer["digest"] == row.details["digest"]
    await workspace.deliver()
    (updated,) = workspace.sent("chat.update")
    assert (updated["channel"], updated["ts"]) == ("C123", "17.1")
    assert "Approved by ana" in updated["text"]
    assert "actions" not in {block["type"] for block in updated["blocks"]}


async def test_a_click_denies(workspace: Workspace) -> None:
    run, wait = await workspace.waits()
    await workspace.person("ana", "approver")
    await workspace.click("deny")
    await workspace.web.until(run, "cancelled", "failed")
    row = await workspace.wait(wait["wait"])
    assert (row.by, row.answer["decision"]) == ("ana", "deny")


async def test_of_two_votes_that_are_needed_a_click_is_one(workspace: Workspace) -> None:
    run, wait = await workspace.waits(GATED.replace("approval: required", "approval: {text: Go?, votes: 2}"))
    await workspace.person("ana", "approver")
    await workspace.click()
    await workspace.click()
    await workspace.deliver()
    assert (await workspace.wait(wait["wait"])).state == "open"
    told = [one["text"] for one in workspace.sent("chat.postEphemeral")]
    assert "Your vote was counted" in told[-2] + told[-1]
    assert "has already voted" in told[-2] + told[-1]
    await workspace.person("bob", "approver", "T01.Ubob")
    await workspace.click(account="T01.Ubob")
    await workspace.web.until(run, "completed")
    row = await workspace.wait(wait["wait"])
    assert [(vote["by"], vote["through"]) for vote in row.answer["votes"]] == [
        ("ana", f"Slack account {ANA}"),
        ("bob", "Slack account T01.Ubob"),
    ]


async def test_who_does_not_see_a_run_does_not_decide_on_it(workspace: Workspace) -> None:
    _, wait = await workspace.waits()
    await workspace.person("ana", "approver")
    workspace.web.service.visibility.rule = "owner"
    await workspace.click()
    await workspace.deliver()
    assert (await workspace.wait(wait["wait"])).state == "open"
    assert [one["why"] for one in await workspace.refusals()] == ["not_found"]


async def test_an_account_that_nobody_linked_decides_nothing_and_gets_a_code(workspace: Workspace) -> None:
    _, wait = await workspace.waits()
    assert (await workspace.click()).status_code == 200
    await workspace.deliver()
    (told,) = workspace.sent("chat.postEphemeral")
    assert (told["user"], told["channel"]) == (ANA.partition(".")[2], "C123")
    assert (await workspace.wait(wait["wait"])).state == "open"


async def test_a_code_links_once_and_for_ten_minutes(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    await workspace.waits()
    await workspace.person("ana", "approver")
    used = workspace.code()
    assert (await workspace.web.client.post("/api/notifications/links", json={"code": used})).status_code == 422
    await workspace.click(account="T01.Ubob")
    await workspace.deliver()
    late, store = workspace.code("T01.Ubob"), workspace.web.service._store
    now = time.time()
    monkeypatch.setattr(store, "now", lambda: now + 601)
    refused = await workspace.web.client.post("/api/notifications/links", json={"code": late})
    assert refused.status_code == 422
    assert "older than ten minutes" in refused.json()["detail"]
    for wrong in ("aaaaaaaaaa", "x", late.upper() + "2"):
        assert (await workspace.web.client.post("/api/notifications/links", json={"code": wrong})).status_code == 422


async def test_an_account_cannot_be_taken_from_someone(workspace: Workspace) -> None:
    await workspace.waits()
    await workspace.person("ana", "approver")
    code = await workspace.web.site.notifier.people.new_code(ANA, "team", "ana", time.time())
    _, token = await workspace.web.service.add_user("bob", ["viewer"])
    headers = {"Authorization": f"Bearer {token}"}
    taken = await workspace.web.guest.post("/api/notifications/links", json={"code": code}, headers=headers)
    assert (taken.status_code, "belongs to ana" in taken.json()["detail"]) == (422, True)
    gone = await workspace.web.guest.request("DELETE", f"/api/notifications/links/{ANA}", json={}, headers=headers)
    assert gone.status_code == 404
    assert (await workspace.web.client.request("DELETE", f"/api/notifications/links/{ANA}", json={})).status_code == 204


@pytest.mark.parametrize("role", ["viewer", "runner"])
async def test_a_person_without_the_role_decides_nothing_and_that_is_recorded(workspace: Workspace, role: Role) -> None:
    _, wait = await workspace.waits()
    await workspace.person("vera", role)
    assert (await workspace.click()).status_code == 200
    await workspace.deliver()
    assert (await workspace.wait(wait["wait"])).state == "open"
    assert "requires the role approver" in workspace.sent("chat.postEphemeral")[-1]["text"]
    (refused,) = await workspace.refusals()
    assert (refused["by"], refused["why"], refused["account"]) == ("vera", "not_allowed", ANA)


async def test_a_person_who_was_removed_decides_nothing(workspace: Workspace) -> None:
    _, wait = await workspace.waits()
    await workspace.person("ana", "approver")
    assert (await workspace.web.service.remove_user("ana")).accounts == 1
    assert (await workspace.click()).status_code == 200
    assert (await workspace.wait(wait["wait"])).state == "open"
    await workspace.web.service.add_user("ana", ["approver"], same_person=True)
    assert (await workspace.click()).status_code == 200
    assert (await workspace.wait(wait["wait"])).state == "open", "the account has to be linked again"


async def test_a_forged_click_is_refused(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    _, wait = await workspace.waits()
    await workspace.person("ana", "approver")
    body = workspace.payload(workspace.button())
    now = str(int(time.time()))
    forged = [
        await workspace.post(body, secret="another-secret"),
        await workspace.post(body, X_Slack_Signature=""),
        await workspace.post(body, X_Slack_Signature="v0=" + "0" * 64),
        await workspace.post(body, X_Slack_Signature=signature(b"payload=other", now)),
        await workspace.post(body, X_Slack_Request_Timestamp="now"),
        await workspace.post(body, X_Slack_Request_Timestamp="9" * 5000),
        await workspace.post(body, X_Slack_Request_Timestamp=str(int(now) - 60)),  # signed with another time
    ]
    assert [one.status_code for one in forged] == [403] * 7
    assert {one.json()["code"] for one in forged} == {"bad_signature"}
    assert [one.levelname for one in caplog.records if one.msg == "slack.refused"] == ["WARNING"] * 7
    assert (await workspace.wait(wait["wait"])).state == "open"
    missing = await workspace.post(body, channel="other")
    assert missing.status_code == 404


async def test_a_replayed_click_is_refused_in_every_process(workspace: Workspace) -> None:
    run, _ = await workspace.waits()
    await workspace.person("ana", "approver")
    body, at = workspace.payload(workspace.button()), time.time()
    assert (await workspace.post(body, at=at)).status_code == 200
    await workspace.web.until(run, "completed")
    for _ in range(2):
        again = await workspace.post(body, at=at)
        assert (again.status_code, again.json()["code"]) == (403, "bad_signature")
    other = workspace.web.wiring.notifier(workspace.web.service)
    moment = str(int(at))
    with pytest.raises(Exception, match="already handled"):
        await other.slack.handle("team", body, moment, signature(body, moment), "127.0.0.1")


@pytest.mark.parametrize("off", [-301, 301, -86_400])
async def test_a_late_or_early_click_is_refused(workspace: Workspace, off: int) -> None:
    _, wait = await workspace.waits()
    await workspace.person("ana", "approver")
    refused = await workspace.post(workspace.payload(workspace.button()), at=time.time() + off)
    assert (refused.status_code, refused.json()["code"]) == (403, "bad_signature")
    assert (await workspace.wait(wait["wait"])).state == "open"


async def test_a_click_after_someone_else_decided_changes_nothing(workspace: Workspace) -> None:
    run, wait = await workspace.waits()
    await workspace.person("ana", "approver")
    await workspace.web.post(f"/api/waits/{wait['wait']}/decide", 200, decision="deny")
    await workspace.web.until(run, "cancelled", "failed")
    assert (await workspace.click()).status_code == 200
    await workspace.deliver()
    assert (await workspace.wait(wait["wait"])).answer["decision"] == "deny"
    assert "already" in workspace.sent("chat.postEphemeral")[-1]["text"]


async def test_a_button_of_something_else_decides_nothing(workspace: Workspace) -> None:
    _, wait = await workspace.waits()
    await workspace.person("ana", "approver")
    button = workspace.button()
    for value in (f"{wait['wait']}.{'0' * 64}", wait["wait"], f"{wait['wait']}.", "wxxxxxxx.0", "."):
        body = workspace.payload({**button, "value": value})
        assert (await workspace.post(body)).status_code == 200
    assert (await workspace.wait(wait["wait"])).state == "open"
    for body in (b"payload=", b"payload=%7B%7D", b"payload=[1]", b"", b"%ff=%fe", b"payload=" + b"[" * 100_000):
        assert (await workspace.post(body)).status_code == 200


async def test_what_slack_is_told_is_tried_again_while_it_is_down(
    web: ServedApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    up: list[bool] = [True]

    def answer(received: Received) -> tuple[int, Any]:
        return (200, {"ok": True, "channel": "C123", "ts": "17.1"}) if up else (503, {})

    async with served(web, monkeypatch, answer) as workspace:
        run, _ = await workspace.waits()
        await workspace.person("ana", "approver")
        up.clear()
        await workspace.click()
        await web.until(run, "completed")
        await workspace.deliver()
        assert len(workspace.sent("chat.update")) == 1
        up.append(True)
        store, now = web.service._store, time.time()
        monkeypatch.setattr(store, "now", lambda: now + 60)
        await workspace.deliver()
        assert len(workspace.sent("chat.update")) == 2
        await workspace.deliver()
        assert len(workspace.sent("chat.update")) == 2


async def test_the_slash_command_answers_with_a_code(workspace: Workspace) -> None:
    body = urlencode({"command": "/cuebook", "text": "link", "team_id": "T01", "user_id": "Uana", "user_name": "ana"})
    said = (await workspace.post(body.encode())).json()
    assert said["response_type"] == "ephemeral"
    assert "notify link " in said["text"]


async def test_no_message_contains_a_token_that_decides(workspace: Workspace) -> None:
    _, wait = await workspace.waits()
    tokens = workspace.web.service.tokens
    everything = json.dumps([one.json for one in workspace.api.requests])
    assert tokens.of(wait["wait"]) not in everything
    assert tokens.resume(wait["wait"]) not in everything
    assert f"https://cuebook.example.com/runs/{wait['run']}#wait-{wait['wait']}" in everything
