"""`cuebook nodes`: the machines that may perform steps. A pairing token is shown once; only its digest is stored."""

from __future__ import annotations

import sys

import click

from cuebook.service.nodes.nodes import Node, node_object
from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import say

NAME = click.Argument(["name"])


@click.group("nodes", help="Manage the machines that may perform steps.")
def nodes_command() -> None:
    pass


@command("list", [options.STORE, options.AS_JSON])
def _list(given: Given) -> int:
    """List the nodes, whether they are connected, and what they offer."""

    async def act(service: Service) -> int:
        nodes = await service.nodes.list()
        if given["as_json"]:
            sys.stdout.write(views.json_line([node_object(one) for one in nodes]))
            return 0
        for one in nodes:
            say("  ".join(_words(one)).rstrip())
        if not nodes:
            say("There are no nodes. `cuebook nodes add NAME` adds one.")
        return 0

    return session.with_service(given, act, looking=True)


def _words(node: Node) -> tuple[str, ...]:
    seen, offered = node.paired.presence, ", ".join(one.name for one in node.paired.presence.capabilities)
    since = f", last seen {display.moment(seen.seen)}" if seen.seen and not node.connected else ""
    return (f"{node.name:<20}", f"{node.state}{since}", seen.host, f"offers {offered}" if offered else "")


@command("add", [NAME, options.AS_USER, options.STORE, options.AS_JSON])
def _add(given: Given) -> int:
    """Add a node.

    The command prints a pairing token, with which one machine can connect once, within 24 hours: `cuebook node --connect URL
    --token TOKEN`. From then on, that machine uses a key of its own.
    """

    async def act(service: Service) -> int:
        node, token = await service.nodes.add(given["name"], await session.acting(service, given))
        return _print_token(given, node, token)

    return session.with_service(given, act)


@command("token", [NAME, options.AS_USER, options.STORE, options.AS_JSON])
def _token(given: Given) -> int:
    """Create a new pairing token for a node. Its key stops working, and its connection ends."""

    async def act(service: Service) -> int:
        node, token = await service.nodes.renew(given["name"], await session.acting(service, given))
        return _print_token(given, node, token)

    return session.with_service(given, act, looking=True)


@command("rename", [NAME, click.Argument(["new"]), options.AS_USER, options.STORE])
def _rename(given: Given) -> int:
    """Give a node another name. It stays paired and connected. Playbooks that name it must be changed."""

    async def act(service: Service) -> int:
        node = await service.nodes.rename(given["name"], given["new"], await session.acting(service, given))
        say(f"{given['name']} is now called {node.name}.")
        return 0

    return session.with_service(given, act, looking=True)


@command("revoke", [NAME, options.AS_USER, options.STORE])
def _revoke(given: Given) -> int:
    """Forget a node. Its connection ends at once, and its key is no longer valid."""

    async def act(service: Service) -> int:
        await service.nodes.revoke(given["name"], await session.acting(service, given))
        say(f"Revoked {given['name']}.")
        return 0

    return session.with_service(given, act, looking=True)


def _print_token(given: Given, node: Node, token: str) -> int:
    if given["as_json"]:
        sys.stdout.write(views.json_line({**node_object(node), "token": token}))
    else:
        say(f"{node.name}: {node.state}\nPairing token, shown only once and valid for 24 hours: {token}")
        say(f"On that machine: cuebook node --connect URL --token {token}")
    return 0


for _command in (_add, _list, _rename, _revoke, _token):
    nodes_command.add_command(_command)
