"""`cuebook run`: its options grow from the inputs that the playbook declares."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from cuebook.dialects import registry
from cuebook.dialects.registry import Dialect
from cuebook.kernel.run import RunRow
from cuebook.service import Service
from cuebook.surfaces.cli import dry_run, live, options, session
from cuebook.surfaces.cli.inputs import InputOption, gathered, input_options
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.wiring import Wiring

HELP = """Run a playbook.

FILE is a Markdown playbook; its inputs become options, which `cuebook run FILE --help` shows. The value of an input is
written as it is, or as @FILE to take a file's text, or as - to take stdin's; @@ stands for one @ at the beginning.
"""

OPTIONS: list[click.Parameter] = [
    click.Argument(["file"]),
    click.Option(["--inputs"], metavar="FILE", help="A YAML or JSON file of inputs."),
    click.Option(["--input"], metavar="NAME=VALUE", multiple=True, help="An input, whatever it is called; repeatable."),
    *options.SETTINGS,
    options.BREAK,
    options.STORE,
    *options.LIVE,
    click.Option(["--dry-run"], is_flag=True, help="Print what each model would be asked, and do nothing."),
]


class Playbook:
    """A playbook's text, read and parsed."""

    def __init__(self, path: str) -> None:
        self.name = os.path.basename(path)
        self.text = options.read_text(path)
        self.dialect: Dialect = registry.detect(self.text, self.name)
        self.document = self.dialect.parse(self.text, path)


class RunCommand(click.Command):
    """Reads the playbook before its own options, because they depend on it."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        file = _file_among(args)
        if file is None:
            return super().make_context(info_name, args, parent, **extra)
        playbook = Playbook(file)
        taken = {spelling for param in OPTIONS for spelling in param.opts} | {"--help", "-h"}
        inputs = input_options(playbook.document, taken)
        command = _Prepared(
            "run",
            params=[*OPTIONS, *inputs],
            help=f"Run {playbook.document.title}.",
            callback=lambda **given: start(given, playbook),
        )
        return command.make_context(info_name, args, parent, **extra)


class _Prepared(click.Command):
    """The command for one playbook: shows the playbook's inputs before everything else."""

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


def _file_among(args: list[str]) -> str | None:
    """The first word that is neither an option nor an option's value; every input takes a value."""
    flags = {spelling for param in OPTIONS if getattr(param, "is_flag", False) for spelling in param.opts}
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


def start(given: Given, playbook: Playbook) -> int:
    inputs = playbook.dialect.accept(playbook.document, gathered(given, playbook.document))
    breakpoints = options.steps_named(given["breakpoints"])
    options.check_steps(breakpoints, [step.label for step in playbook.document.plan])
    wiring = session.wiring_of(given)
    if given["dry_run"]:
        return _rehearse(given, playbook, inputs)
    settings = wiring.settings(breakpoints)

    async def act(service: Service, wiring: Wiring) -> RunRow:
        return await service.start(playbook.text, playbook.name, inputs, settings)

    return session.in_foreground(given, act, create=True, wiring=wiring)


def _rehearse(given: Given, playbook: Playbook, inputs: dict[str, Any]) -> int:
    program = playbook.dialect.start(playbook.document, inputs, playbook.dialect.interpreter)(None)
    shown = dry_run.rehearsed(program)
    if given["as_json"]:
        sys.stdout.write(live.json_line(shown))
    else:
        sys.stdout.write(dry_run.in_words(shown))
    return 0


run_command = RunCommand("run", params=OPTIONS, help=HELP, callback=lambda **given: 2)
