"""`cuebook mcp`: Cuebook for assistants, over stdio. Everything it needs is imported when it is called."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import click
from click.core import ParameterSource

from cuebook.kernel.errors import BadInput
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.plain import complain, hand_over
from cuebook.surfaces.cli.serve import FOLDERS, named_folders, playbook_folders
from cuebook.surfaces.mcp.installing import CLIENTS, Client, Entry, path_of, shown, token_needed, written

_ADDRESS = "http://127.0.0.1:8765"
"""Where `cuebook serve` is by default."""

PROJECT = click.Option(
    ["--project"],
    metavar="PATH",
    help="The folder to work in: its configuration holds, and runs work there. Otherwise this one.",
    shell_complete=completion.any_file,
)
TOOLS = click.Option(["--tools"], is_flag=True, help="Offer each playbook as a tool of its own, besides the others.")
DECIDE = click.Option(
    ["--allow-decide"],
    is_flag=True,
    help="Offer the tool that decides approvals, of runs that others started. Otherwise only people decide.",
)
APPROVALS = click.Option(
    ["--approvals"],
    type=click.Choice(["here", "link"]),
    default="here",
    show_default=True,
    help="How you are asked: in the assistant's own form, where it has one, or only by a link.",
)

OPTIONS: list[click.Parameter] = [
    FOLDERS,
    PROJECT,
    TOOLS,
    DECIDE,
    APPROVALS,
    click.Option(
        ["--web"], metavar="URL", default=_ADDRESS, show_default=True, help="Where `cuebook serve` is, for links."
    ),
    options.SETTINGS[0],
    options.STORE,
]


@click.group(
    "mcp",
    invoke_without_command=True,
    params=OPTIONS,
    help="Serve Cuebook to an assistant, as an MCP server over stdio.\n\nAssistants start it themselves: `cuebook mcp install"
    " --client NAME` prints the entry for yours. Over HTTP, `cuebook serve` has the same server at /mcp.",
)
@click.pass_context
def mcp_command(ctx: click.Context, /, **given: object) -> int:
    if ctx.invoked_subcommand is not None:
        return 0
    return _serve(given)


def _serve(given: Given) -> int:
    gc.disable()  # while the SDK's many classes are made, which live for ever: a fifth of the start would go by otherwise
    from cuebook.surfaces.driving import Drivers
    from cuebook.surfaces.library import Library
    from cuebook.surfaces.mcp import stdio
    from cuebook.surfaces.mcp.host import Host

    gc.enable()
    folders_given = [os.path.abspath(os.path.expanduser(folder)) for folder in given["folders"]]
    _enter(given["project"])
    wiring = session.wiring_of(given)
    library = Library(playbook_folders({**given, "folders": folders_given}, wiring.config))
    caller = stdio.caller_here(
        given["web"].rstrip("/"),
        decides=given["allow_decide"],
        approves_here=given["approvals"] == "here",
        each=given["tools"],
    )

    async def work() -> int:
        async with session.opened(wiring, create=True) as service:
            drivers = Drivers(service, wiring.reaching.workspace)
            return await stdio.serve(Host(wiring, service, library, drivers, caller))

    return session.perform(work())


def _enter(project: str | None) -> None:
    if not project:
        return
    try:
        os.chdir(os.path.expanduser(project))
    except OSError as error:
        raise BadInput(f"--project: {project} cannot be entered: {error.strerror}.", fix="Check the path.") from None


@command(
    "install",
    [
        click.Option(["--client"], type=click.Choice(list(CLIENTS)), required=True, help="Which assistant."),
        click.Option(["--write"], is_flag=True, help="Write it into the assistant's file; otherwise it is printed."),
        click.Option(["--file", "path"], metavar="PATH", help="Write it into this file instead."),
        click.Option(["--url"], metavar="URL", help="The /mcp of a running `cuebook serve`, instead of a command."),
    ],
)
def _install_command(given: Given) -> int:
    """Print the entry for an assistant, or write it.

    The options of `cuebook mcp` that stand before `install` become part of it, as in `cuebook mcp --folder books install
    --client cursor`. The playbooks are those of this folder, wherever the assistant is started. An entry of that name is
    renewed; where anything else in the file would change, nothing is written.
    """
    parent = click.get_current_context().parent
    assert parent is not None
    client = CLIENTS[given["client"]]
    entry = _at(given["url"], client, parent) if given["url"] is not None else Entry(command=_command(parent.params))
    path = Path(given["path"]) if given["path"] else path_of(client, Path.cwd(), Path.home())
    if not given["write"]:
        complain(f"For {client.title}, in {path}:")
        hand_over(shown(client, entry))
    else:
        _write(client, entry, path)
        complain(f"cuebook: written to {path}. Restart {client.title}.")
    if entry.url:
        complain(token_needed(client))
    return 0


mcp_command.add_command(_install_command)


def _write(client: Client, entry: Entry, path: Path) -> None:
    try:
        written(client, entry, path)
    except BadInput:
        hand_over(shown(client, entry))  # to be copied
        raise


def _at(url: str, client: Client, around: click.Context) -> Entry:
    """The entry for a server that runs. Of what stands before `install`, only `--tools` is the assistant's to choose."""
    if not client.address:
        raise BadInput(f"--url: {client.title} takes only commands in its file.", fix="Leave --url out.")
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path in ("", "/"):
        raise BadInput(
            f"--url: '{url}' is no address of an MCP server.",
            fix=f"Give the /mcp of a running `cuebook serve`, as in {_ADDRESS}/mcp.",
        )
    idle = [
        one.opts[0]
        for one in around.command.params
        if one.name != "tools" and around.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE
    ]
    if idle:
        raise BadInput(
            f"{', '.join(idle)}: with --url this is for the server to know.",
            fix="Leave it out here; see `cuebook serve`.",
        )
    if around.params["tools"]:
        parts = parts._replace(query=urlencode({**dict(parse_qsl(parts.query)), "tools": "each"}))
    return Entry(url=parts.geturl())


def _command(given: Given) -> tuple[str, ...]:
    """The command that serves what this one would, from any folder."""
    found = shutil.which("cuebook")
    start = (os.path.abspath(found),) if found else (sys.executable, "-m", "cuebook")
    project = os.path.abspath(os.path.expanduser(given["project"] or "."))
    if not os.path.isdir(project):
        raise BadInput(f"--project: {project} is no folder.", fix="Check the path.")
    made = [*start, "mcp", "--project", project]
    for folder in named_folders(given):
        made += ["--folder", os.path.normpath(folder)]
    for flag in ("tools", "allow_decide"):
        made += [f"--{flag.replace('_', '-')}"] if given[flag] else []
    for name, usual in (("approvals", "here"), ("web", _ADDRESS), ("model", None), ("store", None)):
        made += (
            [f"--{name}", os.path.abspath(given[name]) if name == "store" else given[name]]
            if given[name] != usual
            else []
        )
    return tuple(made)
