"""The reference of the command line matches the program."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine

ROOT = Path(__file__).resolve().parents[2]


def test_the_reference_matches_the_help() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "make_cli_reference.py"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.md")), ids=lambda path: path.name)
def test_every_example_can_be_run(bare_cli: CommandLine, path: Path) -> None:
    inputs = ["--reader", "a child"] if path.name.startswith("explain") else []
    ran = bare_cli.call("run", path, *inputs, "--dry-run")
    assert (ran.code, ran.err) == (0, "")


def test_every_extra_is_in_the_guide_to_installing() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    guide = (ROOT / "docs" / "install.md").read_text()
    assert [name for name in extras if f"\n| `{name}` | " not in guide] == []
