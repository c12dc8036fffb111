"""`cuebook restart`, also called `fork`: a new run from a step of another run."""

from __future__ import annotations

import click

from cuebook.kernel.run import RunRow
from cuebook.service.service import Service
from cuebook.service.waits.decisions import visits_of
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.commands.resume import CHANGES, RUN, changes_for, check_model
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal.output import complain
from cuebook.wiring.wiring import Wiring


async def step_of(service: Service, row: RunRow, name: str) -> tuple[str, int | None]:
    """The label and the visit that STEP refers to. If there are several visits, a message says that the last one is used."""
    steps = [step for step in await service.steps(row.id) if step.seq]
    found = visits_of(steps, name)
    visits = [step.visit for step in found if step.path == found[0].path]
    label, mark, number = name.rpartition("#")
    if not found and mark and number.isdecimal():
        return label, int(number)
    if len(visits) > 1 and len(visits) == len(found):
        first, last = f"{name}#{visits[0]}", f"{name}#{visits[-1]}"
        complain(
            f"cuebook: step {name} was visited {len(visits)} times; restarting from the last visit, {last}."
            f" The first is {first}."
        )
    return name, None


STEP = click.Argument(["step"], shell_complete=completion.steps_of_run)


def _restart(given: Given) -> int:
    """Start a new run from a step of another run, optionally with changed values or settings.

    The old run stays unchanged. The new run keeps the results of the steps before STEP; changed values and settings apply
    from STEP on. If a step was visited more than once, STEP means the last visit; 1#2 means the second visit to step 1.
    """

    async def act(service: Service, wiring: Wiring) -> RunRow:
        row = await service.get(given["run"])
        values, settings = await changes_for(service, wiring, row, given)
        await check_model(wiring, row, settings)
        step, visit = await step_of(service, row, given["step"])
        made = await service.fork(row.id, step, visit=visit, values=values, settings=settings)
        return await service.get(made.id)

    return session.in_foreground(given, act)


_PARAMS: list[click.Parameter] = [RUN, STEP, *CHANGES, options.STORE, *options.LIVE]

restart_command = command("restart", _PARAMS)(_restart)
fork_command = command("fork", _PARAMS)(_restart)
