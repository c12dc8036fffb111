"""`cuebook run`: its options grow from the inputs that the playbook declares."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from cuebook.dialects import registry
from cuebook.dialects.options import COMMON
from cuebook.kernel.errors import BadInput, CuebookError
from cuebook.kernel.run import RunRow
from cuebook.service import Service
from cuebook.surfaces.cli import dry_run, enveloping, graph_dry_run, options, pipeline_dry_run, session
from cuebook.surfaces.cli.answers import Source, gathered_answers, labels_of
from cuebook.surfaces.cli.inputs import gathered
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.playbooks import FILE, INPUTS, Playbook, PlaybookCommand
from cuebook.surfaces.wiring import Wiring

HELP = """Run a playbook.

FILE is a Markdown playbook, a workflow graph, a pipeline or a program; its inputs become options, which
`cuebook run FILE --help` shows. The value of an input is written as it is, or as @FILE to take a file's text, or as - to
take stdin's; @@ stands for one @ at the beginning.

What a step asks a person is asked right here if somebody sits at the terminal. Otherwise, and for what is left for
later, the run waits, the exit code is 3, and it is said how to answer. Answers can be given beforehand, as values are. At a
terminal a program is a chat: /help lists what can be looked at, such as its listing, its stack and its variables.
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
    *enveloping.ENVELOPE,
    click.Option(["--dry-run"], is_flag=True, help="Print what each step would ask or do, and do nothing."),
]

_DRY_RUNS: dict[str, Callable[..., int]] = {
    "markdown": dry_run.show,
    "graph": graph_dry_run.show,
    "pipeline": pipeline_dry_run.show,
}


def start(given: Given, playbook: Playbook) -> int:
    document = registry.adapted(playbook.dialect, playbook.document, options.chosen(given))
    inputs = playbook.dialect.accept(document, gathered(given, document, playbook.dialect))
    source = Source(playbook.dialect, playbook.document)
    answers = gathered_answers(given, source)
    breakpoints = options.steps_named(given["breakpoints"])
    options.check_steps(breakpoints, labels_of(source))
    wiring = session.wiring_of(given)
    chosen = {"answers": answers, "unattended": given["unattended"], "options": options.chosen(given)}
    if given["dry_run"]:
        if playbook.dialect.name not in _DRY_RUNS:
            raise BadInput(
                f"{playbook.path}: --dry-run is not for programs: what each line does is known when it is executed.",
                fix=f"`cuebook explain {shlex.quote(playbook.path)}` says what a run of it may do.",
            )
        return _DRY_RUNS[playbook.dialect.name](given, playbook, inputs, wiring, **chosen)
    settings = msgspec.structs.replace(
        wiring.settings(breakpoints, folder=Path(playbook.folder), document=playbook.document), **chosen
    )

    wiring.check_models(playbook.dialect, playbook.document, settings)

    async def act(service: Service, wiring: Wiring) -> RunRow:
        return await service.start(playbook.text, playbook.name, inputs, settings)

    if given["envelope"] or given["strict_envelope"]:
        return enveloping.started(given, wiring, lambda service: act(service, wiring))
    return session.in_foreground(given, act, create=True, wiring=wiring)


class _Run(PlaybookCommand):
    """Whoever wants an envelope gets one in any case, also where nothing could be started."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        wanted = enveloping.wanted(args)
        try:
            return super().make_context(info_name, args, parent, **extra)
        except CuebookError as error:
            if not wanted:
                raise
            raise click.exceptions.Exit(enveloping.told(error, strict="--strict-envelope" in args)) from None


def _begin(given: Given, playbook: Playbook) -> int:
    try:
        return start(given, playbook)
    except CuebookError as error:
        if not (given["envelope"] or given["strict_envelope"]):
            raise
        return enveloping.told(error, strict=given["strict_envelope"])


run_command = _Run("run", OPTIONS, HELP, "Run {title}.", _begin)
