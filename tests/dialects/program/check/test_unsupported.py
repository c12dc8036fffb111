"""Unsupported features of the format fail before anything runs, with their line; surprises are warned about."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.dialects.findings import InvalidPlaybook
from cuebook.dialects.program.check.program import check
from cuebook.service.playbooks.library import Library
from tests.dialects.program.harness import ProgramHarness
from tests.dialects.program.machine.test_machine import reply
from tests.dialects.program.samples import SOURCE, line_of

HEAD = "# Desk\nWorks.\n\n## Main() -> None\n### Triggers\n- T1:BGN At the beginning\n"
OTHER = "# Host\nHosts.\n\n## Serve() -> None\n### Triggers\n- T1:EVT When a message comes\n### Steps\n"


def steps(*lines: str, more: str = "") -> str:
    return HEAD + "### Steps\n" + "\n".join(lines) + "\n- 99:RET\n\n" + more


TALK = OTHER + "- 01:QUE Say(Desk, 6 or 8?)\n- 02:YLD for agent Desk\n- 03:RET\n"
PYTHON = "```python\n@playbook\nasync def Check(pin: str) -> bool:\n    agent.state.pin = pin\n    return True\n```\n"
CASES = [
    ("MEETING", steps("- 01:YLD for meeting"), "- 01:YLD"),
    ("MEETING", steps("- 01:QUE Say(meeting, Hello)"), "- 01:QUE"),
    ("MEETING", steps("- 01:QUE InviteToMeeting(100, [Desk])"), "- 01:QUE"),
    (
        "MEETING",
        HEAD.replace("### Triggers", "metadata:\nmeeting: true\n---\n### Triggers") + "### Steps\n- 01:RET\n",
        "## Main",
    ),
    ("CREATE_AGENT", steps("- 01:QUE $a = CreateAgent(Host)"), "- 01:QUE"),
    (
        "CREATE_AGENT",
        steps("- 01:RET", more=PYTHON.replace("agent.state.pin = pin", "await CreateAgent('Host')")),
        "CreateAgent",
    ),
    ("HUMAN_AGENT", steps("- 01:YLD for Alice", more="# Alice:Human\nA person.\n"), "- 01:YLD"),
    ("HUMAN_AGENT", steps("- 01:QUE Say(Alice, Hello)", more="# Alice:Human\nA person.\n"), "- 01:QUE"),
    ("HUMAN_AGENT", steps("- 01:RET", more="# Alice:Human\nA person.\n\n# Bob:Human\nAnother.\n"), "# Bob"),
    (
        "AGENT_DIALOGUE",
        steps("- 01:QUE Say(Host, A table?)", "- 02:YLD for agent Host", more=TALK),
        "- 02:YLD for agent Host",
    ),
    ("PYTHON_STATE", steps("- 01:RET", more=PYTHON), "agent.state"),
    ("NOT_COMPILED", SOURCE, "## Check"),
]


@pytest.mark.parametrize(("code", "text", "at"), CASES, ids=[f"{code}-{at}" for code, _, at in CASES])
async def test_it_is_an_error_with_its_line_and_nothing_runs(code: str, text: str, at: str) -> None:
    found = [one for one in check(text, "a.pbasm") if one.code == code]
    assert [one.severity for one in found[:1]] == ["error"]
    assert found[0].line == line_of(text, at)
    assert found[0].fix
    with pytest.raises(InvalidPlaybook) as refused:
        await ProgramHarness().play(text)
    assert f":{found[0].line}: " in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        steps(
            "- 01:QUE Say(Host, A table?)",
            "- 02:YLD for agent Host",
            more=OTHER + "- 01:QUE Say(Desk, Yes)\n- 02:RET\n",
        ),
        steps("- 01:QUE Say(user, Talk about the meeting)", more="# Alice:Human\nThe user.\n"),
        steps("- 01:RET", more=PYTHON.replace("agent.state.pin = pin", "agent = object\n    agent.state = pin")),
    ],
    ids=["a question and its answer", "one person", "a name of its own"],
)
def test_supported_features_are_not_errors(text: str) -> None:
    assert [one.code for one in check(text, "a.pbasm") if one.severity == "error"] == []


def test_a_playbook_that_calls_itself_shares_its_variables() -> None:
    text = HEAD + (
        "### Steps\n- 01:QUE $r:int = Fib(n=8)\n- 02:YLD for call\n- 03:RET\n\n"
        "## Fib($n:int) -> int\n### Steps\n- 01:CND If $n < 2\n  - 01.01:RET $n\n- 02:QUE $a:int = Fib(n=$n - 1)\n"
        "- 03:YLD for call\n- 04:QUE $b:int = Fib(n=$n - 2)\n- 05:YLD for call\n- 06:RET $a + $b\n"
    )
    (found,) = [one for one in check(text, "a.pbasm") if one.code == "SHARED_VARIABLES"]
    assert (found.severity, found.line) == ("warning", line_of(text, "## Fib"))
    assert "$a, $b" in found.message


@pytest.mark.parametrize(
    ("placeholder", "codes"), [("{timestamp.date()}", 1), ("{$x.upper()}", 1), ("{$x}", 0), ("{Joke()}", 0)]
)
def test_a_placeholder_that_is_never_filled_in_is_warned_about(placeholder: str, codes: int) -> None:
    text = f"{HEAD}\n## Joke($x:str) -> str\nTell one: {placeholder}\n"
    found = [one.code for one in check(text, "a.pbasm") if one.code == "UNKNOWN_PLACEHOLDER"]
    assert found == ["UNKNOWN_PLACEHOLDER"] * codes


async def test_an_agent_that_is_asked_back_by_a_model_gets_the_message_and_a_warning() -> None:
    text = steps("- 01:QUE Say(Host, A table?)", "- 02:YLD for agent Host", more=OTHER + "- 01:RET\n")
    says = [
        reply(
            '`Step["Main:01:QUE"]` `Say("Host", "A table?")`', "trig? no", '`Step["Main:02:YLD"]` yld for agent Host'
        ),
        reply('`Say("Desk", "6 or 8?")`', "yld for agent Desk"),
        reply("yld call"),
    ]
    run = await ProgramHarness().play(text, says, call="Desk.Main")
    assert "Host says: 6 or 8?" in run.prompt(2)
    assert any("Host waits for Desk, while Desk waits for an answer." in one for one in run.seen.warnings)


def test_the_library_does_not_offer_it_and_says_why(tmp_path: Path) -> None:
    (tmp_path / "help.pb").write_text(SOURCE)
    (tmp_path / "meet.pbasm").write_text(steps("- 01:YLD for meeting"))
    (tmp_path / "fine.pbasm").write_text(steps("- 01:EXE $n:int = 1"))
    listed, broken = Library([tmp_path]).found()
    assert [one.path.name for one in listed] == ["fine.pbasm"]
    assert {one.path.name: "not compiled" in one.problem or "meeting" in one.problem for one in broken} == {
        "help.pb": True,
        "meet.pbasm": True,
    }
