"""Checks command lines and environments of containers against the real command line and the real settings."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from cuebook.config.settings import ENVIRONMENT, checked
from cuebook.surfaces.cli import COMMANDS
from cuebook.surfaces.cli.commands.serve import TOKEN


def check_command(words: Sequence[str]) -> dict[str, Any]:
    """The options of a `cuebook` command line. Raises `click.UsageError` if there is no such command or option."""
    name, *arguments = words
    assert name in COMMANDS, f"there is no command {name}"
    module = importlib.import_module(f"cuebook.surfaces.cli.{COMMANDS[name][0]}")
    command = next(one for one in vars(module).values() if isinstance(one, click.Command) and one.name == name)
    with command.make_context(name, list(arguments)) as context:
        return dict(context.params)


def check_environment(environ: Mapping[str, str]) -> None:
    """Every variable of ours is a setting with a valid value, the server's token, or a secret that a handle names."""
    names = {variable: name for name, variable in ENVIRONMENT.items()}
    handles = {value.removeprefix("env:") for value in environ.values() if value.startswith("env:")}
    assert handles <= set(environ), f"no value for {handles - set(environ)}"
    for variable, value in environ.items():
        if variable in names:
            checked(names[variable], value, variable)
        elif variable.startswith("CUEBOOK_"):
            assert variable in handles or variable == TOKEN, f"{variable} is not a setting"
