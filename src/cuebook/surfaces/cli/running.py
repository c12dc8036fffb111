"""`cuebook run`: its options grow from the inputs that the playbook declares."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from cuebook.dialects import registry
from cuebook.dialects.options import COMMON
from cuebook.kernel.run import RunRow
from cuebook.service import Service
from cuebook.surfaces.cli import dry_run, graph_dry_run, options, session
from cuebook.surfaces.cli.answers import Source, gathered_answers, labels_of
from cuebook.surfaces.cli.inputs import gathered
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.playbooks import FILE, INPUTS, Playbook, PlaybookCommand
from cuebook.surfaces.wiring import Wiring

HELP = """Run a playbook.

FILE is a Markdown playbook or a workflow graph; its inputs become options, which `cuebook run FILE --help` shows. The value of an input is
written as it is, or as @FILE to take a file's text, or as - to take stdin's; @@ stands for one @ at the beginning.

What a step asks a person is asked right here if somebody sits at the terminal. Otherwise, and for what is left for
later, the run waits, the exit code is 3, and it is said how to answer. Answers can be given beforehand, as values are.
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
    click.Option(["--dry-run"], is_flag=True, help="Print what each model would be asked, and do nothing."),
]


def start(given: Given, playbook: Playbook) -> int:
    inputs = playbook.dialect.accept(playbook.document, gathered(given, playbook.document, playbook.dialect))
    source = Source(playbook.dialect, playbook.document)
    answers = gathered_answers(given, source)
    breakpoints = options.steps_named(given["breakpoints"])
    options.check_steps(breakpoints, labels_of(source))
    wiring = session.wiring_of(given)
    chosen = {"answers": answers, "unattended": given["unattended"], "options": options.chosen(given)}
    if given["dry_run"] and playbook.dialect.name == "graph":
        return graph_dry_run.show(given, playbook, inputs, wiring, **chosen)
    if given["dry_run"]:
        return dry_run.show(given, playbook, inputs, wiring, **chosen)
    settings = msgspec.structs.replace(wiring.settings(breakpoints, folder=Path(playbook.folder)), **chosen)

    wiring.check_models(playbook.dialect, playbook.document)

    async def act(service: Service, wiring: Wiring) -> RunRow:
        return await service.start(playbook.text, playbook.name, inputs, settings)

    return session.in_foreground(given, act, create=True, wiring=wiring)


run_command = PlaybookCommand("run", OPTIONS, HELP, "Run {title}.", start)
