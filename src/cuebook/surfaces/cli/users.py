"""`cuebook users`: people and their roles. A token is shown once, when it is made, and kept as its digest only."""

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


def _roles(words: str) -> click.Option:
    means = " ".join(f"{role}: {meaning}." for role, meaning in MEANING.items())
    return click.Option(
        ["--role", "roles"],
        type=click.Choice(ROLES),
        multiple=True,
        required=True,
        help=f"{words}; repeatable. {means}",
    )


@click.group("users", help="Say who may look, run, approve and administer.")
def users_command() -> None:
    pass


@command("add", [NAME, _roles("What they may do"), options.AS_USER, options.STORE, options.AS_JSON])
def _add(given: Given) -> int:
    """Add a user.

    The token that is printed proves who they are to the web page and the API. It is not shown again; `cuebook users
    token` makes a new one.
    """

    async def act(service: Service) -> int:
        user, token = await service.add_user(given["name"], given["roles"], await session.acting(service, given))
        return _told(given, user, f"Token, shown only now: {token}", token=token)

    return session.with_service(given, act)


@command("grant", [NAME, _roles("What they may do besides"), options.AS_USER, options.STORE, options.AS_JSON])
def _grant(given: Given) -> int:
    """Give a user more roles. Their other roles, their token and their sessions stay."""

    async def act(service: Service) -> int:
        return _told(given, await service.grant(given["name"], given["roles"], await session.acting(service, given)))

    return session.with_service(given, act, looking=True)


@command("revoke", [NAME, _roles("What they may do no longer"), options.AS_USER, options.STORE, options.AS_JSON])
def _revoke(given: Given) -> int:
    """Take roles from a user. Their other roles and their token stay."""

    async def act(service: Service) -> int:
        return _told(given, await service.revoke(given["name"], given["roles"], await session.acting(service, given)))

    return session.with_service(given, act, looking=True)


@command("token", [NAME, options.AS_USER, options.STORE, options.AS_JSON])
def _token(given: Given) -> int:
    """Make a new token for a user. The old one ends, and with it their sessions and open streams."""

    async def act(service: Service) -> int:
        user, token = await service.renew_token(given["name"], await session.acting(service, given))
        words = f"The token before it has ended.\nToken, shown only now: {token}"
        return _told(given, user, words, token=token)

    return session.with_service(given, act, looking=True)


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


def _told(given: Given, user: User, words: str = "", **more: str) -> int:
    if given["as_json"]:
        sys.stdout.write(live.json_line({**_object(user), **more}))
    else:
        say(f"{user.name} is {', '.join(user.roles)}.\n{words}".rstrip())
    return 0


def _object(user: User) -> dict[str, object]:
    return {"name": user.name, "roles": list(user.roles), "created": user.created, "by": user.by}


for _command in (_add, _grant, _revoke, _token, _list, _remove):
    users_command.add_command(_command)
