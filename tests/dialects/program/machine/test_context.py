"""The context of a model: its size is bounded however long a program runs, and a finished call is shown only by its result."""

from __future__ import annotations

import itertools
from typing import Any

from cuebook.dialects.program.machine.context import MOST_TURNS, History
from cuebook.dialects.program.machine.prompts import CONTRACT
from cuebook.kernel.context import EMPTY
from tests.dialects.program.harness import Played, ProgramHarness
from tests.dialects.program.machine.test_machine import program, reply


def size(played: Played, number: int) -> int:
    return len(played.prompt(number))


async def test_a_long_loop_is_shown_in_the_same_size() -> None:
    text = program(
        "- 01:EXE $n:int = 0\n- 02:CND While $n < 150\n  - 02.01:EXE Look at $n\n  - 02.02:QUE $n = Next(n=$n)\n"
        "  - 02.03:YLD for call\n  - 02.04:JMP 02\n- 03:RET $n",
        "## Next($n:int) -> int\n### Steps\n- 01:RET $n + 1\n",
    )
    turn = reply('`Step["Main:02.01:EXE"]` looked', "trig? no", '`Step["Main:02.02:QUE"]` `$n = Next(n=$n)`', "trig? no",
                 '`Step["Main:02.03:YLD"]` yld call')  # fmt: skip
    played = await ProgramHarness().play(text, lambda request: turn)
    assert played.result["value"] == 150
    sizes = [size(played, number) for number in range(150)]
    assert max(sizes[60:]) <= max(sizes[:60]) * 1.02
    assert "turns before these" in played.prompt(149)


async def test_the_beginning_of_the_context_never_changes() -> None:
    text = program(
        "- 01:CND While it goes on\n  - 01.01:QUE Say(user, Ask)\n  - 01.02:YLD for user\n  - 01.03:JMP 01\n- 02:RET"
    )
    turn = reply('`Step["Main:01.01:QUE"]` `Say("user", "and?")`', "trig? no", '`Step["Main:01.02:YLD"]` yld user')
    end = reply('`Step["Main:02:RET"]` `Return[]` `Var[$__, "over"]`')
    played = await ProgramHarness().play(text, [*[turn] * 40, end], ["on"] * 40)
    assert played.status == "completed"
    beginnings = {tuple(one.text for one in request.messages[:2]) for request in played.model.requests}
    assert len(beginnings) == 1
    [beginning] = beginnings
    assert beginning[0].startswith(CONTRACT)
    grown = sum(
        one.messages[: len(other.messages) - 1] == other.messages[:-1]
        for other, one in itertools.pairwise(played.model.requests)
    )
    assert grown >= 35, "most turns only add to what was shown before"


async def test_a_finished_call_is_shown_as_its_summary_and_result() -> None:
    text = program(
        '- 01:QUE $x:int = Deep(word="w")\n- 02:YLD for call\n- 03:EXE Judge $y:int\n- 04:RET $y',
        "## Deep($word:str) -> int\nA deep one.\n### Steps\n- 01:EXE Find $secret:int\n- 02:RET $secret\n",
    )
    says = [
        reply('`Step["Deep:01:EXE"]` `Var[$secret, 8]` thoughts of its own', "trig? no",
              '`Step["Deep:02:RET"]` `Return[$secret]` `Var[$__, "Found it in a well"]`'),
        reply('`Step["Main:03:EXE"]` `Var[$y, 9]`', "trig? no", "yld call"),
    ]  # fmt: skip
    played = await ProgramHarness().play(text, says)
    inside, after = played.prompt(0), played.prompt(1)
    assert 'Executing Deep($word="w")' in inside
    assert "A deep one." in inside
    assert "Executing Deep" not in after
    assert "thoughts of its own" not in after
    assert '$x = Deep("w") -> 8' in after.replace("word=", "")
    assert "Found it in a well" in after


async def test_an_artifact_is_shown_to_its_frame_and_loaded_by_others() -> None:
    text = program(
        '- 01:QUE Write()\n- 02:YLD for call\n- 03:EXE Read $report\n- 04:QUE LoadArtifact("report")\n- 05:YLD for call\n'
        "- 06:EXE Judge $y:int\n- 07:RET $y",
        "## Write() -> None\n### Steps\n- 01:EXE Write $report:artifact\n- 02:EXE Look at it, set $ok:bool\n- 03:RET\n",
    )
    long = "a long text " * 60
    says = [
        reply(f'`Step["Write:01:EXE"]` `Artifact[$report, "The report", "{long}"]`', "trig? no", "yld call"),
        reply('`Step["Write:02:EXE"]` `Var[$ok, true]`', "trig? no", "yld call"),
        reply('`Step["Main:03:EXE"]` read', "trig? no", "yld call"),
        reply('`Step["Main:06:EXE"]` `Var[$y, 9]`', "trig? no", "yld call"),
    ]
    played = await ProgramHarness().play(text, says)
    assert played.result["value"] == 9
    assert long in played.prompt(1)
    assert long not in played.prompt(2)
    assert "The report (not loaded)" in played.prompt(2)
    assert long in played.prompt(3)
    assert "not loaded" not in played.prompt(3)


async def test_placeholders_are_filled_in_when_a_playbook_begins(tmp_path: Any) -> None:
    (tmp_path / "rules.txt").write_text("Be kind.")
    text = program(
        '- 01:EXE $topic:str = "rain"\n- 02:QUE $x:str = Poem(mood="sad")\n- 03:YLD for call\n- 04:RET $x',
        "## Poem($mood:str) -> str\nmetadata:\nexecution_mode: raw\n---\n"
        'Write about {$topic}, {$mood}, as {Who()} would. {Loadfile("rules.txt")} {unknown}\n\n'
        '## Who() -> str\n### Steps\n- 01:RET "Ada"\n',
    )
    played = await ProgramHarness(tmp_path).play(text, ["Drip."])
    assert played.result["value"] == "Drip."
    assert "Write about rain, sad, as Ada would. Be kind. {unknown}" in played.prompt(0)
    assert len(played.model.requests[0].messages) == 1


def test_a_history_is_restored_as_it_was() -> None:
    made = History(EMPTY, "the beginning")
    for number in range(3 * MOST_TURNS):
        made.add("user" if number % 2 else "assistant", f"turn {number}\nand more")
    again = History.restored(EMPTY, made.kept(), made.texts())
    assert [block.text for block in again.context] == [block.text for block in made.context]
    made.add("user", "one more")
    again.add("user", "one more")
    assert again.context == made.context
