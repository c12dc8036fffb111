"""Commands that take a playbook: each input that the playbook declares becomes an option."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from cuebook.dialects.options import COMMON
from cuebook.dialects.playbook import Playbook, read
from cuebook.kernel.errors import CuebookError
from cuebook.surfaces.cli import completion, options
from cuebook.surfaces.cli.inputs import InputOption, input_options
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.terminal.output import harmless

FILE = click.Argument(["file"], shell_complete=completion.any_file)
INPUTS: list[click.Parameter] = [
    click.Option(
        ["--inputs"], metavar="FILE", help="A YAML or JSON file of inputs.", shell_complete=completion.any_file
    ),
    click.Option(["--input"], metavar="NAME=VALUE", multiple=True, help="One input by name; repeatable."),
]


def read_file(file: str) -> Playbook:
    """Reads a playbook from a file, or from stdin for `-`."""
    path = None if file == "-" else Path(file)
    text = options.read_playbook(file)
    return read(text, os.path.basename(file), path=path, where=file, neighbour=lambda name: _neighbour(file, name))


def _neighbour(file: str, name: str) -> str:
    """The text of a file next to the playbook."""
    from cuebook.performers.files.neighbours import reader

    return reader(file)(name)


Begin = Callable[[Given, Playbook], int]


class PlaybookCommand(click.Command):
    """Reads the playbook before it parses the options, because they depend on it."""

    def __init__(self, name: str, params: Sequence[click.Parameter], help: str, about: str, begin: Begin) -> None:
        """`about` is the help for one playbook, as in `Run {title}.`"""
        super().__init__(name, params=list(params), help=help, callback=lambda **given: 2)
        self._about = about
        self._begin = begin

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        file = self._file_among(args)
        playbook = self._read(file, resilient=bool(extra.get("resilient_parsing"))) if file is not None else None
        if playbook is None:
            return super().make_context(info_name, args, parent, **extra)
        taken = {spelling for param in self.params for spelling in param.opts} | {"--help", "-h"}
        command = _Prepared(
            self.name,
            params=[
                *options.fitting(self.params, (*COMMON, *playbook.dialect.options)),
                *input_options(playbook.document, taken),
            ],
            help=self._about.format(title=playbook.document.title),
            callback=lambda **given: self._begin(given, playbook),
        )
        return command.make_context(info_name, args, parent, **extra)

    def _read(self, file: str, *, resilient: bool) -> Playbook | None:
        try:
            return read_file(file)
        except CuebookError:
            if resilient:  # completion in a shell reports no errors
                return None
            raise

    def _file_among(self, args: list[str]) -> str | None:
        """The first word that is neither an option nor an option's value. Every input option takes a value."""
        flags = {spelling for param in self.params if getattr(param, "is_flag", False) for spelling in param.opts}
        flags |= {"--help", "-h"}
        skip = False
        for position, word in enumerate(args):
            if skip:
                skip = False
            elif word == "--":
                return args[position + 1] if position + 1 < len(args) else None
            elif not word.startswith("-") or word == "-":
                return word
            else:
                skip = word not in flags and "=" not in word
        return None


class _Prepared(click.Command):
    """The command for one playbook. Its help lists the inputs first."""

    def get_help(self, ctx: click.Context) -> str:
        return harmless(super().get_help(ctx))

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        others: list[tuple[str, str]] = []
        for param in self.get_params(ctx):
            line = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if line is not None:
                (own if isinstance(param, InputOption) else others).append(line)
        for name, lines in (("Inputs", own), ("Options", others)):
            if lines:
                with formatter.section(name):
                    formatter.write_dl(lines)
