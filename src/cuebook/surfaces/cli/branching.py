"""Commands that make a new run from an old one: restart and fork."""

from __future__ import annotations

import click

from cuebook.kernel.run import RunRow
from cuebook.service import Service
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.continuing import CHANGES, RUN, changes_for, check_model, settings_for
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.wiring import Wiring

STEP = click.Argument(["step"], shell_complete=completion.steps_of_run)


@command("restart", [RUN, STEP, *options.ANSWERS, options.STORE, *options.LIVE])
def restart_command(given: Given) -> int:
    """Start a new run that keeps what an old one did before a step.

    The old run stays as it is. The steps before STEP are not done again.
    """

    async def act(service: Service, wiring: Wiring) -> RunRow:
        row = await service.get(given["run"])
        await check_model(wiring, row, {})
        settings = await settings_for(service, wiring, row, given)
        return await service.get((await service.fork(row.id, given["step"], settings=settings)).id)

    return session.in_foreground(given, act)


@command("fork", [RUN, STEP, *CHANGES, options.STORE, *options.LIVE])
def fork_command(given: Given) -> int:
    """Restart with changed values or settings, which hold from STEP on."""

    async def act(service: Service, wiring: Wiring) -> RunRow:
        row = await service.get(given["run"])
        values, settings = await changes_for(service, wiring, row, given)
        await check_model(wiring, row, settings)
        fork = await service.fork(row.id, given["step"], values=values, settings=settings)
        return await service.get(fork.id)

    return session.in_foreground(given, act)
