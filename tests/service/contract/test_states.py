"""Every state of a run has its envelope: waits, endings and expiries."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cuebook.kernel.events import WaitClosed
from cuebook.kernel.run import Budget
from cuebook.performers.models.scripted import ScriptedModel
from tests.support.runtime import ALLOWED, GATED, SLOW, RuntimeHarness

ASKING = """# Tea

## STEP 1: Choose

Choose one.

@elicit({type}, "Which one?"{options})

## STEP 2: Brew

Brew it.
"""

FLAT = "# Flat\n\n## STEP 1: A\n\nSay a.\n\n## STEP 2: B\n\nSay b.\n"


async def expired(runtime: RuntimeHarness, waiting: dict[str, Any]) -> dict[str, Any]:
    """The envelope of a run whose approval has expired."""
    status = {"action": "status", "runId": waiting["runId"]}
    while True:
        envelope = await runtime.ask(status)
        asked = envelope.get("requiresApproval", {})
        if asked.get("approvalId") != waiting["requiresApproval"]["approvalId"]:
            return envelope
        await asyncio.sleep(0.05)


# --- expired approvals ------------------------------------------------------------------------------------


async def test_an_approval_that_expires_cancels_the_run(runtime: RuntimeHarness) -> None:
    runtime.rule(ALLOWED + "[approvals]\nexpires_after = 0.3\n")
    waiting = await runtime.run(GATED)
    envelope = await expired(runtime, waiting)
    assert (envelope["ok"], envelope["status"]) == (True, "cancelled")
    assert [row.status for row in await runtime.rows()] == ["expired"]
    late = await runtime.resume(waiting, True)
    assert late["error"]["code"] == "invalid_state"
    assert (await runtime.resume(waiting, False))["status"] == "cancelled"
    assert not runtime.made()


async def test_an_approval_that_expires_may_be_held(runtime: RuntimeHarness) -> None:
    runtime.rule(ALLOWED + '[approvals]\nexpires_after = 0.3\non_expiry = "hold"\n')
    waiting = await runtime.run(GATED)
    held = await expired(runtime, waiting)
    assert held["status"] == "needs_approval"
    assert "expiresAt" not in held["requiresApproval"]
    assert held["requiresApproval"]["resumeToken"] != waiting["requiresApproval"]["resumeToken"]
    late = await runtime.resume(waiting, True)
    assert late["requiresApproval"] == held["requiresApproval"], (
        "the old token decides nothing, and the new one is told"
    )
    assert not runtime.made()
    assert (await runtime.resume(held, True))["status"] == "ok"


async def test_an_approval_that_expires_may_be_denied(runtime: RuntimeHarness) -> None:
    runtime.rule(ALLOWED + '[approvals]\nexpires_after = 0.3\non_expiry = "deny"\n')
    envelope = await expired(runtime, await runtime.run(GATED))
    assert envelope["status"] == "cancelled"
    assert "It was not approved in time" in envelope["reason"]
    assert [row.status for row in await runtime.rows()] == ["cancelled"]


async def test_a_token_used_right_after_the_expiry_is_too_late(runtime: RuntimeHarness) -> None:
    runtime.rule(ALLOWED + "[approvals]\nexpires_after = 0.05\n")
    waiting = await runtime.run(GATED)
    await asyncio.sleep(0.1)
    envelope = await runtime.resume(waiting, True)
    assert envelope["error"]["code"] == "invalid_state"
    assert envelope["runId"] == waiting["runId"]
    assert [row.status for row in await runtime.rows()] == ["expired"], "and the run knows it too"


async def test_every_approval_has_an_end_unless_the_policy_says_otherwise(runtime: RuntimeHarness) -> None:
    assert "expiresAt" in (await runtime.run(GATED))["requiresApproval"]
    runtime.rule(ALLOWED + '[approvals]\nexpires_after = "never"\n')
    assert "expiresAt" not in (await runtime.run(GATED))["requiresApproval"]


# --- why it waits ---------------------------------------------------------------------------------------------------


async def test_a_wait_names_the_policy_rule_that_asks(runtime: RuntimeHarness) -> None:
    runtime.rule("")
    envelope = await runtime.run("name: P\nsteps:\n  - {id: a, command: cli touch made.txt}\n")
    asked = envelope["requiresApproval"]
    assert asked["kind"] == "policy"
    assert asked["items"] == [asked["preview"]]
    assert asked["preview"]["command"] == "touch made.txt"
    assert asked["rules"]
    assert not runtime.made()
    assert (await runtime.resume(envelope, True))["status"] == "ok"
    assert runtime.made()


async def test_a_denied_action_fails_the_step_and_names_the_rule(runtime: RuntimeHarness) -> None:
    runtime.rule('[commands]\ndeny = ["touch *"]\n')
    envelope = await runtime.run("name: P\nsteps:\n  - {id: a, command: cli touch made.txt, approval: required}\n")
    assert envelope["error"]["code"] == "forbidden"
    assert "policy.toml:2" in envelope["error"]["message"]
    assert not runtime.made()


async def test_a_pipeline_reaches_only_an_allowed_domain_without_asking(runtime: RuntimeHarness) -> None:
    runtime.rule('[egress]\nallow = ["http://localhost:*/*"]\n')
    text = "name: D\nallowed_domains: [example.com]\nsteps:\n  - {id: a, command: http http://localhost:9/}\n"
    envelope = await runtime.run(text)
    assert envelope["requiresApproval"]["kind"] == "policy"
    assert any("allowed_domains" in rule for rule in envelope["requiresApproval"]["rules"])


async def with_model(runtime: RuntimeHarness, *replies: str, **flags: Any) -> RuntimeHarness:
    await runtime.close()
    runtime.models = {"test": ScriptedModel(list(replies))}
    return runtime.open(**flags)


@pytest.mark.parametrize(("approve", "said"), [(True, "yes"), (False, "no")])
async def test_a_yes_or_no_question_is_answered_by_the_decision(
    runtime: RuntimeHarness, approve: bool, said: str
) -> None:
    await with_model(runtime, "ready", "brewed")
    waiting = await runtime.run(ASKING.format(type="confirm", options=""))
    assert waiting["requiresApproval"]["kind"] == "question"
    assert waiting["output"] == []
    envelope = await runtime.resume(waiting, approve)
    assert (envelope["status"], envelope["output"]) == ("ok", ["brewed"])
    closed = [e.event async for e in runtime.service.entries(envelope["runId"]) if isinstance(e.event, WaitClosed)]
    assert [event.answer for event in closed] == [{"value": said}]
    assert (await runtime.resume(waiting, approve))["status"] == "ok"
    assert (await runtime.resume(waiting, not approve))["error"]["code"] == "conflict"


async def test_a_question_for_text_needs_an_answer(runtime: RuntimeHarness) -> None:
    await with_model(runtime, "ready", "brewed")
    waiting = await runtime.run(ASKING.format(type="select", options=', "Green", "Black"'))
    assert waiting["requiresApproval"]["options"] == ["Green", "Black"]
    assert (await runtime.resume(waiting, True))["error"]["code"] == "invalid_request"
    assert (await runtime.resume(waiting, True, answer="red"))["error"]["code"] == "invalid_request"
    assert (await runtime.resume(waiting, True, answer="green"))["status"] == "ok"


async def test_declining_a_question_cancels_the_run(runtime: RuntimeHarness) -> None:
    await with_model(runtime, "ready")
    waiting = await runtime.run(ASKING.format(type="input", options=""))
    assert (await runtime.resume(waiting, False, reason="no idea"))["status"] == "cancelled"


async def test_a_spent_budget_asks_for_as_much_again(runtime: RuntimeHarness) -> None:
    await with_model(runtime, "a", "b", **{"budget.steps": 1})
    waiting = await runtime.run(FLAT)
    assert waiting["requiresApproval"]["kind"] == "budget"
    assert waiting["output"] == ["a"]
    done = await runtime.resume(waiting, True)
    assert (done["status"], done["output"]) == ("ok", ["b"])
    assert (await runtime.service.settings(done["runId"]))[1].budget == Budget(steps=2)


async def test_a_spent_budget_of_all_runs_lets_this_run_go_on_when_it_is_approved(runtime: RuntimeHarness) -> None:
    await with_model(runtime, "a", "b")
    await runtime.service.budgets.set("all", {"day_tokens": 1})
    waiting = await runtime.run(FLAT)
    assert waiting["requiresApproval"]["kind"] == "budget"
    assert "never fits in the budget 'all' of 1 tokens a day" in waiting["requiresApproval"]["prompt"]
    done = await runtime.resume(waiting, True)
    assert done["status"] == "ok"
    acts = [one.act.what for one in await runtime.service.admin_audit.acts()]
    assert [what for what in acts if what.startswith("budget")] == ["budget.set", "budget.allow"]


async def test_a_spent_budget_that_is_not_raised_cancels_the_run(runtime: RuntimeHarness) -> None:
    await with_model(runtime, "a", "b", **{"budget.steps": 1})
    waiting = await runtime.run(FLAT)
    assert (await runtime.resume(waiting, False))["status"] == "cancelled"


async def test_text_output_stays_text_whatever_it_looks_like(runtime: RuntimeHarness) -> None:
    await with_model(runtime, "[1, 2]", "[3]")
    assert (await runtime.run(FLAT))["output"] == ["[3]"]
    text = "name: T\nsteps:\n  - id: a\n    command: cli echo '[1,2]'\n    effect: read\n"
    assert (await runtime.run(text))["output"] == [1, 2]
    assert (await runtime.run(f"{text}    output: text\n"))["output"] == ["[1,2]\n"]


async def test_a_failure_carries_what_came_before_it(runtime: RuntimeHarness) -> None:
    text = (
        "name: F\nsteps:\n  - id: one\n    command: cli echo '{\"n\":1}'\n    effect: read\n"
        "  - {id: two, command: cli false, effect: read}\n  - {id: three, command: cli true, effect: read}\n"
    )
    envelope = await runtime.run(text)
    assert (envelope["status"], envelope["output"]) == ("error", [{"n": 1}])
    assert envelope["error"]["stepId"] == "two"
    assert [step["status"] for step in envelope["steps"]] == ["completed", "failed", "skipped"]


async def test_a_step_that_was_killed_with_its_process_is_asked_about_and_not_repeated(runtime: RuntimeHarness) -> None:
    """As after a crash: there is an intent but no outcome."""
    text = "name: D\nsteps:\n  - {id: a, command: cli sh -c 'echo x >> log; until test -e go; do sleep 0.05; done'}\n"
    late = await runtime.run(text, waitMs=0)
    while not runtime.made("log"):
        await asyncio.sleep(0.02)
    await runtime.close()
    runtime.open()
    waiting = await runtime.ask({"action": "status", "runId": late["runId"]})
    assert waiting["requiresApproval"]["kind"] == "retry"
    assert (runtime.work / "log").read_text() == "x\n"
    (runtime.work / "go").touch()
    done = await runtime.resume(waiting, True)
    assert done["status"] == "ok"
    assert (runtime.work / "log").read_text() == "x\nx\n", "it was repeated because somebody said so"


async def test_a_person_who_decides_about_a_doubt_sees_everything_that_would_be_repeated(
    runtime: RuntimeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole command, not only its program; secrets are masked, and nothing is hidden."""
    monkeypatch.setenv("OFFICE_TOKEN", "hunter2-hunter2-hunter2")
    runtime.rule(ALLOWED + '[secrets]\nallow = ["*"]\n')
    text = """
name: D
args: {token: {secret: true, required: true}}
steps:
  - id: list
    command: cli echo '{"n":1}'
    effect: read
  - id: a
    command: cli sh -c "echo x >> log; until test -e go; do sleep 0.05; done; echo $list.stdout"
    env: {TOKEN: "${token}", TEXT: "to\\u001b[31mbe"}
    stdin: $list.stdout
    rollback_hint: Remove the log.
"""
    late = await runtime.run(text, args={"token": "env:OFFICE_TOKEN"}, waitMs=0)
    while not runtime.made("log"):
        await asyncio.sleep(0.02)
    await runtime.close()
    runtime.open()
    await runtime.service.drive(late["runId"])
    status = {"action": "status", "runId": late["runId"]}
    asked = (await runtime.ask(status))["requiresApproval"]
    assert ": run sh -c 'echo x >> log; until test -e go;" in asked["prompt"]
    shown = asked["preview"]
    assert shown["command"].startswith("sh -c 'echo x >> log; until test -e go; do sleep 0.05; done; echo ")
    assert (shown["stdin"], shown["to undo it"]) == ('{"n":1}\n', "Remove the log.")
    assert shown["secrets"] == "env.TOKEN: [secret env:OFFICE_TOKEN]"
    assert "TEXT=to<U+001B>[31mbe" in shown["environment"]
    assert asked["items"] == [shown]
    strict = await runtime.ask(status, strict=True)
    assert strict["requiresApproval"]["items"] == [shown]
    assert "hunter2" not in str(asked) + str(strict)
    (runtime.work / "go").touch()
    assert (await runtime.resume({"requiresApproval": asked}, True))["status"] == "ok"


async def test_a_step_that_reads_and_outlasts_the_time_waits_for_more(runtime: RuntimeHarness) -> None:
    spent = await runtime.run(SLOW, timeoutMs=2000)
    assert (spent["status"], spent["requiresApproval"]["kind"]) == ("needs_approval", "budget")
    (runtime.work / "go").touch()
    assert (await runtime.resume(spent, True, timeoutMs=60_000))["output"] == ["went\n"]


async def test_a_step_that_may_change_something_and_outlasts_the_time_is_in_doubt(runtime: RuntimeHarness) -> None:
    spent = await runtime.run(SLOW.replace("    effect: read\n", ""), timeoutMs=2000)
    assert (spent["status"], spent["requiresApproval"]["kind"]) == ("needs_approval", "retry")
