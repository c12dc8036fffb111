"""Startup is fast: modules that a command does not need are not imported."""

from __future__ import annotations

import sys

import pytest

from bench.first_request import MOST_MODULES, imported_modules
from cuebook.surfaces.cli import COMMANDS
from tests.support.command_line import CommandLine

HEAVY = {
    "rich",
    "prompt_toolkit",
    "httpx2",
    "xllamacpp",
    "keyring",
    "jsonschema",
    "msgspec",
    "asyncio",
    "sqlite3",
    "ruamel",
    "temporalio",
}


def imported(cli: CommandLine, *args: str) -> set[str]:
    cli.environ["PYTHONPROFILEIMPORTTIME"] = "1"
    ran = cli.call(*args)
    assert ran.code == 0
    return {line.rpartition("|")[2].strip().partition(".")[0] for line in ran.err.splitlines() if "|" in line}


@pytest.mark.parametrize("args", [["--version"], ["--help"]])
def test_the_version_and_the_help_import_nothing_heavy(bare_cli: CommandLine, args: list[str]) -> None:
    assert imported(bare_cli, *args) & HEAVY == set()


def test_looking_imports_no_provider(bare_cli: CommandLine) -> None:
    found = imported(bare_cli, "runs")
    assert found & {"rich", "httpx2", "xllamacpp", "keyring", "jsonschema"} == set()


def test_a_run_imports_only_the_modules_that_its_effects_need() -> None:
    found = imported_modules()
    assert len(found) <= MOST_MODULES
    unused = ("agent_tools", "commands", "http", "mcp", "python", "sources", "tools")
    assert {f"cuebook.performers.{name}" for name in unused} & set(found) == set()


def test_importing_the_package_imports_nothing(bare_cli: CommandLine) -> None:
    import subprocess

    code = "import sys, cuebook; print([n for n in sys.modules if n.startswith('cuebook.')])"
    ran = subprocess.run([sys.executable, "-c", code], env=bare_cli.environ, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_the_version_is_printed(bare_cli: CommandLine) -> None:
    from cuebook import __version__

    assert bare_cli.call("--version").out == f"cuebook {__version__}\n"


@pytest.mark.parametrize("name", {module: name for name, (module, _) in COMMANDS.items()}.values())
def test_every_module_of_commands_is_found_where_nothing_is_loaded(bare_cli: CommandLine, name: str) -> None:
    """In a new process, because other tests fork a process that has everything loaded."""
    ran = bare_cli.start(name, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"Usage: cuebook {name} ")
