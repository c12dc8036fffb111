"""Closed streams, a full disk or a pipe without a reader cause no error, and nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from tests.support.command_line import CommandLine, Ran, finished

LONG = "# Long\n\n" + "".join(f"## STEP {n}: Do\n\n{'Word ' * 300}\n\n" for n in range(1, 101))


def _closed(number: int) -> Callable[[], None]:
    return lambda: os.close(number)


def _full(number: int) -> Callable[[], None]:
    def fill() -> None:
        os.dup2(os.open("/dev/full", os.O_WRONLY), number)

    return fill


@pytest.mark.parametrize("args", [["validate", "tea.md"], ["parse", "tea.md", "--json"], ["--help"], ["--version"]])
def test_a_closed_output_is_not_an_error(bare_cli: CommandLine, args: list[str]) -> None:
    ran = finished(bare_cli.begin(*args, before=_closed(1)))
    assert (ran.code, ran.out, ran.err) == (0, "", "")


def test_the_exit_code_is_right_without_any_output(bare_cli: CommandLine) -> None:
    bare_cli.write("bad.md", "# Bad\n")
    assert finished(bare_cli.begin("validate", "bad.md", before=_closed(1))).code == 2
    assert finished(bare_cli.begin("parse", "bad.md", before=_closed(2))).code == 2


def test_a_run_with_closed_streams_is_kept_as_any_other(cli: CommandLine) -> None:
    def all_closed() -> None:
        os.closerange(0, 3)

    ran = finished(cli.begin("run", "tea.md", "--kind", "black", before=all_closed))
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    (row,) = cli.call("runs", "--json").object
    assert row["status"] == "completed"
    assert cli.call("verify", row["run"]).code == 0


def test_progress_to_a_closed_stderr_is_not_mixed_into_the_output(cli: CommandLine) -> None:
    ran = finished(cli.begin("run", "tea.md", before=_closed(2)))
    assert (ran.code, ran.out) == (0, "Reply number 3.\n")


def test_a_closed_stdin_is_an_empty_one(bare_cli: CommandLine) -> None:
    ran = finished(bare_cli.begin("parse", "-", before=_closed(0)))
    assert (ran.code, ran.err) == (2, "cuebook: stdin: Document is empty. Write a title and a step.\n")


@pytest.mark.parametrize(
    "args", [["validate", "tea.md"], ["parse", "tea.md", "--json"], ["run", "long.md", "--dry-run"], ["--help"]]
)
def test_a_full_disk_is_said(bare_cli: CommandLine, args: list[str]) -> None:
    bare_cli.write("long.md", LONG)
    ran = finished(bare_cli.begin(*args, before=_full(1)))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "cuebook: cannot write the output: No space left on device. Redirect it elsewhere.\n"


def test_an_unwritable_error_message_does_not_change_the_exit_code(bare_cli: CommandLine) -> None:
    assert finished(bare_cli.begin("parse", "nothing.md", before=_full(2))).code == 2


@pytest.mark.parametrize(
    "args",
    [["run", "long.md", "--dry-run"], ["parse", "long.md", "--json"], ["run", "long.md", "--dry-run", "--json"]],
)
def test_a_reader_may_close_the_pipe_early(bare_cli: CommandLine, args: list[str]) -> None:
    bare_cli.write("long.md", LONG)
    process = bare_cli.begin(*args)
    assert process.stdout is not None
    assert process.stderr is not None
    assert len(os.read(process.stdout.fileno(), 10)) == 10
    process.stdout.close()
    assert (process.wait(60), process.stderr.read()) == (0, "")
    process.stderr.close()


def unread(cli: CommandLine, *args: str, numbers: tuple[int, ...] = (1,)) -> Ran:
    """Runs a command whose streams with these numbers are pipes without a reader."""
    there, here = os.pipe()
    os.close(there)

    def lead_nowhere() -> None:
        for number in numbers:
            os.dup2(here, number)

    process = cli.begin(*args, before=lead_nowhere, pass_fds=[here])
    os.close(here)
    return finished(process)


@pytest.mark.parametrize("how", [["--events"], ["--json"], []])
@pytest.mark.parametrize("numbers", [(1,), (1, 2)])
def test_a_run_continues_when_its_reader_has_left(cli: CommandLine, how: list[str], numbers: tuple[int, ...]) -> None:
    """As with `| head`, and as with `2>&1 | head`."""
    cli.write("ask.md", '# Ask\n\n## STEP 1: What\n\n@elicit(input, "What?")\n\n## STEP 2: Work\n\nWork.\n')
    run = cli.call("run", "ask.md", "--json").object["run"]
    ran = unread(cli, "answer", run, "tea", *how, numbers=numbers)
    assert (ran.code, "Traceback" in ran.err, "observer" in ran.err) == (0, False, False), ran.err
    assert cli.call("runs", "--json").object[0]["status"] == "completed"


@pytest.mark.parametrize(
    "command", [["events"], ["events", "--json"], ["events", "--follow"], ["show"], ["audit"], ["runs"]]
)
def test_a_read_only_command_ends_quietly_when_its_reader_has_left(cli: CommandLine, command: list[str]) -> None:
    run = cli.call("run", "tea.md", "--json").object["run"]
    ran = unread(cli, *command, *([] if command == ["runs"] else [run]))
    assert (ran.code, ran.err) == (0, "")
