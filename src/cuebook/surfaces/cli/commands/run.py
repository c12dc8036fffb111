"""`cuebook run`. Each input that the playbook declares becomes an option."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from cuebook.dialects import registry
from cuebook.dialects.options import COMMON
from cuebook.dialects.playbook import Playbook
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.service import Service
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.inputs import gather_answers, gather_inputs
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.playbook_command import FILE, INPUTS, PlaybookCommand
from cuebook.wiring.wiring import Wiring

HELP = """Run a playbook.

FILE is a playbook in any dialect. Its inputs become options; `cuebook run FILE --help` lists them. The value of an input
is the text itself, @FILE for the text of a file, or - for stdin. Write @@ for a value that begins with @.

If you are at a terminal, the run asks its questions here. Otherwise, and for questions that you leave for later, the run
waits: the command prints how to answer and exits with code 3. --answer and --answers provide answers in advance. At a
terminal, a conversational playbook becomes a chat; /help lists what it can show, such as the listing, the stack and the
variables.
"""

OPTIONS: list[click.Parameter] = [
    FILE,
    *INPUTS,
    *options.ANSWERS,
    *options.SETTINGS,
    options.BREAK,
    *options.choices([*COMMON, *(option for dialect in registry.dialects() for option in dialect.options)]),
    options.STORE,
    *options.LIVE,
    *options.ENVELOPE,
    click.Option(["--dry-run"], is_flag=True, help="Only print what each step would ask or do."),
]


def start(given: Given, playbook: Playbook) -> int:
    chosen_options = options.chosen(given)
    document = playbook.adapted(chosen_options)
    inputs = playbook.accept(gather_inputs(given, document, playbook.dialect), chosen_options)
    answers = gather_answers(given, playbook)
    breakpoints = options.steps_named(given["breakpoints"])
    options.check_steps(breakpoints, list(playbook.labels))
    wiring = session.wiring_of(given)
    chosen = {"answers": answers, "unattended": given["unattended"], "options": chosen_options}
    if given["dry_run"]:
        from cuebook.surfaces.cli.commands.explain import dry_run

        return dry_run(given, playbook, inputs.values, Settings(folder=playbook.folder, **chosen), wiring)
    settings = msgspec.structs.replace(
        wiring.settings(breakpoints, folder=Path(playbook.folder), document=playbook.document), **chosen
    )

    wiring.check_models(playbook.dialect, playbook.document, settings)

    async def act(service: Service, wiring: Wiring) -> RunRow:
        return await service.start(playbook, inputs, settings)

    if given["envelope"] or given["strict_envelope"]:
        from cuebook.surfaces.cli.commands import runtime

        return runtime.started(given, wiring, lambda service: act(service, wiring))
    return session.in_foreground(given, act, create=True, wiring=wiring)


class _Run(PlaybookCommand):
    """The command `run`. With `--envelope`, an error before the run starts is also printed as an envelope."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with_envelope = "--envelope" in args or "--strict-envelope" in args  # click removes words from `args`
        try:
            return super().make_context(info_name, args, parent, **extra)
        except CuebookError as error:
            if not with_envelope:
                raise
            from cuebook.surfaces.cli.commands import runtime

            raise click.exceptions.Exit(runtime.print_error(error, strict="--strict-envelope" in args)) from None


def _begin(given: Given, playbook: Playbook) -> int:
    try:
        return start(given, playbook)
    except CuebookError as error:
        if not (given["envelope"] or given["strict_envelope"]):
            raise
        from cuebook.surfaces.cli.commands import runtime

        return runtime.print_error(error, strict=given["strict_envelope"])


run_command = _Run("run", OPTIONS, HELP, "Run {title}.", _begin)
