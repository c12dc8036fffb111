"""Programs at the commands that run nothing: what `validate` finds in them and in what they import."""

from __future__ import annotations

from pathlib import Path

import cuebook
from tests.surfaces.desk import Desk

MAIN = "# Desk\n## Main\n### Triggers\n- T1:BGN At the beginning\n### Steps\n!import steps/first.txt\n- 02:RET\n"


def test_programs_are_found_in_a_folder_and_checked_with_what_they_import(bare_desk: Desk) -> None:
    (bare_desk.work / "steps").mkdir()
    bare_desk.write("steps/first.txt", "- 01:EXE $x = 1\n- 01:JMP 09\n")
    bare_desk.write("main.pbasm", MAIN)
    bare_desk.write("other.pb", "# Desk\n!import gone.md\n")
    ran = bare_desk.call("validate", ".", "--json")
    assert ran.code == 2
    findings = {Path(file["file"]).name: file["findings"] for file in ran.object["files"] if file["findings"]}
    assert [(one["line"], one["code"], one["message"]) for one in findings["main.pbasm"]] == [
        (6, "DANGLING_JUMP", "steps/first.txt:2: Main: 01 jumps to 09, which is not there."),
        (6, "DUPLICATE_LINE", "steps/first.txt:2: Main: The number 01 is there 2 times."),
    ]
    assert [(one["line"], one["code"]) for one in findings["other.pb"]] == [(2, "IMPORT")]
    said = bare_desk.call("validate", "other.pb").out
    assert "other.pb:2: error: The file 'gone.md' cannot be imported: There is no 'gone.md'" in said
    log = bare_desk.call("validate", "main.pbasm", "--sarif").object
    assert {one["ruleId"] for one in log["runs"][0]["results"]} == {"DANGLING_JUMP", "DUPLICATE_LINE"}


def test_a_program_is_loaded_with_what_it_imports(bare_desk: Desk) -> None:
    (bare_desk.work / "steps").mkdir()
    bare_desk.write("steps/first.txt", "- 01:EXE $x = 1\n")
    playbook = cuebook.load(bare_desk.write("main.pbasm", MAIN))
    assert playbook.text == MAIN.replace("!import steps/first.txt", "- 01:EXE $x = 1")
    assert playbook.check() == []
