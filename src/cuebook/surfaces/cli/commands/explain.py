"""`cuebook explain`, `cuebook explain --plan` (also `cuebook plan`) and `cuebook run --dry-run`.

They do not run or create anything.
"""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from cuebook.dialects import registry
from cuebook.dialects.options import COMMON
from cuebook.dialects.playbook import Playbook
from cuebook.dialects.presentation.preview import Preview
from cuebook.gate.policy import Preset
from cuebook.kernel.errors import BadInput
from cuebook.kernel.run import Settings
from cuebook.service.preview import explanation
from cuebook.service.preview.explanation import Explanation
from cuebook.service.start import options_of
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.inputs import gather_inputs
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.playbook_command import FILE, INPUTS, PlaybookCommand
from cuebook.surfaces.cli.terminal import preview, views
from cuebook.surfaces.cli.terminal.output import complain, say
from cuebook.surfaces.explanation import explanation_lines, explanation_object
from cuebook.wiring.preview import preview_setup
from cuebook.wiring.wiring import Wiring

HELP = """Show what a run would do, touch and cost.

FILE is a playbook in any dialect. Pass inputs as for `cuebook run`; missing ones count as unknown. The output lists the
steps in order and what each branch depends on, the questions it asks, the models, tools, sources and hosts with the policy's
decision and the rule behind it, and the maximum cost of the model calls. Nothing is run, called or created.
"""

PLAN_HELP = """Show what each step would do, and what the policy says about it.

The same as `cuebook explain --plan`. Pass inputs as for `cuebook run`; missing ones appear as references, like the outputs
of earlier steps. The output lists the actions of the steps, whether each is allowed, denied or needs approval and by which
rules, the secrets and hosts they need, and the steps that change something without a check that it worked (postcondition)
or a way to undo it (rollback_hint). Nothing is run, and no secret is read.

The exit code is 1 if a step would be denied or is certain to fail, because an input is invalid or a secret or tool does
not exist. Otherwise it is 0, even if someone would have to approve a step.
"""

_COMMON: list[click.Parameter] = [
    FILE,
    *INPUTS,
    *options.SETTINGS,
    options.POLICY,
    *options.choices([*COMMON, *(option for dialect in registry.dialects() for option in dialect.options)]),
    options.STORE,
    options.AS_JSON,
]
OPTIONS: list[click.Parameter] = [
    *_COMMON,
    click.Option(
        ["--plan"], is_flag=True, help="Show the policy's decision on each step; exit code 1 if one is denied."
    ),
    click.Option(["--summary"], is_flag=True, help="Only show a summary: title, inputs, steps, what it uses."),
]


def explain(given: Given, playbook: Playbook) -> int:
    if given["summary"]:
        from cuebook.surfaces.cli.commands.validate import summarize

        return summarize(given)
    if given["plan"]:
        return plan(given, playbook)
    explained = asyncio.run(_explained(given, playbook))
    if given["as_json"]:
        sys.stdout.write(views.json_line(explanation_object(explained)))
    else:
        say("\n".join(explanation_lines(explained)))
    return 0


def plan(given: Given, playbook: Playbook) -> int:
    explained = asyncio.run(_explained(given, playbook, every_act=True))
    _check_foreseeable(explained.preview, playbook, "--plan")
    if given["as_json"]:
        sys.stdout.write(views.json_line(preview.plan_object(explained)))
    else:
        say("\n".join(preview.plan_lines(explained)))
    return 1 if explained.denied or explained.fails else 0


def dry_run(given: Given, playbook: Playbook, inputs: Mapping[str, Any], settings: Settings, wiring: Wiring) -> int:
    """`run --dry-run`: exit code 1 if the run could only fail."""
    sensitive = given["sensitive"]
    setup = preview_setup(wiring)
    found = asyncio.run(explanation.preview_of(playbook, inputs, settings, setup, sensitive=sensitive))
    _check_foreseeable(found, playbook, "--dry-run")
    if found.failure:
        complain(f"cuebook: the run would fail: {found.failure}")
        return 1
    if given["as_json"]:
        sys.stdout.write(views.json_line(preview.dry_run_objects(found)))
    else:
        for number, passage in enumerate(preview.dry_run_passages(found)):
            say(f"\n{passage}" if number else passage)
    return 1 if found.fails else 0


async def _explained(given: Given, playbook: Playbook, *, every_act: bool = False) -> Explanation:
    wiring = session.wiring_of(given)
    chosen = options.chosen(given)
    playbook = replace(playbook, document=playbook.adapted(chosen))
    inputs = gather_inputs(given, playbook.document, playbook.dialect)
    kept = options_of(playbook.dialect, playbook.document, playbook.where, Settings(options=chosen))
    settings = Settings(folder=playbook.folder, options=kept)
    setup = preview_setup(wiring)
    async with session.opened(wiring, empty=True) as service:
        preset: Preset = given["policy"] or ""
        return await explanation.explain(service, playbook, inputs, settings, setup, every_act=every_act, preset=preset)


def _check_foreseeable(found: Preview, playbook: Playbook, command: str) -> None:
    if found.unforeseeable:
        raise BadInput(
            f"{playbook.where}: {command} cannot show the steps of this playbook: {found.unforeseeable}.",
            fix=f"`cuebook explain {shlex.quote(playbook.where)}` shows what a run may do.",
        )


explain_command = PlaybookCommand("explain", OPTIONS, HELP, "Show what a run of {title} would do.", explain)
plan_command = PlaybookCommand("plan", _COMMON, PLAN_HELP, "Show what each step of {title} would do.", plan)
