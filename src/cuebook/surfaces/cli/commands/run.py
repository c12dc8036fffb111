"""`cuebook run`. Each input that the playbook declares becomes an option."""

from __future__ import annotations

import json
import shlex
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from cuebook.dialects import registry
from cuebook.dialects.options import COMMON
from cuebook.dialects.playbook import Accepted, Playbook
from cuebook.gate.policy import Preset
from cuebook.kernel.errors import CuebookError
from cuebook.kernel.outcomes import EffectFailed
from cuebook.kernel.run import RunRow, Settings
from cuebook.service.service import Service
from cuebook.service.worker import leave_to_workers
from cuebook.surfaces import display
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.inputs import gather_answers, gather_inputs
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.playbook_command import FILE, INPUTS, PlaybookCommand
from cuebook.surfaces.cli.terminal.output import complain, say
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
    click.Option(
        ["--sensitive"],
        metavar="INPUT",
        multiple=True,
        help="Show the value of this input nowhere, and purge it when the run has ended; repeatable.",
    ),
    options.BREAK,
    options.POLICY,
    *options.choices([*COMMON, *(option for dialect in registry.dialects() for option in dialect.options)]),
    options.STORE,
    *options.LIVE,
    *options.ENVELOPE,
    click.Option(["--detach"], is_flag=True, help="Start the run, print its id, and leave it to a worker or a server."),
    click.Option(["--dry-run"], is_flag=True, help="Only print what each step would ask or do."),
]


def start(given: Given, playbook: Playbook) -> int:
    chosen_options = options.chosen(given)
    document = playbook.adapted(chosen_options)
    gathered = gather_inputs(given, document, playbook.dialect)
    inputs = playbook.accept(gathered, chosen_options, given["sensitive"])
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
        if given["unattended"]:
            await _warn_of_approvals(given, service, wiring, replace(playbook, document=document), inputs, settings)
        for words in await service.spent_budgets(playbook.name) if settings.model else ():
            complain(words)
        return await service.start(
            playbook, inputs, settings, preset=given["policy"] or "", sensitive=given["sensitive"]
        )

    if given["detach"]:
        return session.with_service(
            given, lambda service: _detached(given, service, act(service, wiring)), starts=True, wiring=wiring
        )
    if given["envelope"] or given["strict_envelope"]:
        from cuebook.surfaces.cli.commands import runtime

        return runtime.started(given, wiring, lambda service: act(service, wiring))
    return session.in_foreground(given, act, create=True, wiring=wiring)


async def _warn_of_approvals(
    given: Given, service: Service, wiring: Wiring, playbook: Playbook, inputs: Accepted, settings: Settings
) -> None:
    """Says before an unattended run starts if someone would have to approve something in it."""
    from cuebook.service.preview.explanation import explain
    from cuebook.surfaces.explanation import asked_summary
    from cuebook.wiring.preview import preview_setup

    preset: Preset = given["policy"] or ""
    try:
        setup = preview_setup(wiring)
        explained = await explain(service, playbook, inputs.values, settings, setup, preset=preset)
    except (CuebookError, EffectFailed):
        return  # the run reports it
    if explained.asking:
        policy = f" --policy {preset}" if preset else ""
        how = f"explain {shlex.quote(playbook.where)}{policy}"
        complain(f"{asked_summary(explained)} `{display.command_line(how)}` shows what would be asked.")


async def _detached(given: Given, service: Service, starting: Awaitable[RunRow]) -> int:
    row = await starting
    await leave_to_workers(service, row.id)
    if given["as_json"]:
        say(json.dumps({"run": row.id, "status": row.status}))
        return 0
    say(row.id)
    complain(
        f"A worker or a server in this workspace continues it: {display.command_line(f'events {row.id} --follow')}"
    )
    return 0


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
