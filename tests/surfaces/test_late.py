"""Whoever decides what is not there, was decided or is over hears the same from every side, and what to do next."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx2
import pytest

import cuebook
from tests.office import GATED
from tests.surfaces.desk import Desk
from tests.surfaces.mcp.visiting import Served, over_http, token_of

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


@pytest.fixture
def desk(bare_desk: Desk) -> Desk:
    bare_desk.config.parent.mkdir(parents=True)
    (bare_desk.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
    bare_desk.write("gated.yml", GATED)
    return bare_desk


@pytest.fixture
def served(desk: Desk) -> Iterator[Served]:
    one = Served(desk)
    yield one
    one.kill()


@pytest.fixture
def envelopes(desk: Desk, served: Served, monkeypatch: pytest.MonkeyPatch) -> dict[str, Ask]:
    """The runtime contract: from Python, at the command line and over HTTP."""
    for name, value in desk.environ.items():
        if name.startswith(("XDG_", "CUEBOOK_", "HOME")):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(desk.work)
    headers = {"Authorization": f"Bearer {token_of(desk, 'ada', 'admin')}"}

    async def python(request: dict[str, Any]) -> dict[str, Any]:
        async with cuebook.Runtime() as runtime:
            return await runtime.handle(request)

    async def command(request: dict[str, Any]) -> dict[str, Any]:
        ran = desk.call("runtime", stdin=json.dumps(request))
        assert ran.code == 2
        return dict(ran.object)

    async def rest(request: dict[str, Any]) -> dict[str, Any]:
        async with httpx2.AsyncClient(headers=headers, trust_env=False) as client:
            return dict((await client.post(f"{served.address}/playbooks/runtime", json=request)).json())

    return {"python": python, "command": command, "rest": rest}


def begun(desk: Desk) -> tuple[str, str, str]:
    """A run that waits: its id, and the token of its approval, long and short."""
    waiting = desk.call("run", "gated.yml", "--envelope").object
    asked = waiting["requiresApproval"]
    return waiting["runId"], asked["resumeToken"], asked["shortId"]


async def told(envelopes: dict[str, Ask], token: str, *, approve: bool) -> tuple[str, str]:
    """The code and the words, which are the same from all sides."""
    request = {"action": "resume", "token": token, "approve": approve}
    heard = {way: (await ask(request))["error"] for way, ask in envelopes.items()}
    assert len({json.dumps(error, sort_keys=True) for error in heard.values()}) == 1, heard
    return heard["python"]["code"], heard["python"]["message"]


@pytest.mark.parametrize("token", ["w0000000", "w0000000000000000", "w0000000000000000.abc"])
async def test_a_token_of_nothing_is_not_found(desk: Desk, envelopes: dict[str, Ask], token: str) -> None:
    begun(desk)
    code, words = await told(envelopes, token, approve=True)
    assert code == "not_found"
    assert "The action `status` gives the token of what a run waits for" in words


async def test_a_token_that_was_decided_otherwise_is_a_conflict(desk: Desk, envelopes: dict[str, Ask]) -> None:
    run, whole, short = begun(desk)
    assert desk.call("decide", short, "approve").code == 0
    for token in (whole, short):
        code, words = await told(envelopes, token, approve=False)
        assert code == "conflict"
        assert "was decided already by local: approve. Nothing was changed. The action `status` tells" in words
    same = {"action": "resume", "token": short, "approve": True}
    assert (await envelopes["python"](same))["status"] == (await envelopes["rest"](same))["status"] == "ok"
    assert desk.call("show", run, "--json").object["status"] == "completed"


async def test_a_token_of_a_run_that_was_cancelled_is_too_late(desk: Desk, envelopes: dict[str, Ask]) -> None:
    run, whole, short = begun(desk)
    desk.call("cancel", run)
    for token in (whole, short):
        code, words = await told(envelopes, token, approve=True)
        assert code == "invalid_state"
        assert f"is closed: its run does not wait for it any more. `cuebook retry {run}` goes on" in words


async def test_decisions_one_by_one_are_refused_with_the_same_reasons(desk: Desk, served: Served) -> None:
    """By `cuebook decide`, over REST, and by an assistant's tool, each in the words of its own side."""
    token = token_of(desk, "eve", "approver")
    decided, _, early = begun(desk)
    assert desk.call("decide", early, "approve").code == 0
    cancelled, _, closed = begun(desk)
    desk.call("cancel", cancelled)
    expected = {
        "w0000000": (
            "not_found",
            "There is no wait",
            "`cuebook inbox`",
            "GET /api/inbox",
            "get_playbook_execution tells",
        ),
        early: (
            "already_answered",
            "ecided already by local",
            f"The decision was: approve. `cuebook show {decided}` tells",
            "What you gave was not taken",
            "The decision was: approve. get_playbook_execution tells",
        ),
        closed: (
            "wait_closed",
            "does not wait for it any more",
            f"`cuebook retry {cancelled}` goes on where it was cancelled",
            f"POST /api/runs/{cancelled}/retry goes on",
            "restart_playbook_execution at its last step goes on where it was cancelled",
        ),
    }
    headers = {"Authorization": f"Bearer {token}"}
    async with over_http(served.url, token) as visit, httpx2.AsyncClient(headers=headers, trust_env=False) as client:
        for wait, (code, why, at_terminal, over_rest, by_tool) in expected.items():
            ran = desk.call("decide", wait, "deny")
            assert (ran.code, why in ran.err, at_terminal in ran.err) == (2, True, True), ran.err
            problem = (await client.post(f"{served.address}/api/waits/{wait}/decide", json={"decision": "deny"})).json()
            assert (problem["code"], why in problem["detail"], over_rest in problem["fix"]) == (code, True, True), (
                problem
            )
            result = await visit.raw("decide_approval", approval_id=wait, decision="deny")
            error = result.structured_content["error"]
            assert (error["code"], why in error["message"], by_tool in error["fix"]) == (code, True, True), error
