"""Commands that go on with a run: resume, answer, decide, cancel, retry. Each drives it in the foreground."""

from __future__ import annotations

import json
from typing import Any

import click

from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import ENDED, PAUSES, WAITING
from cuebook.kernel.run import RunRow
from cuebook.service import Service
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.answers import gathered_answers, labels_of
from cuebook.surfaces.cli.asking import someone_is_there
from cuebook.surfaces.cli.live import ASKED
from cuebook.surfaces.cli.onward import what_next
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.wiring import Wiring

RUN = click.Argument(["run"], shell_complete=completion.runs())

_WRITTEN = "Write an object in quotes; `cuebook inbox RUN` shows what it holds."
CHANGES: list[click.Parameter] = [options.SET, *options.ANSWERS, *options.SETTINGS, options.BREAK]


@command(
    "resume",
    [
        click.Argument(["run"], shell_complete=completion.runs("pending", "running", *WAITING)),
        *CHANGES,
        options.STORE,
        *options.LIVE,
    ],
)
def resume_command(given: Given) -> int:
    """Go on with a run that is paused or was interrupted.

    RUN is a run's id, or enough of its beginning. Values and settings that are given hold from here on. If the run
    waits for an answer or an approval and somebody sits at the terminal, they are asked.
    """

    async def act(service: Service, wiring: Wiring) -> RunRow:
        row = await service.get(given["run"])
        if row.status == "expired":
            return row  # nothing goes on, and what is shown of it says what does
        values, settings = await changes_for(service, wiring, row, given)
        await check_model(wiring, row, settings)
        waiting = await service.store.waits(run=row.id)
        if row.status in WAITING and not waiting:
            return row  # what it waited for has been decided or has expired: driving it says which
        if not values and not settings and await service.is_due(row.id):
            return row  # whoever took it up last was killed before anything came of it
        pausing = any(wait.kind in PAUSES for wait in waiting)
        if (values or settings) and not pausing and row.status not in ENDED:
            onward = f"`{what_next(row, waiting)}` goes on" if waiting else "Resume it as it is"
            raise BadInput(
                f"Run {row.id} is not at a pause, so nothing can be changed now.",
                fix=f"{onward}, or `cuebook fork {row.id} STEP` with the changes.",
            )
        if not pausing and someone_is_there(given) and any(wait.kind in ASKED for wait in waiting):
            return row
        return await service.resume(row.id, overrides=values, settings=settings)

    return session.in_foreground(given, act)


@command(
    "answer",
    [
        click.Argument(["run_or_wait"], shell_complete=completion.waits("question")),
        click.Argument(["value"], shell_complete=completion.answers_to_wait),
        options.STORE,
        *options.LIVE,
    ],
)
def answer_command(given: Given) -> int:
    """Answer the question a run waits for.

    VALUE may be @FILE for a file's text, or - for stdin's.
    """

    async def act(service: Service, wiring: Wiring) -> RunRow:
        wait = await session.open_wait(service, given["run_or_wait"], "question")
        row = await service.get(wait.run)
        await check_model(wiring, row, {})
        await service.answer(wait.id, options.value_of("VALUE", given["value"]))
        return row

    return session.in_foreground(given, act)


@command(
    "decide",
    [
        click.Argument(["run_or_wait"], shell_complete=completion.waits("approval", "in_doubt")),
        click.Argument(["decision"], type=click.Choice(["approve", "deny", "repeat", "stop", "done"])),
        click.Option(["--reason"], metavar="TEXT", default="", help="Why, for the record."),
        click.Option(["--outcome"], metavar="JSON", help="With 'done': what the effect gave back."),
        options.AS_USER,
        options.STORE,
        *options.LIVE,
    ],
)
def decide_command(given: Given) -> int:
    """Approve or deny what a run wants to do, or settle what is in doubt.

    `cuebook inbox WAIT` shows what an approval is about. 'approve' and 'deny' count once; what was approved is exactly
    what runs, and a change asks again.

    An effect is in doubt if it was begun and its outcome is not known, as when the process ended meanwhile. 'repeat' does
    it again, 'stop' fails the run, and 'done' goes on with the outcome you give: '{"exit_code": 0, "stdout": "..."}' of a
    command, '{"status": 200, "body": "..."}' of a request, '{"value": ...}' of a tool. `cuebook inbox WAIT` says which.
    """

    async def act(service: Service, wiring: Wiring) -> RunRow:
        outcome = _outcome(given["outcome"])
        who = await session.acting(service, given)
        kind = "approval" if given["decision"] in ("approve", "deny") else "in_doubt"
        wait = await session.open_wait(service, given["run_or_wait"], kind)
        row = await service.get(wait.run)
        await service.decide(wait.id, given["decision"], who, reason=given["reason"], outcome=outcome)
        return row

    return session.in_foreground(given, act)


@command(
    "cancel",
    [
        click.Argument(["run"], shell_complete=completion.runs("pending", "running", *WAITING)),
        click.Option(["--reason"], metavar="TEXT", help="Why, for the record."),
        options.AS_USER,
        options.STORE,
        *options.LIVE,
    ],
)
def cancel_command(given: Given) -> int:
    """Stop a run; a second time, at once.

    The run may undo what it did. Its exit code is that of a cancelled run, 5. The policy says who may cancel.
    """

    async def act(service: Service, wiring: Wiring) -> RunRow:
        return await service.cancel(given["run"], given["reason"] or "", await session.acting(service, given))

    return session.in_foreground(given, act)


@command(
    "retry",
    [
        click.Argument(["run"], shell_complete=completion.runs("failed", "cancelled", "expired")),
        click.Option(["--whole-step"], is_flag=True, help="From the beginning of the step that failed."),
        options.AS_USER,
        options.STORE,
        *options.LIVE,
    ],
)
def retry_command(given: Given) -> int:
    """Go on with a failed, cancelled or expired run where it stopped."""

    async def act(service: Service, wiring: Wiring) -> RunRow:
        who = await session.acting(service, given)
        row = await service.get(given["run"], who)
        await check_model(wiring, row, {})
        return await service.retry(row.id, whole_step=given["whole_step"], who=who)

    return session.in_foreground(given, act)


async def changes_for(
    service: Service, wiring: Wiring, row: RunRow, given: Given
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values and settings that the call changes."""
    values = options.changed_values(given["values"])
    settings = await settings_for(service, wiring, row, given)
    return await session.typed_values(service, row, values) if values else {}, settings


async def settings_for(service: Service, wiring: Wiring, row: RunRow, given: Given) -> dict[str, Any]:
    settings = await session.merged_settings(service, row.id, options.edits(wiring.config))
    source = await session.source_of(service, row)
    answers = gathered_answers(given, source)
    if answers:
        settings["answers"] = {**(await session.settings_of(service, row.id)).answers, **answers}
    if given["unattended"]:
        settings["unattended"] = True
    if given.get("breakpoints") is not None:
        steps = options.steps_named(given["breakpoints"])
        known = [step.label for step in await service.store.steps(row.id)] if source is None else labels_of(source)
        options.check_steps(steps, known)
        settings["breakpoints"] = list(steps)
    return settings


async def check_model(wiring: Wiring, row: RunRow, settings: dict[str, Any]) -> None:
    """A run whose model cannot be asked would only fail: better to say so while nothing is changed."""
    name = settings.get("model") or row.model
    if name:  # not every run asks one
        wiring.providers.check(name)


def _outcome(given: str | None) -> dict[str, Any] | None:
    if given is None:
        return None
    try:
        outcome = json.loads(given)
    except ValueError as error:
        raise BadInput(f"--outcome: this is not JSON ({error}).", fix=_WRITTEN) from None
    if not isinstance(outcome, dict):
        raise BadInput("--outcome: this is no JSON object.", fix=_WRITTEN)
    return outcome
