"""`cuebook export` and `cuebook import`: runs as a file for another installation."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from cuebook.kernel.errors import BadInput
from cuebook.service.copies.transfer import Copied
from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.commands.evidence import check_signed
from cuebook.surfaces.cli.options import Given, command, configuration
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import complain, say
from cuebook.wiring.evidence import signer_of


@command(
    "export",
    [
        click.Argument(["names"], nargs=-1, required=True, metavar="RUN... FILE"),
        click.Option(
            ["--with-sensitive"],
            is_flag=True,
            help="Include the values of sensitive inputs, so that runs that wait can continue elsewhere; only admins may.",
        ),
        options.AS_USER,
        options.STORE,
        options.AS_JSON,
    ],
)
def export_command(given: Given) -> int:
    """Write runs to a file that another installation can import, verify and replay.

    The file has the runs with their texts and files, the runs that they were forked from or started by, and those that they
    started. It ends with a digest of everything in it. Secrets are not in it, and sensitive inputs only with
    --with-sensitive. To only prove what a run did, use `cuebook audit
    RUN --export FILE`.

    Examples:

    \b
    cuebook export RUN run.cuebook
    """
    *runs, path = given["names"]
    signer = signer_of(configuration(given))
    if not runs:
        raise BadInput("Expected runs and a file.", fix="For example: cuebook export RUN run.cuebook")

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        found = [(await service.get(run, who)).id for run in runs]
        written = await service.export_runs(found, Path(path), who, signer, sensitive=given["with_sensitive"])
        if given["as_json"]:
            sys.stdout.write(views.json_line({"file": path, "runs": written, "key": signer.key if signer else ""}))
        else:
            needed = len(written) - len(set(found))
            more = (
                f", and {display.counted(needed, 'run')} that {'they need' if len(found) > 1 else 'it needs'}"
                if needed
                else ""
            )
            signed = f", signed with the key {signer.key}" if signer else ""
            say(f"{display.counted(len(set(found)), 'run')}{more} in {path}{signed}.")
        return 0

    return session.look(given, act)


@command(
    "import",
    [
        click.Argument(["file"], shell_complete=completion.any_file),
        click.Option(
            ["--key", "keys"],
            metavar="PUBLIC_KEY",
            multiple=True,
            help="Refuse the file unless one of these keys signed it; repeatable.",
        ),
        options.AS_USER,
        options.STORE,
        options.AS_JSON,
    ],
)
def import_command(given: Given) -> int:
    """Add the runs of an exported file to the store.

    A damaged file is refused, also if the damage is to its signature, and so is a run that does not verify. Without --key,
    anyone who can write the file could have made it: its digest and the key in its first line are from the file itself. With
    --key, only what one of these keys signed is imported. Runs that are there already are skipped. A run that waits can be
    answered here as well as where it came from: use only one of the two. Exit code 1 means that some runs could not be
    imported.

    Examples:

    \b
    cuebook import run.cuebook --key evidence-key.pub
    """

    if given["keys"]:
        check_signed(given["file"], given["keys"])

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        results = await service.import_runs(Path(given["file"]), who, lambda one: _complain(one, given))
        counts = Counter("failed" if one.detail else one.result for one in results)
        if given["as_json"]:
            shown = [{"run": one.run, "result": one.result, "detail": one.detail} for one in results]
            sys.stdout.write(views.json_line({"runs": shown}))
        else:
            runs = display.counted(counts["copied"], "run")
            say(f"{runs} imported, {counts['present']} already there, {counts['failed']} not imported.")
            if any(one.unfinished and one.result == "copied" for one in results):
                say("Some of them can still continue: use them only here, or only where they came from.")
        return 1 if counts["failed"] else 0

    return session.with_service(given, act)


def _complain(one: Copied, given: Given) -> None:
    if one.detail and not given["as_json"]:
        complain(f"{one.run}: not imported, {one.detail}.")
