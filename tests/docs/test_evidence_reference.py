"""The reference of signed evidence: its commands work as printed, and so does its verifier without Cuebook."""

from __future__ import annotations

import subprocess
import sys

from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, blocks

PAGE = blocks(DOCS / "reference" / "evidence.md")


def test_a_file_is_signed_and_verified_as_printed_with_and_without_cuebook(cli: CommandLine) -> None:
    cli.tea.unlink()  # the page makes its own
    make, *commands = [command for block in PAGE for command in block.commands]
    assert cli.call(*make.partition(" #")[0].split()[1:]).code == 0
    (setting,) = [block.text for block in PAGE if block.language == "toml"]
    cli.config.write_text(f"{cli.config.read_text()}\n{setting.replace('/var/lib/cuebook', str(cli.work))}")
    said = ""
    for command in commands:
        ran = cli.call(*command.split()[1:])
        assert ran.code == 0, ran.err
        said = ran.out
    (printed,) = [block.text for block in PAGE if block.language == "text"]
    assert said.splitlines()[-1] == printed.splitlines()[-1]

    (verifier,) = [block.text for block in PAGE if block.language == "python"]
    cli.write("verify.py", verifier)
    content = (cli.work / "october.jsonl").read_bytes()
    (cli.work / "changed.jsonl").write_bytes(content.replace(b"the sea", b"the tea", 1))
    for name, code in (("october.jsonl", 0), ("changed.jsonl", 1)):
        words = [sys.executable, "verify.py", name, "evidence-key.pub"]
        ended = subprocess.run(words, cwd=cli.work, capture_output=True, text=True, check=False)
        assert (ended.returncode, "the content was changed" in ended.stderr) == (code, code == 1), ended.stderr
