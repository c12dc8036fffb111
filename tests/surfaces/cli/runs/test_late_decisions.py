"""A decision on a wait that is unknown, decided or closed gets the same error on every surface, with the next step."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx2
import pytest

import cuebook
from tests.support.command_line import CommandLine
from tests.support.runtime import GATED
from tests.surfaces.mcp.clients import Served, over_http, token_of

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


@pytest.fixture
def cli(bare_cli: CommandLine) -> CommandLine:
    bare_cli.config.parent.mkdir(parents=True)
    (bare_cli.config.parent / "policy.toml").write_text('[commands]\nallow = ["*"]\n')
    bare_cli.write("gated.yml", GATED)
    return bare_cli


@pytest.fixture
def served(cli: CommandLine) -> Iterator[Served]:
    one = Served(cli)
    yield one
    one.kill()


@pytest.fixture
def envelopes(cli: CommandLine, served: Served, monkeypatch: pytest.MonkeyPatch) -> dict[str, Ask]:
    """The runtime contract from Python, on the command line and over HTTP."""
    for name, value in cli.environ.items():
        if name.startswith(("XDG_", "CUEBOOK_", "HOME")):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(cli.work)
    headers = {"Authorization": f"Bearer {token_of(cli, 'ada', 'admin')}"}

    async def python(request: dict[str, Any]) -> dict[str, Any]:
        async with cuebook.Runtime() as runtime:
            return await runtime.handle(request)

    async def command(request: dict[str, Any]) -> dict[str, Any]:
        ran = cli.call("runtime", stdin=json.dumps(request))
        assert ran.code == 2
        return dict(ran.object)

    async def rest(request: dict[str, Any]) -> dict[str, Any]:
        async with httpx2.AsyncClient(headers=headers, trust_env=False) as client:
            return dict((await client.post(f"{served.address}/playbooks/runtime", json=request)).json())

    return {"python": python, "command": command, "rest": rest}


def begun(cli: CommandLine) -> tuple[str, str, str]:
    """A run that waits: its id, and the token of its approval, long and short."""
    waiting = cli.call("run", "gated.yml", "--envelope").object
    asked = waiting["requiresApproval"]
    return waiting["runId"], asked["resumeToken"], asked["shortId"]


async def refusal(envelopes: dict[str, Ask], token: str, *, approve: bool) -> tuple[str, str]:
    """The code and the message, which are the same on all surfaces."""
    request = {"action": "resume", "token": token, "approve": approve}
    heard = {way: (await ask(request))["error"] for way, ask in envelopes.items()}
    assert len({json.dumps(error, sort_keys=True) for error in heard.values()}) == 1, heard
    return heard["python"]["code"], heard["python"]["message"]


@pytest.mark.parametrize("token", ["w0000000", "w0000000000000000", "w0000000000000000.abc"])
async def test_a_token_of_nothing_is_not_found(cli: CommandLine, envelopes: dict[str, Ask], token: str) -> None:
    begun(cli)
    code, words = await refusal(envelopes, token, approve=True)
    assert code == "not_found"
    assert "The action `status` returns the token of an open wait" in words


async def test_a_token_that_was_decided_otherwise_is_a_conflict(cli: CommandLine, envelopes: dict[str, Ask]) -> None:
    run, whole, short = begun(cli)
    assert cli.call("decide", short, "approve").code == 0
    for token in (whole, short):
        code, words = await refusal(envelopes, token, approve=False)
        assert code == "conflict"
        assert "was already decided by local: approve. Nothing was changed. The action `status` shows" in words
    same = {"action": "resume", "token": short, "approve": True}
    assert (await envelopes["python"](same))["status"] == (await envelopes["rest"](same))["status"] == "ok"
    assert cli.call("show", run, "--json").object["status"] == "completed"


async def test_a_token_of_a_run_that_was_cancelled_is_too_late(cli: CommandLine, envelopes: dict[str, Ask]) -> None:
    run, whole, short = begun(cli)
    cli.call("cancel", run)
    for token in (whole, short):
        code, words = await refusal(envelopes, token, approve=True)
        assert code == "invalid_state"
        assert f"is closed: its run is no longer waiting for it. `cuebook retry {run}` continues" in words


async def test_decisions_one_by_one_are_refused_with_the_same_reasons(cli: CommandLine, served: Served) -> None:
    """With `cuebook decide`, over REST, and with an assistant's tool, each in the words of its own surface."""
    token = token_of(cli, "eve", "approver")
    decided, _, early = begun(cli)
    assert cli.call("decide", early, "approve").code == 0
    cancelled, _, closed = begun(cli)
    cli.call("cancel", cancelled)
    expected = {
        "w0000000": (
            "not_found",
            "There is no wait",
            "`cuebook inbox`",
            "GET /api/inbox",
            "get_playbook_execution shows",
        ),
        early: (
            "already_answered",
            "lready decided by local",
            f"The decision was: approve. `cuebook show {decided}` shows",
            "Your input was not used",
            "The decision was: approve. get_playbook_execution shows",
        ),
        closed: (
            "wait_closed",
            "is no longer waiting for it",
            f"`cuebook retry {cancelled}` continues where it was cancelled",
            f"POST /api/runs/{cancelled}/retry continues",
            "restart_playbook_execution at its last step continues where it was cancelled",
        ),
    }
    headers = {"Authorization": f"Bearer {token}"}
    async with over_http(served.url, token) as visit, httpx2.AsyncClient(headers=headers, trust_env=False) as client:
        for wait, (code, why, at_terminal, over_rest, by_tool) in expected.items():
            ran = cli.call("decide", wait, "deny")
            assert (ran.code, why in ran.err, at_terminal in ran.err) == (2, True, True), ran.err
            problem = (await client.post(f"{served.address}/api/waits/{wait}/decide", json={"decision": "deny"})).json()
            assert (problem["code"], why in problem["detail"], over_rest in problem["fix"]) == (code, True, True), (
                problem
            )
            result = await visit.raw("decide_approval", approval_id=wait, decision="deny")
            error = result.structured_content["error"]
            assert (error["code"], why in error["message"], by_tool in error["fix"]) == (code, True, True), error
