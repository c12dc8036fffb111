"""Programs with the commands that run nothing: findings, summaries, and what a run would do."""

from __future__ import annotations

import re
from pathlib import Path

import cuebook
from tests.support.command_line import CommandLine

MAIN = "# Desk\n## Main\n### Triggers\n- T1:BGN At the beginning\n### Steps\n!import steps/first.txt\n- 02:RET\n"


def test_programs_are_found_in_a_folder_and_checked_with_what_they_import(bare_cli: CommandLine) -> None:
    (bare_cli.work / "steps").mkdir()
    bare_cli.write("steps/first.txt", "- 01:EXE $x = 1\n- 01:JMP 09\n")
    bare_cli.write("main.pbasm", MAIN)
    bare_cli.write("other.pb", "# Desk\n!import gone.md\n")
    ran = bare_cli.call("validate", ".", "--json")
    assert ran.code == 2
    findings = {Path(file["file"]).name: file["findings"] for file in ran.object["files"] if file["findings"]}
    assert [(one["line"], one["code"], one["message"]) for one in findings["main.pbasm"]] == [
        (6, "DANGLING_JUMP", "steps/first.txt:2: Main: 01 jumps to 09, which does not exist."),
        (6, "DUPLICATE_LINE", "steps/first.txt:2: Main: The number 01 is used 2 times."),
    ]
    assert [(one["line"], one["code"]) for one in findings["other.pb"]] == [(2, "IMPORT")]
    said = bare_cli.call("validate", "other.pb").out
    assert "other.pb:2: error: The file 'gone.md' cannot be imported: There is no 'gone.md'" in said
    log = bare_cli.call("validate", "main.pbasm", "--sarif").object
    assert {one["ruleId"] for one in log["runs"][0]["results"]} == {"DANGLING_JUMP", "DUPLICATE_LINE"}


def test_a_program_is_loaded_with_what_it_imports(bare_cli: CommandLine) -> None:
    (bare_cli.work / "steps").mkdir()
    bare_cli.write("steps/first.txt", "- 01:EXE $x = 1\n")
    playbook = cuebook.load(bare_cli.write("main.pbasm", MAIN))
    assert playbook.text == MAIN.replace("!import steps/first.txt", "- 01:EXE $x = 1")
    assert playbook.check() == []


def test_a_source_that_is_not_compiled_is_an_error_wherever_it_is_looked_at(cli: CommandLine) -> None:
    cli.write("hello.pb", "# Greeter\n## Main\n### Triggers\n- At the beginning\n### Steps\n- Greet the user\n")
    said = cli.call("validate", "hello.pb")
    assert said.code == 2
    assert "hello.pb:2: error: The steps of 'Main' are not compiled." in said.out
    for command in ("explain", "run"):
        ran = cli.call(command, "hello.pb")
        assert (ran.code, "not compiled" in ran.err) == (2, True), command
        assert "hello.pb:2" in ran.err


# --- what a program is about, and what it would do -------------------------------------------------------------

SHOP = """\
---
title: The shop
---
# Desk
Serves people.

```python
@playbook
async def Price(name: str) -> float:
    \"\"\"What it costs.\"\"\"
    if name == "tea":
        return 2.5
    await Say("user", "What does it cost?")
    return float((await WaitForMessage("user"))[-1])
```

## Main($name:str, $pieces:int = 1) -> float
Sells something.
### Triggers
- T1:BGN At the beginning
### Steps
- 01:QUE $price:float = Price(name=$name)
- 02:YLD for call
- 03:CND If $price > 100
  - 03.01:QUE Say(user, Ask whether that is not too much); YLD for user
  - 03.02:CND If the user does not like it
    - 03.02.01:RET 0
- 04:CND Otherwise
  - 04.01:QUE Thank(name=$name)
- 05:CND While $pieces > 1
  - 05.01:EXE $pieces = $pieces - 1
  - 05.02:JMP 05
- 06:RET $price

## Thank($name:str)
execution_mode: react
Thank the user for buying $name.
### Triggers
- T1:CND When the user says thank you

## Unused
### Steps
- 01:RET
"""


def test_a_summary_says_what_is_called_asked_and_waited_for(bare_cli: CommandLine) -> None:
    bare_cli.write("shop.pbasm", SHOP)
    said = bare_cli.call("summary", "shop.pbasm").out
    assert said.startswith("The shop\ninput     name (string; required)\ninput     pieces (number; default: 1)\n")
    assert "begins    Desk.Main\nagent     Desk: Serves people.\n" in said
    assert "  Price($name:str) -> float: Python; waits for the user\n" in said
    assert (
        "  Main($name:str, $pieces:int) -> float: 12 lines; 2 of them for a model; waits for the user; calls Price, Thank\n"
        in said
    )
    made = bare_cli.call("summary", "shop.pbasm", "--json").object
    assert made["dialect"] == "program"
    assert {one["id"]: (one["lines"], one["lines_for_a_model"], one["calls"]) for one in made["playbooks"]} == {
        "Desk.Price": (0, 0, []),
        "Desk.Main": (12, 2, ["Desk.Price", "Desk.Thank"]),
        "Desk.Thank": (0, 0, []),
        "Desk.Unused": (1, 0, []),
    }


def test_a_program_is_printed_as_it_is_read(bare_cli: CommandLine) -> None:
    bare_cli.write("shop.pbasm", SHOP)
    said = bare_cli.call("parse", "shop.pbasm").out
    assert (
        "\n  listing Main (line 17)\n    T1:BGN At the beginning\n    01:QUE $price:float = Price(name=$name)\n" in said
    )
    assert "\n      03.01:QUE Say(user, Ask whether" in said
    parsed = bare_cli.call("parse", "shop.pbasm", "--json")
    assert parsed.code == 0
    assert parsed.object["valid"]
    main = parsed.object["definition"]["agents"]["Desk"]["playbooks"]["Main"]
    assert [line["number"] for line in main["steps"]][:4] == ["01", "02", "03", "03.01"]
    bare_cli.write("bad.pbasm", "# Desk\n!import gone.md\n")
    parsed = bare_cli.call("parse", "bad.pbasm", "--json")
    assert parsed.code == 2
    assert not parsed.object["valid"]
    assert [one["line"] for one in parsed.object["errors"]] == [2]


def test_control_flow_and_calls_are_drawn(bare_cli: CommandLine) -> None:
    bare_cli.write("shop.pbasm", SHOP)
    lines = bare_cli.call("graph", "shop.pbasm").out.splitlines()
    assert lines[0] == "flowchart TD"
    assert '    subgraph p1["Desk.Price(#36;name#58;str) -#62; float"]' in lines
    assert '        p1_0[["Price<br/>Python"]]' in lines
    flow = [line.strip() for line in lines if line.strip().startswith("p2_") and "-->" in line]
    assert flow == [
        "p2_0 --> p2_1",
        "p2_1 --> p2_2",
        'p2_2 -->|"yes"| p2_3',
        'p2_2 -->|"no"| p2_6',
        "p2_3 --> p2_4",
        'p2_4 -->|"yes"| p2_5',
        'p2_4 -->|"no"| p2_6',
        "p2_6 --> p2_7",
        "p2_6 --> p2_8",
        "p2_7 --> p2_8",
        'p2_8 -->|"yes"| p2_9',
        'p2_8 -->|"no"| p2_11',
        "p2_9 --> p2_10",
        "p2_10 --> p2_8",
    ]
    assert [line.strip() for line in lines if "-.->" in line] == ["p2_0 -.-> p1_0", "p2_7 -.-> p3_0"]
    assert "    start --> p2_0" in lines


def test_explain_shows_which_lines_need_a_model_and_what_bounds_a_run(cli: CommandLine) -> None:
    cli.write("shop.pbasm", SHOP)
    said = cli.call("explain", "shop.pbasm", "--name", "tea").out
    assert said.startswith("The shop\n  name = tea\n  pieces = 1\n  model test/echo-1\n")
    assert re.search(r"\n      03.01 QUE Say\(user, Ask whether .*: asks the model, then waits for the user\n", said)
    assert "\n    04 CND Otherwise\n" in said
    assert "\n    05 CND While $pieces > 1\n" in said
    assert "Desk.Unused" not in said, "nothing leads there"
    assert "allow model test/echo-1: a model is allowed (default)" in said
    assert "note  Its Python runs in a sandbox" in said
    assert "2 lines for a model; how often it is called depends on the conversation" in said
    made = cli.call("explain", "shop.pbasm", "--json").object
    assert "Missing: name (str)." in made["notes"]
    (main,) = [one for one in made["playbooks"] if one["playbook"] == "Desk.Main"]
    assert [one["line"] for one in main["lines"] if one["asks_model"]] == ["03.01", "03.02"]


def test_what_is_not_for_programs_says_so_and_what_is(cli: CommandLine) -> None:
    cli.write("shop.pbasm", SHOP)
    for args, words in (
        (
            ("plan", "shop.pbasm"),
            "--plan cannot show the steps of this playbook: what each line does is known only when",
        ),
        (("convert", "shop.pbasm", "--to", "json"), "supports only Markdown playbooks; this is a program."),
        (
            ("run", "shop.pbasm", "--name", "tea", "--dry-run"),
            "--dry-run cannot show the steps of this playbook: what each line does is known only when",
        ),
    ):
        ran = cli.call(*args)
        assert ran.code == 2
        assert words in ran.err
    assert cli.call("runs").out == "There are no runs yet. `cuebook run FILE` starts one.\n"
