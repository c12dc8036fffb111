"""Commands that make a new run from an old one: restart and fork."""

from __future__ import annotations

import click

from cuebook.decisions import visits_of
from cuebook.kernel.run import RunRow
from cuebook.service import Service
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.continuing import CHANGES, RUN, changes_for, check_model, settings_for
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.plain import complain
from cuebook.surfaces.wiring import Wiring


async def step_of(service: Service, row: RunRow, name: str) -> tuple[str, int | None]:
    """The label and the visit that STEP means. Of several visits it is the last one, which is said."""
    steps = [step for step in await service.store.steps(row.id) if step.seq]
    found = visits_of(steps, name)
    visits = [step.visit for step in found if step.path == found[0].path]
    label, mark, number = name.rpartition("#")
    if not found and mark and number.isdecimal():
        return label, int(number)
    if len(visits) > 1 and len(visits) == len(found):
        first, last = f"{name}#{visits[0]}", f"{name}#{visits[-1]}"
        complain(f"cuebook: step {name} is there {len(visits)} times: this is the last, {last}. {first} is the first.")
    return name, None


STEP = click.Argument(["step"], shell_complete=completion.steps_of_run)


@command("restart", [RUN, STEP, *options.ANSWERS, options.STORE, *options.LIVE])
def restart_command(given: Given) -> int:
    """Start a new run that keeps what an old one did before a step.

    The old run stays as it is. The steps before STEP are not done again. Where a number is there more than once, STEP
    is its last; 1#2 is the second with the number 1.
    """

    async def act(service: Service, wiring: Wiring) -> RunRow:
        row = await service.get(given["run"])
        await check_model(wiring, row, {})
        settings = await settings_for(service, wiring, row, given)
        step, visit = await step_of(service, row, given["step"])
        return await service.get((await service.fork(row.id, step, visit=visit, settings=settings)).id)

    return session.in_foreground(given, act)


@command("fork", [RUN, STEP, *CHANGES, options.STORE, *options.LIVE])
def fork_command(given: Given) -> int:
    """Restart with changed values or settings, which hold from STEP on."""

    async def act(service: Service, wiring: Wiring) -> RunRow:
        row = await service.get(given["run"])
        values, settings = await changes_for(service, wiring, row, given)
        await check_model(wiring, row, settings)
        step, visit = await step_of(service, row, given["step"])
        fork = await service.fork(row.id, step, visit=visit, values=values, settings=settings)
        return await service.get(fork.id)

    return session.in_foreground(given, act)
