"""The JSON API over a real socket: starting, deciding, looking, and the words for what is wrong."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from cuebook.kernel.rates import Rate
from cuebook.performers.models.port import ModelError
from cuebook.performers.models.scripted import ScriptedModel
from cuebook.surfaces.web.serving import bound
from tests.office import GATED
from tests.performers.models.servers import Answer, ProviderServer
from tests.surfaces.web.house import House

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


async def test_playbooks_are_listed_with_what_they_take(house: House) -> None:
    house.book("tea.playbook.md", TEA)
    house.book("deeper/still/gated.yml", GATED)
    house.book("broken.yml", "name: B\nsteps: []\n")
    house.book("README.md", "# Nothing to run\n")
    house.book("package.json", '{"name": "no playbook"}')
    house.book("node_modules/other.md", TEA)
    house.book("meant.md", "## STEP 1: No title\n\nX\n")
    await house.model(ScriptedModel([])).serve()
    told = await house.get("/api/playbooks")
    assert [(one["id"], one["title"], one["dialect"]) for one in told["playbooks"]] == [
        ("gated", "Gated", "pipeline"),
        ("tea", "Tea", "markdown"),
    ]
    assert {Path(one["path"]).name for one in told["broken"]} == {"broken.yml", "meant.md"}
    tea = await house.get("/api/playbooks/tea")
    assert tea["text"] == TEA
    assert [(one["name"], one["type"], one["default"]) for one in tea["inputs"]] == [
        ("kind", "string", "green"),
        ("cups", "number", "2"),
    ]
    assert not (await house.get("/api/playbooks/gated"))["needs_model"]
    house.book("later.md", ASKS)
    assert len((await house.get("/api/playbooks"))["playbooks"]) == 3


async def test_a_run_is_started_looked_at_and_downloaded(house: House) -> None:
    await house.model(ScriptedModel(["sencha", '{"brewed": true}'])).serve()
    response = await house.client.post("/api/runs", json={"playbook": house.book("tea.md", TEA), "inputs": {"cups": 3}})
    assert response.status_code == 201
    run = response.json()["run"]
    assert response.headers["location"] == f"/api/runs/{run}"
    told = await house.until(run, "completed")
    assert told["values"] == {"chosen": "sencha"}
    assert told["inputs"] == {"kind": "green", "cups": 3} or told["inputs"]["cups"] in (3, "3")
    assert told["outputs"] == {"1": "sencha", "2": '{"brewed": true}'}
    file = await house.client.get(f"/api/runs/{run}/artifact")
    assert file.text == '{"brewed": true}'
    assert file.headers["content-type"] == "application/json; charset=utf-8"
    assert file.headers["content-disposition"] == f'attachment; filename="tea-{run}.json"'
    assert "sandbox" in file.headers["content-security-policy"]
    listed = await house.get("/api/runs?playbook=tea&status=completed&limit=5")
    assert [one["run"] for one in listed["runs"]] == [run]
    assert (await house.get("/api/runs?status=failed"))["runs"] == []


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
async def test_an_artifact_has_the_type_of_its_table(house: House, type: str, suffix: str, content_type: str) -> None:
    await house.model(ScriptedModel(["<b>out</b>"])).serve()
    run = await house.begin(text=f"# T\n\n## STEP 1: A\n\nDo A.\n\n## ARTIFACTS\n\ntype: {type}\n", name="t.md")
    await house.until(run, "completed")
    file = await house.client.get(f"/api/runs/{run}/artifact")
    assert file.headers["content-type"].startswith(content_type)
    assert file.headers["content-disposition"].endswith(f'{suffix}"')


async def test_without_a_section_of_artifacts_the_output_is_markdown(house: House) -> None:
    await house.model(ScriptedModel(["Out."])).serve()
    run = await house.begin(text="# T\n\n## STEP 1: A\n\nDo A.\n", name="t.md")
    told = await house.until(run, "completed")
    assert told["artifact"] == {"type": None, "suffix": ".md", "content_type": "text/markdown"}
    file = await house.client.get(f"/api/runs/{run}/artifact")
    assert file.headers["content-type"] == "text/markdown; charset=utf-8"
    assert file.headers["content-disposition"].endswith('.md"')


async def test_of_a_run_that_failed_the_last_output_is_of_the_declared_type(house: House) -> None:
    await house.model(ScriptedModel(['{"leaf": 1}', ModelError("bad_request", "No.")])).serve()
    run = await house.begin(playbook=house.book("tea.md", TEA))
    told = await house.until(run, "failed")
    assert told["artifact"] is None
    file = await house.client.get(f"/api/runs/{run}/artifact")
    assert file.text == '{"leaf": 1}'
    assert file.headers["content-type"] == "application/json; charset=utf-8"
    plain = await house.begin(playbook=house.book("gated.yml", GATED))
    wait = await house.waiting(plain)
    await house.post(f"/api/waits/{wait['wait']}/decide", 200, decision="deny")
    await house.until(plain, "failed", "cancelled")
    file = await house.client.get(f"/api/runs/{plain}/artifact")
    assert file.headers["content-type"] == "text/plain; charset=utf-8"


async def test_the_same_key_gives_one_run(house: House) -> None:
    await house.model(ScriptedModel(["a"], cycle=True)).serve()
    book = house.book("tea.md", TEA)
    asked = [
        house.client.post("/api/runs", json={"playbook": book}, headers={"Idempotency-Key": "k"}) for _ in range(5)
    ]
    runs = {response.json()["run"] for response in await asyncio.gather(*asked)}
    assert len(runs) == 1
    assert (await house.begin(playbook=book, key="k")) in runs
    other = await house.client.post("/api/runs", json={"playbook": book, "key": "k", "inputs": {"kind": "black"}})
    assert (other.status_code, other.json()["code"]) == (409, "conflict")


@pytest.mark.parametrize("breakpoints", ["1", [1], ["1"]])
async def test_a_pause_is_ended_with_changed_values(house: House, breakpoints: Any) -> None:
    model = ScriptedModel(["sencha", "done"])
    await house.model(model).serve()
    run = await house.begin(playbook=house.book("tea.md", TEA), breakpoints=breakpoints)
    assert (await house.waiting(run))["kind"] == "breakpoint"
    if breakpoints == "1":
        response = await house.client.post(f"/api/runs/{run}/resume", data={"var_chosen": "matcha", "other": "x"})
        assert response.status_code == 202
    elif breakpoints == [1]:
        response = await house.client.post(
            f"/api/runs/{run}/resume", data={"var_chosen": "matcha"}, headers={"Accept": "text/html"}
        )
        assert (response.status_code, response.headers["location"]) == (303, f"/runs/{run}")
    else:
        await house.post(f"/api/runs/{run}/resume", 202, variables={"chosen": "matcha"})
    told = await house.until(run, "completed")
    assert "matcha" in model.requests[1].messages[-1].text
    assert told["values"]["chosen"] == "matcha"
    again = await house.client.post(f"/api/runs/{run}/resume", json={})
    assert (again.status_code, again.json()["code"]) == (409, "refused")


async def test_a_question_is_answered_once(house: House) -> None:
    await house.model(ScriptedModel(["went"])).serve()
    run = await house.begin(playbook=house.book("asks.md", ASKS))
    wait = (await house.waiting(run))["wait"]
    assert [one["wait"] for one in (await house.get("/api/inbox"))["waits"]] == [wait]
    unfit = await house.client.post(f"/api/waits/{wait}/answer", json={"value": "c"})
    assert (unfit.status_code, unfit.json()["code"]) == (422, "bad_input")
    both = await asyncio.gather(
        *(house.client.post(f"/api/waits/{wait}/answer", json={"value": value}) for value in ("a", "b", "a", "b"))
    )
    codes = sorted(response.status_code for response in both)
    assert codes == [200, 409, 409, 409]
    assert {response.json()["code"] for response in both if response.status_code == 409} == {"already_answered"}
    told = await house.until(run, "completed")
    won = next(response.request for response in both if response.status_code == 200)
    assert told["values"]["which"] == ("a" if b'"a"' in won.content else "b")
    assert (await house.get(f"/api/waits/{wait}"))["state"] in ("answered", "closed")


async def test_who_comes_too_late_is_told_who_answered_when_and_what(house: House) -> None:
    await house.model(ScriptedModel(["went"])).serve()
    run = await house.begin(playbook=house.book("asks.md", ASKS))
    wait = (await house.waiting(run))["wait"]
    _, token = await house.service.add_user("eve", ["runner"])
    by_eve = {"Authorization": f"Bearer {token}"}
    assert (
        await house.client.post(f"/api/waits/{wait}/answer", json={"value": "b"}, headers=by_eve)
    ).status_code == 200
    await house.until(run, "completed")
    late = (await house.client.post(f"/api/waits/{wait}/answer", json={"value": "a"})).json()
    assert (late["status"], late["code"]) == (409, "already_answered")
    assert re.fullmatch(r"Answered already by eve at \d{4}-\d\d-\d\d \d\d:\d\d: b\.", late["detail"])
    assert "was not taken" in late["fix"]
    assert wait not in late["detail"]


async def test_whoever_decides_too_late_is_told_the_decision(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    run = await house.begin(playbook=house.book("gated.yml", GATED))
    wait = (await house.waiting(run))["wait"]
    await house.post(f"/api/waits/{wait}/decide", 200, decision="deny", reason="not now")
    await house.until(run, "failed", "cancelled")
    late = await house.post(f"/api/waits/{wait}/decide", 409, decision="approve")
    assert late["detail"].startswith("Decided already by ")
    assert late["detail"].endswith(": deny (not now).")


async def test_a_broken_file_says_what_is_wrong_with_it(house: House) -> None:
    house.book("broken.yml", "name: B\nsteps: nope\n")
    house.book("own/playbook.md", "## STEP 1: No title\n\nX\n")
    await house.model(ScriptedModel([])).serve()
    started = await house.post("/api/runs", 422, playbook="broken")
    assert started["code"] == "bad_input"
    assert "broken.yml:2: steps must be a list" in started["detail"]
    assert "cuebook validate broken.yml" in started["fix"]
    assert "No title found" in (await house.post("/api/runs", 422, playbook="own"))["detail"]
    page = await house.client.get("/playbooks/broken/run", headers={"Accept": "text/html"})
    assert (page.status_code, "steps must be a list" in page.text) == (422, True)
    assert (await house.get("/api/runs"))["runs"] == []
    await house.post("/api/runs", 404, playbook="nothing")


async def test_an_approval_is_decided_and_told_in_the_journal(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    _, token = await house.service.add_user("ann", ["approver"])
    run = await house.begin(playbook=house.book("gated.yml", GATED))
    wait = await house.waiting(run)
    assert wait["kind"] == "approval"
    assert "tee" in str(wait["approval"]["preview"])
    response = await house.guest.post(
        f"/api/waits/{wait['wait']}/decide", json={"decision": "approve"}, headers={"Authorization": f"Bearer {token}"}
    )
    assert response.json()["by"] == "ann"
    await house.until(run, "completed")
    assert house.made()
    closed = [e for e in (await house.get(f"/api/runs/{run}/events"))["events"] if e["event"] == "WaitClosed"]
    assert [e["data"]["by"] for e in closed] == ["ann"]


async def test_a_run_is_cancelled_retried_restarted_and_compared(house: House) -> None:
    await house.model(ScriptedModel(["one", ModelError("bad_request", "No."), "two", "two again"])).serve()
    book = house.book("tea.md", TEA)
    run = await house.begin(playbook=book)
    assert (await house.until(run, "failed"))["error"]["message"]
    assert (await house.client.post(f"/api/runs/{run}/cancel", json={})).status_code == 409
    await house.post(f"/api/runs/{run}/retry", 202)
    await house.until(run, "completed")
    ended = await house.client.post(f"/api/runs/{run}/resume", json={})
    assert (ended.status_code, f"POST /api/runs/{run}/restart does a step" in ended.text) == (409, True)
    again = (await house.post(f"/api/runs/{run}/fork", 201, step="2", values={"chosen": "oolong"}))["run"]
    told = await house.until(again, "completed")
    assert (told["parent"], told["values"]["chosen"]) == (run, "oolong")
    compared = await house.get(f"/api/runs/{run}/diff/{again}")
    assert not compared["same"]
    assert compared["values"] == {"chosen": ["one", "oolong"]}
    assert (await house.get(f"/api/runs/{run}/diff/{run}"))["same"]


async def test_the_rate_is_limited_and_restarts_count(house: House) -> None:
    await house.model(ScriptedModel(["a"], cycle=True)).serve(rate_limit="2/hour")
    assert house.wiring.config.get("rate_limit") == Rate(2, "hour")
    book = house.book("tea.md", TEA)
    run = await house.begin(playbook=book)
    await house.until(run, "completed")
    await house.post(f"/api/runs/{run}/restart", 201, step="2")
    for path, fields in (("/api/runs", {"playbook": book}), (f"/api/runs/{run}/restart", {"step": "1"})):
        response = await house.client.post(path, json=fields)
        assert (response.status_code, response.json()["code"]) == (429, "rate_limited")
        assert 3500 < int(response.headers["retry-after"]) <= 3600


@pytest.mark.parametrize(
    ("fields", "status", "code", "words"),
    [
        ({}, 422, "bad_input", "playbook"),
        ({"playbook": "nothing"}, 404, "not_found", "nothing"),
        ({"text": "no playbook", "name": "x.txt"}, 422, "bad_input", "no playbook"),
        ({"text": "# T\n\n## STEP 1: A\n\nx\n", "name": "t.md", "breakpoints": "7"}, 422, "bad_input", "7"),
        ({"playbook": "tea", "inputs": {"cups": "many"}}, 422, "bad_input", "cups"),
        ({"playbook": "tea", "model": "nobody/x"}, 422, "unknown_model", "nobody"),
        ({"playbook": "tea", "options": {"odd": 1}}, 422, "bad_input", "odd"),
        ({"playbook": "tea", "budget": {"money": -1}}, 422, "bad_body", "budget"),
        ({"playbook": "tea", "extra": 1}, 422, "bad_body", "extra"),
    ],
)
async def test_what_is_wrong_is_told_and_starts_nothing(
    house: House, fields: dict[str, Any], status: int, code: str, words: str
) -> None:
    house.book("tea.md", TEA)
    await house.model(ScriptedModel([])).serve()
    response = await house.client.post("/api/runs", json=fields)
    told = response.json()
    assert (response.status_code, told["code"]) == (status, code)
    assert words in told["detail"] + told.get("fix", "")
    assert told["status"] == status
    assert (await house.get("/api/runs"))["runs"] == []


async def test_an_unexpected_error_shows_an_id_and_no_trace(house: House, caplog: pytest.LogCaptureFixture) -> None:
    await house.model(ScriptedModel([])).serve()

    def broken(*args: Any) -> Any:
        raise RuntimeError("the inside of the house")

    house.site.library.read = broken  # type: ignore[method-assign, assignment]
    for path, kind in (("/api/playbooks", "application/problem+json"), ("/", "text/html; charset=utf-8")):
        response = await house.client.get(path)
        assert (response.status_code, response.headers["content-type"]) == (500, kind)
        assert "inside" not in response.text
        assert "Traceback" not in response.text
    told = (await house.client.get("/api/playbooks")).json()
    assert told["id"] in caplog.text
    assert "the inside of the house" in caplog.text


async def test_a_tenant_sees_only_its_own(house: House) -> None:
    from cuebook.service import Principal

    await house.model(ScriptedModel(["a"], cycle=True)).serve()
    _, token = await house.service.add_user("bob", ["admin"], Principal("root", "other"))
    run = await house.begin(playbook=house.book("asks.md", ASKS))
    wait = (await house.waiting(run))["wait"]
    theirs = {"Authorization": f"Bearer {token}"}
    for path in (
        f"/api/runs/{run}",
        f"/api/runs/{run}/stream",
        f"/api/runs/{run}/artifact",
        f"/api/waits/{wait}",
        f"/runs/{run}",
    ):
        assert (await house.guest.get(path, headers=theirs)).status_code == 404
    assert (await house.guest.get("/api/runs", headers=theirs)).json() == {"runs": []}
    inbox = (await house.guest.get("/api/inbox", headers=theirs)).json()
    assert (inbox["waits"], inbox["interrupted"], inbox["total"]) == ([], [], 0)
    answered = await house.guest.post(f"/api/waits/{wait}/answer", json={"value": "a"}, headers=theirs)
    assert answered.status_code == 404
    cancelled = await house.guest.post(f"/api/runs/{run}/cancel", json={}, headers=theirs)
    assert cancelled.status_code == 404


# --- triggers and the runtime ---


async def test_a_trigger_starts_its_playbook_and_nothing_else(house: House) -> None:
    await house.model(ScriptedModel(["a"], cycle=True)).serve()
    house.book("tea.md", TEA)
    house.book("asks.md", ASKS)
    token = (await house.post("/api/playbooks/tea/token", 201))["token"]
    held = {"Authorization": f"Bearer {token}"}
    asked = {"inputs": {"kind": "black"}, "model_id": "test/other"}
    response = await house.guest.post("/api/playbooks/tea/trigger", json=asked, headers=held)
    assert response.status_code == 202
    told = response.json()
    assert told == {"execution_id": told["execution_id"], "status": "queued"}
    run = await house.until(told["execution_id"], "completed")
    assert (run["model"], run["owner"], run["inputs"]["kind"]) == ("test/other", "trigger.tea", "black")
    assert (await house.guest.post("/api/playbooks/asks/trigger", json={}, headers=held)).status_code == 401
    assert (await house.guest.get("/api/runs", headers=held)).status_code == 401
    newer = (await house.post("/api/playbooks/tea/token", 201))["token"]
    assert (await house.guest.post("/api/playbooks/tea/trigger", json={}, headers=held)).status_code == 401
    assert (
        await house.client.delete("/api/playbooks/tea/token", headers={"Content-Type": "application/json"})
    ).status_code == 204
    gone = await house.guest.post("/api/playbooks/tea/trigger", json={}, headers={"Authorization": f"Bearer {newer}"})
    assert gone.status_code == 401


async def test_a_trigger_is_limited_too(house: House) -> None:
    await house.model(ScriptedModel(["a"], cycle=True)).serve(rate_limit="1/hour")
    house.book("tea.md", TEA)
    token = (await house.post("/api/playbooks/tea/token", 201))["token"]
    held = {"Authorization": f"Bearer {token}"}
    assert (await house.guest.post("/api/playbooks/tea/trigger", json={}, headers=held)).status_code == 202
    refused = await house.guest.post("/api/playbooks/tea/trigger", json={}, headers=held)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 3500


async def test_the_runtime_answers_with_envelopes(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    house.book("gated.yml", GATED)
    envelope = await house.post("/playbooks/runtime", 200, action="run", pipeline="gated")
    assert (envelope["ok"], envelope["status"]) == (True, "needs_approval")
    token = envelope["requiresApproval"]["resumeToken"]
    done = await house.post("/playbooks/runtime?strict=1", 200, action="resume", token=token, approve=True)
    assert set(done) == {"ok", "status", "output"}
    assert done["status"] == "ok"
    assert house.made()
    unknown = await house.post("/playbooks/runtime", 200, action="run", pipeline="nothing")
    assert unknown["error"]["code"] == "invalid_request"
    no_request = await house.client.post("/playbooks/runtime", json={"action": "dance"})
    assert no_request.status_code == 400
    assert set(no_request.json()) == {"error", "message"}
    assert no_request.json()["error"] == "invalid_request"


# --- settings ---


async def test_keys_are_never_shown(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-never-to-be-shown")
    await house.model(ScriptedModel([])).serve()
    told = await house.client.get("/api/connections")
    assert "sk-never" not in told.text
    openai = next(one for one in told.json()["providers"] if one["name"] == "openai")
    assert (openai["usable"], openai["key"], openai["key_from"]) == (True, "OPENAI_API_KEY", "environment")


async def test_models_are_those_that_the_providers_offer(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-never-to-be-shown")
    house.book("hello.playbook.md", "# Hello\n\n## STEP 1: Greet\n\nSay hello.\n")
    async with ProviderServer(Answer(body={"data": [{"id": "alpha"}, {"id": "text-embedding-1"}]})) as lab:
        (house.config / "cuebook.toml").write_text(
            f'[providers.lab]\nbase_url = "{lab.url}/v1"\n\n[providers.openai]\nbase_url = "http://127.0.0.1:9/v1"\n'
        )
        await house.model(ScriptedModel([])).serve()
        models = await house.get("/api/models")
        page = (await house.client.get("/playbooks/hello/run")).text
        connections = (await house.client.get("/settings/connections")).text
    assert (models["default"], models["models"][0]) == ("test/one", "test/one")
    by_name = {one["name"]: one for one in models["providers"]}
    assert (by_name["lab"]["models"], by_name["lab"]["answered"]) == (["lab/alpha"], True)
    assert "lab/alpha" in models["models"]
    assert "lab/text-embedding-1" not in models["models"]
    assert not any(name.startswith(("openai/", "anthropic/")) for name in models["models"]), "no table of prices"
    assert '<option value="lab/alpha"' in page
    assert "Answers, and offers 1 model." in connections


async def test_what_does_not_answer_at_this_machine_is_of_no_use(house: House) -> None:
    free = bound("127.0.0.1", 0)
    port = free.getsockname()[1]
    (house.config / "cuebook.toml").write_text(
        f'[providers.own]\nbase_url = "http://127.0.0.1:{port}/v1"\n\n[mcp.gone]\ncommand = ["no-such-command"]\n'
    )
    await house.model(ScriptedModel([])).serve()

    async def own() -> dict[str, Any]:
        told = await house.get("/api/connections")
        assert told["servers"][0]["reason"] == "There is no command no-such-command."
        return next(one for one in told["providers"] if one["name"] == "own")

    assert (await own())["usable"]
    free.close()
    assert (await own())["reason"] == f"Nothing listens at 127.0.0.1:{port}."


async def test_a_key_needs_a_keyring(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    response = await house.client.put("/api/connections/openai/key", json={"key": "sk-something-long"})
    assert (response.status_code, response.json()["code"]) == (422, "no_keyring")
    assert "sk-something" not in response.text
    assert (await house.client.put("/api/connections/nobody/key", json={"key": "x"})).status_code == 422


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ({"77": "x"}, "there is no such step"),
        ({"2": "x"}, "that step asks nothing"),
        ({"1": "neither"}, "The answer for step 1"),
    ],
)
async def test_answers_that_fit_no_question_start_nothing(house: House, answers: dict[str, str], words: str) -> None:
    await house.model(ScriptedModel(["went"])).serve()
    book = house.book("asks.md", ASKS)
    for given in ({"playbook": book}, {"text": ASKS, "name": "asks.md"}):
        refused = await house.client.post("/api/runs", json={**given, "answers": answers})
        assert (refused.status_code, words in refused.json()["detail"]) == (422, True), refused.text
    assert (await house.get("/api/runs"))["runs"] == []
    run = await house.begin(playbook=book, answers={"1": "b"})
    assert (await house.until(run, "completed"))["values"]["which"] == "b"


async def test_a_status_that_there_is_not_is_refused(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    for given in ("bogus", "running,bogus", "Running"):
        told = await house.get(f"/api/runs?status={given}", 422)
        assert told["code"] == "bad_status"
        assert "awaiting_approval" in told["fix"]
        assert "expired" in told["fix"]
    assert (await house.get("/api/runs?status=running,paused"))["runs"] == []


async def test_a_single_run_is_looked_at_in_the_list(house: House) -> None:
    await house.model(ScriptedModel(["went"], cycle=True)).serve()
    book = house.book("one.md", "# One\n\n## STEP 1: A\n\nDo A.\n")
    runs = [await house.begin(playbook=book) for _ in range(2)]
    await house.until(runs[0], "completed")
    assert [one["run"] for one in (await house.get(f"/api/runs?run={runs[0]}"))["runs"]] == runs[:1]
    assert (await house.get(f"/api/runs?run={runs[0]}&status=failed"))["runs"] == []
    await house.get("/api/runs?run=nosuchrun", 404)


@pytest.mark.parametrize("text", ["\\ud800", "a\\udc00b", "\\ud800\\ud800", "\\ud83d\\u0041"])
async def test_half_a_character_is_told_as_that(house: House, text: str) -> None:
    await house.model(ScriptedModel([])).serve()
    headers = {"Content-Type": "application/json"}
    body = '{"text": "# T' + text + '"}'
    refused = await house.client.post("/api/runs", content=body.encode(), headers=headers)
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_json")
    assert re.search(r"holds \\ud[0-9a-f]{3}, which is half of a character", refused.json()["detail"])
    broken = await house.client.post("/api/runs", content=b'{"text": "x', headers=headers)
    assert "is no JSON" in broken.json()["detail"]


async def test_advice_is_in_the_words_of_the_reader(house: House) -> None:
    await house.model(ScriptedModel([])).serve()
    book = house.book("needs.md", "# N\n\n## INPUTS\n\n- `topic` (string): What\n\n## STEP 1: A\n\nOf {{topic}}.\n")
    refused = await house.client.post("/api/runs", json={"playbook": book})
    assert refused.status_code == 422
    assert refused.json()["fix"] == "Give them in `inputs`."
