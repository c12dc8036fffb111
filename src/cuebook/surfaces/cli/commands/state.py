"""`cuebook state`: the values that playbooks keep between runs."""

from __future__ import annotations

import os
import sys

import click
import msgspec

from cuebook.service.playbook_state import PlaybookState
from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import say

NONE = "No playbook keeps values here. A pipeline does with `state:` in a step."
_LONGEST = 200
"""The maximum number of characters of a value in a list; `--json` has all of it."""
PLAYBOOK = click.Argument(["playbook"])


@click.group("state", help="Look at the values that playbooks keep between runs, and clear them.")
def state_command() -> None:
    pass


@command("list", [options.AS_USER, options.STORE, options.AS_JSON])
def _list(given: Given) -> int:
    """List the playbooks that keep values, with their workspaces."""
    return _shown(given, "")


@command("show", [PLAYBOOK, options.AS_USER, options.STORE, options.AS_JSON])
def _show(given: Given) -> int:
    """Show the values of a playbook, the runs that kept them, and what was cleared.

    PLAYBOOK is the name under which its runs are listed, such as orders.yml.
    """
    return _shown(given, given["playbook"])


@command(
    "clear",
    [
        PLAYBOOK,
        click.Argument(["names"], nargs=-1),
        click.Option(
            ["--workspace"], metavar="FOLDER", help="The workspace, if playbooks of that name are in several."
        ),
        options.AS_USER,
        options.STORE,
        options.AS_JSON,
    ],
)
def _clear(given: Given) -> int:
    """Clear values of a playbook: all of them, or those called NAMES. The next run finds none.

    It needs the role runner. Who cleared what is recorded.
    """

    folder = os.path.realpath(given["workspace"]) if given["workspace"] else ""

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        done = await service.clear_state(given["playbook"], given["names"], folder, who)
        if given["as_json"]:
            sys.stdout.write(views.json_line(msgspec.to_builtins(done)))
        else:
            say(f"Cleared {', '.join(sorted(done.values))} of {done.playbook} in {done.workspace}.")
        return 0

    return session.with_service(given, act, looking=True)


def _shown(given: Given, playbook: str) -> int:
    async def act(service: Service) -> int:
        found = await service.states(playbook, await session.acting(service, given))
        if given["as_json"]:
            sys.stdout.write(views.json_line(msgspec.to_builtins(found)))
            return 0
        for one in found:
            _say(one, in_full=bool(playbook))
        if not found:
            say(f"The playbook '{playbook}' keeps no values." if playbook else NONE)
        return 0

    return session.with_service(given, act, looking=True)


def _say(state: PlaybookState, *, in_full: bool) -> None:
    names = ", ".join(one.name for one in state.values) or "nothing"
    say(f"{state.playbook}  {state.workspace}" + ("" if in_full else f"  {names}"))
    if not in_full:
        return
    for one in state.values:
        text = msgspec.json.encode(one.value).decode()
        say(f"  {one.name} = {text if len(text) <= _LONGEST else text[:_LONGEST] + '…'}  (run {one.run})")
    for cleared in state.cleared:
        say(f"  {', '.join(sorted(cleared.values))}: cleared by {cleared.by} on {display.moment(cleared.at)}")


for _command in (_list, _show, _clear):
    state_command.add_command(_command)
