"""Requests whose caller stops waiting, repeats them or cancels, and the strict form of envelopes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from cuebook.gate.roles import Principal
from cuebook.kernel.run import WaitRow
from tests.gate.harness import settled
from tests.support.programs import eventually
from tests.support.runtime import GATED, SLOW, RuntimeHarness, core

# --- waiting no longer -----------------------------------------------------------------------------------------------


async def test_a_caller_that_stops_waiting_gets_the_run_id_and_the_run_continues(runtime: RuntimeHarness) -> None:
    late = await runtime.run(SLOW, waitMs=0)
    assert (late["status"], late["error"]["code"]) == ("error", "timeout")
    assert late["runId"] in late["error"]["message"]
    (runtime.work / "go").touch()
    await runtime.runtime.finished()
    done = await runtime.ask({"action": "status", "runId": late["runId"], "waitMs": 0})
    assert core(done) == {"ok": True, "status": "ok", "output": ["went\n"]}


async def test_two_callers_wait_for_the_same_run(runtime: RuntimeHarness) -> None:
    late = await runtime.run(SLOW, waitMs=0)
    status = {"action": "status", "runId": late["runId"]}
    both = [asyncio.create_task(runtime.ask(status)) for _ in range(2)]
    await asyncio.sleep(0)
    (runtime.work / "go").touch()
    assert [one["output"] for one in await asyncio.gather(*both)] == [["went\n"]] * 2


async def test_a_key_starts_one_run_however_often_it_is_used(runtime: RuntimeHarness) -> None:
    several = await asyncio.gather(*(runtime.run(GATED, key="order 7") for _ in range(3)))
    assert len({one["runId"] for one in several}) == 1
    assert len(await runtime.rows()) == 1
    other = await runtime.run(GATED.replace("Gated", "Other"), key="order 7")
    assert other["error"]["code"] == "conflict"
    assert (await runtime.run(GATED, Principal("ada"), key="order 7"))["runId"] != several[0]["runId"]


@pytest.mark.parametrize("other", [{"cwd": "below"}, {"maxOutputBytes": 64}])
async def test_a_key_covers_the_folder_and_the_output_limit_too(runtime: RuntimeHarness, other: dict[str, Any]) -> None:
    (runtime.work / "below").mkdir()
    (runtime.work / "elsewhere").mkdir()
    first: dict[str, Any] = {"cwd": "elsewhere", "maxOutputBytes": 4096}
    started = await runtime.run(GATED, key="order 7", **first)
    assert (await runtime.run(GATED, key="order 7", **first))["runId"] == started["runId"]
    assert (await runtime.run(GATED, key="order 7", **{**first, **other}))["error"]["code"] == "conflict"
    assert (await runtime.run(GATED, key="order 7"))["error"]["code"] == "conflict"
    assert len(await runtime.rows()) == 1


VIEWER = Principal("vic", roles=frozenset({"viewer"}))


async def test_a_viewer_gets_the_status_and_drives_nothing(runtime: RuntimeHarness) -> None:
    late = await runtime.run(SLOW, waitMs=0)
    status = {"action": "status", "runId": late["runId"]}
    goes_on = await runtime.ask({**status, "waitMs": 0}, VIEWER)
    assert goes_on["error"]["code"] == "timeout"
    await runtime.close()
    runtime.open()
    (runtime.work / "go").touch()
    told = await runtime.ask(status, VIEWER)
    assert (told["status"], told["error"]["code"]) == ("error", "not_driven")
    assert sorted((await runtime.ask(status, VIEWER, strict=True))["error"]) == ["code", "message"]
    assert await runtime.runtime.under_way() == []
    assert [row.status for row in await runtime.rows()] in (["pending"], ["running"])
    assert (await runtime.ask(status))["output"] == ["went\n"]


async def test_a_viewer_follows_the_driver(runtime: RuntimeHarness) -> None:
    late = await runtime.run(SLOW, waitMs=0)
    looking = asyncio.create_task(runtime.ask({"action": "status", "runId": late["runId"]}, VIEWER))
    await asyncio.sleep(0)
    (runtime.work / "go").touch()
    assert (await looking)["output"] == ["went\n"]


async def test_a_viewer_does_not_apply_an_expiry(runtime: RuntimeHarness) -> None:
    runtime.rule('[commands]\nallow = ["*"]\n[approvals]\nexpires_after = 0.05\n')
    waiting = await runtime.run(GATED)
    await asyncio.sleep(0.1)
    told = await runtime.ask({"action": "status", "runId": waiting["runId"]}, VIEWER)
    assert told["error"]["code"] == "not_driven"
    assert [row.status for row in await runtime.rows()] == ["awaiting_approval"]


async def test_resuming_does_not_give_the_time_once_more(runtime: RuntimeHarness) -> None:
    gated = "name: T\nsteps:\n  - {id: a, command: cli touch made.txt, approval: required}\n"
    waiting = await runtime.run(gated, timeoutMs=1)
    assert waiting["requiresApproval"]["kind"] == "workflow_step"
    spent = await runtime.resume(waiting, True, timeoutMs=60_000)
    assert spent["requiresApproval"]["kind"] == "budget", "more time than the run has is not given on the way"
    assert not runtime.made()
    done = await runtime.resume(spent, True, timeoutMs=60_000)
    assert done["status"] == "ok", "but where it asks for it"
    now = (await runtime.service.settings(done["runId"]))[1].budget.seconds
    assert now is not None
    assert now > 60, "and besides what was used"


async def test_a_resume_may_leave_a_run_less_time_and_not_more(runtime: RuntimeHarness) -> None:
    async def left(**time: Any) -> float | None:
        waiting = await runtime.run(GATED, timeoutMs=3_600_000)
        done = await runtime.resume(waiting, True, **time)
        return (await runtime.service.settings(done["runId"]))[1].budget.seconds

    assert await left() == 3600
    assert await left(timeoutMs=7_200_000) == 3600
    shorter = await left(timeoutMs=1_800_000)
    assert shorter is not None
    assert 1800 < shorter < 3600, "what was used before counts"


async def test_a_configured_budget_holds_for_every_request(runtime: RuntimeHarness) -> None:
    await runtime.close()
    runtime.open(**{"budget.seconds": 60})
    for given, kept in ((120_000, 60.0), (30_000, 30.0)):
        waiting = await runtime.run(GATED, timeoutMs=given)
        assert (await runtime.service.settings(waiting["runId"]))[1].budget.seconds == kept


async def test_a_timer_cannot_be_approved(runtime: RuntimeHarness) -> None:
    failing = "name: T\nsteps:\n  - {id: a, command: cli false, retry: {max_attempts: 2, delay_ms: 60000}}\n"
    late = await runtime.run(failing, waitMs=0)

    async def waits() -> list[WaitRow]:
        return await runtime.service.waits(late["runId"])

    (wait,) = await eventually(waits)
    for _ in range(2):
        refused = await runtime.ask({"action": "resume", "token": wait.id, "approve": True, "waitMs": 0})
        assert refused["error"]["code"] == "invalid_request"
    assert [row.status for row in await runtime.rows()] == ["paused"]


# --- cancelling ----------------------------------------------------------------------------------------------------------


async def test_a_waiting_run_is_cancelled_and_its_approval_closed(runtime: RuntimeHarness) -> None:
    waiting = await runtime.run(GATED)
    envelope = await runtime.ask({"action": "cancel", "runId": waiting["runId"], "reason": "enough"})
    assert (envelope["status"], envelope["cancelled"]) == ("cancelled", True)
    assert "enough" in envelope["reason"]
    assert await runtime.service.inbox() == []
    late = await runtime.resume(waiting, True)
    assert late["error"]["code"] == "invalid_state"
    assert (await runtime.resume(waiting, False))["status"] == "cancelled", "it is what was asked for"
    again = await runtime.ask({"action": "cancel", "runId": waiting["runId"]})
    assert (again["status"], again["cancelled"]) == ("cancelled", False)
    assert not runtime.made()


async def test_a_running_step_is_cancelled(runtime: RuntimeHarness) -> None:
    late = await runtime.run(SLOW, waitMs=0)
    envelope = await runtime.ask({"action": "cancel", "runId": late["runId"]})
    assert envelope["status"] == "cancelled"
    assert [step["status"] for step in envelope["steps"]] == ["failed"]


async def test_an_ended_run_is_not_cancelled(runtime: RuntimeHarness) -> None:
    done = await runtime.resume(await runtime.run(GATED), True)
    envelope = await runtime.ask({"action": "cancel", "runId": done["runId"]})
    assert (envelope["status"], envelope["cancelled"]) == ("ok", False)
    assert (await runtime.ask({"action": "cancel", "runId": "nothing"}))["error"]["code"] == "not_found"


# --- the strict form, and every dialect ---------------------------------------------------------------------------------


async def test_the_strict_form_has_the_fields_of_the_format_and_no_others(runtime: RuntimeHarness) -> None:
    waiting = await runtime.ask({"action": "run", "pipeline": GATED}, strict=True)
    assert sorted(waiting) == ["ok", "output", "requiresApproval", "status"]
    assert sorted(waiting["requiresApproval"]) == ["items", "prompt", "resumeToken"]
    token = waiting["requiresApproval"]["resumeToken"]
    done = await runtime.ask({"action": "resume", "token": token, "approve": True}, strict=True)
    assert sorted(done) == ["ok", "output", "status"]
    failed = await runtime.ask({"action": "resume", "token": token, "approve": False}, strict=True)
    assert sorted(failed) == ["error", "ok", "output", "status"]
    assert sorted(failed["error"]) == ["code", "message"]
    run = (await runtime.rows())[0].id
    assert sorted(await runtime.ask({"action": "cancel", "runId": run}, strict=True)) == ["ok", "output", "status"]


async def test_a_request_may_be_json_text(runtime: RuntimeHarness) -> None:
    envelope = await runtime.ask(json.dumps({"action": "run", "pipeline": GATED}))
    assert envelope["status"] == "needs_approval"


async def test_closing_releases_a_run_for_another_process(runtime: RuntimeHarness) -> None:
    late = await runtime.run(SLOW, waitMs=0)
    await settled(lambda: runtime.service.drives(late["runId"]))
    await runtime.close()
    runtime.open()
    (runtime.work / "go").touch()
    done = await runtime.ask({"action": "status", "runId": late["runId"]})
    assert core(done) == {"ok": True, "status": "ok", "output": ["went\n"]}
