"""The guide to retention and backups: its commands work in the order in which they are printed."""

from __future__ import annotations

import tomllib
from pathlib import Path

from cuebook.config import load
from tests.support.command_line import CommandLine
from tests.support.documentation import DOCS, blocks

GUIDE = blocks(DOCS / "guides" / "retention.md")


def test_every_command_works_as_it_is_printed(cli: CommandLine) -> None:
    cli.tea.unlink()  # the guide makes its own
    run = ""
    said = {}
    for command in [command for block in GUIDE for command in block.commands]:
        words = command.partition(" #")[0].replace('"', "").split()[1:]
        if "--reason" in words:
            words = [*words[: words.index("--reason") + 1], " ".join(words[words.index("--reason") + 1 :])]
        ran = cli.call(*(run if word == "RUN" else word for word in words))
        assert ran.code == 0, f"{command}\n{ran.err}"
        said[command.partition(" #")[0].strip()] = ran.out
        if words[0] == "run":
            run = cli.call("runs", "--json").object[0]["run"]
    assert "test run" in said["cuebook store removals"]
    assert "by local (request 7)" in said["cuebook audit RUN --verify"]
    assert "tea.md" in said["cuebook runs --store restored.db"]


def test_the_setting_is_one(tmp_path: Path) -> None:
    (text,) = [block.text for block in GUIDE if block.language == "toml"]
    settings = tomllib.loads(text)["retention"]
    (tmp_path / "cuebook").mkdir()
    (tmp_path / "cuebook" / "cuebook.toml").write_text(text)
    config = load(environ={"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}, folder=tmp_path)
    assert config.get("retention.older_than") == 90 * 86400
    assert list(config.get("retention.status")) == settings["status"]
    assert config.get("retention.keep") == 20
