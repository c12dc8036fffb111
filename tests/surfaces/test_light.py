"""Starting is light: what a command does not need is not imported."""

from __future__ import annotations

import sys

import pytest

from cuebook.surfaces.cli import COMMANDS
from tests.surfaces.desk import Desk

HEAVY = {"rich", "openai", "anthropic", "xllamacpp", "keyring", "jsonschema", "msgspec", "asyncio", "sqlite3", "ruamel"}


def imported(desk: Desk, *args: str) -> set[str]:
    desk.environ["PYTHONPROFILEIMPORTTIME"] = "1"
    ran = desk.call(*args)
    assert ran.code == 0
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in ran.err.splitlines() if "|" in line}


@pytest.mark.parametrize("args", [["--version"], ["--help"]])
def test_the_version_and_the_help_import_nothing_heavy(bare_desk: Desk, args: list[str]) -> None:
    assert imported(bare_desk, *args) & HEAVY == set()


def test_looking_imports_no_provider(bare_desk: Desk) -> None:
    found = imported(bare_desk, "runs")
    assert found & {"rich", "openai", "anthropic", "xllamacpp", "keyring", "jsonschema"} == set()


def test_importing_the_package_imports_nothing(bare_desk: Desk) -> None:
    import subprocess

    code = "import sys, cuebook; print([n for n in sys.modules if n.startswith('cuebook.')])"
    ran = subprocess.run(
        [sys.executable, "-c", code], env=bare_desk.environ, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "[]\n"


def test_the_version_is_told(bare_desk: Desk) -> None:
    from cuebook import __version__

    assert bare_desk.call("--version").out == f"cuebook {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_starts_where_nothing_is_loaded(bare_desk: Desk, name: str) -> None:
    """In a new process, since other calls are forks of one that has everything loaded."""
    ran = bare_desk.start(name, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: cuebook {name} ")
