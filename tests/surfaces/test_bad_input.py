"""What cannot be used is told in one line with a way out, exit code 2, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.surfaces.desk import TEA, Desk


def refused(desk: Desk, *args: str | Path, stdin: str | None = None) -> str:
    before = desk.files()
    ran = desk.call(*args, stdin=stdin)
    assert (ran.code, ran.out) == (2, ""), ran
    assert ran.err.count("\n") == 1, ran.err
    assert ran.err.startswith("cuebook: ")
    assert "Traceback" not in ran.err
    assert desk.files() == before
    return ran.err


def not_utf8(desk: Desk) -> None:
    (desk.work / "latin.md").write_bytes(b"# Tea\n\ncaf\xe9\n")


def a_folder(desk: Desk) -> None:
    (desk.work / "folder.md").mkdir()


def empty(desk: Desk) -> None:
    desk.write("empty.md", "\n")


def no_title(desk: Desk) -> None:
    desk.write("untitled.md", "## STEP 1: A\n\nB\n")


def no_step(desk: Desk) -> None:
    desk.write("stepless.md", "# Tea\n")


def long_ending(desk: Desk) -> None:
    desk.write("coffee.playbook.md", TEA)


def nothing_in_it(desk: Desk) -> None:
    desk.write("empty.yml", "\n")


def half_of_json(desk: Desk) -> None:
    desk.write("half.json", '{"name": "x",\n')


def indented(desk: Desk) -> None:
    desk.write("indented.yml", "name: X\nsteps:\n  - id: a\n command: cli ls\n")


def required(desk: Desk) -> None:
    desk.write("needy.md", TEA.replace("(string: green)", "(string)"))


def broken_config(desk: Desk) -> None:
    desk.write("cuebook.toml", "model = \n")


def misspelt_config(desk: Desk) -> None:
    desk.write("cuebook.toml", '\nmodell = "a/b"\n')


def key_in_config(desk: Desk) -> None:
    desk.write("cuebook.toml", 'api_key = "sk-very-secret"\n')


def yaml_twice(desk: Desk) -> None:
    desk.write("twice.yaml", "kind: a\nkind: b\n")


def nothing(desk: Desk) -> None:
    pass


CASES: list[tuple[Callable[[Desk], None], str, str]] = [
    (
        nothing,
        "run nowhere.md",
        "There is no file nowhere.md. Check the path; `cuebook new nowhere.md` writes a playbook",
    ),
    (nothing, "run teh.md", "There is no file teh.md. Did you mean tea.md?"),
    (nothing, "run tea", "There is no file tea. Did you mean tea.md?"),
    (long_ending, "run caffee", "There is no file caffee. Did you mean coffee.playbook.md?"),
    (nothing, "run TEA.md", "There is no file TEA.md. Did you mean tea.md?"),
    (nothing, "validate tae.md", "There is no file tae.md. Did you mean tea.md?"),
    (nothing, "test tae.md", "There is no file tae.md. Did you mean tea.md?"),
    (nothing, "run no/tea.md", "There is no file no/tea.md. There is no folder no either: check the path."),
    (nothing, "run .", ". is a folder. Name one of its playbooks: tea.md."),
    (nothing, "graph taa", "There is no file and no run taa. Did you mean tea.md?"),
    (
        nothing,
        "new no/where",
        "no/where.playbook.md cannot be written: there is no folder no. Make it first: mkdir -p no",
    ),
    (
        nothing_in_it,
        "run empty.yml",
        "empty.yml: this is no playbook: the file is empty. A Markdown playbook ends in .md",
    ),
    (half_of_json, "run half.json", "half.json:2: this is not JSON: a name in double quotes is missing."),
    (indented, "run indented.yml", "indented.yml:4: this is not YAML: expected <block end>"),
    (indented, "run indented.yml", "Indent the line as those are that belong with it"),
    (a_folder, "run folder.md", "folder.md is a folder. Give the path of a file."),
    (not_utf8, "run latin.md", "latin.md:3: this is not UTF-8 text. Save it as UTF-8."),
    (empty, "run empty.md", "empty.md: Document is empty"),
    (no_title, "run untitled.md", "document must contain a level-1 heading (# Title). Begin with '# Title'."),
    (no_step, "run stepless.md", "at least one ## STEP heading. Write '## STEP 1: Title', and below it what to do."),
    (required, "run needy.md", "Missing input: kind (string). Give --kind VALUE."),
    (nothing, "run", "Missing argument 'FILE'"),
    (a_folder, "runs --store folder.md", "The store folder.md is a folder."),
    (nothing, "run tea.md --kidn x", "No such option '--kidn'."),
    (nothing, "run tea.md --kind", "requires an argument"),
    (nothing, "run tea.md --kind @nowhere.txt", "--kind: There is no file nowhere.txt."),
    (nothing, "run tea.md --input kidn=x", "declares no input 'kidn'. Did you mean 'kind'?"),
    (nothing, "run tea.md --input kind", "this is no NAME=VALUE"),
    (nothing, "run tea.md --inputs nowhere.yaml", "--inputs: There is no file nowhere.yaml."),
    (
        yaml_twice,
        "run tea.md --inputs twice.yaml",
        "--inputs: twice.yaml:2: 'kind' is there twice. The other is on line 1.",
    ),
    (nothing, "run tea.md --break 9", "--break: there is no step 9. The steps are 1, 2, 3."),
    (nothing, "run tea.md --max-tokens many", "--max-tokens: max_tokens must be a number, not 'many'."),
    (nothing, "run tea.md --budget-money -1", "--budget-money: budget.money must not be negative"),
    (nothing, "run tea.md --model gpt", "The model `gpt` needs a provider, and OPENAI_API_KEY is not set."),
    (nothing, "run tea.md --model opnai/x", "There is no provider `opnai`. Did you mean `openai`?"),
    (nothing, "run tea.md --model openai/gpt-5", "needs a key, and OPENAI_API_KEY is not set."),
    (nothing, "run tea.md --model local/other", "There is no embedded model `other`."),
    (nothing, "run tea.md", "The weights of the embedded model are not on this machine."),
    (broken_config, "run tea.md", "cuebook.toml:1: this is not TOML"),
    (misspelt_config, "run tea.md", "cuebook.toml:2: there is no setting 'modell'. Did you mean 'model'?"),
    (key_in_config, "runs", "'api_key' looks like a key, and keys are never read from a file."),
    (nothing, "rnu tea.md", "There is no command 'rnu'. Did you mean 'run'?"),
    (nothing, "tea.md", "To run the playbook, say `cuebook run tea.md`."),
    (nothing, "runs --status faild", "--status: no run is ever 'faild'. Did you mean failed? There are: pending, "),
    (nothing, "runs --status asleep", "--status: no run is ever 'asleep'. There are: pending, running,"),
    (nothing, "show abc --store typo.db", "There are no runs yet: there is no store typo.db."),
    (nothing, "run tea.md --model nope/x", "There is no provider `nope`. The providers are"),
    (nothing, "decide abc", "Choose from: approve, deny, repeat, stop, done. `cuebook decide --help` shows how."),
    (nothing, "show abc", "There are no runs yet. `cuebook run FILE` starts one."),
    (nothing, "resume abc", "There are no runs yet."),
    (nothing, "cancel abc", "There are no runs yet."),
    (nothing, "events abc --after x", "--after: 'x' is no event id."),
    (nothing, "decide abc maybe", "Invalid value for '{approve|deny|repeat|stop|done}'"),
    (nothing, "keys set nobody", "There is no provider 'nobody'."),
    (nothing, "keys set ollama", "The provider 'ollama' needs no key."),
    (nothing, "keys set openai", "This system has no keyring that Cuebook can use. Set OPENAI_API_KEY"),
]


@pytest.mark.parametrize(("prepare", "line", "words"), CASES, ids=[f"{f.__name__}: {line}" for f, line, _ in CASES])
def test_one_line_says_what_is_wrong(bare_desk: Desk, prepare: Callable[[Desk], None], line: str, words: str) -> None:
    prepare(bare_desk)
    said = refused(bare_desk, *line.split())
    assert words in said
    assert "sk-very-secret" not in said


@pytest.mark.parametrize("words", [["run"], ["policy", "allow", "tool"], ["secrets", "add", "x"], ["show"], []])
def test_an_argument_that_is_no_text_is_told(bare_desk: Desk, words: list[str]) -> None:
    said = refused(bare_desk, *words, "caf\udce9")
    assert f"argument {len(words) + 1} is not UTF-8 text." in said


def test_an_empty_name_is_no_run(desk: Desk) -> None:
    assert desk.call("run", "tea.md").code == 0
    assert refused(desk, "show", "") == "cuebook: There is no run ''. `cuebook runs` lists them.\n"


@pytest.mark.parametrize("name", ["tea.txt", "tea.yml"])
def test_a_playbook_is_checked_as_it_is_run_whatever_its_file_is_called(desk: Desk, name: str) -> None:
    desk.write(name, TEA)
    assert desk.call("run", name).code == 0
    assert desk.call("validate", name).out == "1 playbook, no problems\n"
    assert desk.call("summary", name).out.startswith("Tea\n")


@pytest.mark.parametrize("name", ["notes.txt", "notes.yml", "notes.json"])
def test_what_is_no_playbook_is_none_to_any_command(bare_desk: Desk, name: str) -> None:
    bare_desk.write(name, '{"a": 1}')
    assert "this is no playbook that Cuebook knows." in refused(bare_desk, "run", name)
    found = bare_desk.call("validate", name)
    assert (found.code, "[UNKNOWN_PLAYBOOK]" in found.out) == (2, True)


def test_who_names_nothing_that_waits_is_led_to_the_inbox(desk: Desk) -> None:
    assert desk.call("run", "tea.md").code == 0
    for words in (["inbox", "nonsense"], ["decide", "nonsense", "approve"], ["answer", "nonsense", "x"]):
        said = refused(desk, *words)
        assert said == "cuebook: There is no wait and no run 'nonsense'. `cuebook inbox` lists what waits.\n"


def test_several_problems_of_a_playbook_are_a_line_each(bare_desk: Desk) -> None:
    bare_desk.write(
        "two.md", "# A\n\n## INPUTS\n\n- `b` (string)\n- `b` (string)\n- `b` (number)\n\n## STEP 1: A\n\nB\n"
    )
    ran = bare_desk.call("run", "two.md")
    assert ran.code == 2
    assert [line.split(": ")[1] for line in ran.err.splitlines()] == ["two.md:6", "two.md:7"]


def test_without_a_command_the_help_is_shown(bare_desk: Desk) -> None:
    ran = bare_desk.call()
    assert ran.code == 2
    assert "Commands:" in ran.err
    assert ran.err == bare_desk.call("--help").out


@pytest.mark.parametrize("command", ["runs", "inbox"])
def test_lists_of_nothing_are_no_error(bare_desk: Desk, command: str) -> None:
    before = bare_desk.files()
    ran = bare_desk.call(command)
    assert ran.code == 0
    assert "There are no runs yet." in ran.out
    assert bare_desk.call(command, "--json").object == []
    assert bare_desk.files() == before


def test_a_store_that_is_none_is_refused(bare_desk: Desk) -> None:
    store = bare_desk.write("notes.db", "This is no store. " * 100)
    ran = bare_desk.call("runs", "--store", store)
    assert ran.code == 2
    assert "is not a Cuebook store" in ran.err
    assert ran.err.count("\n") == 1
    assert store.read_text().startswith("This is no store.")


def test_an_unexpected_error_is_short_and_debug_shows_more(bare_desk: Desk) -> None:
    bare_desk.write("sitecustomize.py", "import cuebook.config\ncuebook.config.load = None\n")
    bare_desk.environ["PYTHONPATH"] = f"{bare_desk.work}:{bare_desk.environ['PYTHONPATH']}"
    short = bare_desk.call("doctor")
    assert short.code == 1
    assert short.err.count("\n") == 1
    assert "cuebook --debug" in short.err
    assert "Traceback" in bare_desk.call("--debug", "doctor").err
