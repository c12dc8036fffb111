"""`cuebook serve`: the web app, which is imported on demand."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import click

from cuebook.config import Config, load
from cuebook.kernel.errors import BadInput
from cuebook.service.service import Principal, Service
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal.output import say
from cuebook.system.network import is_loopback
from cuebook.wiring.wiring import Wiring

TOKEN = "CUEBOOK_SERVE_TOKEN"
HOSTED_RATE = "20/hour"
"""The rate limit for starting runs if other machines can reach the app and no limit is configured."""

FOLDERS = click.Option(
    ["--folder", "folders"],
    metavar="PATH",
    multiple=True,
    help="A folder of playbooks; repeatable. By default, those in `[serve] folders`, or the current folder.",
    shell_complete=completion.any_file,
)

OPTIONS: list[click.Parameter] = [
    click.Option(["--host"], default="127.0.0.1", show_default=True, help="The address to listen on."),
    click.Option(
        ["--port"],
        type=click.IntRange(0, 65535),
        default=8765,
        show_default=True,
        help="The port to listen on; 0 picks a free port.",
    ),
    FOLDERS,
    click.Option(["--open", "open_it"], is_flag=True, help="Open the app in the browser."),
    click.Option(
        ["--allow-host", "names"],
        metavar="NAME",
        multiple=True,
        help="An additional host name to accept; repeatable.",
    ),
    click.Option(
        ["--token-file"],
        metavar="PATH",
        help=f"A file with the token for the API and for signing in from other machines; or set {TOKEN}.",
        shell_complete=completion.any_file,
    ),
    options.DRAIN,
    *options.LOGS,
    options.METRICS,
    click.Option(["--access-log/--no-access-log"], default=None, help="Log every request; off by default."),
    options.SETTINGS[0],
    options.STORE,
    *options.TEMPORAL,
]


@click.group(
    "serve",
    invoke_without_command=True,
    params=OPTIONS,
    help="Serve the web app: playbooks, live runs, results and an API.\n\nThe command prints a link that signs you in"
    " once; the browser keeps you signed in for a week. To sign in from another machine, use a token. A server for others,"
    " with `public_url`, --allow-host or --host, prints that link on a terminal only: anyone who reads its log could use it.",
)
@click.pass_context
def serve_command(ctx: click.Context, /, **given: object) -> int:
    if ctx.invoked_subcommand is not None:
        return 0
    return _serve(given)


_NO_LINK = "Sign in with a token (`cuebook users add`). A link that signs in is printed on a terminal only: others may read this."


def _serve(given: Given) -> int:
    from cuebook.surfaces.web import server
    from cuebook.surfaces.web.app import make_site
    from cuebook.wiring.identity import sign_in_checked

    host, token = given["host"], _token(given)
    wiring = Wiring(_configuration(given, hosted=not is_loopback(host)))
    server.check_reach(host, token, wiring.config.get("oidc.issuer") or "")
    folders = playbook_folders(given, wiring.config)
    listening = server.bound(host, given["port"])

    announce = session.announcer(wiring)

    names = (*given["names"], *_public_name(wiring.config))
    links = _is_private(host, names)

    def ready(address: str) -> None:
        if not links and wiring.config.get("log.format") == "json":
            announce(f"running at {address}")
        else:
            once = "The link signs you in once. " if "start=" in address else ""
            how = f"{once}Press Ctrl-C to stop." if links or wiring.config.get("oidc.issuer") else _NO_LINK
            say(f"Cuebook is running. Open {address}\n{how}")
            sys.stdout.flush()  # whatever reads the pipe needs the address now
        if given["open_it"]:
            webbrowser.open(address)

    def draining() -> None:
        announce("stopping. Steps in progress may finish; the runs continue elsewhere or after a restart.")

    async def work() -> int:
        with closing(listening):  # also if the store or the dispatcher cannot be opened
            async with (
                session.opened(wiring, create=True) as service,
                wiring.insight(service, serves=True) as metrics,
                session.metrics_served(wiring, metrics),
                wiring.background(service),
                sign_in_checked(wiring.config, wiring.factory.vault.revealed),
            ):
                site = make_site(wiring, service, folders=folders, serve_token=token, metrics=metrics)
                return await server.serve(
                    site,
                    listening,
                    host,
                    names=names,
                    on_ready=ready,
                    on_drain=draining,
                    drain=wiring.config.get("worker.drain"),
                    start_links=links,
                )

    with closing(listening), wiring.logging():  # it is open even if the store cannot be opened
        code = session.perform(work())
        announce("stopped. Unfinished runs continue when you start `cuebook serve` again.")
    return code


@command("token", [click.Argument(["playbook"])])
def _token_command(given: Given) -> int:
    """Create a token that lets a service start one playbook and nothing else.

    PLAYBOOK is the id of the playbook in the library. The token is shown only once; a new token replaces it.
    """
    parent = click.get_current_context().parent
    assert parent is not None
    around: Given = parent.params

    async def act(service: Service) -> int:
        from cuebook.service.playbooks.library import Library
        from cuebook.surfaces.web.api.triggers import new_token

        wiring = session.wiring_of(around)
        one = Library(playbook_folders(around, wiring.config)).named(given["playbook"])
        token = await new_token(service, one.id, Principal())
        say(f"Token, shown only once: {token}\nIt starts {one.title}: POST /api/playbooks/{one.id}/trigger")
        return 0

    return session.with_service(around, act)


serve_command.add_command(_token_command)


def _configuration(given: Given, *, hosted: bool) -> Config:
    flags = {
        "store": given["store"],
        "model": given["model"],
        "worker.drain": given["drain"],
        "log.access": given["access_log"],
        "metrics.address": given["metrics"],
        **options.logs(given),
        **options.temporal(given),
    }
    config = load(flags)
    if hosted and config.origin("rate_limit").place == "default":
        return load({**flags, "rate_limit": HOSTED_RATE})
    return config


def _token(given: Given) -> str:
    path = given["token_file"]
    return options.read_text(path, "--token-file").strip() if path else os.environ.get(TOKEN, "").strip()


def _public_name(config: Config) -> tuple[str, ...]:
    """The host of the public address, which links in messages lead to."""
    url = config.get("serve.public_url")
    return (urlsplit(url).netloc,) if url else ()


def named_folders(given: Given) -> list[Path]:
    """The folders given by `--folder`. Raises `BadInput` if one does not exist."""
    chosen = [Path(folder).expanduser().absolute() for folder in given["folders"]]
    for folder in chosen:
        if not folder.is_dir():
            raise BadInput(f"--folder: {folder} is not a folder.", fix="Check the path.")
    return chosen


def playbook_folders(given: Given, config: Config) -> list[Path]:
    """The folders given by `--folder`, or the configured folders, or the project's folder and the folder of stored playbooks."""
    stored: Path | None = config.get("playbooks")
    return (
        named_folders(given)
        or list(config.get("serve.folders"))
        or [config.folder, *([stored] if stored is not None else [])]
    )


def _is_private(host: str, names: Sequence[str]) -> bool:
    """Whether only the person who started the server reads what it prints: at a terminal, or of a server for this machine alone
    whose output does not go to the journal of systemd.
    """
    if sys.stdout.isatty():
        return True
    return is_loopback(host) and not names and not _is_journal(sys.stdout)


def _is_journal(stream: IO[str]) -> bool:
    """Whether the stream is the one that systemd connected to its journal."""
    try:
        seen = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{seen.st_dev}:{seen.st_ino}"
