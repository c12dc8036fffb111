"""Inputs from files: a value reaches the playbook as written, and a file of any size is handled."""

from __future__ import annotations

import json
import resource

import pytest

from tests.support.command_line import CommandLine, finished

BOOK = "# V\n\n## INPUTS\n\n- `v` (string): V\n- `n` (number: 1): N\n\n## STEP 1: Do\n\n{{v}} {{n}}\n"
NESTED = '{"a": [1.10, 1e3, 00123, 0x1F, true, null, "é\\n"]}'


def prompt(cli: CommandLine, name: str, text: str) -> str:
    cli.write("v.md", BOOK)
    cli.write(name, text)
    ran = cli.call("run", "v.md", "--inputs", name, "--dry-run", "--json")
    assert ran.code == 0, ran.err
    return str(ran.object[0]["prompt"])


YAML = ["1.10", "1e3", "0o17", "0x1F", "00123", "1_000", ".5", "+5", "-0", "2024-01-02", "2024-01-02 10:00:00", "yes"]


@pytest.mark.parametrize("value", YAML)
def test_a_value_in_yaml_stays_as_it_is_written(bare_cli: CommandLine, value: str) -> None:
    assert prompt(bare_cli, "v.yaml", f"v: {value} # why\nn: 5\n") == f"{value} 5"


@pytest.mark.parametrize("value", ["1.10", "1e3", "1E+3", "-0.0", "9" * 5000])
def test_a_number_in_json_stays_as_it_is_written(bare_cli: CommandLine, value: str) -> None:
    assert prompt(bare_cli, "v.json", f'{{"v": {value}, "n": 5.00}}') == f"{value} 5.00"


def test_what_has_parts_becomes_json_with_its_numbers_as_they_were(bare_cli: CommandLine) -> None:
    shown = prompt(bare_cli, "v.yaml", f"v: {NESTED}\n")
    assert shown == '{"a": [1.10, 1e3, "00123", "0x1F", true, null, "é\\n"]} 1'
    in_json = NESTED.replace("00123, 0x1F, ", "")
    assert prompt(bare_cli, "v.json", f'{{"v": {in_json}}}') == f"{in_json} 1"
    assert json.loads(in_json)


def test_a_name_without_a_value_is_as_if_it_were_not_there(bare_cli: CommandLine) -> None:
    assert prompt(bare_cli, "v.yaml", "v: x\nn:\n") == "x 1"
    assert prompt(bare_cli, "v.json", '{"v": true, "n": null}') == "true 1"


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefg", "bcdefgh", strict=True)
)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("bomb.yaml", f"{BOMB}v: *h\n", "--inputs: bomb.yaml:5: this is nested too deeply or has too many values."),
        (
            "deep.json",
            '{"v": ' + "[" * 100_000 + "]" * 100_000 + "}",
            "--inputs: deep.json:1: this is nested too deeply or has too many values.",
        ),
        (
            "deep.yaml",
            "v: " + "[" * 1000 + "]" * 1000,
            "--inputs: deep.yaml:1: this is nested too deeply or has too many values.",
        ),
        ("list.json", "[1]", "--inputs: list.json is not a table of names and values."),
        ("odd.yaml", "v: !!int abc\n", "--inputs: odd.yaml:1: 'abc' is not a valid int."),
    ],
)
def test_an_unusable_file_is_reported_with_its_line(bare_cli: CommandLine, name: str, text: str, words: str) -> None:
    bare_cli.write("v.md", BOOK)
    bare_cli.write(name, text)
    ran = bare_cli.call("run", "v.md", "--inputs", name, "--dry-run")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert words in ran.err


def _with_little_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (2_000_000_000, 2_000_000_000))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("parse huge.md", "huge.md: Document exceeds 200KB size limit"),
        ("validate huge.md", "[too_large]"),
        ("summary huge.md", "Document exceeds 200KB size limit"),
        ("explain huge.md", "Document exceeds 200KB size limit"),
        ("run huge.md", "Document exceeds 200KB size limit"),
        ("parse /dev/zero", "/dev/zero: Document exceeds 200KB size limit"),
        ("convert /dev/zero --to json", "/dev/zero has more than 50,000,000 bytes."),
        ("run tea.md --kind @/dev/zero", "--kind: /dev/zero has more than 50,000,000 bytes."),
        ("run tea.md --inputs /dev/zero", "--inputs: /dev/zero has more than 50,000,000 bytes."),
        ("test huge.md", "Document exceeds 200KB size limit"),
    ],
)
def test_a_file_without_end_is_not_read_to_its_end(bare_cli: CommandLine, line: str, words: str) -> None:
    with open(bare_cli.work / "huge.md", "wb") as huge:
        huge.truncate(3_000_000_000)
    bare_cli.write("huge.test.yaml", "- name: x\n")
    ran = finished(bare_cli.begin(*line.split(), before=_with_little_memory))
    assert ran.code == (1 if line.startswith("test") else 2)
    assert words in ran.out + ran.err
    assert "unexpected" not in ran.err


def test_letters_are_not_cut_in_a_playbook_that_is_too_large(bare_cli: CommandLine) -> None:
    bare_cli.write("long.md", "# é\n\n## STEP 1: A\n\n" + "é" * 1_000_000)
    assert "Document exceeds 200KB size limit" in bare_cli.call("parse", "long.md").err


def test_an_unknown_name_does_not_hide_what_else_is_wrong(bare_cli: CommandLine) -> None:
    bare_cli.write("v.md", BOOK)
    ran = bare_cli.call("run", "v.md", "--input", "w=1", "--input", "x=1", "--n", "many")
    assert (ran.code, ran.out) == (2, "")
    for words in ("no input 'w'", "no input 'x'", "Missing input: v", "Invalid input: n"):
        assert words in ran.err
