"""Requests whose caller waits no longer, comes twice, or cancels; and the strict form of what they are told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from cuebook.gate.people import Principal
from cuebook.kernel.run import WaitRow
from tests.gate.yard import settled
from tests.office import GATED, SLOW, Office, core
from tests.support import eventually

# --- waiting no longer -----------------------------------------------------------------------------------------------


async def test_a_caller_who_waits_no_longer_is_told_the_run_and_it_goes_on(office: Office) -> None:
    late = await office.run(SLOW, waitMs=0)
    assert (late["status"], late["error"]["code"]) == ("error", "timeout")
    assert late["runId"] in late["error"]["message"]
    (office.work / "go").touch()
    await office.runtime.finished()
    done = await office.ask({"action": "status", "runId": late["runId"], "waitMs": 0})
    assert core(done) == {"ok": True, "status": "ok", "output": ["went\n"]}


async def test_two_callers_wait_for_the_same_run(office: Office) -> None:
    late = await office.run(SLOW, waitMs=0)
    status = {"action": "status", "runId": late["runId"]}
    both = [asyncio.create_task(office.ask(status)) for _ in range(2)]
    await asyncio.sleep(0)
    (office.work / "go").touch()
    assert [one["output"] for one in await asyncio.gather(*both)] == [["went\n"]] * 2


async def test_a_key_starts_one_run_however_often_it_comes(office: Office) -> None:
    several = await asyncio.gather(*(office.run(GATED, key="order 7") for _ in range(3)))
    assert len({one["runId"] for one in several}) == 1
    assert len(await office.rows()) == 1
    other = await office.run(GATED.replace("Gated", "Other"), key="order 7")
    assert other["error"]["code"] == "conflict"
    assert (await office.run(GATED, Principal("ada"), key="order 7"))["runId"] != several[0]["runId"]


@pytest.mark.parametrize("other", [{"cwd": "below"}, {"maxOutputBytes": 64}])
async def test_a_key_stands_for_the_place_and_the_cap_as_well(office: Office, other: dict[str, Any]) -> None:
    (office.work / "below").mkdir()
    (office.work / "elsewhere").mkdir()
    first: dict[str, Any] = {"cwd": "elsewhere", "maxOutputBytes": 4096}
    started = await office.run(GATED, key="order 7", **first)
    assert (await office.run(GATED, key="order 7", **first))["runId"] == started["runId"]
    assert (await office.run(GATED, key="order 7", **{**first, **other}))["error"]["code"] == "conflict"
    assert (await office.run(GATED, key="order 7"))["error"]["code"] == "conflict"
    assert len(await office.rows()) == 1


VIEWER = Principal("vic", roles=frozenset({"viewer"}))


async def test_who_may_only_look_is_told_and_drives_nothing(office: Office) -> None:
    late = await office.run(SLOW, waitMs=0)
    status = {"action": "status", "runId": late["runId"]}
    goes_on = await office.ask({**status, "waitMs": 0}, VIEWER)
    assert goes_on["error"]["code"] == "timeout"
    await office.close()
    office.open()
    (office.work / "go").touch()
    told = await office.ask(status, VIEWER)
    assert (told["status"], told["error"]["code"]) == ("error", "not_driven")
    assert sorted((await office.ask(status, VIEWER, strict=True))["error"]) == ["code", "message"]
    assert await office.runtime.under_way() == []
    assert [row.status for row in await office.rows()] in (["pending"], ["running"])
    assert (await office.ask(status))["output"] == ["went\n"]


async def test_who_may_only_look_follows_whoever_drives_it(office: Office) -> None:
    late = await office.run(SLOW, waitMs=0)
    looking = asyncio.create_task(office.ask({"action": "status", "runId": late["runId"]}, VIEWER))
    await asyncio.sleep(0)
    (office.work / "go").touch()
    assert (await looking)["output"] == ["went\n"]


async def test_who_may_only_look_does_not_carry_out_what_expired(office: Office) -> None:
    office.rule('[commands]\nallow = ["*"]\n[approvals]\nexpires_after = 0.05\n')
    waiting = await office.run(GATED)
    await asyncio.sleep(0.1)
    told = await office.ask({"action": "status", "runId": waiting["runId"]}, VIEWER)
    assert told["error"]["code"] == "not_driven"
    assert [row.status for row in await office.rows()] == ["awaiting_approval"]


async def test_resuming_does_not_give_the_time_once_more(office: Office) -> None:
    gated = "name: T\nsteps:\n  - {id: a, command: cli touch made.txt, approval: required}\n"
    waiting = await office.run(gated, timeoutMs=1)
    assert waiting["requiresApproval"]["kind"] == "workflow_step"
    spent = await office.resume(waiting, True, timeoutMs=60_000)
    assert spent["requiresApproval"]["kind"] == "budget", "more time than the run has is not given on the way"
    assert not office.made()
    done = await office.resume(spent, True, timeoutMs=60_000)
    assert done["status"] == "ok", "but where it asks for it"
    now = (await office.service.settings(done["runId"]))[1].budget.seconds
    assert now is not None
    assert now > 60, "and besides what was used"


async def test_a_resume_may_leave_a_run_less_time_and_not_more(office: Office) -> None:
    async def left(**time: Any) -> float | None:
        waiting = await office.run(GATED, timeoutMs=3_600_000)
        done = await office.resume(waiting, True, **time)
        return (await office.service.settings(done["runId"]))[1].budget.seconds

    assert await left() == 3600
    assert await left(timeoutMs=7_200_000) == 3600
    shorter = await left(timeoutMs=1_800_000)
    assert shorter is not None
    assert 1800 < shorter < 3600, "what was used before counts"


async def test_a_configured_budget_holds_for_every_request(office: Office) -> None:
    await office.close()
    office.open(**{"budget.seconds": 60})
    for given, kept in ((120_000, 60.0), (30_000, 30.0)):
        waiting = await office.run(GATED, timeoutMs=given)
        assert (await office.service.settings(waiting["runId"]))[1].budget.seconds == kept


async def test_nobody_approves_that_time_passes(office: Office) -> None:
    failing = "name: T\nsteps:\n  - {id: a, command: cli false, retry: {max_attempts: 2, delay_ms: 60000}}\n"
    late = await office.run(failing, waitMs=0)

    async def waits() -> list[WaitRow]:
        return await office.service.store.waits(run=late["runId"])

    (wait,) = await eventually(waits)
    for _ in range(2):
        refused = await office.ask({"action": "resume", "token": wait.id, "approve": True, "waitMs": 0})
        assert refused["error"]["code"] == "invalid_request"
    assert [row.status for row in await office.rows()] == ["paused"]


# --- cancelling ----------------------------------------------------------------------------------------------------------


async def test_a_waiting_run_is_cancelled_and_its_approval_closed(office: Office) -> None:
    waiting = await office.run(GATED)
    envelope = await office.ask({"action": "cancel", "runId": waiting["runId"], "reason": "enough"})
    assert (envelope["status"], envelope["cancelled"]) == ("cancelled", True)
    assert "enough" in envelope["reason"]
    assert await office.service.inbox() == []
    late = await office.resume(waiting, True)
    assert late["error"]["code"] == "invalid_state"
    assert (await office.resume(waiting, False))["status"] == "cancelled", "it is what was asked for"
    again = await office.ask({"action": "cancel", "runId": waiting["runId"]})
    assert (again["status"], again["cancelled"]) == ("cancelled", False)
    assert not office.made()


async def test_a_running_step_is_cancelled(office: Office) -> None:
    late = await office.run(SLOW, waitMs=0)
    envelope = await office.ask({"action": "cancel", "runId": late["runId"]})
    assert envelope["status"] == "cancelled"
    assert [step["status"] for step in envelope["steps"]] == ["failed"]


async def test_what_has_ended_is_not_cancelled(office: Office) -> None:
    done = await office.resume(await office.run(GATED), True)
    envelope = await office.ask({"action": "cancel", "runId": done["runId"]})
    assert (envelope["status"], envelope["cancelled"]) == ("ok", False)
    assert (await office.ask({"action": "cancel", "runId": "nothing"}))["error"]["code"] == "not_found"


# --- the strict form, and every dialect ---------------------------------------------------------------------------------


async def test_the_strict_form_has_the_fields_of_the_format_and_no_others(office: Office) -> None:
    waiting = await office.ask({"action": "run", "pipeline": GATED}, strict=True)
    assert sorted(waiting) == ["ok", "output", "requiresApproval", "status"]
    assert sorted(waiting["requiresApproval"]) == ["items", "prompt", "resumeToken"]
    token = waiting["requiresApproval"]["resumeToken"]
    done = await office.ask({"action": "resume", "token": token, "approve": True}, strict=True)
    assert sorted(done) == ["ok", "output", "status"]
    failed = await office.ask({"action": "resume", "token": token, "approve": False}, strict=True)
    assert sorted(failed) == ["error", "ok", "output", "status"]
    assert sorted(failed["error"]) == ["code", "message"]
    run = (await office.rows())[0].id
    assert sorted(await office.ask({"action": "cancel", "runId": run}, strict=True)) == ["ok", "output", "status"]


async def test_a_request_may_come_as_a_text(office: Office) -> None:
    envelope = await office.ask(json.dumps({"action": "run", "pipeline": GATED}))
    assert envelope["status"] == "needs_approval"


async def test_leaving_lets_go_of_a_run_and_another_process_takes_it_up(office: Office) -> None:
    late = await office.run(SLOW, waitMs=0)
    await settled(lambda: office.service.engine.drives(late["runId"]))
    await office.close()
    office.open()
    (office.work / "go").touch()
    done = await office.ask({"action": "status", "runId": late["runId"]})
    assert core(done) == {"ok": True, "status": "ok", "output": ["went\n"]}
