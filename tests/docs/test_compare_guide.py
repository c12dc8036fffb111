"""The guide to comparisons: its commands work in the order in which they are printed."""

from __future__ import annotations

import shlex
import subprocess

from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, blocks

GUIDE = blocks(DOCS / "guides" / "compare.md")


def test_every_command_works_as_it_is_printed(cli: CommandLine) -> None:
    cli.tea.unlink()  # the guide makes its own
    book, cases = (block.text for block in GUIDE if block.language in ("markdown", "yaml"))
    cli.write("tea.md", book)
    cli.write("cases.yaml", cases)
    said: list[str] = []
    for line in [line for block in GUIDE if block.language == "sh" for line in block.text.splitlines()]:
        if not line.startswith("cuebook "):
            subprocess.run(line, shell=True, cwd=cli.work, check=True)
            continue
        runs = ",".join(one["run"] for one in cli.call("runs", "--json").object)
        ran = cli.call(*(runs if word == "RUN,RUN" else word for word in shlex.split(line)[1:]))
        assert ran.code == 0, f"{line}\n{ran.err}"
        said.append(ran.out)
    (passed,) = (line.split() for line in said[0].splitlines() if line.startswith("passed"))
    assert passed == ["passed", *(["4", "of", "4", "4", "of", "4"])]
    assert (cli.work / "comparison.html").read_text().startswith("<!doctype html>")
    assert "tea.md, short.md" in said[3]
