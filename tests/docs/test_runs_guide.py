"""The guide to finding runs and acting on many: its commands work in the order in which they are printed."""

from __future__ import annotations

import shlex

from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, blocks

GUIDE = blocks(DOCS / "guides" / "runs.md")


def test_every_command_works_as_it_is_printed(cli: CommandLine) -> None:
    cli.tea.unlink()  # the guide makes its own
    run = cursor = ""
    said: list[str] = []
    listed: dict[str, set[str]] = {}
    for command in [command for block in GUIDE for command in block.commands]:
        words = shlex.split(command, comments=True)[1:]
        ran = cli.call(*({"RUN": run, "CURSOR": cursor}.get(word, word) for word in words))
        assert ran.code == (3 if "--break" in words else 0), f"{command}\n{ran.err}"
        said.append(ran.out)
        if words[0] == "run":
            run = cli.call("runs", "--json").object[0]["run"]
        if "--cursor" in ran.err:
            cursor = ran.err.split("--cursor ")[1].split()[0]
        listed[shlex.join(words)] = {line.split()[0] for line in ran.out.splitlines()[1:]}
    assert len(listed["runs --limit 2"]) == 2
    assert len(listed["runs --limit 2 --cursor CURSOR"]) == 1
    assert listed["runs --limit 2"].isdisjoint(listed["runs --limit 2 --cursor CURSOR"])
    assert len(listed["runs --search 'tea local'"]) == 3
    assert len(listed["runs --trigger person"]) == 3
    assert said[-3:] == [
        f"{run}\n1 run would be cancelled.\n",
        "1 run cancelled.\n",
        "1 run retried.\nNow 1 paused.\n",
    ]
