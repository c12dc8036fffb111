"""Interventions in a run of a program: pausing at a line, changing a variable, forking, cancelling, retrying."""

from __future__ import annotations

from typing import Any

import pytest

from cuebook.dialects.playbook import Playbook
from cuebook.dialects.program.dialect import PROGRAM
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import Settings
from cuebook.service.service import Service
from cuebook.testing import ModelError, ScriptedModel
from tests.dialects.program.harness import Played, ProgramHarness
from tests.dialects.program.machine.test_machine import PAIR, program, reply

COUNT = program("- 01:EXE $n:int = 1\n- 02:EXE $n = $n + 1\n- 03:EXE $n = $n * 10\n- 04:RET $n")


async def begun(harness: ProgramHarness, service: Service, text: str, **settings: Any) -> str:
    row = await service.start(
        Playbook.from_text(text, "program.pbasm"), {}, Settings(model="scripted/model", **settings)
    )
    return row.id


async def shown(harness: ProgramHarness, service: Service, run: str, model: ScriptedModel) -> Played:
    return Played(await service.get(run), [entry async for entry in service.entries(run)], model)


async def test_a_breakpoint_after_a_line_and_a_changed_variable() -> None:
    harness, model = ProgramHarness(), ScriptedModel([])
    service = harness.service(model)
    run = await begun(harness, service, COUNT, breakpoints=("Main:02",))
    assert (await service.drive(run)).status == "paused"
    await service.resume(run, overrides={"n": 7})
    assert (await service.drive(run)).status == "completed"
    assert (await shown(harness, service, run, model)).result["value"] == 70


async def test_a_fork_from_a_line_with_another_value() -> None:
    harness, model = ProgramHarness(), ScriptedModel([])
    service = harness.service(model)
    run = await begun(harness, service, COUNT)
    assert (await service.drive(run)).status == "completed"
    fork = await service.fork(run, "Main:03", values={"n": 5})
    assert (await service.drive(fork.id)).status == "completed"
    assert (await shown(harness, service, fork.id, model)).result["value"] == 50
    assert (await shown(harness, service, run, model)).result["value"] == 20


async def test_a_value_of_another_type_is_refused() -> None:
    harness, model = ProgramHarness(), ScriptedModel([])
    service = harness.service(model)
    run = await begun(harness, service, COUNT, breakpoints=("Main:02",))
    assert (await service.drive(run)).status == "paused"
    for wrong in ("abc", "7", [7], 7.5):
        with pytest.raises(BadInput, match=r"\$n must be of type int, got"):
            await service.resume(run, overrides={"n": wrong})
        with pytest.raises(BadInput, match=r"\$n must be of type int, got"):
            await service.fork(run, "Main:02", values={"n": wrong})
    with pytest.raises(BadInput, match="has no variable 'm'"):
        await service.resume(run, overrides={"m": 7})
    document = PROGRAM.parse(COUNT, "program.pbasm")
    assert [PROGRAM.changed(document, {}, name, "12") for name in ("n", "other")] == [12, 12]
    assert PROGRAM.changed(document, {}, "n", "abc") == "abc"
    word = PROGRAM.parse(COUNT.replace("$n:int", "$n:str"), "program.pbasm")
    assert PROGRAM.changed(word, {}, "n", "12") == "12"


async def test_a_run_that_waits_for_the_user_is_cancelled() -> None:
    harness, model = ProgramHarness(), ScriptedModel([])
    service = harness.service(model)
    run = await begun(harness, service, program("- 01:YLD for user\n- 02:RET"))
    assert (await service.drive(run)).status == "awaiting_input"
    await service.cancel(run)
    assert (await service.drive(run)).status == "cancelled"


async def test_a_model_failure_fails_the_run_and_a_retry_continues_there() -> None:
    text = program("- 01:QUE $a:int = One()\n- 02:QUE $b:int = Two()\n- 03:YLD for call\n- 04:RET [$a, $b]", PAIR)
    asked: list[str] = []

    def said(request: Any) -> Any:
        name = "One" if "Executing One(" in request.messages[-2].text else "Two"
        asked.append(name)
        if name == "Two" and asked.count("Two") == 1:
            return ModelError("server", "away", retryable=False)
        return reply(
            f'`Step["{name}:01:EXE"]` `Var[${name.lower()}, 3]`',
            "trig? no",
            f'`Step["{name}:02:RET"]` `Return[3]` `Var[$__, "ok"]`',
        )

    harness, model = ProgramHarness(), ScriptedModel(said)
    service = harness.service(model)
    run = await begun(harness, service, text)
    assert (await service.drive(run)).status == "failed"
    await service.retry(run)
    assert (await service.drive(run)).status == "completed"
    assert (await shown(harness, service, run, model)).result["value"] == [3, 3]
    assert sorted(asked) == ["One", "Two", "Two"]
