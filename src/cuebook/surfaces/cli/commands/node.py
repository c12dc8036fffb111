"""`cuebook node`: offers what this machine can do to a `cuebook serve` on another one."""

from __future__ import annotations

import asyncio
import os

import click

from cuebook.surfaces.cli import completion
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.stop_requests import StopRequests
from cuebook.surfaces.cli.terminal.output import complain

_LONGEST = 2_000
"""The most characters of a line; some of them come from the server."""

OPTIONS: list[click.Parameter] = [
    click.Option(["--connect", "server"], metavar="URL", help="The address of `cuebook serve`, as in https://HOST."),
    click.Option(
        ["--token"],
        metavar="TOKEN",
        help="The pairing token that `cuebook nodes add NAME` printed, or @FILE; or set CUEBOOK_NODE_TOKEN."
        " Needed once: later, the node's own key is used.",
    ),
    click.Option(
        ["--allow"],
        metavar="COMMAND",
        multiple=True,
        help="A command that may be run, as in 'make test' or 'git log *'; repeatable.",
    ),
    click.Option(
        ["--folder"],
        metavar="FOLDER",
        help="The folder that commands work in; by default, the current one.",
        shell_complete=completion.any_file,
    ),
    click.Option(
        ["--network"],
        metavar="HOST",
        multiple=True,
        help="A host that commands may reach; repeatable. By default, none.",
    ),
    click.Option(
        ["--sandbox"],
        type=click.Choice(["auto", "landlock", "bubblewrap", "none"]),
        help="How commands are confined; 'auto' by default.",
    ),
    click.Option(
        ["--files"],
        metavar="DIR[:rw]",
        multiple=True,
        help="A folder whose files may be read, with :rw also written; repeatable.",
        shell_complete=completion.any_file,
    ),
    click.Option(
        ["--offer"], metavar="NAME", multiple=True, help="A capability of an installed package to offer; repeatable."
    ),
    click.Option(["--no-desktop"], is_flag=True, help="Do not offer notices on this desktop."),
    click.Option(["--at-once"], metavar="N", help="How many requests to perform at the same time; 4 by default."),
    click.Option(
        ["--seconds"], metavar="S", help="How long any request may take, whatever the server says; a day by default."
    ),
    click.Option(
        ["--data"],
        metavar="FOLDER",
        help="Where to keep the key and the record of requests; below the user's data folder by default.",
        shell_complete=completion.any_file,
    ),
    click.Option(["--insecure"], is_flag=True, help="Connect to another machine without encryption."),
    click.Option(
        ["--config"], metavar="FILE", help="A TOML file with these settings.", shell_complete=completion.any_file
    ),
]


@command("node", OPTIONS)
def node_command(given: Given) -> int:
    """Offer named capabilities of this machine to a server, and stay connected.

    Steps of pipelines on that server, `node CAPABILITY ACTION`, then run here. This machine decides what it offers: a request
    outside its own allow-list is refused, whatever the server says. SIGTERM and Ctrl-C end what is under way and stop; a second
    Ctrl-C does not wait.
    """
    from cuebook.node.client import Node
    from cuebook.node.settings import load, token_of

    token = token_of(given["token"], os.environ)
    settings = load({name: value for name, value in given.items() if name != "token"}, os.environ)

    async def work() -> int:
        stops = StopRequests()
        node = Node(settings, token, _say)
        running = asyncio.create_task(node.run())
        stopping = asyncio.create_task(stops.requested(1))
        try:
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                _say("stopping.")
        finally:
            stopping.cancel()
            closing = asyncio.create_task(node.close())
            again = asyncio.create_task(stops.requested(2))
            await asyncio.wait({closing, again}, return_when=asyncio.FIRST_COMPLETED)
            again.cancel()
            running.cancel()
            await asyncio.wait({running})
        if not running.cancelled():
            running.result()
        _say("stopped.")
        return 0

    return asyncio.run(work())


def _say(line: str) -> None:
    """Shows one line, whatever is in it."""
    complain(f"cuebook: {' '.join(line.split())[:_LONGEST]}")
