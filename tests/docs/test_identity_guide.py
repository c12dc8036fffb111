"""The guide to identity: its commands work in the order in which they are printed, and its settings are settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuebook.config import load
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, Block, blocks

GUIDE = blocks(DOCS / "guides" / "identity.md")


def test_every_command_works_as_it_is_printed(cli: CommandLine) -> None:
    cli.environ["CUEBOOK_OIDC_ISSUER"] = "https://login.example.com"
    assert cli.call("users", "add", "bob", "--role", "viewer").code == 0, "the one whom the guide begins with"
    commands = [command for block in GUIDE for command in block.commands]
    assert len(commands) > 5
    for command in commands:
        if command.startswith("cuebook users add bob"):
            assert cli.call("users", "remove", "bob").code == 0
            assert cli.call("erase", "--owner", "bob").code == 0, "it is not the one with whom the guide begins"
        ran = cli.call(*command.partition(" #")[0].split()[1:])
        assert ran.code == 0, f"{command}\n{ran.err}"
    ann, bob = cli.call("users", "list", "--json").object
    assert (ann["teams"], bob["teams"]) == ([], ["sales"]), "she left and came back"


@pytest.mark.parametrize("block", [one for one in GUIDE if one.language == "toml"], ids=lambda one: str(one.line))
def test_the_settings_are_settings(block: Block, tmp_path: Path) -> None:
    (tmp_path / "cuebook").mkdir()
    (tmp_path / "cuebook" / "cuebook.toml").write_text(block.text)
    load(environ={"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}, folder=tmp_path)
