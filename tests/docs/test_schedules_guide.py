"""The guide to schedules: its commands work in the order in which they are printed."""

from __future__ import annotations

import shlex

from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, blocks
from tests.support.pseudo_terminal import TerminalSession

GUIDE = blocks(DOCS / "guides" / "schedules.md")


def test_every_command_works_as_it_is_printed(cli: CommandLine) -> None:
    (book,) = [block.text for block in GUIDE if block.language == "yaml"]
    (cli.work / "nightly.yml").write_text(book)
    (cli.work / "inbox").mkdir()
    cli.environ["HOOK_SECRET"] = "a-long-shared-secret"
    said = {}
    for command in [command for block in GUIDE for command in block.commands]:
        printed = command.partition(" #")[0].strip()
        if printed == "cuebook schedule allow nightly":
            with TerminalSession(cli, "schedule", "allow", "nightly") as terminal:
                terminal.until("Allow this in advance to the runs of nightly? [y/N]:")
                terminal.type("y\n")
                terminal.until("command touch report.txt: allowed in advance")
                terminal.ended()
            continue
        ran = cli.call(*shlex.split(printed)[1:])
        assert ran.code == 0, f"{command}\n{ran.err}"
        said[printed] = ran.out
    (shown,) = [block.text for block in GUIDE if block.language == "text"]
    for line in shown.splitlines():
        if not any(varies in line for varies in ("2026", "/srv", "--digest")):
            assert line in said["cuebook schedule show nightly"]
    assert "POST /hooks/push, signed (github)" in said["cuebook trigger list"]
