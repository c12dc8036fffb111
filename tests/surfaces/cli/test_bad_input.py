"""Invalid input is reported in one line with a fix, exits with code 2, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command_line import TEA, CommandLine


def refused(cli: CommandLine, *args: str | Path, stdin: str | None = None) -> str:
    before = cli.files()
    ran = cli.call(*args, stdin=stdin)
    assert (ran.code, ran.out) == (2, ""), ran
    assert ran.err.count("\n") == 1, ran.err
    assert ran.err.startswith("cuebook: ")
    assert "Traceback" not in ran.err
    assert cli.files() == before
    return ran.err


def not_utf8(cli: CommandLine) -> None:
    (cli.work / "latin.md").write_bytes(b"# Tea\n\ncaf\xe9\n")


def a_folder(cli: CommandLine) -> None:
    (cli.work / "folder.md").mkdir()


def empty(cli: CommandLine) -> None:
    cli.write("empty.md", "\n")


def no_title(cli: CommandLine) -> None:
    cli.write("untitled.md", "## STEP 1: A\n\nB\n")


def no_step(cli: CommandLine) -> None:
    cli.write("stepless.md", "# Tea\n")


def long_ending(cli: CommandLine) -> None:
    cli.write("coffee.playbook.md", TEA)


def nothing_in_it(cli: CommandLine) -> None:
    cli.write("empty.yml", "\n")


def half_of_json(cli: CommandLine) -> None:
    cli.write("half.json", '{"name": "x",\n')


def indented(cli: CommandLine) -> None:
    cli.write("indented.yml", "name: X\nsteps:\n  - id: a\n command: cli ls\n")


def required(cli: CommandLine) -> None:
    cli.write("needy.md", TEA.replace("(string: green)", "(string)"))


def broken_config(cli: CommandLine) -> None:
    cli.write("cuebook.toml", "model = \n")


def misspelt_config(cli: CommandLine) -> None:
    cli.write("cuebook.toml", '\nmodell = "a/b"\n')


def key_in_config(cli: CommandLine) -> None:
    cli.write("cuebook.toml", 'api_key = "sk-very-secret"\n')


def yaml_twice(cli: CommandLine) -> None:
    cli.write("twice.yaml", "kind: a\nkind: b\n")


def nothing(cli: CommandLine) -> None:
    pass


CASES: list[tuple[Callable[[CommandLine], None], str, str]] = [
    (
        nothing,
        "run nowhere.md",
        "There is no file nowhere.md. Check the path; `cuebook new nowhere.md` creates a playbook",
    ),
    (nothing, "run teh.md", "There is no file teh.md. Did you mean tea.md?"),
    (nothing, "run tea", "There is no file tea. Did you mean tea.md?"),
    (long_ending, "run caffee", "There is no file caffee. Did you mean coffee.playbook.md?"),
    (nothing, "run TEA.md", "There is no file TEA.md. Did you mean tea.md?"),
    (nothing, "validate tae.md", "There is no file tae.md. Did you mean tea.md?"),
    (nothing, "test tae.md", "There is no file tae.md. Did you mean tea.md?"),
    (nothing, "run no/tea.md", "There is no file no/tea.md. There is no folder no either: check the path."),
    (nothing, "run .", ". is a folder. Name one of its playbooks: tea.md."),
    (nothing, "graph taa", "There is no file or run taa. Did you mean tea.md?"),
    (
        nothing,
        "new no/where",
        "no/where.playbook.md cannot be written: there is no folder no. Create it first: mkdir -p no",
    ),
    (
        nothing_in_it,
        "run empty.yml",
        "empty.yml: this is not a playbook: the file is empty. A Markdown playbook ends in .md",
    ),
    (half_of_json, "run half.json", "half.json:2: invalid JSON: expected a name in double quotes."),
    (indented, "run indented.yml", "indented.yml:4: invalid YAML: expected <block end>"),
    (indented, "run indented.yml", "Indent the line like its neighbours"),
    (a_folder, "run folder.md", "folder.md is a folder. Pass the path of a file."),
    (not_utf8, "run latin.md", "latin.md:3: this is not UTF-8 text. Save it as UTF-8."),
    (empty, "run empty.md", "empty.md: Document is empty"),
    (no_title, "run untitled.md", "document must contain a level-1 heading (# Title). Begin with '# Title'."),
    (no_step, "run stepless.md", "at least one ## STEP heading. Write '## STEP 1: Title' and instructions below it."),
    (required, "run needy.md", "Missing input: kind (string). Pass --kind VALUE."),
    (nothing, "run", "Missing argument 'FILE'"),
    (a_folder, "runs --store folder.md", "The store folder.md is a folder."),
    (nothing, "run tea.md --kidn x", "No such option '--kidn'."),
    (nothing, "run tea.md --kind", "requires an argument"),
    (nothing, "run tea.md --kind @nowhere.txt", "--kind: There is no file nowhere.txt."),
    (nothing, "run tea.md --input kidn=x", "declares no input 'kidn'. Did you mean 'kind'?"),
    (nothing, "run tea.md --input kind", "expected NAME=VALUE"),
    (nothing, "run tea.md --inputs nowhere.yaml", "--inputs: There is no file nowhere.yaml."),
    (
        yaml_twice,
        "run tea.md --inputs twice.yaml",
        "--inputs: twice.yaml:2: 'kind' is defined twice. Remove one of them; the first is on line 1.",
    ),
    (nothing, "run tea.md --break 9", "--break: there is no step 9. The steps are 1, 2, 3."),
    (nothing, "run tea.md --max-tokens many", "--max-tokens: max_tokens must be a number, not 'many'."),
    (nothing, "run tea.md --budget-money -1", "--budget-money: budget.money must not be negative"),
    (nothing, "run tea.md --model gpt", "The model `gpt` needs a provider, and OPENAI_API_KEY is not set."),
    (nothing, "run tea.md --model opnai/x", "There is no provider `opnai`. Did you mean `openai`?"),
    (nothing, "run tea.md --model openai/gpt-5", "needs a key, and OPENAI_API_KEY is not set."),
    (nothing, "run tea.md --model local/other", "There is no embedded model `other`."),
    (nothing, "run tea.md", "The weights of the embedded model are not on this machine."),
    (broken_config, "run tea.md", "cuebook.toml:1: invalid TOML"),
    (misspelt_config, "run tea.md", "cuebook.toml:2: there is no setting 'modell'. Did you mean 'model'?"),
    (key_in_config, "runs", "'api_key' looks like a key, but keys are never read from a file."),
    (nothing, "rnu tea.md", "There is no command 'rnu'. Did you mean 'run'?"),
    (nothing, "tea.md", "To run the playbook, type `cuebook run tea.md`."),
    (nothing, "runs --status faild", "--status: unknown status 'faild'. Did you mean failed? Choose from: pending, "),
    (nothing, "runs --status asleep", "--status: unknown status 'asleep'. Choose from: pending, running,"),
    (nothing, "show abc --store typo.db", "There are no runs yet: there is no store typo.db."),
    (nothing, "run tea.md --model nope/x", "There is no provider `nope`. The providers are"),
    (nothing, "decide abc", "Choose from: approve, deny, changes, repeat, stop, done. See `cuebook decide --help`."),
    (nothing, "show abc", "There are no runs yet. `cuebook run FILE` starts one."),
    (nothing, "resume abc", "There are no runs yet."),
    (nothing, "cancel abc", "There are no runs yet."),
    (nothing, "events abc --after x", "--after: 'x' is not an event id."),
    (nothing, "decide abc maybe", "Invalid value for '{approve|deny|changes|repeat|stop|done}'"),
    (nothing, "keys set nobody", "There is no provider 'nobody'."),
    (nothing, "keys set ollama", "The provider 'ollama' needs no key."),
    (nothing, "keys set openai", "This system has no keyring that Cuebook can use. Set OPENAI_API_KEY"),
]


@pytest.mark.parametrize(("prepare", "line", "words"), CASES, ids=[f"{f.__name__}: {line}" for f, line, _ in CASES])
def test_one_line_says_what_is_wrong(
    bare_cli: CommandLine, prepare: Callable[[CommandLine], None], line: str, words: str
) -> None:
    prepare(bare_cli)
    said = refused(bare_cli, *line.split())
    assert words in said
    assert "sk-very-secret" not in said


@pytest.mark.parametrize("words", [["run"], ["policy", "allow", "tool"], ["secrets", "add", "x"], ["show"], []])
def test_an_argument_that_is_not_text_is_reported(bare_cli: CommandLine, words: list[str]) -> None:
    said = refused(bare_cli, *words, "caf\udce9")
    assert f"argument {len(words) + 1} is not UTF-8 text." in said


def test_an_empty_name_does_not_match_a_run(cli: CommandLine) -> None:
    assert cli.call("run", "tea.md").code == 0
    assert refused(cli, "show", "") == "cuebook: There is no run ''. `cuebook runs` lists them.\n"


@pytest.mark.parametrize("name", ["tea.txt", "tea.yml"])
def test_a_playbook_is_checked_as_it_is_run_whatever_its_file_is_called(cli: CommandLine, name: str) -> None:
    cli.write(name, TEA)
    assert cli.call("run", name).code == 0
    assert cli.call("validate", name).out == "1 playbook, no problems\n"
    assert cli.call("summary", name).out.startswith("Tea\n")


@pytest.mark.parametrize("name", ["notes.txt", "notes.yml", "notes.json"])
def test_every_command_refuses_a_file_that_is_not_a_playbook(bare_cli: CommandLine, name: str) -> None:
    bare_cli.write(name, '{"a": 1}')
    assert "this is not a playbook of any known dialect." in refused(bare_cli, "run", name)
    found = bare_cli.call("validate", name)
    assert (found.code, "[UNKNOWN_PLAYBOOK]" in found.out) == (2, True)


def test_who_names_nothing_that_waits_is_led_to_the_inbox(cli: CommandLine) -> None:
    assert cli.call("run", "tea.md").code == 0
    for words in (["inbox", "nonsense"], ["decide", "nonsense", "approve"], ["answer", "nonsense", "x"]):
        said = refused(cli, *words)
        assert said == "cuebook: There is no wait or run 'nonsense'. `cuebook inbox` lists all open waits.\n"


def test_several_problems_of_a_playbook_are_a_line_each(bare_cli: CommandLine) -> None:
    bare_cli.write(
        "two.md", "# A\n\n## INPUTS\n\n- `b` (string)\n- `b` (string)\n- `b` (number)\n\n## STEP 1: A\n\nB\n"
    )
    ran = bare_cli.call("run", "two.md")
    assert ran.code == 2
    assert [line.split(": ")[1] for line in ran.err.splitlines()] == ["two.md:6", "two.md:7"]


def test_without_a_command_the_help_is_shown(bare_cli: CommandLine) -> None:
    ran = bare_cli.call()
    assert ran.code == 2
    assert "Commands:" in ran.err
    assert ran.err == bare_cli.call("--help").out


@pytest.mark.parametrize("command", ["runs", "inbox"])
def test_lists_of_nothing_are_no_error(bare_cli: CommandLine, command: str) -> None:
    before = bare_cli.files()
    ran = bare_cli.call(command)
    assert ran.code == 0
    assert "There are no runs yet." in ran.out
    assert bare_cli.call(command, "--json").object == []
    assert bare_cli.files() == before


def test_a_store_that_is_none_is_refused(bare_cli: CommandLine) -> None:
    store = bare_cli.write("notes.db", "This is no store. " * 100)
    ran = bare_cli.call("runs", "--store", store)
    assert ran.code == 2
    assert "is not a Cuebook store" in ran.err
    assert ran.err.count("\n") == 1
    assert store.read_text().startswith("This is no store.")


def test_an_unexpected_error_is_short_and_debug_shows_more(bare_cli: CommandLine) -> None:
    bare_cli.write("sitecustomize.py", "import cuebook.config\ncuebook.config.load = None\n")
    bare_cli.environ["PYTHONPATH"] = f"{bare_cli.work}:{bare_cli.environ['PYTHONPATH']}"
    short = bare_cli.call("doctor")
    assert short.code == 1
    assert short.err.count("\n") == 1
    assert "cuebook --debug" in short.err
    assert "Traceback" in bare_cli.call("--debug", "doctor").err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["worker", "--metrics", "9464"], "must be HOST:PORT, such as 127.0.0.1:9464, not '9464'."),
        (["prune", "--older-than", "30x"], 'such as "24h" or "7d", or "never", not \'30x\'. Correct it.'),
        (["prune", "--older-than", "30d", "--playbook", ""], "--playbook: expected a value, got an empty one."),
        (["cancel", "--status", "paused", "--owner", "", "--yes"], "--owner: expected a value, got an empty one."),
        (["budget", "set", "--person", "", "--day", "1"], "--person: expected a value, got an empty one."),
        (["prune", "--status", "running"], "--status: runs cannot be pruned by 'running'. Choose from: cancelled,"),
    ],
)
def test_what_is_wrong_with_a_flag_is_said_in_its_own_words(cli: CommandLine, words: list[str], error: str) -> None:
    ran = cli.call(*words)
    assert (ran.code, error in ran.err.replace("\n", " ")) == (2, True), ran.err
    assert "retention.older_than" not in ran.err
    assert "temporal" not in ran.err
