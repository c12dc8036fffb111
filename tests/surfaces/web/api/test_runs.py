"""The JSON API over a real socket: starting, deciding, viewing, and error messages."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from cuebook.config.settings import Rate
from cuebook.performers.models.model import ModelError
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web.server import bound
from tests.performers.models.provider_server import Answer, ProviderServer
from tests.support.runtime import GATED
from tests.surfaces.web.served_app import ServedApp

TEA = """\
# Tea

Makes tea.

## INPUTS

- `kind` (string: green): Which tea
- `cups` (number: 2): How many

## STEP 1: Choose

Choose a {{kind}} tea.

@output(chosen)

## STEP 2: Brew

Brew {{chosen}} for {{cups}}.

## ARTIFACTS

type: json
"""
ASKS = '# Asks\n\n## STEP 1: Ask\n\n@elicit(select, "Which?", "a", "b")\n\n@output(which)\n\n## STEP 2: Go\n\nGo {{which}}.\n'


async def test_playbooks_are_listed_with_their_inputs(web: ServedApp) -> None:
    web.book("tea.playbook.md", TEA)
    web.book("deeper/still/gated.yml", GATED)
    web.book("broken.yml", "name: B\nsteps: []\n")
    web.book("README.md", "# Nothing to run\n")
    web.book("package.json", '{"name": "no playbook"}')
    web.book("node_modules/other.md", TEA)
    web.book("meant.md", "## STEP 1: No title\n\nX\n")
    await web.model(ScriptedModel([])).serve()
    message = await web.get("/api/playbooks")
    assert [(one["id"], one["title"], one["dialect"]) for one in message["playbooks"]] == [
        ("gated", "Gated", "pipeline"),
        ("tea", "Tea", "markdown"),
    ]
    assert {Path(one["path"]).name for one in message["broken"]} == {"broken.yml", "meant.md"}
    tea = await web.get("/api/playbooks/tea")
    assert tea["text"] == TEA
    assert [(one["name"], one["type"], one["default"]) for one in tea["inputs"]] == [
        ("kind", "string", "green"),
        ("cups", "number", "2"),
    ]
    assert not (await web.get("/api/playbooks/gated"))["needs_model"]
    web.book("later.md", ASKS)
    assert len((await web.get("/api/playbooks"))["playbooks"]) == 3


async def test_a_run_is_started_viewed_and_downloaded(web: ServedApp) -> None:
    await web.model(ScriptedModel(["sencha", '{"brewed": true}'])).serve()
    response = await web.client.post("/api/runs", json={"playbook": web.book("tea.md", TEA), "inputs": {"cups": 3}})
    assert response.status_code == 201
    run = response.json()["run"]
    assert response.headers["location"] == f"/api/runs/{run}"
    message = await web.until(run, "completed")
    assert message["values"] == {"chosen": "sencha"}
    assert message["inputs"] == {"kind": "green", "cups": 3} or message["inputs"]["cups"] in (3, "3")
    assert message["outputs"] == {"1": "sencha", "2": '{"brewed": true}'}
    file = await web.client.get(f"/api/runs/{run}/artifact")
    assert file.text == '{"brewed": true}'
    assert file.headers["content-type"] == "application/json; charset=utf-8"
    assert file.headers["content-disposition"] == f'attachment; filename="tea-{run}.json"'
    assert "sandbox" in file.headers["content-security-policy"]
    listed = await web.get("/api/runs?playbook=tea&status=completed&limit=5")
    assert [one["run"] for one in listed["runs"]] == [run]
    assert (await web.get("/api/runs?status=failed"))["runs"] == []


@pytest.mark.parametrize(
    ("type", "suffix", "content_type"),
    [
        ("markdown", ".md", "text/markdown"),
        ("json", ".json", "application/json"),
        ("chartjs", ".json", "application/json"),
        ("mermaid", ".mmd", "text/plain"),
        ("html_css", ".html", "text/html"),
        ("javascript", ".js", "text/plain"),
        ("typescript", ".ts", "text/plain"),
    ],
)
async def test_an_artifact_has_the_type_of_its_table(web: ServedApp, type: str, suffix: str, content_type: str) -> None:
    await web.model(ScriptedModel(["<b>out</b>"])).serve()
    run = await web.begin(text=f"# T\n\n## STEP 1: A\n\nDo A.\n\n## ARTIFACTS\n\ntype: {type}\n", name="t.md")
    await web.until(run, "completed")
    file = await web.client.get(f"/api/runs/{run}/artifact")
    assert file.headers["content-type"].startswith(content_type)
    assert file.headers["content-disposition"].endswith(f'{suffix}"')


async def test_without_a_section_of_artifacts_the_output_is_markdown(web: ServedApp) -> None:
    await web.model(ScriptedModel(["Out."])).serve()
    run = await web.begin(text="# T\n\n## STEP 1: A\n\nDo A.\n", name="t.md")
    message = await web.until(run, "completed")
    assert message["artifact"] == {"type": None, "suffix": ".md", "content_type": "text/markdown"}
    file = await web.client.get(f"/api/runs/{run}/artifact")
    assert file.headers["content-type"] == "text/markdown; charset=utf-8"
    assert file.headers["content-disposition"].endswith('.md"')


async def test_the_last_output_of_a_failed_run_has_the_declared_type(web: ServedApp) -> None:
    await web.model(ScriptedModel(['{"leaf": 1}', ModelError("bad_request", "No.")])).serve()
    run = await web.begin(playbook=web.book("tea.md", TEA))
    message = await web.until(run, "failed")
    assert message["artifact"] is None
    file = await web.client.get(f"/api/runs/{run}/artifact")
    assert file.text == '{"leaf": 1}'
    assert file.headers["content-type"] == "application/json; charset=utf-8"
    plain = await web.begin(playbook=web.book("gated.yml", GATED))
    wait = await web.waiting(plain)
    await web.post(f"/api/waits/{wait['wait']}/decide", 200, decision="deny")
    await web.until(plain, "failed", "cancelled")
    file = await web.client.get(f"/api/runs/{plain}/artifact")
    assert file.headers["content-type"] == "text/plain; charset=utf-8"


async def test_the_same_key_gives_one_run(web: ServedApp) -> None:
    await web.model(ScriptedModel(["a"], cycle=True)).serve()
    book = web.book("tea.md", TEA)
    asked = [web.client.post("/api/runs", json={"playbook": book}, headers={"Idempotency-Key": "k"}) for _ in range(5)]
    runs = {response.json()["run"] for response in await asyncio.gather(*asked)}
    assert len(runs) == 1
    assert (await web.begin(playbook=book, key="k")) in runs
    other = await web.client.post("/api/runs", json={"playbook": book, "key": "k", "inputs": {"kind": "black"}})
    assert (other.status_code, other.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize("breakpoints", ["1", [1], ["1"]])
async def test_a_pause_is_ended_with_changed_values(web: ServedApp, breakpoints: Any) -> None:
    model = ScriptedModel(["sencha", "done"])
    await web.model(model).serve()
    run = await web.begin(playbook=web.book("tea.md", TEA), breakpoints=breakpoints)
    assert (await web.waiting(run))["kind"] == "breakpoint"
    if breakpoints == "1":
        response = await web.client.post(f"/api/runs/{run}/resume", data={"var_chosen": "matcha", "other": "x"})
        assert response.status_code == 202
    elif breakpoints == [1]:
        response = await web.client.post(
            f"/api/runs/{run}/resume", data={"var_chosen": "matcha"}, headers={"Accept": "text/html"}
        )
        assert (response.status_code, response.headers["location"]) == (303, f"/runs/{run}")
    else:
        await web.post(f"/api/runs/{run}/resume", 202, variables={"chosen": "matcha"})
    message = await web.until(run, "completed")
    assert "matcha" in model.requests[1].messages[-1].text
    assert message["values"]["chosen"] == "matcha"
    again = await web.client.post(f"/api/runs/{run}/resume", json={})
    assert (again.status_code, again.json()["code"]) == (409, "refused")


async def test_a_question_is_answered_once(web: ServedApp) -> None:
    await web.model(ScriptedModel(["went"])).serve()
    run = await web.begin(playbook=web.book("asks.md", ASKS))
    wait = (await web.waiting(run))["wait"]
    assert [one["wait"] for one in (await web.get("/api/inbox"))["waits"]] == [wait]
    unfit = await web.client.post(f"/api/waits/{wait}/answer", json={"value": "c"})
    assert (unfit.status_code, unfit.json()["code"]) == (422, "bad_input")
    both = await asyncio.gather(
        *(web.client.post(f"/api/waits/{wait}/answer", json={"value": value}) for value in ("a", "b", "a", "b"))
    )
    codes = sorted(response.status_code for response in both)
    assert codes == [200, 409, 409, 409]
    assert {response.json()["code"] for response in both if response.status_code == 409} == {"already_answered"}
    message = await web.until(run, "completed")
    won = next(response.request for response in both if response.status_code == 200)
    assert message["values"]["which"] == ("a" if b'"a"' in won.content else "b")
    assert (await web.get(f"/api/waits/{wait}"))["state"] in ("answered", "closed")


async def test_a_late_answer_is_refused_with_who_answered_when_and_what(web: ServedApp) -> None:
    await web.model(ScriptedModel(["went"])).serve()
    run = await web.begin(playbook=web.book("asks.md", ASKS))
    wait = (await web.waiting(run))["wait"]
    _, token = await web.service.add_user("eve", ["runner"])
    by_eve = {"Authorization": f"Bearer {token}"}
    assert (await web.client.post(f"/api/waits/{wait}/answer", json={"value": "b"}, headers=by_eve)).status_code == 200
    await web.until(run, "completed")
    late = (await web.client.post(f"/api/waits/{wait}/answer", json={"value": "a"})).json()
    assert (late["status"], late["code"]) == (409, "already_answered")
    assert re.fullmatch(r"Already answered by eve at \d{4}-\d\d-\d\d \d\d:\d\d: b\.", late["detail"])
    assert "was not used" in late["fix"]
    assert wait not in late["detail"]


async def test_a_late_decision_is_refused_with_the_earlier_one(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    run = await web.begin(playbook=web.book("gated.yml", GATED))
    wait = (await web.waiting(run))["wait"]
    await web.post(f"/api/waits/{wait}/decide", 200, decision="deny", reason="not now")
    await web.until(run, "failed", "cancelled")
    late = await web.post(f"/api/waits/{wait}/decide", 409, decision="approve")
    assert late["detail"].startswith("Already decided by ")
    assert late["detail"].endswith(": deny (not now).")


async def test_a_broken_file_is_listed_with_its_errors(web: ServedApp) -> None:
    web.book("broken.yml", "name: B\nsteps: nope\n")
    web.book("own/playbook.md", "## STEP 1: No title\n\nX\n")
    await web.model(ScriptedModel([])).serve()
    started = await web.post("/api/runs", 422, playbook="broken")
    assert started["code"] == "bad_input"
    assert "broken.yml:2: steps must be a list" in started["detail"]
    assert "cuebook validate broken.yml" in started["fix"]
    assert "No title found" in (await web.post("/api/runs", 422, playbook="own"))["detail"]
    page = await web.client.get("/playbooks/broken/run", headers={"Accept": "text/html"})
    assert (page.status_code, "steps must be a list" in page.text) == (422, True)
    assert (await web.get("/api/runs"))["runs"] == []
    await web.post("/api/runs", 404, playbook="nothing")


async def test_an_approval_is_decided_and_recorded_in_the_journal(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    _, token = await web.service.add_user("ann", ["approver"])
    run = await web.begin(playbook=web.book("gated.yml", GATED))
    wait = await web.waiting(run)
    assert wait["kind"] == "approval"
    assert "tee" in str(wait["approval"]["preview"])
    response = await web.guest.post(
        f"/api/waits/{wait['wait']}/decide", json={"decision": "approve"}, headers={"Authorization": f"Bearer {token}"}
    )
    assert response.json()["by"] == "ann"
    await web.until(run, "completed")
    assert web.made()
    closed = [e for e in (await web.get(f"/api/runs/{run}/events"))["events"] if e["event"] == "WaitClosed"]
    assert [e["data"]["by"] for e in closed] == ["ann"]


async def test_a_run_is_cancelled_retried_restarted_and_compared(web: ServedApp) -> None:
    await web.model(ScriptedModel(["one", ModelError("bad_request", "No."), "two", "two again"])).serve()
    book = web.book("tea.md", TEA)
    run = await web.begin(playbook=book)
    assert (await web.until(run, "failed"))["error"]["message"]
    assert (await web.client.post(f"/api/runs/{run}/cancel", json={})).status_code == 409
    await web.post(f"/api/runs/{run}/retry", 202)
    await web.until(run, "completed")
    ended = await web.client.post(f"/api/runs/{run}/resume", json={})
    assert (ended.status_code, f"POST /api/runs/{run}/restart repeats a step" in ended.text) == (409, True)
    again = (await web.post(f"/api/runs/{run}/fork", 201, step="2", values={"chosen": "oolong"}))["run"]
    message = await web.until(again, "completed")
    assert (message["parent"], message["values"]["chosen"]) == (run, "oolong")
    compared = await web.get(f"/api/runs/{run}/diff/{again}")
    assert not compared["same"]
    assert compared["values"] == {"chosen": ["one", "oolong"]}
    assert (await web.get(f"/api/runs/{run}/diff/{run}"))["same"]


async def test_the_rate_is_limited_and_restarts_count(web: ServedApp) -> None:
    await web.model(ScriptedModel(["a"], cycle=True)).serve(rate_limit="2/hour")
    assert web.wiring.config.get("rate_limit") == Rate(2, "hour")
    book = web.book("tea.md", TEA)
    run = await web.begin(playbook=book)
    await web.until(run, "completed")
    await web.post(f"/api/runs/{run}/restart", 201, step="2")
    for path, fields in (("/api/runs", {"playbook": book}), (f"/api/runs/{run}/restart", {"step": "1"})):
        response = await web.client.post(path, json=fields)
        assert (response.status_code, response.json()["code"]) == (429, "rate_limited")
        assert 3500 < int(response.headers["retry-after"]) <= 3600


@pytest.mark.parametrize(
    ("fields", "status", "code", "words"),
    [
        ({}, 422, "bad_input", "playbook"),
        ({"playbook": "nothing"}, 404, "not_found", "nothing"),
        ({"text": "no playbook", "name": "x.txt"}, 422, "bad_input", "not a playbook"),
        ({"text": "# T\n\n## STEP 1: A\n\nx\n", "name": "t.md", "breakpoints": "7"}, 422, "bad_input", "7"),
        ({"playbook": "tea", "inputs": {"cups": "many"}}, 422, "bad_input", "cups"),
        ({"playbook": "tea", "model": "nobody/x"}, 422, "unknown_model", "nobody"),
        ({"playbook": "tea", "options": {"odd": 1}}, 422, "bad_input", "odd"),
        ({"playbook": "tea", "budget": {"money": -1}}, 422, "bad_body", "budget"),
        ({"playbook": "tea", "extra": 1}, 422, "bad_body", "extra"),
    ],
)
async def test_an_invalid_request_is_reported_and_starts_nothing(
    web: ServedApp, fields: dict[str, Any], status: int, code: str, words: str
) -> None:
    web.book("tea.md", TEA)
    await web.model(ScriptedModel([])).serve()
    response = await web.client.post("/api/runs", json=fields)
    message = response.json()
    assert (response.status_code, message["code"]) == (status, code)
    assert words in message["detail"] + message.get("fix", "")
    assert message["status"] == status
    assert (await web.get("/api/runs"))["runs"] == []


async def test_an_unexpected_error_shows_an_id_and_no_trace(web: ServedApp, caplog: pytest.LogCaptureFixture) -> None:
    await web.model(ScriptedModel([])).serve()

    def broken(*args: Any) -> Any:
        raise RuntimeError("the inside of the house")

    web.site.library.read = broken  # type: ignore[method-assign, assignment]
    for path, kind in (("/api/playbooks", "application/problem+json"), ("/", "text/html; charset=utf-8")):
        response = await web.client.get(path)
        assert (response.status_code, response.headers["content-type"]) == (500, kind)
        assert "inside" not in response.text
        assert "Traceback" not in response.text
    message = (await web.client.get("/api/playbooks")).json()
    assert message["id"] in caplog.text
    assert "the inside of the house" in caplog.text


async def test_a_tenant_sees_only_its_own(web: ServedApp) -> None:
    from cuebook.service.service import Principal

    await web.model(ScriptedModel(["a"], cycle=True)).serve()
    _, token = await web.service.add_user("bob", ["admin"], Principal("root", "other"))
    run = await web.begin(playbook=web.book("asks.md", ASKS))
    wait = (await web.waiting(run))["wait"]
    theirs = {"Authorization": f"Bearer {token}"}
    for path in (
        f"/api/runs/{run}",
        f"/api/runs/{run}/stream",
        f"/api/runs/{run}/artifact",
        f"/api/waits/{wait}",
        f"/runs/{run}",
    ):
        assert (await web.guest.get(path, headers=theirs)).status_code == 404
    assert (await web.guest.get("/api/runs", headers=theirs)).json() == {"runs": [], "next": None}
    inbox = (await web.guest.get("/api/inbox", headers=theirs)).json()
    assert (inbox["waits"], inbox["interrupted"], inbox["total"]) == ([], [], 0)
    answered = await web.guest.post(f"/api/waits/{wait}/answer", json={"value": "a"}, headers=theirs)
    assert answered.status_code == 404
    cancelled = await web.guest.post(f"/api/runs/{run}/cancel", json={}, headers=theirs)
    assert cancelled.status_code == 404


# --- triggers and the runtime ---


async def test_a_trigger_starts_its_playbook_and_nothing_else(web: ServedApp) -> None:
    await web.model(ScriptedModel(["a"], cycle=True)).serve()
    web.book("tea.md", TEA)
    web.book("asks.md", ASKS)
    token = (await web.post("/api/playbooks/tea/token", 201))["token"]
    held = {"Authorization": f"Bearer {token}"}
    asked = {"inputs": {"kind": "black"}, "model_id": "test/other"}
    response = await web.guest.post("/api/playbooks/tea/trigger", json=asked, headers=held)
    assert response.status_code == 202
    message = response.json()
    assert message == {"execution_id": message["execution_id"], "status": "queued"}
    run = await web.until(message["execution_id"], "completed")
    assert (run["model"], run["owner"], run["inputs"]["kind"]) == ("test/other", "trigger.tea", "black")
    assert run["trigger"] == "trigger"
    assert (await web.guest.post("/api/playbooks/asks/trigger", json={}, headers=held)).status_code == 401
    assert (await web.guest.get("/api/runs", headers=held)).status_code == 401
    newer = (await web.post("/api/playbooks/tea/token", 201))["token"]
    assert (await web.guest.post("/api/playbooks/tea/trigger", json={}, headers=held)).status_code == 401
    assert (
        await web.client.delete("/api/playbooks/tea/token", headers={"Content-Type": "application/json"})
    ).status_code == 204
    gone = await web.guest.post("/api/playbooks/tea/trigger", json={}, headers={"Authorization": f"Bearer {newer}"})
    assert gone.status_code == 401


async def test_a_trigger_is_limited_too(web: ServedApp) -> None:
    await web.model(ScriptedModel(["a"], cycle=True)).serve(rate_limit="1/hour")
    web.book("tea.md", TEA)
    token = (await web.post("/api/playbooks/tea/token", 201))["token"]
    held = {"Authorization": f"Bearer {token}"}
    assert (await web.guest.post("/api/playbooks/tea/trigger", json={}, headers=held)).status_code == 202
    refused = await web.guest.post("/api/playbooks/tea/trigger", json={}, headers=held)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 3500


async def test_the_runtime_answers_with_envelopes(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    web.book("gated.yml", GATED)
    envelope = await web.post("/playbooks/runtime", 200, action="run", pipeline="gated")
    assert (envelope["ok"], envelope["status"]) == (True, "needs_approval")
    token = envelope["requiresApproval"]["resumeToken"]
    done = await web.post("/playbooks/runtime?strict=1", 200, action="resume", token=token, approve=True)
    assert set(done) == {"ok", "status", "output"}
    assert done["status"] == "ok"
    assert web.made()
    unknown = await web.post("/playbooks/runtime", 200, action="run", pipeline="nothing")
    assert unknown["error"]["code"] == "invalid_request"
    no_request = await web.client.post("/playbooks/runtime", json={"action": "dance"})
    assert no_request.status_code == 400
    assert set(no_request.json()) == {"error", "message"}
    assert no_request.json()["error"] == "invalid_request"


# --- settings ---


async def test_keys_are_never_shown(web: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-never-to-be-shown")
    await web.model(ScriptedModel([])).serve()
    message = await web.client.get("/api/connections")
    assert "sk-never" not in message.text
    openai = next(one for one in message.json()["providers"] if one["name"] == "openai")
    assert (openai["usable"], openai["key"], openai["key_from"]) == (True, "OPENAI_API_KEY", "environment")


async def test_models_are_those_that_the_providers_offer(web: ServedApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-never-to-be-shown")
    web.book("hello.playbook.md", "# Hello\n\n## STEP 1: Greet\n\nSay hello.\n")
    async with ProviderServer(Answer(body={"data": [{"id": "alpha"}, {"id": "text-embedding-1"}]})) as lab:
        (web.config / "cuebook.toml").write_text(
            f'[providers.lab]\nbase_url = "{lab.url}/v1"\n\n[providers.openai]\nbase_url = "http://127.0.0.1:9/v1"\n'
        )
        await web.model(ScriptedModel([])).serve()
        models = await web.get("/api/models")
        page = (await web.client.get("/playbooks/hello/run")).text
        connections = (await web.client.get("/settings/connections")).text
    assert (models["default"], models["models"][0]) == ("test/one", "test/one")
    by_name = {one["name"]: one for one in models["providers"]}
    assert (by_name["lab"]["models"], by_name["lab"]["answered"]) == (["lab/alpha"], True)
    assert "lab/alpha" in models["models"]
    assert "lab/text-embedding-1" not in models["models"]
    assert not any(name.startswith(("openai/", "anthropic/")) for name in models["models"]), "no table of prices"
    assert '<option value="lab/alpha"' in page
    assert "Answers, and offers 1 model." in connections


async def test_an_unreachable_provider_on_this_machine_is_not_usable(web: ServedApp) -> None:
    free = bound("127.0.0.1", 0)
    port = free.getsockname()[1]
    (web.config / "cuebook.toml").write_text(
        f'[providers.own]\nbase_url = "http://127.0.0.1:{port}/v1"\n\n[mcp.gone]\ncommand = ["no-such-command"]\n'
    )
    await web.model(ScriptedModel([])).serve()

    async def own() -> dict[str, Any]:
        message = await web.get("/api/connections")
        assert message["servers"][0]["reason"] == "The command no-such-command was not found."
        return next(one for one in message["providers"] if one["name"] == "own")

    assert (await own())["usable"]
    free.close()
    assert (await own())["reason"] == f"Nothing is listening on 127.0.0.1:{port}."


async def test_a_key_needs_a_keyring(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    response = await web.client.put("/api/connections/openai/key", json={"key": "sk-something-long"})
    assert (response.status_code, response.json()["code"]) == (422, "no_keyring")
    assert "sk-something" not in response.text
    assert (await web.client.put("/api/connections/nobody/key", json={"key": "x"})).status_code == 422


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"77": "x"}, "there is no such step"),
        ({"2": "x"}, "that step asks no question"),
        ({"1": "neither"}, "The answer for step 1"),
    ],
)
async def test_answers_that_match_no_question_start_nothing(
    web: ServedApp, answers: dict[str, str], words: str
) -> None:
    await web.model(ScriptedModel(["went"])).serve()
    book = web.book("asks.md", ASKS)
    for given in ({"playbook": book}, {"text": ASKS, "name": "asks.md"}):
        refused = await web.client.post("/api/runs", json={**given, "answers": answers})
        assert (refused.status_code, words in refused.json()["detail"]) == (422, True), refused.text
    assert (await web.get("/api/runs"))["runs"] == []
    run = await web.begin(playbook=book, answers={"1": "b"})
    assert (await web.until(run, "completed"))["values"]["which"] == "b"


async def test_an_unknown_status_is_refused(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    for given in ("bogus", "running,bogus", "Running"):
        message = await web.get(f"/api/runs?status={given}", 422)
        assert message["code"] == "bad_status"
        assert "awaiting_approval" in message["fix"]
        assert "expired" in message["fix"]
    assert (await web.get("/api/runs?status=running,paused"))["runs"] == []


async def test_runs_are_listed_page_by_page_by_what_they_are_like(web: ServedApp) -> None:
    await web.model(ScriptedModel(["went"], cycle=True)).serve()
    book = web.book("tea.md", TEA)
    runs = [await web.begin(playbook=book) for _ in range(3)]
    texts = [await web.begin(text=TEA, name="other.md")]
    for run in (*runs, *texts):
        await web.until(run, "completed")
    for query in ("name=tea.md", "search=TEA", f"playbook={book}", "search=tea&since=1h&trigger=person"):
        first = await web.get(f"/api/runs?{query}&limit=2")
        assert [one["run"] for one in first["runs"]] == runs[:-3:-1], query
        later = await web.begin(playbook=book)
        second = await web.get(f"/api/runs?{query}&cursor={first['next']}")
        assert [one["run"] for one in second["runs"]] == runs[-3::-1], "not moved by the new run"
        assert second["next"] is None
        runs.append(later)
    for query in ("owner=ann", "status=failed", "trigger=mcp", "until=1h"):
        assert (await web.get(f"/api/runs?{query}"))["runs"] == [], query
    for query in ("since=soon", "trigger=cron", "cursor=x", "owner=%00", "search=a+b+c+d+e+f+g+h+i+j+k"):
        assert (await web.get(f"/api/runs?{query}", 422))["code"] == "bad_input", query


async def test_a_single_run_can_be_selected_in_the_list(web: ServedApp) -> None:
    await web.model(ScriptedModel(["went"], cycle=True)).serve()
    book = web.book("one.md", "# One\n\n## STEP 1: A\n\nDo A.\n")
    runs = [await web.begin(playbook=book) for _ in range(2)]
    await web.until(runs[0], "completed")
    assert [one["run"] for one in (await web.get(f"/api/runs?run={runs[0]}"))["runs"]] == runs[:1]
    assert (await web.get(f"/api/runs?run={runs[0]}&status=failed"))["runs"] == []
    await web.get("/api/runs?run=nosuchrun", 404)


@pytest.mark.parametrize("text", ["\\ud800", "a\\udc00b", "\\ud800\\ud800", "\\ud83d\\u0041"])
async def test_an_unpaired_surrogate_is_reported(web: ServedApp, text: str) -> None:
    await web.model(ScriptedModel([])).serve()
    headers = {"Content-Type": "application/json"}
    body = '{"text": "# T' + text + '"}'
    refused = await web.client.post("/api/runs", content=body.encode(), headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_json")
    assert re.search(r"an unpaired surrogate \(\\ud[0-9a-f]{3}\)", refused.json()["detail"])
    broken = await web.client.post("/api/runs", content=b'{"text": "x', headers=headers)
    assert "is not valid JSON" in broken.json()["detail"]


async def test_fixes_match_the_client(web: ServedApp) -> None:
    await web.model(ScriptedModel([])).serve()
    book = web.book("needs.md", "# N\n\n## INPUTS\n\n- `topic` (string): What\n\n## STEP 1: A\n\nOf {{topic}}.\n")
    refused = await web.client.post("/api/runs", json={"playbook": book})
    assert refused.status_code == 422
    assert refused.json()["fix"] == "Pass them in `inputs`."


async def test_an_admin_deletes_a_run_and_sees_the_space_it_used(web: ServedApp) -> None:
    await web.model(ScriptedModel(["A."], cycle=True)).serve()
    run = await web.begin(playbook=web.book("asks.md", ASKS))
    await web.waiting(run)
    used = (await web.get("/api/usage"))["usage"]
    assert any(one["kind"] == "records" and one["runs"] == 1 for one in used)
    refused = await web.client.request("DELETE", f"/api/runs/{run}", json={})
    assert refused.status_code == 409
    assert "awaiting input" in refused.text
    gone = await web.client.request("DELETE", f"/api/runs/{run}", json={"force": True, "reason": "a test"})
    assert gone.status_code == 204
    shown = await web.client.get(f"/api/runs/{run}")
    assert shown.status_code == 404
    assert "deleted by local" in shown.json()["detail"]
    purged = await web.begin(playbook="asks")
    await web.waiting(purged)
    await web.post(f"/api/runs/{purged}/cancel", 202)
    await web.until(purged, "cancelled")
    emptied = await web.client.request("DELETE", f"/api/runs/{purged}", json={"contents": True})
    assert emptied.status_code == 204
    assert (await web.get(f"/api/runs/{purged}"))["status"] == "cancelled"
    for page in (f"/runs/{purged}", f"/runs/{purged}/timeline", "/runs", "/"):
        assert (await web.client.get(page)).status_code in (200, 404), page
    assert (await web.client.get(f"/runs/{purged}")).status_code == 200
