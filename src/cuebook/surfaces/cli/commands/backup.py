"""`cuebook backup` and `cuebook restore`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from cuebook.config import Config
from cuebook.kernel.errors import BadInput, NotFound
from cuebook.service.copies.backup import Checked, Manifest, back_up, restore
from cuebook.surfaces import display
from cuebook.surfaces.cli import completion, options
from cuebook.surfaces.cli.options import Given, command, configuration
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import complain, say
from cuebook.wiring.stores import key_file_of
from cuebook.wiring.wiring import Wiring

_SAMPLE = 50
_FILE = click.Argument(["file"], shell_complete=completion.any_file)
_ALL = click.Option(["--verify-all"], is_flag=True, help=f"Verify every run in it, not only a sample of {_SAMPLE}.")


@command(
    "backup",
    [
        _FILE,
        click.Option(
            ["--with-key"], is_flag=True, help="Include the key that signs the tokens of waits, if there is one yet."
        ),
        _ALL,
        options.STORE,
        options.AS_JSON,
    ],
)
def backup_command(given: Given) -> int:
    """Write a consistent copy of the store to a file, even while runs are in progress.

    FILE must not exist; only you can read it. It has everything as of one moment, and is complete or not there at all. Runs
    that were being driven at that moment are interrupted in the copy and can be resumed. A Postgres store is copied run by
    run. The copy is checked, and some of its runs are verified, before it gets its name.

    The links and tokens of open waits need the key to stay valid after a restore. Anyone who has the key can make such tokens,
    so include it only if the backup is kept as safe as the store. Exit code 1 means that a run in it is broken.

    Examples:

    \b
    cuebook backup monday.cuebook --with-key
    """
    config = configuration(given)
    wiring, place = Wiring(config), config.get("store")
    if not wiring.has_store():
        raise NotFound(f"There is no store {place}.", fix="Check --store.")
    key = _key(config) if given["with_key"] else None

    async def work() -> tuple[Manifest, Checked]:
        if isinstance(place, Path):
            return await back_up(place, Path(given["file"]), key, _sample(given))
        store = wiring.open_store()
        try:
            return await back_up(store, Path(given["file"]), key, _sample(given))
        finally:
            await store.close()

    return _report(given, *asyncio.run(work()), "written", given["file"])


@command("restore", [_FILE, _ALL, options.STORE, options.AS_JSON])
def restore_command(given: Given) -> int:
    """Make a store from a backup.

    The store must not exist: nothing is ever overwritten. If there is one, stop what uses it, and move its file away together with
    all that begins with its name (-wal, -shm, .key). A backup of which a byte was changed is refused. Afterwards, use either this store or the one it is a copy of, or a waiting run could continue in both. For a Postgres store, restore to a
    file, then copy it with `cuebook store copy`. Exit code 1 means that a run in it is broken.

    Examples:

    \b
    cuebook restore monday.cuebook
    cuebook restore monday.cuebook --store drill.db --verify-all
    """
    config = configuration(given)
    place = config.get("store")
    if not isinstance(place, Path):
        raise BadInput("A backup is restored to a file.", fix=f"Then copy it: `cuebook store copy FILE {place}`.")
    found = asyncio.run(restore(Path(given["file"]), place, key_file_of(place), _sample(given)))
    return _report(given, *found, "restored", str(place))


def _sample(given: Given) -> int | None:
    return None if given["verify_all"] else _SAMPLE


def _key(config: Config) -> bytes | None:
    """The key of the store; None if it has none yet, because no wait has needed one."""
    place = config.get("store")
    path = key_file_of(place) if isinstance(place, Path) and not config.get("signing_key") else None
    if path is None:
        raise BadInput("The key is not in a file of the store.", fix="Back up the secret that signing_key names.")
    return path.read_bytes() if path.exists() else None


def _report(given: Given, manifest: Manifest, checked: Checked, done: str, where: str) -> int:
    if given["as_json"]:
        shown: dict[str, Any] = {
            "file": where,
            "runs": checked.runs,
            "verified": checked.checked,
            "broken": list(checked.broken),
            "made": manifest.made,
            "key": bool(manifest.key),
            "sha256": manifest.store,
        }
        sys.stdout.write(views.json_line(shown))
    else:
        verified = f"{checked.checked:,} of {display.counted(checked.runs, 'run')} verified"
        key = "with its key" if manifest.key else "without its key"
        say(f"{where} {done}, {key}: {verified}.")
    for one in checked.broken:
        complain(f"cuebook: broken run {one}.")
    return 1 if checked.broken else 0
