"""`cuebook users`: people and their roles. A token is shown once, when a user is added, and kept as its digest only."""

from __future__ import annotations

import sys

import click

from cuebook.gate.people import MEANING, ROLES, User
from cuebook.service import Service
from cuebook.surfaces import wording
from cuebook.surfaces.cli import live, options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.plain import say

NAME = click.Argument(["name"])


@click.group("users", help="Say who may look, run, approve and administer.")
def users_command() -> None:
    pass


@command(
    "add",
    [
        NAME,
        click.Option(
            ["--role", "roles"],
            type=click.Choice(ROLES),
            multiple=True,
            required=True,
            help="What they may do; repeatable. " + " ".join(f"{role}: {means}." for role, means in MEANING.items()),
        ),
        options.AS_USER,
        options.STORE,
        options.AS_JSON,
    ],
)
def _add(given: Given) -> int:
    """Add a user, or change the roles of one.

    The token that is printed proves who they are to the web page and the API. It is not shown again; adding the user
    once more makes a new one.
    """

    async def act(service: Service) -> int:
        user, token = await service.add_user(given["name"], given["roles"], await session.acting(service, given))
        if given["as_json"]:
            sys.stdout.write(live.json_line({**_object(user), "token": token}))
            return 0
        say(f"{user.name} is {', '.join(user.roles)}.\nToken, shown only now: {token}")
        return 0

    return session.with_service(given, act)


@command("list", [options.STORE, options.AS_JSON])
def _list(given: Given) -> int:
    """Show the users and their roles."""

    async def act(service: Service) -> int:
        users = await service.users()
        if given["as_json"]:
            sys.stdout.write(live.json_line([_object(user) for user in users]))
            return 0
        for user in users:
            say(f"{user.name:<20}{', '.join(user.roles):<40}since {wording.moment(user.created)}")
        if not users:
            say("No users: whoever sits at this terminal may do everything.")
        return 0

    return session.with_service(given, act, looking=True)


@command("remove", [NAME, options.AS_USER, options.STORE])
def _remove(given: Given) -> int:
    """Remove a user; their token does not count any more."""

    async def act(service: Service) -> int:
        await service.remove_user(given["name"], await session.acting(service, given))
        say(f"{given['name']} is removed.")
        return 0

    return session.with_service(given, act, looking=True)


def _object(user: User) -> dict[str, object]:
    return {"name": user.name, "roles": list(user.roles), "created": user.created, "by": user.by}


for _command in (_add, _list, _remove):
    users_command.add_command(_command)
