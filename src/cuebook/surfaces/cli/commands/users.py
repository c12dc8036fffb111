"""`cuebook users`: users and their roles. A token is shown once, when it is created; only its digest is stored."""

from __future__ import annotations

import sys

import click

from cuebook.formats.words import counted
from cuebook.gate.roles import MEANING, ROLES, User
from cuebook.kernel.errors import BadInput
from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import say

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


_TEAM = click.Option(["--team", "teams"], multiple=True, required=True, help="A team; repeatable.")


@click.group("users", help="Manage users and their roles.")
def users_command() -> None:
    pass


_SAME_PERSON = click.Option(
    ["--same-person"],
    is_flag=True,
    help="Add a user again who was removed. Their runs are theirs again, and `resume` resumes their schedules.",
)


@command("add", [NAME, _roles("A role for the user"), _SAME_PERSON, options.AS_USER, options.STORE, options.AS_JSON])
def _add(given: Given) -> int:
    """Add a user.

    The command prints a token with which the user signs in to the web app and the API. It is shown only once; `cuebook users
    token` creates a new one. The name of an earlier user is refused, because their runs would be the new user's.

    Examples:

    \b
    cuebook users add ada --role admin
    """

    async def act(service: Service) -> int:
        who, same = await session.acting(service, given), given["same_person"]
        user, token = await service.add_user(given["name"], given["roles"], who, same_person=same)
        return _print_user(given, user, f"Token, shown only once: {token}", token=token)

    return session.with_service(given, act)


@command("grant", [NAME, _roles("A role to add"), options.AS_USER, options.STORE, options.AS_JSON])
def _grant(given: Given) -> int:
    """Grant more roles to a user. Their other roles, token and sessions are kept.

    Examples:

    \b
    cuebook users grant bob --role approver
    """

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        return _print_user(given, await service.grant(given["name"], given["roles"], who))

    return session.with_service(given, act, looking=True)


@command("revoke", [NAME, _roles("A role to remove"), options.AS_USER, options.STORE, options.AS_JSON])
def _revoke(given: Given) -> int:
    """Remove roles from a user. Their other roles and their token are kept.

    Examples:

    \b
    cuebook users revoke bob --role approver
    """

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        return _print_user(given, await service.revoke(given["name"], given["roles"], who))

    return session.with_service(given, act, looking=True)


@command("join", [NAME, _TEAM, options.AS_USER, options.STORE, options.AS_JSON])
def _join(given: Given) -> int:
    """Add a user to teams. With `runs = "team"` below [access], users see the runs of the users in their teams."""

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        return _print_user(given, await service.join(given["name"], given["teams"], who))

    return session.with_service(given, act, looking=True)


@command("leave", [NAME, _TEAM, options.AS_USER, options.STORE, options.AS_JSON])
def _leave(given: Given) -> int:
    """Remove a user from teams."""

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        return _print_user(given, await service.leave(given["name"], given["teams"], who))

    return session.with_service(given, act, looking=True)


@command(
    "link",
    [
        NAME,
        click.Option(
            ["--subject"],
            required=True,
            help="Who they are for the provider: the claim `sub`, which never changes. A failed sign-in is in `cuebook audit"
            " --admin` with it.",
        ),
        options.AS_USER,
        options.STORE,
        options.AS_JSON,
    ],
)
def _link(given: Given) -> int:
    """Let a user sign in with the identity provider. Their roles here are kept, and their groups there add to them."""

    async def act(service: Service) -> int:
        issuer = options.configuration(given).get("oidc.issuer")
        if issuer is None:
            raise BadInput("No identity provider is configured.", fix="Set oidc.issuer, see docs/guides/identity.md.")
        who = await session.acting(service, given)
        return _print_user(given, await service.people.link(given["name"], issuer, given["subject"], who))

    return session.with_service(given, act, looking=True)


@command("unlink", [NAME, options.AS_USER, options.STORE, options.AS_JSON])
def _unlink(given: Given) -> int:
    """Unlink a user from the identity provider. The roles and teams that their groups there gave them end, too."""

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        return _print_user(given, await service.people.link(given["name"], "", "", who))

    return session.with_service(given, act, looking=True)


@command("token", [NAME, options.AS_USER, options.STORE, options.AS_JSON])
def _token(given: Given) -> int:
    """Create a new token for a user. Their old token stops working, and their sessions and open streams end."""

    async def act(service: Service) -> int:
        user, token = await service.renew_token(given["name"], await session.acting(service, given))
        words = f"The old token is no longer valid. The sessions of {user.name} have ended.\nToken, shown only once: {token}"
        return _print_user(given, user, words, token=token)

    return session.with_service(given, act, looking=True)


@command("list", [options.STORE, options.AS_JSON])
def _list(given: Given) -> int:
    """List the users and their roles."""

    async def act(service: Service) -> int:
        users = await service.users()
        if given["as_json"]:
            sys.stdout.write(views.json_line([_object(user) for user in users]))
            return 0
        for user in users:
            teams = f"  in {', '.join(user.all_teams)}" if user.all_teams else ""
            linked = f"  signs in as {user.subject}" if user.subject else ""
            roles = ", ".join(user.all_roles) or "no role"
            say(f"{user.name:<20}{roles:<40}since {display.moment(user.created)}{teams}{linked}")
        if not users:
            say("There are no users: anyone at this terminal may do everything.")
        return 0

    return session.with_service(given, act, looking=True)


@command("remove", [NAME, options.AS_USER, options.STORE])
def _remove(given: Given) -> int:
    """Remove a user. Their token stops working, and their sessions and open streams end.

    Their schedules and other triggers are suspended, the permissions that they gave to schedules in advance are withdrawn, and
    their preferences and Slack accounts are removed. Their runs stay, and so nobody else can be added under their name.
    """

    async def act(service: Service) -> int:
        ended = await service.remove_user(given["name"], await session.acting(service, given))
        say(f"Removed {given['name']}. Their token is no longer valid, and their sessions have ended.")
        if ended.suspended:
            say(f"Suspended: {', '.join(ended.suspended)}.")
        if ended.withdrawn:
            say(f"No longer allowed in advance: what {', '.join(ended.withdrawn)} would ask.")
        if ended.accounts:
            say(f"Unlinked {counted(ended.accounts, 'Slack account')}.")
        return 0

    return session.with_service(given, act, looking=True)


def _print_user(given: Given, user: User, words: str = "", **more: str) -> int:
    if given["as_json"]:
        sys.stdout.write(views.json_line({**_object(user), **more}))
    else:
        teams = f"; in {', '.join(user.all_teams)}" if user.all_teams else ""
        linked = f"; signs in as {user.subject}" if user.subject else ""
        say(f"{user.name}: {', '.join(user.all_roles) or 'no role'}{teams}{linked}\n{words}".rstrip())
    return 0


def _object(user: User) -> dict[str, object]:
    return {
        "name": user.name,
        "roles": list(user.all_roles),
        "granted": list(user.roles),
        "teams": list(user.all_teams),
        "created": user.created,
        "by": user.by,
        "subject": user.subject,
    }


for _command in (_add, _grant, _revoke, _join, _leave, _link, _unlink, _token, _list, _remove):
    users_command.add_command(_command)
