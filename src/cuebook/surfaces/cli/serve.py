"""`cuebook serve`: the web app. Everything it needs is imported when it is called."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

import click

from cuebook.config import Config, load
from cuebook.kernel.errors import BadInput
from cuebook.service import Principal, Service
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.plain import complain, say
from cuebook.surfaces.wiring import Wiring

TOKEN = "CUEBOOK_SERVE_TOKEN"
HOSTED_RATE = "20/hour"
"""How many runs a person may start where others come in; a configured rate counts instead."""

FOLDERS = click.Option(
    ["--folder", "folders"],
    metavar="PATH",
    multiple=True,
    help="A folder of playbooks; repeatable. Otherwise those of `[serve] folders`, or this one.",
    shell_complete=completion.any_file,
)

OPTIONS: list[click.Parameter] = [
    click.Option(["--host"], default="127.0.0.1", show_default=True, help="Where to listen."),
    click.Option(
        ["--port"], type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes any free one."
    ),
    FOLDERS,
    click.Option(["--open", "open_it"], is_flag=True, help="Open it in the browser."),
    click.Option(["--allow-host", "names"], metavar="NAME", multiple=True, help="Another name it goes by; repeatable."),
    click.Option(
        ["--token-file"],
        metavar="PATH",
        help=f"The token for the API, and for signing in from elsewhere; also {TOKEN}.",
        shell_complete=completion.any_file,
    ),
    options.SETTINGS[0],
    options.STORE,
]


@click.group(
    "serve",
    invoke_without_command=True,
    params=OPTIONS,
    help="Serve the web app: playbooks, live runs, results and an API.\n\nThe address that is printed signs you in, once;"
    " the browser keeps you signed in for a week. Whoever is to come from another machine needs a token.",
)
@click.pass_context
def serve_command(ctx: click.Context, /, **given: object) -> int:
    if ctx.invoked_subcommand is not None:
        return 0
    return _serve(given)


def _serve(given: Given) -> int:
    from cuebook.surfaces.web import serving
    from cuebook.surfaces.web.app import make_site

    host, token = given["host"], _token(given)
    serving.check_reach(host, token)
    wiring = Wiring(_configuration(given, hosted=not serving.is_loopback(host)))
    folders = playbook_folders(given, wiring.config)
    listening = serving.bound(host, given["port"])

    def ready(address: str) -> None:
        say(f"Cuebook is served. Open {address}\nThe link signs you in, once. Ctrl-C ends it.")
        sys.stdout.flush()  # whoever reads it over a pipe waits for it
        if given["open_it"]:
            webbrowser.open(address)

    async def work() -> int:
        async with session.opened(wiring, create=True) as service:
            site = make_site(wiring, service, folders=folders, serve_token=token)
            return await serving.serve(site, listening, host, names=given["names"], on_ready=ready)

    code = session.perform(work())
    complain("cuebook: ended. Runs under way go on when it is served again.")
    return code


@command("token", [click.Argument(["playbook"])])
def _token_command(given: Given) -> int:
    """Make a token that starts one playbook from outside, and does nothing else.

    PLAYBOOK is its id in the library. The token is not shown again; making another one ends this one.
    """
    parent = click.get_current_context().parent
    assert parent is not None
    around: Given = parent.params

    async def act(service: Service) -> int:
        from cuebook.surfaces.library import Library
        from cuebook.surfaces.web.triggers import new_token

        wiring = session.wiring_of(around)
        one = Library(playbook_folders(around, wiring.config)).named(given["playbook"])
        token = await new_token(service.store, one.id, Principal(), service.engine.clock())
        say(f"Token, shown only now: {token}\nIt starts {one.title}: POST /api/playbooks/{one.id}/trigger")
        return 0

    return session.with_service(around, act)


serve_command.add_command(_token_command)


def _configuration(given: Given, *, hosted: bool) -> Config:
    config = options.configuration(given)
    if hosted and config.origin("rate_limit").place == "default":
        return load({"store": given["store"], "model": given["model"], "rate_limit": HOSTED_RATE})
    return config


def _token(given: Given) -> str:
    path = given["token_file"]
    return options.read_text(path, "--token-file").strip() if path else os.environ.get(TOKEN, "").strip()


def named_folders(given: Given) -> list[Path]:
    """Those that `--folder` names, which are there."""
    chosen = [Path(folder).expanduser().absolute() for folder in given["folders"]]
    for folder in chosen:
        if not folder.is_dir():
            raise BadInput(f"--folder: {folder} is no folder.", fix="Check the path.")
    return chosen


def playbook_folders(given: Given, config: Config) -> list[Path]:
    """Those that were named, otherwise the configured ones, otherwise this one and where playbooks are stored."""
    stored: Path | None = config.get("playbooks")
    return (
        named_folders(given)
        or list(config.get("serve.folders"))
        or [config.folder, *([stored] if stored is not None else [])]
    )
