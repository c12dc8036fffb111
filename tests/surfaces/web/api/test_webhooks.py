"""Webhooks over HTTP: only what is signed, lately and for the first time starts a run, and nobody learns which names exist."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from cuebook.service.triggers.events import Webhook
from cuebook.service.triggers.trigger import Firing, Target
from cuebook.surfaces.web.auth import refusals
from tests.surfaces.web.served_app import ServedApp

SECRET = "a-long-shared-secret"
BOOK = """\
name: Greet
args:
  title: {type: string, default: nothing}
steps:
  - id: say
    command: cli echo ${title}
    effect: read
"""


def sha256_of(message: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()


def github(body: bytes, secret: str = SECRET, **more: str) -> dict[str, str]:
    return {"X-Hub-Signature-256": f"sha256={sha256_of(body, secret)}", "X-GitHub-Event": "push", **more}


def slack(body: bytes, at: float, secret: str = SECRET) -> dict[str, str]:
    signed = sha256_of(f"v0:{at:.0f}:".encode() + body, secret)
    return {"X-Slack-Request-Timestamp": f"{at:.0f}", "X-Slack-Signature": f"v0={signed}"}


def standard(body: bytes, at: float, id: str, secret: str = SECRET) -> dict[str, str]:
    made = hmac.new(secret.encode(), f"{id}.{at:.0f}.".encode() + body, hashlib.sha256).digest()
    signature = f"v1,bm90aGluZw== v1,{base64.b64encode(made).decode()}"
    return {"webhook-id": id, "webhook-timestamp": f"{at:.0f}", "webhook-signature": signature}


class Hooked:
    def __init__(self, web: ServedApp) -> None:
        self.web = web

    async def add(self, scheme: str = "github", name: str = "hook", **more: Any) -> None:
        path = self.web.books / "greet.yml"
        target = Target(str(path), "greet.yml", workspace=self.web.wiring.factory.workspace.path)
        now = self.web.service.clock()
        fields = {"mapping": {"title": "pull_request.title"}, **more}
        await self.web.site.triggers.add(
            Webhook(
                tenant="local", name=name, owner="local", target=target, created=now, scheme=scheme, secret="shared", **fields
            )
        )  # fmt: skip

    async def send(self, body: Any, headers: dict[str, str], name: str = "hook", kind: str = "json") -> httpx2.Response:
        form = {"json": "application/json", "form": "application/x-www-form-urlencoded"}[kind]
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.web.guest.post(f"/hooks/{name}", content=content, headers={"Content-Type": form, **headers})

    async def requested(self, name: str = "hook") -> tuple[Firing, ...]:
        return (await self.web.site.triggers.triggers.get(Webhook, name)).requested

    @property
    def now(self) -> float:
        return self.web.service.clock()


@pytest.fixture
async def hooked(web: ServedApp, monkeypatch: pytest.MonkeyPatch) -> Hooked:
    monkeypatch.setenv("SHARED", SECRET)
    await web.serve()
    web.book("greet.yml", BOOK)
    await web.service.add_secret("shared", "env:SHARED")
    return Hooked(web)


PUSH = json.dumps({"pull_request": {"title": "Fix it", "number": 7}, "ref": "refs/heads/main"}).encode()


async def test_a_signed_request_fires_once_with_what_it_carries(hooked: Hooked) -> None:
    await hooked.add(mapping={"title": "pull_request.title"}, only={"ref": "refs/heads/main"})
    first = await hooked.send(PUSH, github(PUSH, **{"X-GitHub-Delivery": "d1"}))
    assert (first.status_code, first.json()) == (202, {"state": "requested"})
    again = await hooked.send(PUSH, github(PUSH, **{"X-GitHub-Delivery": "d1"}))
    assert (again.status_code, again.json()) == (202, {"state": "ignored"})
    # The name of a delivery is not signed: a recorded request under a new one is the same event.
    replayed = await hooked.send(PUSH, github(PUSH, **{"X-GitHub-Delivery": "d2"}))
    assert replayed.json() == {"state": "ignored"}
    (firing,) = await hooked.requested()
    assert firing.inputs == {"title": "Fix it"}


async def test_its_run_starts_and_belongs_to_whoever_added_it(hooked: Hooked) -> None:
    await hooked.add()
    await hooked.send(PUSH, github(PUSH))
    firing = (await hooked.requested())[0]
    trigger = hooked.web.site.triggers
    done = await trigger.triggers.try_firing(Webhook, "hook", "local", firing.key, trigger.handle, 30)
    done = done or await trigger.triggers.try_firing(Webhook, "hook", "local", firing.key, trigger.handle, 30)
    assert done is not None
    row = await hooked.web.service.row(done.run)
    assert (row.trigger, row.owner) == ("webhook:hook", "local")
    assert (await hooked.web.service.view(row.id)).inputs["title"] == "Fix it"


async def test_a_secret_that_cannot_be_read_is_logged_without_words_about_it(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await hooked.add()
    monkeypatch.delenv("SHARED")
    assert (await hooked.send(PUSH, github(PUSH))).status_code != 202
    (found,) = [one.fields for one in caplog.records if one.msg == "webhook.unreadable"]  # type: ignore[attr-defined]
    assert (found["trigger"], sorted(found)) == ("webhook:hook", ["code", "trigger"])
    assert "SHARED" not in caplog.text


async def test_other_events_are_ignored(hooked: Hooked) -> None:
    await hooked.add(only={"ref": "refs/heads/other"})
    assert (await hooked.send(PUSH, github(PUSH))).json() == {"state": "ignored"}
    await hooked.add(name="pulls", events=("pull_request",))
    assert (await hooked.send(PUSH, github(PUSH), "pulls")).json() == {"state": "ignored"}
    assert (await hooked.send(PUSH, github(PUSH, **{"X-GitHub-Event": "ping"}), "hook")).json() == {"state": "ignored"}
    assert await hooked.requested() == await hooked.requested("pulls") == ()


@pytest.mark.parametrize("first", ["check_run", "ping"])
async def test_a_body_that_was_ignored_cannot_be_sent_again_as_another_event(hooked: Hooked, first: str) -> None:
    await hooked.add(events=("push",))
    for event in (first, "push"):  # GitHub does not sign the event
        answer = await hooked.send(PUSH, github(PUSH, **{"X-GitHub-Event": event}))
        assert (answer.status_code, answer.json()) == (202, {"state": "ignored"}), event
    assert await hooked.requested() == ()
    other = PUSH.replace(b"Fix it", b"Another")
    assert (await hooked.send(other, github(other))).json() == {"state": "requested"}


async def test_a_signed_body_with_half_a_character_is_refused_for_good(hooked: Hooked) -> None:
    await hooked.add("hmac")
    body = b'{"pull_request": {"title": "\\ud800"}}'
    answer = await hooked.send(body, standard(body, hooked.now, "msg_half"))
    assert (answer.status_code, "unpaired surrogate" in answer.json()["detail"]) == (422, True), answer.text
    assert await hooked.requested() == ()


async def test_a_forged_request_and_an_unknown_name_get_the_same_answer(hooked: Hooked) -> None:
    await hooked.add()
    refused = [
        await hooked.send(PUSH, github(PUSH, "another-secret")),
        await hooked.send(PUSH, {}),
        await hooked.send(PUSH + b" ", github(PUSH)),
        await hooked.send(PUSH, github(PUSH), "nope"),
        await hooked.send(b"not json", {}, "nope"),
    ]
    assert {one.status_code for one in refused} == {401}
    assert len({one.text.replace("/hooks/nope", "/hooks/hook") for one in refused}) == 1
    assert await hooked.requested() == ()


@pytest.mark.parametrize("seconds", [-301, 301])
@pytest.mark.parametrize("scheme", ["slack", "hmac"])
async def test_a_request_from_another_time_is_refused(hooked: Hooked, scheme: str, seconds: float) -> None:
    await hooked.add(scheme)
    at = hooked.now + seconds
    headers = slack(PUSH, at) if scheme == "slack" else standard(PUSH, at, "msg_1")
    assert (await hooked.send(PUSH, headers)).status_code == 401
    assert await hooked.requested() == ()


async def test_standard_webhooks_count_once_for_each_id(hooked: Hooked) -> None:
    await hooked.add("hmac")
    at = hooked.now
    for id, state in (("msg_1", "requested"), ("msg_1", "ignored"), ("msg_2", "requested")):
        assert (await hooked.send(PUSH, standard(PUSH, at, id))).json() == {"state": state}
    stolen = standard(PUSH, at, "msg_2") | {"webhook-id": "msg_3"}
    assert (await hooked.send(PUSH, stolen)).status_code == 401


async def test_slack_registers_an_address_and_sends_events_and_commands(hooked: Hooked) -> None:
    await hooked.add("slack", mapping={"title": "text"})
    asked = json.dumps({"type": "url_verification", "challenge": "c0"}).encode()
    assert (await hooked.send(asked, slack(asked, hooked.now))).json() == {"challenge": "c0"}
    assert (await hooked.send(asked, slack(asked, hooked.now, "another-secret"))).status_code == 401
    event = json.dumps({"event_id": "Ev1", "text": "a"}).encode()
    retried = json.dumps({"event_id": "Ev1", "text": "a", "retry": 1}).encode()
    assert (await hooked.send(event, slack(event, hooked.now))).json() == {"state": "requested"}
    assert (await hooked.send(retried, slack(retried, hooked.now))).json() == {"state": "ignored"}
    assert (await hooked.send(event, slack(event, hooked.now))).status_code == 200, "Slack takes nothing else"
    command = urlencode({"trigger_id": "T1", "command": "/brew", "text": "tea"}).encode()
    said = await hooked.send(command, slack(command, hooked.now), kind="form")
    assert (said.status_code, said.json()) == (200, {"response_type": "ephemeral", "text": "Cuebook starts a run."})
    assert [one.inputs for one in await hooked.requested()] == [{"title": "a"}, {"title": "tea"}]


async def test_a_signed_body_that_is_no_json_is_an_error_that_says_so(hooked: Hooked) -> None:
    await hooked.add()
    sent = await hooked.send(b"{", github(b"{"))
    assert (sent.status_code, sent.json()["code"]) == (422, "bad_input")


async def test_too_many_events_are_refused_for_a_while(hooked: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Webhook, "MOST", 2)
    await hooked.add()
    answers = []
    for number in range(3):
        body = json.dumps({"number": number}).encode()
        answers.append((await hooked.send(body, github(body))).status_code)
    assert answers == [202, 202, 429]
    assert len(await hooked.requested()) == 2


async def test_an_address_that_keeps_guessing_is_told_to_stop_and_hinders_nobody(
    hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "MOST", 3)
    await hooked.add()
    answers = [(await hooked.send(PUSH, github(PUSH, "another-secret"))).status_code for _ in range(4)]
    assert answers == [401, 401, 401, 429]
    assert (await hooked.send(PUSH, github(PUSH))).status_code == 202  # behind a proxy, all have one address


async def test_a_request_that_is_too_large_is_refused(hooked: Hooked) -> None:
    await hooked.add()
    body = json.dumps({"x": "y" * 1_000_000}).encode()
    assert (await hooked.send(body, github(body))).status_code == 413


async def test_a_paused_webhook_says_that_it_skipped_the_event(hooked: Hooked) -> None:
    await hooked.add()
    await hooked.web.post("/api/triggers/webhook/hook/pause", 200)
    assert (await hooked.send(PUSH, github(PUSH))).json() == {"state": "skipped"}
    shown = await hooked.web.get("/api/triggers/webhook/hook")
    assert (shown["state"], shown["history"][0]["reason"]) == ("paused", "It is paused.")


async def test_without_its_secret_nothing_is_accepted(hooked: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    await hooked.add()
    await hooked.web.service.remove_secret("shared")
    assert (await hooked.send(PUSH, github(PUSH))).status_code == 401
