"""`cuebook files`: lists the files that the steps of a run have produced, and writes one of them out."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import IO

import click

from cuebook.formats.suggestions import meant
from cuebook.kernel.engine.files import KeptFile
from cuebook.kernel.errors import BadInput
from cuebook.service.runs import objects as run_objects
from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.commands.resume import RUN
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import complain, say


@command(
    "files",
    [
        RUN,
        click.Argument(["name"], required=False),
        click.Option(["--to"], metavar="PATH", help="Write the file there, instead of to standard output."),
        options.STORE,
        options.AS_JSON,
    ],
)
def files_command(given: Given) -> int:
    """List the files that the steps of a run have produced, or write out the one called NAME.

    If two steps have a file of that name, write STEP/NAME. An existing file is not overwritten.
    """
    if given["to"] and not given["name"]:
        raise BadInput("--to needs the name of a file.", fix="`cuebook files RUN` lists the names.")

    async def look(service: Service) -> int:
        row = await service.get(given["run"])
        found = await service.files(row.id)
        if given["name"]:
            chosen, pieces = await service.file(row.id, _chosen(found, given["name"]).digest)
            await _write(chosen, pieces, given["to"])
            return 0
        if given["as_json"]:
            sys.stdout.write(views.json_line([run_objects.file_object(one) for one in found]))
            return 0
        for one in found:
            digest = f"SHA-256 {one.digest[:12]}"
            say(f"{one.step}/{one.name}  {display.size_words(one.size)}  {digest}  {one.filename}".rstrip())
        if not found:
            say("The steps of this run have produced no files.")
        return 0

    return session.look(given, look)


def _chosen(found: list[KeptFile], name: str) -> KeptFile:
    fitting = [one for one in found if name in (one.name, f"{one.step}/{one.name}")]
    if not fitting:
        fix = meant(name, [one.name for one in found]) if found else "None of its steps has produced one."
        raise BadInput(f"The run has no file '{name}'.", fix=fix)
    if len({one.digest for one in fitting}) > 1:
        which = ", ".join(f"{one.step}/{one.name}" for one in fitting)
        raise BadInput(f"Several steps have a file '{name}'.", fix=f"Write one of {which}.")
    return fitting[-1]


async def _write(file: KeptFile, pieces: AsyncIterator[bytes], to: str) -> None:
    if not to:
        if sys.stdout.isatty():
            raise BadInput("The file may not be text, so it is not written to a terminal.", fix="Use --to PATH.")
        sys.stdout.flush()
        async for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    path, target = _opened(Path(to), os.path.basename(file.filename) or file.name)
    with target:
        async for piece in pieces:
            target.write(piece)
    complain(f"Wrote {path} ({display.size_words(file.size)}).")


def _opened(to: Path, name: str) -> tuple[Path, IO[bytes]]:
    path = to / name if to.is_dir() else to
    try:
        return path, path.open("xb")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}.", fix="Choose another path.") from None
