"""`cuebook mcp`: the MCP server over stdio, and its entry in an assistant's settings. The server is imported on demand."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import click
from click.core import ParameterSource

from cuebook.config import checked_flag
from cuebook.formats.database_url import is_database
from cuebook.kernel.errors import BadInput
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.commands.serve import FOLDERS, named_folders, playbook_folders
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal.output import complain, hand_over
from cuebook.surfaces.mcp.install.clients import (
    CLIENTS,
    Client,
    Entry,
    path_of,
    removed,
    shown,
    token_needed,
    written,
)
from cuebook.surfaces.mcp.install.skill import PLUGIN, install, remove, skill_path

_ADDRESS = "http://127.0.0.1:8765"
"""The default URL of `cuebook serve`."""

PROJECT = click.Option(
    ["--project"],
    metavar="PATH",
    help="The folder to work in, whose configuration applies; by default, the current folder.",
    shell_complete=completion.any_file,
)
TOOLS = click.Option(["--tools"], is_flag=True, help="Also offer each playbook as a separate tool.")
DECIDE = click.Option(
    ["--allow-decide"],
    is_flag=True,
    help="Offer the tool that approves or denies actions in runs that others started. By default, only people decide.",
)
APPROVALS = click.Option(
    ["--approvals"],
    type=click.Choice(["here", "link"]),
    default="here",
    show_default=True,
    help="How you are asked: in a form in the assistant, if it supports forms, or only through a link.",
)

OPTIONS: list[click.Parameter] = [
    FOLDERS,
    PROJECT,
    TOOLS,
    DECIDE,
    APPROVALS,
    click.Option(
        ["--web"], metavar="URL", default=_ADDRESS, show_default=True, help="The URL of `cuebook serve`, for links."
    ),
    options.SETTINGS[0],
    options.STORE,
]


@click.group(
    "mcp",
    invoke_without_command=True,
    params=OPTIONS,
    help="Serve Cuebook to an assistant, as an MCP server over stdio.\n\nThe assistant starts this command itself: `cuebook mcp"
    " install --client NAME` prints its configuration entry. Over HTTP, `cuebook serve` offers the same server at /mcp.",
)
@click.pass_context
def mcp_command(ctx: click.Context, /, **given: object) -> int:
    if ctx.invoked_subcommand is not None:
        return 0
    return _serve(given)


def _serve(given: Given) -> int:
    gc.disable()  # collecting while the SDK creates its many permanent classes takes a fifth of the startup time
    from cuebook.service.playbooks.library import Library
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
        async with session.opened(wiring, create=True) as service, wiring.delivering(service):
            return await stdio.serve(Host(wiring, service, library, wiring.worker(service), caller))

    return session.perform(work())


def _enter(project: str | None) -> None:
    if not project:
        return
    try:
        os.chdir(os.path.expanduser(project))
    except OSError as error:
        raise BadInput(f"--project: Cannot change to {project}: {error.strerror}.", fix="Check the path.") from None


@command(
    "install",
    [
        click.Option(["--client"], type=click.Choice(list(CLIENTS)), required=True, help="The assistant."),
        click.Option(["--write"], is_flag=True, help="Write the entry to the assistant's file instead of printing it."),
        click.Option(
            ["--file", "path"], metavar="PATH", help="The file to write to, instead of the assistant's usual file."
        ),
        click.Option(
            ["--url"], metavar="URL", help="Connect to /mcp on a running `cuebook serve` instead of starting a command."
        ),
        click.Option(
            ["--no-skill"], is_flag=True, help="Do not install the skill that teaches the assistant to use it."
        ),
        click.Option(["--force"], is_flag=True, help="Replace the installed skill even if you have changed it."),
    ],
)
def _install_command(given: Given) -> int:
    """Print an assistant's configuration entry, or write it to the assistant's file.

    Options of `cuebook mcp` before `install` become part of the entry, as in `cuebook mcp --folder books install --client
    cursor`. The entry names the current folder, so the playbooks are the same wherever the assistant is started. --write
    replaces an existing Cuebook entry and never changes anything else in the file; it also installs a skill that teaches the
    assistant to run playbooks, unless --file is given.
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
        complain(f"cuebook: wrote the entry to {path}. Restart {client.title}.")
        if not given["no_skill"] and not given["path"]:
            _install_skill(client, force=given["force"])
    if entry.url:
        complain(token_needed(client))
    return 0


@command(
    "uninstall",
    [
        click.Option(["--client"], type=click.Choice(list(CLIENTS)), required=True, help="The assistant."),
        click.Option(["--file", "path"], metavar="PATH", help="The file with the entry, if it is not the usual one."),
    ],
)
def _uninstall_command(given: Given) -> int:
    """Remove Cuebook's entry from an assistant's file, and the skill that `install` added.

    Nothing else in the file changes. A skill that you have changed is kept.
    """
    client = CLIENTS[given["client"]]
    path = Path(given["path"]) if given["path"] else path_of(client, Path.cwd(), Path.home())
    gone = removed(client, path)
    complain(f"cuebook: removed the entry from {path}." if gone else f"cuebook: there is no entry in {path}.")
    skill = None if given["path"] else skill_path(client, Path.cwd(), Path.home())
    if skill is not None:
        fate = remove(skill)
        words = {"removed": f"removed {skill}", "kept": f"kept {skill}: you have changed it"}.get(fate)
        if words:
            complain(f"cuebook: {words}.")
    return 0


mcp_command.add_command(_install_command)
mcp_command.add_command(_uninstall_command)


def _install_skill(client: Client, *, force: bool) -> None:
    skill = skill_path(client, Path.cwd(), Path.home())
    if skill is None:
        complain(f"{client.title} has no folder of skills; the skill is in {PLUGIN}.")
        return
    words = {
        "written": f"wrote the skill to {skill}",
        "replaced": f"replaced {skill}, which you had changed",
        "kept": f"kept {skill}: you have changed it. --force replaces it",
        "same": f"the skill is already in {skill}",
    }
    complain(f"cuebook: {words[install(skill, force=force)]}.")


def _write(client: Client, entry: Entry, path: Path) -> None:
    try:
        written(client, entry, path)
    except BadInput:
        hand_over(shown(client, entry))  # for copying by hand
        raise


def _at(url: str, client: Client, around: click.Context) -> Entry:
    """The entry for a running server. Of the options before `install`, only `--tools` applies to it."""
    if not client.address:
        raise BadInput(f"--url: {client.title} supports only servers that it starts with a command.", fix="Omit --url.")
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path in ("", "/"):
        raise BadInput(
            f"--url: '{url}' is not the URL of an MCP server.",
            fix=f"Pass the /mcp URL of a running `cuebook serve`, as in {_ADDRESS}/mcp.",
        )
    idle = [
        one.opts[0]
        for one in around.command.params
        if one.name != "tools" and around.get_parameter_source(one.name or "") is ParameterSource.COMMANDLINE
    ]
    if idle:
        raise BadInput(
            f"{', '.join(idle)} cannot be combined with --url: the running server decides this.",
            fix="Omit the option here, and see `cuebook serve --help`.",
        )
    if around.params["tools"]:
        parts = parts._replace(query=urlencode({**dict(parse_qsl(parts.query)), "tools": "each"}))
    return Entry(url=parts.geturl())


def _command(given: Given) -> tuple[str, ...]:
    """The command for the entry; it works from any folder."""
    found = shutil.which("cuebook")
    start = (os.path.abspath(found),) if found else (sys.executable, "-m", "cuebook")
    project = os.path.abspath(os.path.expanduser(given["project"] or "."))
    if not os.path.isdir(project):
        raise BadInput(f"--project: {project} is not a folder.", fix="Check the path.")
    made = [*start, "mcp", "--project", project]
    for folder in named_folders(given):
        made += ["--folder", os.path.normpath(folder)]
    for flag in ("tools", "allow_decide"):
        made += [f"--{flag.replace('_', '-')}"] if given[flag] else []
    for name, usual in (("approvals", "here"), ("web", _ADDRESS), ("model", None), ("store", None)):
        made += (
            [f"--{name}", _store_word(given[name]) if name == "store" else given[name]] if given[name] != usual else []
        )
    return tuple(made)


def _store_word(store: str) -> str:
    checked_flag("store", store)  # a password must not end up in the assistant's file
    return store if is_database(store) else os.path.abspath(store)
