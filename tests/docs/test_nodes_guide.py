"""The guide to nodes: its settings, its capability and its unit file are what `cuebook node` takes."""

from __future__ import annotations

import configparser
import importlib.util
import shlex
from pathlib import Path

import pytest

from cuebook.node import Work
from cuebook.node.capabilities import packages
from cuebook.node.settings import KINDS, load
from cuebook.surfaces.cli.commands.node import node_command
from tests.support.documentation import DOCS, blocks

BLOCKS = blocks(DOCS / "guides" / "nodes.md")


def test_the_settings_are_loaded_and_there_are_no_others(tmp_path: Path) -> None:
    (text,) = [one.text for one in BLOCKS if one.language == "toml" and "connect =" in one.text]
    for name in ("shop/reports", "inbox"):
        (tmp_path / "srv" / name).mkdir(parents=True)
    (tmp_path / "node.toml").write_text(text.replace("/srv/", f"{tmp_path}/srv/"))
    found = load({"config": str(tmp_path / "node.toml")}, {})
    assert found.files[1].writable
    assert (found.memory, found.seconds, found.offer) == (2 << 30, 3600.0, ("lights",))
    shown = {line.partition(" = ")[0] for line in text.splitlines()}
    assert shown == {"connect", *KINDS} - {"server"}


async def test_the_capability_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = [one.text for one in BLOCKS if one.language == "python"]
    (points,) = [one.text for one in BLOCKS if one.language == "toml" and "entry-points" in one.text]
    info = tmp_path / "lights-1.0.dist-info"
    info.mkdir()
    (tmp_path / "lights.py").write_text(code)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lights\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{packages.GROUP}]\n{points.splitlines()[-1].replace(chr(34), '')}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.util.find_spec("lights") is not None
    (lights,) = packages.capabilities(["lights"])
    shown: list[bytes] = []
    work = Work("r1", output=lambda stream, data: shown.append(data))
    assert await lights.actions[0].function({"color": "red"}, work) == {"color": "red"}
    assert shown == [b"switching to red\n"]


def test_the_commands_and_the_unit_file_use_options_that_exist() -> None:
    (unit,) = [one.text for one in BLOCKS if one.language == "ini"]
    file = configparser.ConfigParser(strict=True)
    file.optionxform = str  # type: ignore[assignment,method-assign]
    file.read_string(unit)
    assert file["Service"]["RestartPreventExitStatus"] == "2 5"
    typed = [line for one in BLOCKS for line in one.commands if line.startswith("cuebook node ")]
    assert len(typed) == 1
    for words in map(shlex.split, (file["Service"]["ExecStart"], *typed)):
        node_command.make_context("node", words[2:])
