"""Reading playbooks without running them: parse, validate, summary, convert and new."""

from __future__ import annotations

import ctypes
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cuebook.dialects.markdown import MARKDOWN
from cuebook.dialects.markdown.check import check
from cuebook.dialects.markdown.convert import result_object
from cuebook.dialects.markdown.parse import read
from cuebook.surfaces.cli import call
from cuebook.surfaces.cli.commands.validate import write_text
from tests.support.command_line import TEA, CommandLine, finished

ROOT = Path(__file__).resolve().parents[4]
GUIDE = ROOT / "docs" / "guides" / "markdown.md"

TRIAGE = """\
# Triage

Sorts a report.

## INPUTS

- `report` (text): What was reported
- `depth` (enum: quick, thorough): How closely to look

## STEP 1: Sort

@prompt(library:criteria)

Which kind is it?

{{report}}

@output(kind: enum, "bug", "wish")

## STEP 2: Route

```if kind == "bug"```

### STEP 2a: Fetch

@tool(tracker, find, {"text": "{{report}}"})

```else```

### STEP 2b: Ask

@elicit(select, "Who decides?", "Ada", "Bob", default:"Ada")

```endif```

@output(result)

## STEP 3: Report

Write it down: {{result}}, {{depth}}

## ARTIFACTS

type: markdown
"""
BROKEN = "# Broken\n\n## STEP 1: A\n\n```if loud```\n\nShout.\n\n{{nobody}}\n"


class Said:
    """The output of a command that is called in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *args: str | Path) -> None:
        self.code = call([str(arg) for arg in args])
        self.out, self.err = capsys.readouterr()

    @property
    def object(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "triage.playbook.md").write_text(TRIAGE)
    (tmp_path / "broken.playbook.md").write_text(BROKEN)
    return tmp_path


# --- parse ----------------------------------------------------------------------------------------------


def test_parse_prints_the_object_of_the_vectors(bare_cli: CommandLine) -> None:
    ran = bare_cli.call("parse", "tea.md", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert list(ran.object) == ["valid", "definition", "warnings", "errors"]
    assert ran.object == result_object(read(TEA))


def test_parse_reads_stdin(bare_cli: CommandLine) -> None:
    ran = bare_cli.call("parse", "-", "--json", stdin=TRIAGE)
    assert (ran.code, ran.object["definition"]["title"]) == (0, "Triage")


def test_an_invalid_playbook_is_also_an_object_with_exit_code_2(bare_cli: CommandLine) -> None:
    ran = bare_cli.call("parse", "-", "--json", stdin="Just prose.\n")
    assert (ran.code, ran.err) == (2, "")
    assert (ran.object["valid"], ran.object["definition"]) == (False, None)
    assert "No title found" in ran.object["errors"][0]["message"]
    words = bare_cli.call("parse", "-", stdin="Just prose.\n")
    assert (words.code, words.out) == (2, "")
    assert words.err.startswith("cuebook: stdin: No title found")


def test_parse_shows_an_outline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Said(capsys, "parse", "triage.playbook.md")
    assert said.code == 0
    assert "  report (text; required): What was reported" in said.out
    assert "  1 Sort (line 10)\n    begins with library:criteria\n    sets kind (enum: bug, wish)" in said.out
    assert '    if kind == "bug"\n      2a Fetch (line 24)\n        calls tracker.find' in said.out
    assert "        asks the user: Who decides? (Ada, Bob)" in said.out
    assert "artifact: markdown" in said.out


# --- validate -------------------------------------------------------------------------------------------


def test_a_finding_is_a_line_with_its_place_its_fix_and_its_code(bare_cli: CommandLine) -> None:
    bare_cli.write("broken.md", BROKEN)
    ran = bare_cli.call("validate", "broken.md")
    assert ran.code == 2
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert lines[0].startswith("broken.md:5:1: error: ")
    assert lines[0].endswith(" [branch_marker]")
    assert "Write ```if loud ==" in lines[0]
    assert lines[-1].startswith("1 playbook, 1 error, 1 warning")


def test_a_warning_decides_only_where_it_is_strict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "odd.md").write_text("# Odd\n\n## STEP 2: A\n\nHello.\n")
    assert Said(capsys, "validate", "odd.md").code == 0
    assert Said(capsys, "validate", "odd.md", "--strict").code == 2
    quiet = Said(capsys, "validate", "odd.md", "--quiet")
    assert (quiet.code, quiet.out) == (0, "")
    strict = Said(capsys, "validate", "odd.md", "--quiet", "--strict")
    assert strict.out.startswith("odd.md:3:1: warning: Non-sequential step number")


def test_a_sound_playbook_says_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Said(capsys, "validate", "triage.playbook.md", "--strict")
    assert (said.code, said.out) == (0, "1 playbook, no problems\n")


def test_folders_are_searched(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "deep").mkdir()
    (folder / "deep" / "c.playbook.md").write_text("# C\n\n## STEP 1: A\n\nx\n")
    (folder / ".hidden").mkdir()
    (folder / ".hidden" / "d.playbook.md").write_text("no playbook")
    said = Said(capsys, "validate", ".", "--json")
    assert [file["file"] for file in said.object["files"]] == [
        "broken.playbook.md",
        "deep/c.playbook.md",
        "triage.playbook.md",
    ]
    (folder / "empty").mkdir()
    nothing = Said(capsys, "validate", "empty")
    assert nothing.code == 2
    assert (
        "There are no playbooks in empty: no workflow graph, no pipeline, no program, no Markdown playbook."
        in nothing.err
    )


def test_other_pages_with_steps_are_playbooks_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "plain.md").write_text(TEA)
    (folder / "prose.md").write_text("# Prose\n\n## Step by step\n\nWords.\n")
    (folder / "shows.md").write_text(f"# How to write one\n\n````markdown\n{TRIAGE}````\n")
    (folder / "odd.md").write_bytes(b"\xff\xfe")
    (folder / "empty.playbook.md").write_text("")
    (folder / "folder.md").mkdir()
    said = Said(capsys, "validate", ".", "--json")
    assert [file["file"] for file in said.object["files"]] == [
        "broken.playbook.md",
        "empty.playbook.md",
        "plain.md",
        "triage.playbook.md",
    ]


def test_findings_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Said(capsys, "validate", ".", "--json")
    assert said.code == 2
    assert (said.object["valid"], said.object["errors"]) == (False, 1)
    broken, triage = said.object["files"]
    assert (broken["valid"], triage["valid"], triage["findings"]) == (False, True, [])
    first = broken["findings"][0]
    assert (first["code"], first["severity"], first["line"], first["column"]) == ("branch_marker", "error", 5, 1)
    assert first["fix"]


def test_findings_of_all_files_are_one_run_of_sarif(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "odd.playbook.md").write_text("# Odd\n\n## STEP 2: A\n\n{{nobody}}\n")
    log = Said(capsys, "validate", ".", "--sarif").object
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    assert rules == sorted(set(rules))
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])
    where = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    assert {place["artifactLocation"]["uri"] for place in where} == {"broken.playbook.md", "odd.playbook.md"}
    assert where[0]["region"] == {"startLine": 5, "startColumn": 1}
    both = Said(capsys, "validate", ".", "--sarif", "--json")
    assert (both.code, both.err.count("\n")) == (2, 1)


def test_a_binary_file_is_a_finding_and_an_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "latin.playbook.md").write_bytes(b"# Tea\n\ncaf\xe9\n")
    said = Said(capsys, "validate", ".")
    assert (said.code, "triage" in said.out or "broken.playbook.md:5" in said.out) == (2, True), (
        "the others are reported"
    )
    line = "latin.playbook.md:3:1: error: This is not UTF-8 text. Save it as UTF-8. [not_text]\n"
    assert line in said.out
    (file,) = Said(capsys, "validate", "latin.playbook.md", "--json").object["files"]
    assert [(one["code"], one["line"]) for one in file["findings"]] == [("not_text", 3)]
    (result,) = Said(capsys, "validate", "latin.playbook.md", "--sarif").object["runs"][0]["results"]
    assert result["ruleId"] == "not_text"
    parsed = Said(capsys, "parse", "latin.playbook.md", "--json")
    assert (parsed.code, parsed.object["valid"], parsed.object["definition"]) == (2, False, None)
    assert parsed.object["errors"] == [{"line": 3, "message": "This is not UTF-8 text."}]
    words = Said(capsys, "parse", "latin.playbook.md")
    assert (words.code, words.err) == (2, "cuebook: latin.playbook.md:3: this is not UTF-8 text. Save it as UTF-8.\n")


def _without_privileges() -> None:
    """Root may look into every folder, unless these two capabilities are taken away: DAC_OVERRIDE, DAC_READ_SEARCH."""
    library = ctypes.CDLL(None)
    for capability in (1, 2):
        library.prctl(24, capability, 0, 0, 0)


def test_a_folder_that_cannot_be_searched_is_said(bare_cli: CommandLine) -> None:
    closed = bare_cli.work / "books" / "closed"
    closed.mkdir(parents=True)
    bare_cli.write("books/tea.playbook.md", TEA)
    bare_cli.write("books/closed/broken.playbook.md", BROKEN)
    closed.chmod(0)
    try:
        ran = finished(bare_cli.begin("validate", "books", before=_without_privileges))
    finally:
        closed.chmod(0o700)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "cuebook: Cannot search books/closed: Permission denied. Check its permissions, or pass individual files.\n"
    )


# --- summary --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["summary", "info"])
def test_the_summary_has_the_keys_that_others_know(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    made = Said(capsys, name, "triage.playbook.md", "--json").object
    known = {
        "title": "Triage",
        "description": "Sorts a report.",
        "input_count": 2,
        "step_count": 3,
        "step_titles": ["Sort", "Route", "Report"],
        "artifact_type": "markdown",
        "has_branching": True,
        "has_elicitation": True,
        "has_tool_calls": True,
        "directives_used": ["@elicit", "@output", "@prompt", "@tool"],
    }
    assert {key: made[key] for key in known} == known
    assert (made["tools"], made["prompts"], made["outputs"]) == (
        ["tracker.find"],
        ["library:criteria"],
        ["kind", "result"],
    )


def test_the_summary_in_words(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = Said(capsys, "summary", "triage.playbook.md").out
    assert out.startswith("Triage\n\nSorts a report.\n")
    assert "step      2 Route (branches)" in out
    assert "tools     tracker.find" in out


# --- convert --------------------------------------------------------------------------------------------


def test_a_playbook_goes_to_json_and_back(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert Said(capsys, "convert", "triage.playbook.md", "--to", "json", "-o", "triage.json").code == 0
    definition = json.loads((folder / "triage.json").read_text())
    assert definition == result_object(read(TRIAGE))["definition"]
    said = Said(capsys, "convert", "triage.json", "--to", "playbook")
    assert said.code == 0
    assert without_lines(result_object(read(said.out))["definition"]) == without_lines(definition)


def test_what_parse_prints_converts_as_well(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "parsed.json").write_text(Said(capsys, "parse", "triage.playbook.md", "--json").out)
    back = Said(capsys, "convert", "parsed.json", "--to", "playbook").out
    assert back == Said(capsys, "convert", "triage.playbook.md", "--to", "playbook").out


def test_a_playbook_may_begin_with_a_brace(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "brace.md").write_text(f"{{ draft }}\n\n{TEA}")
    said = Said(capsys, "convert", "brace.md", "--to", "json")
    assert (said.code, said.err) == (0, "")
    assert without_lines(said.object) == without_lines(result_object(read(TEA))["definition"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"title": ', "bad.json:1: invalid JSON"),
        ('{"title": "A", "steps": []}', "bad.json: steps: No steps found"),
        ('{"title": "A\\nB", "steps": [{"number": 1, "title": "B"}]}', "title cannot be written"),
        (
            '{"title": "A", "steps": [{"number": 1, "title": "B", "content": "\\ud800"}]}',
            "steps[0].content cannot be written: it contains a lone surrogate.",
        ),
    ],
)
def test_json_that_is_not_a_playbook_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    (folder / "bad.json").write_text(text)
    said = Said(capsys, "convert", "bad.json", "--to", "playbook")
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert words in said.err


def test_a_file_is_not_emptied_for_what_cannot_be_written(folder: Path) -> None:
    (folder / "kept.md").write_text("kept")
    with pytest.raises(UnicodeEncodeError):
        write_text("kept.md", "\ud800")
    assert (folder / "kept.md").read_text() == "kept"


def test_a_place_that_cannot_be_written_is_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Said(capsys, "convert", "triage.playbook.md", "--to", "json", "-o", "nowhere/x.json")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "nowhere/x.json cannot be written" in said.err


def without_lines(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_lines(inner) for name, inner in value.items() if name != "line"}
    return [without_lines(inner) for inner in value] if isinstance(value, list) else value


# --- new ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("template", MARKDOWN.templates)
def test_a_new_playbook_has_no_flaws(folder: Path, capsys: pytest.CaptureFixture[str], template: str) -> None:
    said = Said(capsys, "new", f"my-{template}", "--template", template)
    assert (said.code, said.out) == (0, f"my-{template}.playbook.md\n")
    text = (folder / f"my-{template}.playbook.md").read_text()
    assert text.startswith(f"# My {template}\n")
    assert check(text, "new") == []


def test_what_is_there_is_not_overwritten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = Said(capsys, "new", "triage")
    assert (said.code, said.out) == (2, "")
    assert "triage.playbook.md already exists." in said.err
    assert (folder / "triage.playbook.md").read_text() == TRIAGE


@pytest.mark.parametrize("name", ["", "..", "a\nb", "x" * 300])
def test_a_name_that_cannot_be_one_is_refused(folder: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    said = Said(capsys, "new", name)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)


# --- what is written about it ---------------------------------------------------------------------------


def guide() -> list[str]:
    return re.findall(r"^````markdown\n(.*?)^````$", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("text", guide(), ids=range(1, len(guide()) + 1))
def test_every_playbook_of_the_guide_is_sound(text: str) -> None:
    assert read(text).valid
    assert check(text, "guide") == []


def test_the_guide_grows_one_playbook_through_the_whole_dialect() -> None:
    texts = guide()
    assert len(texts) >= 8
    for word in ("## SYSTEM", "## INPUTS", "@output(", "```if", "@elicit(", "@prompt(", "@tool(", "## ARTIFACTS"):
        assert any(word in text for text in texts), word


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.md")), ids=lambda path: path.name)
def test_every_example_is_sound(path: Path) -> None:
    assert check(path.read_text(encoding="utf-8"), path.name) == []
