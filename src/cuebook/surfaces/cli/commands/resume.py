"""Commands that continue a run in the foreground: resume, answer, decide, cancel, retry."""

from __future__ import annotations

import json
from typing import Any

import click

from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import ENDED, PAUSES, WAITING
from cuebook.kernel.run import RunRow
from cuebook.service.runs.edits import EditPlan
from cuebook.service.service import Service
from cuebook.service.waits.lasting_approvals import LASTING
from cuebook.surfaces.cli import bulk, completion, options, session
from cuebook.surfaces.cli.inputs import gather_answers
from cuebook.surfaces.cli.next_steps import what_next
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal.ask import someone_is_there
from cuebook.surfaces.cli.terminal.output import complain
from cuebook.surfaces.cli.terminal.views import ASKED
from cuebook.wiring.wiring import Wiring

RUN = click.Argument(["run"], shell_complete=completion.runs())

_OUTCOME_FIX = "Pass a JSON object in quotes; `cuebook inbox RUN` shows its fields."
CHANGES: list[click.Parameter] = [options.SET, *options.ANSWERS, *options.SETTINGS, options.BREAK]


@command(
    "resume",
    [
        click.Argument(["run"], required=False, shell_complete=completion.runs("pending", "running", *WAITING)),
        *bulk.OPTIONS,
        click.Option(
            ["--with", "text"],
            metavar="FILE",
            help="Continue with the changed text of the playbook, in a new run.",
            shell_complete=completion.any_file,
        ),
        *CHANGES,
        options.WORKSPACE,
        options.STORE,
        *options.LIVE,
    ],
)
def resume_command(given: Given) -> int:
    """Continue a run that is paused or was interrupted.

    RUN is the id of a run, or a unique prefix of it. Changed values and settings apply from here on. If the run is waiting
    for an answer or an approval and you are at a terminal, you are asked here.

    With --with FILE, a failed, paused or waiting run continues with the changed text of its playbook. First a table shows what
    becomes of each step: kept, redone, changed, removed or new. If you agree, a new run continues with it and supersedes
    the old one, whose questions are withdrawn.

    Without RUN, all runs that the options select are resumed; without --status, those that are paused or interrupted. They
    are listed first, and you are asked. Each is checked and recorded on its own; the exit code is 1 if one was refused
    or failed.
    """
    if bulk.is_meant(given):
        _check_unchanged(given)
        return bulk.act(given, "resume")
    if given["text"]:
        return _resume_with(given)

    async def act(service: Service, wiring: Wiring) -> RunRow:
        row = await moved_here(service, wiring, await service.get(given["run"]), given)
        if row.status == "expired":
            return row  # it cannot continue; its summary says what to do
        values, settings = await changes_for(service, wiring, row, given)
        await check_model(wiring, row, settings)
        waiting = await service.waits(row.id)
        if row.status in WAITING and not waiting:
            return row  # the wait was decided or has expired: driving the run shows which
        if not values and not settings and await service.is_due(row.id):
            return row  # the last process was killed before it made any progress
        pausing = any(wait.kind in PAUSES for wait in waiting)
        if (values or settings) and not pausing and row.status not in ENDED:
            onward = f"`{what_next(row, waiting)}` continues it" if waiting else "Resume it without changes"
            raise BadInput(
                f"Run {row.id} is not paused, so its values and settings cannot be changed now.",
                fix=f"{onward}, or restart it with the changes: `cuebook restart {row.id} STEP --set NAME=VALUE`.",
            )
        if not pausing and someone_is_there(given) and any(wait.kind in ASKED for wait in waiting):
            return row
        return await service.resume(row.id, overrides=values, settings=settings)

    return session.in_foreground(given, act)


def _check_unchanged(given: Given) -> None:
    names = ("text", "workspace", *(one.name for one in CHANGES if one.name))
    if any(given.get(name) for name in names):
        raise BadInput(
            "Values and settings can be changed for one run at a time.", fix="Name a RUN, or leave them out."
        )


def _resume_with(given: Given) -> int:
    if any(given.get(name) for name in ("set", "answer", "break_after")):
        raise BadInput("--with cannot be combined with changed values.", fix="Continue with the text first.")
    from cuebook.surfaces.cli.playbook_command import read_file

    playbook = read_file(given["text"])

    async def act(service: Service, wiring: Wiring) -> RunRow:
        row = await moved_here(service, wiring, await service.get(given["run"]), given)
        wiring.check_models(playbook.dialect, playbook.document, (await service.settings(row.id))[1])
        plan = await service.edit_plan(row.id, playbook)
        for line in edit_table(plan):
            complain(line)
        if not given["yes"]:
            if not someone_is_there(given):
                raise BadInput(
                    "Nothing was changed: continuing with another text needs your confirmation.",
                    fix="Read the table, then repeat the command with --yes.",
                )
            if not click.confirm("Continue with this text?", default=False, err=True):
                raise BadInput("Nothing was changed.", fix=f"`cuebook show {row.id}` shows the run.")
        made = await service.continue_with(row.id, playbook, plan=plan.id)
        complain(f"cuebook: run {made.id} continues run {row.id}.")
        return await service.get(made.id)

    return session.in_foreground(given, act)


def edit_table(plan: EditPlan) -> list[str]:
    """What becomes of each step, one line each."""
    rows = [("STEP", "VERDICT", "BECAUSE"), *((one.step, one.verdict, one.because) for one in plan.verdicts)]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return [f"{step:<{widths[0]}}  {verdict:<{widths[1]}}  {because}" for step, verdict, because in rows]


@command(
    "answer",
    [
        click.Argument(["run_or_wait"], shell_complete=completion.waits("question")),
        click.Argument(["value"], shell_complete=completion.answers_to_wait),
        options.AS_USER,
        options.WORKSPACE,
        options.STORE,
        *options.LIVE,
    ],
)
def answer_command(given: Given) -> int:
    """Answer the question a run is waiting for.

    VALUE is the answer, @FILE for the text of a file, or - for stdin. If the question is a form, VALUE is JSON that follows
    its schema; `cuebook inbox WAIT` shows its fields.
    """

    async def act(service: Service, wiring: Wiring) -> RunRow:
        wait = await session.open_wait(service, given["run_or_wait"], "question")
        row = await moved_here(service, wiring, await service.get(wait.run), given)
        await check_model(wiring, row, {})
        who = await session.acting(service, given)
        await service.answer(wait.id, options.value_of("VALUE", given["value"]), who)
        return row

    return session.in_foreground(given, act)


@command(
    "decide",
    [
        click.Argument(["run_or_wait"], shell_complete=completion.waits("approval", "in_doubt")),
        click.Argument(["decision"], type=click.Choice(["approve", "deny", "changes", "repeat", "stop", "done"])),
        click.Option(["--reason"], metavar="TEXT", default="", help="The reason, for the record."),
        click.Option(
            ["--for", "lasts"],
            type=click.Choice(LASTING),
            default="once",
            show_default=True,
            help="With 'approve': also allow what the approval offers, for the rest of this run or for all runs.",
        ),
        click.Option(
            ["--offer"],
            type=click.IntRange(min=1),
            metavar="NUMBER",
            default=1,
            help="With --for: which of several offers to allow; the first is the narrowest.",
        ),
        click.Option(["--to"], metavar="STEP", default="", help="With 'changes': the step to go back to."),
        click.Option(["--outcome"], metavar="JSON", help="With 'done': the result of the effect."),
        options.AS_USER,
        options.WORKSPACE,
        options.STORE,
        *options.LIVE,
    ],
)
def decide_command(given: Given) -> int:
    """Approve or deny an action in a run, or resolve an effect in doubt.

    `cuebook inbox WAIT` shows the action in full. 'approve' and 'deny' apply once: Cuebook runs exactly what was
    approved, and asks again if anything changes. With --for run or --for always, the same actions are then also allowed
    without asking, by the patterns that the approval shows. `cuebook policy overrides` lists them, and `cuebook policy
    revoke` ends them. A policy that denies something still denies it.

    If the playbook asks for several people, each one approves, and the run continues when enough of them have. 'changes'
    sends the run back to a step that the approval names, with --reason as feedback; everything after that step is done and
    asked again.

    An effect is in doubt if it was started and its outcome is unknown, for example because the process was killed.
    'repeat' performs it again, 'stop' fails the run, and 'done' continues with the outcome you pass:
    '{"exit_code": 0, "stdout": "..."}' for a command, '{"status": 200, "body": "..."}' for a request, '{"value": ...}'
    for a tool. `cuebook inbox WAIT` shows which form is expected.
    """

    async def act(service: Service, wiring: Wiring) -> RunRow:
        outcome = _outcome(given["outcome"])
        who = await session.acting(service, given)
        kind = "approval" if given["decision"] in ("approve", "deny", "changes") else "in_doubt"
        wait = await session.open_wait(service, given["run_or_wait"], kind)
        row = await moved_here(service, wiring, await service.get(wait.run), given)
        await service.decide(
            wait.id,
            given["decision"],
            who,
            reason=given["reason"],
            outcome=outcome,
            lasts=given["lasts"],
            offer=given["offer"],
            to=given["to"],
        )
        return row

    return session.in_foreground(given, act)


@command(
    "cancel",
    [
        click.Argument(["run"], required=False, shell_complete=completion.runs("pending", "running", *WAITING)),
        *bulk.OPTIONS,
        click.Option(["--reason"], metavar="TEXT", help="The reason, for the record."),
        options.AS_USER,
        options.STORE,
        *options.LIVE,
    ],
)
def cancel_command(given: Given) -> int:
    """Cancel a run; a second cancel stops it at once.

    The run may undo what it did. The exit code is 5, as for any cancelled run. The policy defines who may cancel it.

    Without RUN, all runs that the options select are cancelled; without --status, those that have not ended. They are
    listed first, and you are asked. Each is checked and recorded on its own; the exit code is 1 if one was refused. Runs that
    are being cancelled are left to undo what they did.

    Examples:

    \b
    cuebook cancel RUN
    cuebook cancel --playbook tea.md --status awaiting_input --dry-run
    """
    if bulk.is_meant(given):
        return bulk.act(given, "cancel")

    async def act(service: Service, wiring: Wiring) -> RunRow:
        return await service.cancel(given["run"], given["reason"] or "", await session.acting(service, given))

    return session.in_foreground(given, act)


@command(
    "retry",
    [
        click.Argument(["run"], required=False, shell_complete=completion.runs("failed", "cancelled", "expired")),
        *bulk.OPTIONS,
        click.Option(["--whole-step"], is_flag=True, help="Repeat the failed step from its beginning."),
        options.AS_USER,
        options.WORKSPACE,
        options.STORE,
        *options.LIVE,
    ],
)
def retry_command(given: Given) -> int:
    """Continue a failed, cancelled or expired run where it stopped.

    Without RUN, all runs that the options select are retried; without --status, all that failed, expired or were cancelled.
    They are listed first, and you are asked. Each is checked and recorded on its own; the exit code is 1 if one was refused
    or failed.

    Examples:

    \b
    cuebook retry RUN
    cuebook retry --status failed --since 1d --yes
    """
    if bulk.is_meant(given):
        return bulk.act(given, "retry")

    async def act(service: Service, wiring: Wiring) -> RunRow:
        who = await session.acting(service, given)
        row = await moved_here(service, wiring, await service.get(given["run"], who), given)
        await check_model(wiring, row, {})
        return await service.retry(row.id, whole_step=given["whole_step"], who=who)

    return session.in_foreground(given, act)


async def moved_here(service: Service, wiring: Wiring, row: RunRow, given: Given) -> RunRow:
    """The run, moved to the folder given by `--workspace`, if that is not its folder yet."""
    if not given["workspace"]:
        return row
    workspace = wiring.factory.workspace
    if workspace.problem is not None:
        raise BadInput(workspace.problem.message, fix=workspace.problem.fix)
    return await service.move(row.id, workspace.path, workspace.label)


async def changes_for(
    service: Service, wiring: Wiring, row: RunRow, given: Given
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values and settings that this call changes."""
    values = options.changed_values(given["values"])
    settings = await settings_for(service, wiring, row, given)
    return await service.typed_changes(row, values), settings


async def settings_for(service: Service, wiring: Wiring, row: RunRow, given: Given) -> dict[str, Any]:
    settings = await session.merged_settings(service, row.id, options.edits(wiring.config))
    playbook = await session.playbook_of(service, row)
    answers = gather_answers(given, playbook)
    if answers:
        settings["answers"] = {**(await session.settings_of(service, row.id)).answers, **answers}
    if given["unattended"]:
        settings["unattended"] = True
    if given.get("breakpoints") is not None:
        steps = options.steps_named(given["breakpoints"])
        known = [step.label for step in await service.steps(row.id)] if playbook is None else list(playbook.labels)
        options.check_steps(steps, known)
        settings["breakpoints"] = list(steps)
    return settings


async def check_model(wiring: Wiring, row: RunRow, settings: dict[str, Any]) -> None:
    """Refuses a run whose model is not usable before anything is changed, because the run would fail."""
    name = settings.get("model") or row.model
    if name:  # not every run uses a model
        wiring.providers.check(name)


def _outcome(given: str | None) -> dict[str, Any] | None:
    if given is None:
        return None
    try:
        outcome = json.loads(given)
    except ValueError as error:
        raise BadInput(f"--outcome: invalid JSON ({error}).", fix=_OUTCOME_FIX) from None
    if not isinstance(outcome, dict):
        raise BadInput("--outcome: expected a JSON object.", fix=_OUTCOME_FIX)
    return outcome
