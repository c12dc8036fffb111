"""The guide to budgets: its commands work in the order in which they are printed."""

from __future__ import annotations

import shlex

from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, blocks

GUIDE = blocks(DOCS / "guides" / "budgets.md")


def test_every_command_works_as_it_is_printed(cli: CommandLine) -> None:
    cli.tea.unlink()  # the guide makes its own
    prices = cli.write("prices.toml", '[models."test/echo-1"]\ninput = 0.0\noutput = 0.0\n')  # as on day one
    cli.config.write_text(f'prices = "{prices}"\n{cli.config.read_text()}')
    run, said = "", {}
    for command in [command for block in GUIDE for command in block.commands]:
        words = shlex.split(command, comments=True)[1:]
        ran = cli.call(*(run if word == "RUN" else word for word in words))
        assert ran.code == (4 if words[0] == "run" else 0), f"{command}\n{ran.err}"
        said[" ".join(words)] = ran.out
        if words[0] == "run":
            run = cli.call("runs", "--json").object[0]["run"]
    assert "person:* (local)" in said["budget list"]
    assert f"Waiting: {run}" in said["budget show --playbook tea.md"]
    assert "tea.md" not in said["budget remove --playbook tea.md"].replace("'playbook:tea.md'", "")
    assert "test/echo-1" in said["usage --by model --json"]
