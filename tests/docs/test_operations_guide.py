"""The guide to a month on a server: its commands work in the order in which they are printed, and so do those of its table."""

from __future__ import annotations

import importlib
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest

from cuebook.config import load
from cuebook.surfaces.cli import COMMANDS
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, blocks
from tests.support.model_server import ModelServer

PAGE = DOCS / "guides" / "operations.md"
GUIDE = blocks(PAGE)
LOG = '\n[notifications.channels.log]\nkind = "command"\ncommand = ["tee", "-a", "messages.jsonl"]\n'
ROWS = re.findall(r"^\| [^|]+ \| (.*) \|$", PAGE.read_text().partition("## One command for each task")[2], re.MULTILINE)
TASKS = [command for row in ROWS for command in re.findall(r"`(cuebook [^`]+)`", row)]


def words_of(command: str) -> list[str]:
    return shlex.split(command.partition(" #")[0])[1:]


def configure(cli: CommandLine, text: str) -> None:
    """Adds what a block of the page sets. There is no mail server here, so messages go to a command."""
    if "notifications" in text:
        text = LOG
    if "evidence" in text:
        text = text.replace("/var/lib/cuebook", str(cli.work))
    if "model =" not in text:
        cli.config.write_text(f"{cli.config.read_text()}\n{text}")


def test_every_command_works_as_it_is_printed(cli: CommandLine) -> None:
    cli.call("run", "tea.md")
    cli.tea.unlink()  # the guide makes its own
    said = {}
    for block in GUIDE:
        if block.language == "toml":
            configure(cli, block.text)
        for command in block.commands:
            ran = cli.call(*words_of(command.replace("/var/lib/cuebook/", f"{cli.work}/")))
            assert ran.code == 0, f"{command}\n{ran.out}{ran.err}"
            said[command.partition(" #")[0].strip()] = ran.out
    assert "tea" in said["cuebook schedule list"]
    assert "1 of 1 run verified" in said["cuebook restore before.cuebook --store drill.db --verify-all"]
    assert "user.add ada" in said["cuebook audit --admin --since 7d"]
    assert (
        said["cuebook evidence verify october.jsonl --key /var/lib/cuebook/evidence-key.pub"]
        .splitlines()[-1]
        .startswith("Proven")
    )
    assert (cli.work / "messages.jsonl").exists()


@pytest.mark.parametrize("text", [block.text for block in GUIDE if block.language == "toml"])
def test_the_settings_are_valid(text: str, tmp_path: Path) -> None:
    (tmp_path / "cuebook").mkdir()
    (tmp_path / "cuebook" / "cuebook.toml").write_text(text)
    load(environ={"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}, folder=tmp_path)
    assert tomllib.loads(text)


def parsed(words: list[str]) -> None:
    """Parses a command line as `cuebook` would, without calling it."""
    name, *arguments = words
    module = importlib.import_module(f"cuebook.surfaces.cli.{COMMANDS[name][0]}")
    command: click.Command = getattr(module, f"{name}_command")
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        with click.Context(command) as context:
            found = command.get_command(context, name)
        assert found is not None, name
        command = found
    with command.make_context(name, list(arguments)):
        pass


@pytest.mark.parametrize(
    "command",
    [
        *TASKS,
        *(
            line
            for block in GUIDE
            if block.language == "console"
            for line in block.text.splitlines()
            if line.startswith("cuebook ")
        ),
    ],
)
def test_every_command_for_a_task_exists(command: str) -> None:
    example = str(DOCS.parent / "examples" / "explain.playbook.md")
    parsed([example if word == "FILE" and "schedule" in command else word for word in words_of(command)])


def test_every_command_for_a_task_does_it(cli: CommandLine, server: ModelServer) -> None:
    cli.call("evidence", "keygen", "KEY")
    configure(cli, LOG)
    configure(cli, f'[evidence]\nkey = "file:{cli.work / "KEY"}"\n')
    cli.call("users", "add", "NAME", "--role", "viewer")
    server.replies = [400]
    assert cli.call("run", "tea.md").code == 1
    run = str(cli.call("runs", "--json").object[0]["run"])
    number = 0

    def real(word: str, command: str) -> str:
        """A value for a placeholder."""
        if word == "RUN":
            return run
        if word == "FILE":
            kind = {"schedule": cli.tea, "restore": "FILE1", "evidence": exported}
            return str(kind.get(command, f"FILE{number}"))
        return {"PUBLIC_KEY": "KEY.pub", "FOLDER": str(cli.work), "TEXT": "request"}.get(word, word)

    exported = ""
    for command in TASKS:
        words = words_of(command)
        if words[0] == "serve":
            continue  # the guide to monitoring starts it
        if words[0] == "resume":
            run = str(cli.call("run", "tea.md", "--json", "--break", "1").object["run"])
        number += words[0] in ("backup", "audit")
        if words[0] == "audit":
            exported = f"FILE{number}"
        if words[0] == "restore":  # as after an upgrade that is taken back
            for name in (cli.store.name, f"{cli.store.name}.key"):
                cli.store.with_name(name).rename(cli.work / name)
        ran = cli.call(*(real(word, words[0]) for word in words))
        assert ran.code == 0, f"{command}\n{ran.out}{ran.err}"


@pytest.mark.parametrize("text", [block.text for block in GUIDE if block.language == "console"])
def test_a_block_uses_the_clone_and_the_command_each_where_it_can(text: str) -> None:
    """The command runs as the user of the service, who may not be allowed into the clone; a block that leaves it cannot use it."""
    in_clone = " dist/" in text or " deploy/" in text
    for line in text.splitlines():
        if line.startswith("cd "):
            in_clone = False
        assert in_clone or not (" dist/" in line or " deploy/" in line), line
        assert not (in_clone and line.startswith("cuebook ")), line
