"""`cuebook secrets`: names for secret handles. It checks that a value can be read, and never shows it."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import click

from cuebook.config import load as load_config
from cuebook.gate.secret_managers import Managers
from cuebook.gate.secrets import MANAGED, SecretNoFile, SecretTooShort, Vault, check_handle, check_name
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.service.admin import SecretName
from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import say
from cuebook.wiring.keys import Keys, in_keyring
from cuebook.wiring.performers import managers_of

NAME = click.Argument(["name"])
NO_SECRETS = "There are no secrets yet. `cuebook secrets add NAME HANDLE` adds one."


@click.group("secrets", help="Manage the names of secrets that playbooks may use.")
def secrets_command() -> None:
    pass


@command(
    "add",
    [
        NAME,
        click.Argument(["handle"]),
        # An extra argument may be the secret itself, and click would repeat it in its error.
        click.Argument(["more"], nargs=-1, metavar=""),
        options.AS_USER,
        options.STORE,
        options.AS_JSON,
    ],
)
def _add(given: Given) -> int:
    """Add a name for a secret.

    HANDLE says where the value is: env:NAME, keyring:NAME or file:PATH. The value itself is never passed here, stored or
    shown.
    """
    if given["more"]:
        raise BadInput(
            "Expected only a name and a handle.", fix="For example: `cuebook secrets add github env:GITHUB_TOKEN`."
        )
    name, handle = check_name(given["name"]), check_handle(given["handle"])
    vault = _vault()
    problem = vault.problem(handle)
    if isinstance(problem, SecretTooShort | SecretNoFile):
        raise problem

    async def act(service: Service) -> int:
        await service.add_secret(name, handle, await session.acting(service, given))
        if given["as_json"]:
            sys.stdout.write(views.json_line({"name": name, **_state(vault, handle)}))
            return 0
        say(f"{name} now refers to {handle}.")
        say(f"It is not usable yet. {problem}" if problem else "Its value can be read.")
        if concern := vault.concern(handle):
            say(concern)
        return 0

    return session.with_service(given, act)


@command("list", [options.STORE, options.AS_JSON])
def _list(given: Given) -> int:
    """List the names with their handles, and whether each value can be read now; the values are never shown."""
    return _shown(given, failing=0)


@command("check", [options.STORE, options.AS_JSON])
def _check(given: Given) -> int:
    """Like list, with exit code 2 if a value cannot be read."""
    return _shown(given, failing=2)


@command("remove", [NAME, options.AS_USER, options.STORE])
def _remove(given: Given) -> int:
    """Remove a name. The value stays where it is."""

    async def act(service: Service) -> int:
        name = check_name(given["name"])
        if not await service.remove_secret(name, await session.acting(service, given)):
            raise NotFound(f"There is no secret '{name}'.", fix="`cuebook secrets list` lists them.")
        say(f"Removed {name}.")
        return 0

    return session.with_service(given, act, looking=True)


def _shown(given: Given, failing: int) -> int:
    async def act(service: Service) -> int:
        vault = _vault()
        found = [(secret, _state(vault, secret.handle)) for secret in await service.secrets()]
        configured = await asyncio.gather(*(asyncio.to_thread(_managed, vault, one) for one in _configured()))
        found = sorted((*found, *configured), key=lambda one: one[0].name)
        if given["as_json"]:
            listed = [{"name": one.name, "owner": one.owner, "created": one.created, **state} for one, state in found]
            sys.stdout.write(views.json_line(listed))
        elif found:
            _print(found)
        else:
            say(NO_SECRETS)
        return 0 if all(state["readable"] for _, state in found) else failing

    return session.with_service(given, act, looking=True)


def _print(found: list[tuple[SecretName, dict[str, Any]]]) -> None:
    names = max(len(secret.name) for secret, _ in found) + 2
    handles = max(len(secret.handle) for secret, _ in found) + 2
    for secret, state in found:
        can = "can be read" if state["readable"] else "cannot be read"
        since = f"{secret.owner}, {display.moment(secret.created)}" if secret.created else secret.owner
        say(f"{secret.name:<{names}}{secret.handle:<{handles}}{can:<16}{since}")
        for words in (state["problem"], state["concern"]):
            if words:
                say(f"  {words}")


def _managed(vault: Vault, secret: SecretName) -> tuple[SecretName, dict[str, Any]]:
    return secret, {**_state(vault, MANAGED + secret.name), "handle": secret.handle}


def _state(vault: Vault, handle: str) -> dict[str, Any]:
    """Whether the value of a handle can be read now, without the value itself."""
    problem = vault.problem(handle)
    return {
        "handle": handle,
        "readable": problem is None,
        "problem": str(problem) if problem else "",
        "concern": vault.concern(handle),
    }


def _vault() -> Vault:
    return Vault(environ=os.environ, keyring=in_keyring(Keys()), managers=_managers())


def _managers() -> Managers:
    return managers_of(load_config({}), os.environ)


def _configured() -> list[SecretName]:
    """The secrets that the user's own configuration names."""
    managers = _managers()
    return [SecretName(name, managers.shown(name), "cuebook.toml", 0.0) for name in managers]


for _command in (_add, _list, _check, _remove):
    secrets_command.add_command(_command)
