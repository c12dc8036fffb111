"""`cuebook keys`: stores keys in the system keyring. A key is never shown, and never read from the command line."""

from __future__ import annotations

import sys

import click

from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import say
from cuebook.wiring.keys import backend, checked_key

PROVIDER = click.Argument(["provider"])


@click.group("keys", help="Store provider API keys in the system keyring.")
def keys_command() -> None:
    pass


@command("set", [PROVIDER])
def _set(given: Given) -> int:
    """Store the key for PROVIDER, typed without echo or read from stdin.

    A run whose provider rejects its key does not fail, but waits, and continues when the key has been replaced. A key in the
    environment comes first; after changing it there, restart the server or the worker.
    """
    wiring = session.wiring_of({})
    name = wiring.key_name(given["provider"])
    if not backend()[1]:
        wiring.keys.set(name, "")  # fails before the user types a key for nothing
    if sys.stdin.isatty():
        key = click.prompt(f"Key for {given['provider']}", hide_input=True, err=True)
    else:
        key = sys.stdin.readline()
    checked = checked_key(key)

    async def act(service: Service) -> int:
        wiring.keys.set(name, checked)
        await service.record_act("key.set", given["provider"], details={"name": name})
        say(f"Stored the key for {given['provider']} in the keyring as {name}.")
        runs = await service.key_waits.continue_with(given["provider"])
        if runs:
            how = display.command_line(f"resume {runs[0]}")
            say(
                f"Runs that waited for it can continue: {', '.join(runs)}. Without a server or a worker, `{how}` does that."
            )
        return 0

    return session.with_service(given, act, wiring=wiring)


@command("remove", [PROVIDER])
def _remove(given: Given) -> int:
    """Remove the key for PROVIDER from the keyring."""
    wiring = session.wiring_of({})
    name = wiring.key_name(given["provider"])

    async def act(service: Service) -> int:
        if wiring.keys.remove(name):
            await service.record_act("key.remove", given["provider"], details={"name": name})
            say(f"Removed the key for {given['provider']} from the keyring.")
        else:
            say(f"The keyring has no key for {given['provider']}.")
        return 0

    return session.with_service(given, act, wiring=wiring)


@command("list", [options.AS_JSON])
def _list(given: Given) -> int:
    """List the providers and where their keys come from; the keys themselves are never shown."""
    wiring = session.wiring_of({})
    found = {
        provider: (config.key, wiring.keys.source(config.key))
        for provider, config in wiring.provider_configs.items()
        if config.key
    }
    if given["as_json"]:
        listed = [{"provider": name, "key": key, "source": source} for name, (key, source) in found.items()]
        sys.stdout.write(views.json_line(listed))
        return 0
    for provider, (key, source) in found.items():
        say(f"{provider:<14}{key:<24}{source or 'none'}")
    return 0


for _command in (_set, _remove, _list):
    keys_command.add_command(_command)
