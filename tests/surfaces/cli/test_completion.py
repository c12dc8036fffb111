"""Shell completion at Tab: commands, options, the inputs of a playbook and their values."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine
from tests.support.model_server import ModelServer
from tests.surfaces.cli.test_imports import HEAVY

ASKING = """\
# Asking

## STEP 1: Color

@elicit(select, "Which?", "sky blue", "rose")

## STEP 2: Branch

```if a == "b"```

### STEP 2a: Sure

@elicit(confirm, "Sure?")

```endif```

## STEP 3: Words

@elicit(input, "What?")

## STEP 4: Work

Work.
"""

BOOK = """\
# Paint

## INPUTS

- `color` (enum: sky blue, rose, $HOME;touch owned): Which color
- `big_brush` (boolean: false): Whether to hurry
- `where` (string): What to paint

## STEP 1: Paint

Paint {{where}} {{color}}, {{big_brush}}.
"""


@pytest.fixture
def cli(bare_cli: CommandLine) -> CommandLine:
    bare_cli.write("paint.md", BOOK)
    return bare_cli


@pytest.fixture
def work_cli(tmp_path: Path, server: ModelServer) -> CommandLine:
    """A command line that can run playbooks."""
    return CommandLine(tmp_path, server.url)


def completions(cli: CommandLine, *words: str, shell: str = "zsh") -> list[str]:
    """The lines that the shell's script receives for a command line; the last word is the incomplete one."""
    from shlex import join

    environ = cli.environ
    cli.environ = {
        **environ,
        "_CUEBOOK_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": join(["cuebook", *words]) if words[-1] else join(["cuebook", *words[:-1]]) + " ",
        "COMP_CWORD": str(len(words)),
    }
    ran = cli.call()
    cli.environ = environ
    assert (ran.code, ran.err) == (0, "")
    return ran.out.split("\n")


def offered(cli: CommandLine, *words: str, shell: str = "zsh") -> list[str]:
    lines = completions(cli, *words, shell=shell)
    return lines[1::3] if shell == "zsh" else [line.partition(",")[2] for line in lines if line]


def test_commands_are_offered(cli: CommandLine) -> None:
    assert offered(cli, "exp") == ["explain", "export"]
    assert {"run", "validate", "diff", "completion"} <= set(offered(cli, ""))


def test_the_inputs_of_the_playbook_are_offered(cli: CommandLine) -> None:
    found = offered(cli, "run", "paint.md", "--")
    assert {"--color", "--big_brush", "--big-brush", "--where", "--dry-run", "--model"} <= set(found)
    assert offered(cli, "run", "paint.md", "--c") == ["--color"]
    assert offered(cli, "explain", "paint.md", "--wh") == ["--where"]


def test_the_values_of_an_input_are_offered(cli: CommandLine) -> None:
    assert offered(cli, "run", "paint.md", "--color", "") == ["sky blue", "rose", "$HOME;touch owned"]
    assert offered(cli, "run", "paint.md", "--color", "r") == ["rose"]
    assert offered(cli, "run", "paint.md", "--big_brush", "t") == ["true"]
    assert offered(cli, "run", "paint.md", "--where", "x") == []


def test_a_file_is_offered_after_an_at_sign(cli: CommandLine) -> None:
    assert offered(cli, "run", "paint.md", "--where", "@pa") == ["@paint.md"]


def test_values_come_quoted_to_bash(cli: CommandLine) -> None:
    found = offered(cli, "run", "paint.md", "--color", "", shell="bash")
    assert found == ["sky\\ blue", "rose", "\\$HOME\\;touch\\ owned"]
    assert offered(cli, "run", "paint.md", "--color", "=", "sk", shell="bash") == ["sky\\ blue"]
    assert offered(cli, "run", "paint.md", "--color", "=", shell="bash")[:2] == ["sky\\ blue", "rose"]


def test_bash_gets_only_what_follows_the_equals_sign(cli: CommandLine) -> None:
    """Bash has split off the words before it."""
    cli.write("asking.md", ASKING)
    line = ("run", "asking.md", "--answer")
    assert offered(cli, *line, "1", "=", "r", shell="bash") == ["rose"]
    assert offered(cli, *line, "1", "=", shell="bash") == ["sky\\ blue", "rose"]
    assert offered(cli, *line, "=", "1", "=", "r", shell="bash") == ["rose"]
    assert offered(cli, *line, "1=r", shell="bash") == ["1=rose"]


@pytest.mark.parametrize(
    "words",
    [
        ("run", "missing.md", "--zz"),
        ("nosuch", "--x"),
        ("run", "broken.md", "--zz"),
        ("run", "paint.md", "--color", "nosuch"),
    ],
)
def test_an_invalid_command_line_gets_no_candidates_and_no_errors(cli: CommandLine, words: tuple[str, ...]) -> None:
    cli.write("broken.md", "No playbook.\n")
    assert [word for word in offered(cli, *words) if word] == []


def test_steps_and_answers_of_a_playbook_are_offered(cli: CommandLine) -> None:
    cli.write("asking.md", ASKING)
    assert offered(cli, "run", "asking.md", "--break", "") == ["1", "2", "2a", "3", "4"]
    assert offered(cli, "run", "asking.md", "--break", "1,2") == ["1,2", "1,2a"]
    assert offered(cli, "run", "asking.md", "--break", "2,2") == ["2,2a"]
    every = ["1=sky blue", "1=rose", "2a=yes", "2a=no", "3="]
    assert offered(cli, "run", "asking.md", "--answer", "") == every
    assert offered(cli, "run", "asking.md", "--answer", "2a=y") == ["2a=yes"]
    assert [word for word in offered(cli, "run", "nowhere.md", "--answer", "") if word] == []
    assert not cli.store.parent.exists()


def test_runs_waits_steps_and_answers_are_offered_from_the_store(work_cli: CommandLine) -> None:
    cli = work_cli
    cli.write("asking.md", ASKING)
    done = cli.call("run", "tea.md", "--json").object["run"]
    asked = cli.call("run", "asking.md", "--json").object
    run, wait = asked["run"], asked["waits"][0]["wait"]
    assert completions(cli, "show", "") == [
        "plain",
        run,
        "asking.md, awaiting input",
        "plain",
        done,
        "tea.md, completed",
        "",
    ]
    for command in ("events", "verify", "replay", "restart", "fork"):
        assert offered(cli, command, "") == [run, done]
    assert offered(cli, "show", done[:4]) == [done]
    assert offered(cli, "diff", done, "") == [run, done]
    assert offered(cli, "resume", "") == [run]
    assert offered(cli, "cancel", "") == [run]
    assert [word for word in offered(cli, "retry", "") if word] == []
    assert completions(cli, "answer", "")[1:3] == [run, "question: Which?"]
    assert offered(cli, "answer", "") == offered(cli, "inbox", "") == [run, wait]
    assert [word for word in offered(cli, "decide", "") if word] == []
    assert offered(cli, "answer", run, "") == ["sky blue", "rose"]
    assert offered(cli, "answer", wait, "r", shell="bash") == ["rose"]
    assert completions(cli, "restart", done, "")[:3] == ["plain", "1", "Choose"]
    assert offered(cli, "fork", done, "") == ["1", "2", "3"]
    assert offered(cli, "resume", run, "--break", "") == ["1", "2", "2a", "3", "4"]
    assert offered(cli, "fork", run, "1", "--answer", "2") == ["2a=yes", "2a=no"]
    elsewhere = cli.home / "other.db"
    assert [word for word in offered(cli, "show", "--store", str(elsewhere), "") if word] == []
    assert not elsewhere.exists()


@pytest.mark.parametrize("content", [None, b"", b"no store\n" * 500])
def test_where_there_is_no_store_none_is_made_and_nothing_said(cli: CommandLine, content: bytes | None) -> None:
    if content is not None:
        cli.store.parent.mkdir(parents=True)
        cli.store.write_bytes(content)
    before = cli.files()
    for words in (["show", ""], ["answer", ""], ["restart", "abc", ""], ["resume", "abc", "--break", ""]):
        assert [word for word in offered(cli, *words) if word] == []
    assert cli.files() == before
    assert content is None or cli.store.read_bytes() == content


def test_completing_commands_imports_nothing_heavy(cli: CommandLine) -> None:
    cli.environ |= {
        "_CUEBOOK_COMPLETE": "bash_complete",
        "COMP_WORDS": "cuebook ",
        "COMP_CWORD": "1",
        "PYTHONPROFILEIMPORTTIME": "1",
    }
    ran = cli.call()
    found = {line.rpartition("|")[2].strip().partition(".")[0] for line in ran.err.splitlines() if "|" in line}
    assert found & HEAVY == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_printed(cli: CommandLine, shell: str) -> None:
    ran = cli.call("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert "_CUEBOOK_COMPLETE" in ran.out
    other = cli.call("completion", "csh")
    assert (other.code, other.err.count("\n")) == (2, 1)


@pytest.mark.needs("bash")
def test_bash_itself_completes_a_line(cli: CommandLine) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    command = cli.work / "cuebook"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m cuebook "$@"\n')
    command.chmod(0o755)
    script = """
        eval "$(cuebook completion bash)"
        complete_line() {
            COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
            _cuebook_completion cuebook
            printf '%s\\n' "${COMPREPLY[@]}"
        }
        complete_line cuebook run paint.md --color ''
        complete_line cuebook run paint.md --wh
    """
    environ = {**cli.environ, "PATH": f"{cli.work}:{cli.environ['PATH']}"}
    ran = subprocess.run(
        [bash, "--norc", "-c", script], cwd=cli.work, env=environ, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == ["sky\\ blue", "rose", "\\$HOME\\;touch\\ owned", "--where"]
    assert not Path(cli.work / "owned").exists()
