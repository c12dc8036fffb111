"""Values hidden from a model: private variables, long results, and repeated content."""

from __future__ import annotations

from typing import Any

from tests.dialects.program.harness import Played, ProgramHarness
from tests.dialects.program.machine.test_machine import program, reply

LONG = "word " * 100_000


async def played(text: str, says: Any = (), answers: tuple[str, ...] = (), **options: Any) -> Played:
    return await ProgramHarness().play(text, says, answers, **options)


def prompts(run: Played) -> str:
    return "\n".join(run.prompt(number) for number in range(len(run.model.requests)))


KEY = '```python\n@playbook\nasync def Key() -> str:\n    return "sec" + "ret"\n```\n'


async def test_private_variables_are_in_no_prompt() -> None:
    text = program(
        "- 01:QUE $_key:str = Key(); YLD for call\n- 02:QUE $_tok:str = Get($_key)\n- 03:YLD for call\n"
        "- 04:QUE $n:int = Use(t=$_tok, _more=$_key); YLD for call\n- 05:EXE Judge $y:int\n- 06:RET $y",
        '## Get($_k:str) -> str\n### Steps\n- 01:EXE Note $a:int\n- 02:RET $_k + "t"\n\n'
        "## Use($t:int, $_more:str) -> int\n### Steps\n- 01:RET 1\n",
    ).replace("Works.\n", f"Works.\n\n{KEY}")
    says = [
        reply('`Step["Get:01:EXE"]` `Var[$a, 1]`', "trig? no", "yld call"),
        reply('`Step["Main:05:EXE"]` `Var[$y, $_key]`', "trig? no", "yld call"),
        reply('`Step["Main:05:EXE"]` `Var[$y, 9]`', "trig? no", "yld call"),
    ]
    run = await played(text, says)
    assert run.result["value"] == 9
    assert "Executing Get($_k=(private))" in prompts(run)
    assert "$_tok = Get((private)) -> (private)" in prompts(run)
    assert "Use(t=(private), _more=(private)) failed" in prompts(run)
    assert "secret" not in prompts(run)


async def test_a_raw_playbook_does_not_see_its_private_parameters() -> None:
    text = program(
        '- 01:QUE $x:str = Poem("s-secret", "rain")\n- 02:YLD for call\n- 03:RET $x',
        "## Poem($_key:str, $topic:str) -> str\nmetadata:\nexecution_mode: raw\n---\nWrite.\n",
    )
    run = await played(text, ["Drip."])
    assert "rain" in run.prompt(0)
    assert "secret" not in run.prompt(0)


FETCH = '```python\n@playbook\nasync def Fetch() -> str:\n    return "word " * 100_000\n```\n'


async def test_a_long_result_becomes_an_artifact() -> None:
    text = program(
        '- 01:QUE $text:str = Fetch()\n- 02:YLD for call\n- 03:EXE Judge $y:int\n- 04:QUE LoadArtifact("text")\n'
        "- 05:YLD for call\n- 06:EXE Judge $z:int\n- 07:QUE $n:int = Count($text)\n- 08:YLD for call\n- 09:RET $n",
        "## Count($t:str) -> int\n### Steps\n- 01:RET len($t)\n",
    ).replace("Works.\n", f"Works.\n\n{FETCH}")
    says = [
        reply('`Step["Main:03:EXE"]` `Var[$y, 1]`', "trig? no", "yld call"),
        reply('`Step["Main:06:EXE"]` `Var[$z, 1]`', "trig? no", "yld call"),
    ]
    run = await played(text, says)
    assert run.result["value"] == len(LONG)
    assert len(run.prompt(0)) < 10_000
    assert "500000 characters" in run.prompt(0)
    assert 'LoadArtifact("text")' in run.prompt(0)
    assert "(not loaded)" in run.prompt(0)
    assert 20_000 < len(run.prompt(1)) < 40_000


async def test_an_unassigned_long_result_is_kept_and_a_long_argument_is_cut() -> None:
    text = program(
        "- 01:QUE Fetch()\n- 02:YLD for call\n- 03:QUE $n:int = Read($_)\n- 04:YLD for call\n- 05:EXE Judge $y:int\n- 06:RET $n",
        "## Read($t:str) -> int\n### Steps\n- 01:EXE Read $m:int\n- 02:RET len($t)\n",
    ).replace("Works.\n", f"Works.\n\n{FETCH}")
    says = [
        reply('`Step["Read:01:EXE"]` `Var[$m, 1]`', "trig? no", "yld call"),
        reply('`Step["Main:05:EXE"]` `Var[$y, 1]`', "trig? no", "yld call"),
    ]
    run = await played(text, says)
    assert run.result["value"] == len(LONG)
    assert len(run.prompt(0)) < 40_000
    assert len(run.prompt(1)) < 10_000
    assert 'LoadArtifact("a_' in run.prompt(1)


async def test_a_variable_that_is_set_again_is_no_longer_an_artifact() -> None:
    text = program(
        '- 01:QUE $text:str = Fetch()\n- 02:YLD for call\n- 03:EXE $text = "short"\n- 04:EXE Judge $y:int\n- 05:RET $y'
    ).replace("Works.\n", f"Works.\n\n{FETCH}")
    run = await played(text, [reply('`Step["Main:04:EXE"]` `Var[$y, 1]`', "trig? no", "yld call")])
    assert '"$text": "short"' in run.prompt(0)
    assert "(not loaded)" not in run.prompt(0)


async def test_what_a_frame_below_shows_is_not_shown_again() -> None:
    text = program(
        "- 01:EXE Write $a\n- 02:QUE Sub()\n- 03:YLD for call\n- 04:EXE End $b:int\n- 05:RET $b",
        '## Sub() -> None\n### Steps\n- 01:EXE Read $c:str\n- 02:QUE LoadArtifact("a")\n- 03:YLD for call\n'
        "- 04:EXE Read again $c\n- 05:RET\n",
    )
    big = "LONGCONTENT " * 400
    says = [
        reply(f'`Step["Main:01:EXE"]` `Artifact[$a, "sum", "{big}"]`', "trig? no", "yld call"),
        reply('`Step["Sub:01:EXE"]` `Var[$c, "x"]`', "trig? no", "yld call"),
        reply('`Step["Sub:04:EXE"]` `Var[$c, "y"]`', "trig? no", "yld call"),
        reply('`Step["Main:04:EXE"]` `Var[$b, 1]`', "trig? no", "yld call"),
    ]
    run = await played(text, says)
    assert run.result["value"] == 1
    assert run.prompt(2).count(big) == 1
