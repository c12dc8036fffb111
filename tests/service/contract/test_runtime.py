"""The runtime contract: every request is answered by an envelope, and nothing happens without a request."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cuebook.config import load
from cuebook.gate.roles import Principal
from cuebook.kernel.context import ToolCall
from cuebook.kernel.errors import AlreadyAnswered
from cuebook.kernel.events import WaitClosed
from cuebook.service.contract.requests import InvalidRequest
from cuebook.testing import Says, ScriptedModel
from cuebook.wiring.wiring import Wiring
from tests.gate.harness import bytes_below
from tests.support.runtime import ALLOWED, GATED, RuntimeHarness, core

# --- malformed requests, and runs that cannot be started ----------------------------------------------------------------


@pytest.mark.parametrize(
    "request_",
    [
        "",
        "no JSON",
        "[]",
        "{}",
        {"action": "jump"},
        {"action": "run"},
        {"action": "run", "pipeline": ""},
        {"action": "run", "pipeline": 1},
        {"action": "run", "pipeline": "x", "surprise": 1},
        {"action": "run", "pipeline": "x", "timeoutMs": 0},
        {"action": "run", "pipeline": "x", "timeoutMs": 1.5},
        {"action": "run", "pipeline": "x", "timeoutMs": "1"},
        {"action": "run", "pipeline": "x", "maxOutputBytes": -1},
        {"action": "run", "pipeline": "x", "args": {}, "argsJson": "{}"},
        {"action": "run", "pipeline": "x", "args_json": "{}"},
        {"action": "resume", "approve": True},
        {"action": "resume", "token": "w1"},
        {"action": "resume", "token": "w1", "approve": "yes"},
        {"action": "resume", "token": "w1", "approve": 1},
        {"action": "cancel"},
        {"action": "cancel", "runId": "x", "why": "y"},
        {"action": "status"},
        {"action": "status", "runId": "\ud800"},
        {"action": "resume", "token": "\ud800", "approve": True},
        {"action": "resume", "token": "w1.\ud800", "approve": True},
        {"action": "run", "pipeline": GATED, "args": {"a": "\udc80"}},
        {"action": "run", "pipeline": GATED, "args": {"a": object()}},
    ],
)
async def test_a_malformed_request_is_refused(runtime: RuntimeHarness, request_: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await runtime.ask(request_)
    assert refused.value.code == "invalid_request"
    assert await runtime.rows() == []


@pytest.mark.parametrize(
    ("pipeline", "more"),
    [
        ("a: [b\nsteps: {", {}),
        ("one line of words", {}),
        ("/etc/hostname", {}),
        ("missing.yml", {}),
        ("name: X\nsteps: []\n", {}),
        ("name: X\nsteps:\n  - {id: a, command: echo hi}\n", {}),
        ("name: X\nsteps:\n  - {id: a, command: cli true, surprise: 1}\n", {}),
        (GATED, {"argsJson": "{"}),
        (GATED, {"argsJson": "[1]"}),
        (GATED, {"args": {"unknown": 1}}),
        (GATED, {"cwd": "../elsewhere"}),
        (GATED, {"cwd": "/tmp"}),
        ("# T\n\n## STEP 1: A\n\nDo it.\n", {"cwd": "x"}),
    ],
)
async def test_bad_input_is_an_envelope_and_creates_no_run(
    runtime: RuntimeHarness, pipeline: str, more: dict[str, Any]
) -> None:
    envelope = await runtime.run(pipeline, **more)
    assert core(envelope) == {"ok": False, "status": "error", "output": []}
    assert envelope["error"]["code"] == "invalid_request"
    assert envelope["error"]["message"]
    assert await runtime.rows() == []


# --- the gate ------------------------------------------------------------------------------------------------------


async def test_a_gated_step_waits_with_a_token_and_real_items_and_has_done_nothing(runtime: RuntimeHarness) -> None:
    envelope = await runtime.run(GATED)
    assert core(envelope) == {"ok": True, "status": "needs_approval", "output": [{"file": "a"}, {"file": "b"}]}
    asked = envelope["requiresApproval"]
    assert asked["kind"] == "workflow_step"
    assert asked["stepId"] == "write"
    assert asked["items"] == [{"file": "a"}, {"file": "b"}]
    assert "tee made.txt" in asked["prompt"]
    assert asked["preview"]["command"] == "tee made.txt"
    assert asked["resumeToken"].startswith(asked["approvalId"])
    assert asked["expiresAt"].endswith("Z")
    assert not runtime.made()
    (row,) = await runtime.rows()
    assert (row.id, row.status) == (envelope["runId"], "awaiting_approval")


async def test_a_tool_that_a_model_calls_waits_in_the_step_that_asked_the_model(runtime: RuntimeHarness) -> None:
    text = (
        "name: Ask\nsteps:\n  - id: notes\n    command: llm\n"
        "    llm: {model: default, prompt: Write it., tools: {allow: [Write]}, max_tool_calls: 1}\n"
        "    output: {type: json, schema: {type: object}}\n"
    )
    call = ToolCall("1", "Write", {"path": "made.txt", "content": "made"})
    runtime.models = {"test": ScriptedModel([Says("", (call,)), "{}"])}
    await runtime.close()
    waiting = await runtime.open().run(text)
    assert waiting["status"] == "needs_approval", waiting
    assert waiting["requiresApproval"]["stepId"] == "notes"
    assert (await runtime.resume(waiting, True))["status"] == "ok"


async def test_the_run_and_its_steps_are_kept_before_anything_is_done(runtime: RuntimeHarness) -> None:
    envelope = await runtime.run(GATED)
    assert [(step["id"], step["status"]) for step in envelope["steps"]] == [
        ("list", "completed"),
        ("write", "awaiting_approval"),
        ("count", "pending"),
    ]


async def test_cwd_and_the_cap_reach_the_step(runtime: RuntimeHarness) -> None:
    (runtime.work / "below").mkdir()
    text = "name: C\nsteps:\n  - {id: a, command: cli sh -c 'basename $(pwd); seq 1000', effect: read, output: text}\n"
    envelope = await runtime.run(text, cwd="below", maxOutputBytes=64)
    assert envelope["status"] == "ok"
    (shown,) = envelope["output"]
    assert shown.startswith("below\n1\n")
    assert len(shown.encode()) <= 64


async def test_a_refusal_cancels_the_run_and_the_file_is_not_there(runtime: RuntimeHarness) -> None:
    waiting = await runtime.run(GATED)
    envelope = await runtime.resume(waiting, False, reason="not today")
    assert core(envelope) == {"ok": True, "status": "cancelled", "output": [{"file": "a"}, {"file": "b"}]}
    assert "not today" in envelope["reason"]
    assert not runtime.made()
    assert [row.status for row in await runtime.rows()] == ["cancelled"]


async def test_an_approved_run_continues_to_its_end(runtime: RuntimeHarness) -> None:
    envelope = await runtime.resume(await runtime.run(GATED), True, reason="fine")
    assert core(envelope) == {"ok": True, "status": "ok", "output": ["1 made.txt\n"]}
    assert (runtime.work / "made.txt").read_text() == '[{"file":"a"},{"file":"b"}]\n'


async def test_a_step_that_fails_after_its_approval_reports_its_own_message(runtime: RuntimeHarness) -> None:
    text = GATED.replace("cli tee made.txt", "cli sh -c 'echo broken >&2; exit 3'")
    envelope = await runtime.resume(await runtime.run(text), True)
    assert (envelope["ok"], envelope["status"]) == (False, "error")
    assert envelope["error"]["stepId"] == "write"
    assert envelope["error"]["code"] == "exit_code"
    assert "3" in envelope["error"]["message"]
    assert "approval" not in envelope["error"]["message"]
    assert envelope["output"] == [{"file": "a"}, {"file": "b"}], "what was there before is not lost"


async def test_two_gates_one_after_the_other_have_a_token_each(runtime: RuntimeHarness) -> None:
    text = GATED.replace("    effect: read\n", "    approval: required\n")
    tokens = []
    envelope = await runtime.run(text)
    while envelope["status"] == "needs_approval":
        tokens.append(envelope["requiresApproval"]["resumeToken"])
        envelope = await runtime.resume(envelope, True)
    assert envelope["status"] == "ok"
    assert len(set(tokens)) == 3


async def test_two_gates_in_one_step_have_a_token_each(runtime: RuntimeHarness) -> None:
    """The step's own gate, and one for a postcondition that cannot be checked."""
    text = (
        "name: Two\nsteps:\n  - id: a\n    command: cli sh -c 'echo x >> made.txt; echo no'\n    approval: required\n"
        "    postcondition: {type: http_status, equals: 200}\n"
    )
    first = await runtime.run(text)
    second = await runtime.resume(first, True)
    assert second["requiresApproval"]["kind"] == "takeover"
    assert second["requiresApproval"]["items"] == ["no\n"]
    assert second["requiresApproval"]["resumeToken"] != first["requiresApproval"]["resumeToken"]
    assert (await runtime.resume(first, False))["error"]["code"] == "conflict"
    assert (await runtime.resume(second, True))["status"] == "ok"
    assert (runtime.work / "made.txt").read_text() == "x\n", "accepting it does not do it again"


# --- deciding twice, elsewhere, too late -------------------------------------------------------------------------------


async def test_if_two_people_decide_at_once_the_losing_decision_is_not_recorded(runtime: RuntimeHarness) -> None:
    """With two services on one store, like two processes: one decides, the other learns that it came too late."""
    second = Wiring(load({"store": str(runtime.store), "synchronous": "NORMAL"}, folder=runtime.work)).service()
    try:
        for turn in range(4):
            waiting = await runtime.run(GATED)
            approval = waiting["requiresApproval"]["approvalId"]
            deciding = [
                runtime.service.decide(approval, "approve", Principal("ada"), reason=f"ada looked {turn}"),
                second.decide(approval, "deny", Principal("bob"), reason=f"bob looked {turn}"),
            ]
            said = await asyncio.gather(*(deciding if turn % 2 else reversed(deciding)), return_exceptions=True)
            (lost,) = [one for one in said if isinstance(one, BaseException)]
            assert isinstance(lost, AlreadyAnswered)
            row = await runtime.service.drive(waiting["runId"])
            entries = [entry async for entry in runtime.service.entries(waiting["runId"])]
            (closed,) = [entry.event for entry in entries if isinstance(entry.event, WaitClosed)]
            assert row.status == {"approve": "completed", "deny": "cancelled"}[closed.answer["decision"]]
            winner, loser = ("ada", "bob") if closed.by == "ada" else ("bob", "ada")
            told = str([*entries, await runtime.service.audit(waiting["runId"])])
            assert f"{winner} looked {turn}" in told
            assert f"{loser} looked {turn}" not in told
    finally:
        await second.close()
    kept = bytes_below(runtime.home)
    assert sum(f"{name} looked {turn}".encode() in kept for name in ("ada", "bob") for turn in range(4)) == 4


async def test_an_approval_given_elsewhere_cannot_be_denied_or_cancelled(runtime: RuntimeHarness) -> None:
    waiting = await runtime.run(GATED)
    await runtime.service.decide(waiting["requiresApproval"]["approvalId"], "approve", Principal("ada"))
    envelope = await runtime.resume(waiting, False)
    assert envelope["error"]["code"] == "conflict"
    assert "ada" in envelope["error"]["message"]
    assert envelope["runId"] == waiting["runId"]
    done = await runtime.ask({"action": "status", "runId": waiting["runId"]})
    assert done["status"] == "ok", "looking at it goes on with what was decided"


async def test_the_same_decision_again_is_harmless_and_does_nothing_again(runtime: RuntimeHarness) -> None:
    text = GATED.replace("cli tee made.txt", "cli tee -a made.txt")
    waiting = await runtime.run(text)
    several = await asyncio.gather(*(runtime.resume(waiting, True) for _ in range(3)))
    several.append(await runtime.resume(waiting, True))
    assert [one["status"] for one in several] == ["ok"] * 4
    assert len((runtime.work / "made.txt").read_text().splitlines()) == 1


@pytest.mark.parametrize("made", [lambda asked: asked["shortId"], lambda asked: asked["approvalId"]])
async def test_a_short_id_is_accepted_once(runtime: RuntimeHarness, made: Any) -> None:
    waiting = await runtime.run(GATED)
    name = made(waiting["requiresApproval"])
    assert (await runtime.ask({"action": "resume", "token": name, "approve": True}))["status"] == "ok"
    again = await runtime.ask({"action": "resume", "token": waiting["requiresApproval"]["shortId"], "approve": False})
    assert again["error"]["code"] == "conflict", "it was resolved differently"
    assert again["runId"] == waiting["runId"]


@pytest.mark.parametrize(
    "token", ["w0", "w0000000000000000", "w0000000000000000.abc", "x", ".", "eyJwaXBlbGluZSI6ICJjbGkgdHJ1ZSJ9", "wé.é"]
)
async def test_an_unknown_token_finds_nothing(runtime: RuntimeHarness, token: str) -> None:
    await runtime.run(GATED)
    envelope = await runtime.ask({"action": "resume", "token": token, "approve": True})
    assert envelope["error"]["code"] == "not_found"
    assert not runtime.made()


async def test_a_token_with_a_wrong_signature_is_invalid(runtime: RuntimeHarness) -> None:
    one, other = await runtime.run(GATED), await runtime.run(GATED)
    wait = one["requiresApproval"]["approvalId"]
    proof = other["requiresApproval"]["resumeToken"].partition(".")[2]
    for token in (f"{wait}.{proof}", f"{wait}.", f"{wait}.{runtime.service.token(wait)}"):
        envelope = await runtime.ask({"action": "resume", "token": token, "approve": True})
        assert envelope["error"]["code"] == "not_found"


async def test_the_token_in_an_envelope_does_not_permit_a_decision(runtime: RuntimeHarness) -> None:
    """The token is sent to every caller, which may be an assistant, so it decides nothing by itself."""
    assistant = Principal("assistant", roles=frozenset({"runner"}))
    waiting = await runtime.run(GATED, assistant)
    envelope = await runtime.resume(waiting, True, assistant)
    assert envelope["error"]["code"] == "not_allowed"
    assert not runtime.made()
    assert (await runtime.resume(waiting, True, Principal("ada", roles=frozenset({"approver"}))))["status"] == "ok"
    audited = await runtime.service.audit(waiting["runId"])
    assert "ada" in str(audited)


async def test_where_another_person_must_approve_the_one_who_started_it_cannot(runtime: RuntimeHarness) -> None:
    runtime.rule(ALLOWED + "[approvals]\ndifferent_person = true\n")
    waiting = await runtime.run(GATED, Principal("sam"))
    assert (await runtime.resume(waiting, True, Principal("sam")))["error"]["code"] == "not_allowed"
    assert (await runtime.resume(waiting, True, Principal("ada")))["status"] == "ok"


async def test_another_tenant_finds_neither_the_run_nor_the_token(runtime: RuntimeHarness) -> None:
    waiting = await runtime.run(GATED)
    other = Principal("eve", "other")
    token, run = waiting["requiresApproval"]["resumeToken"], waiting["runId"]
    for request in (
        {"action": "resume", "token": token, "approve": True},
        {"action": "resume", "token": waiting["requiresApproval"]["shortId"], "approve": False},
        {"action": "cancel", "runId": run},
        {"action": "status", "runId": run},
    ):
        envelope = await runtime.ask(request, other)
        assert envelope["error"]["code"] == "not_found"
        assert "runId" not in envelope
    assert [row.status for row in await runtime.rows()] == ["awaiting_approval"]
    assert not runtime.made()
