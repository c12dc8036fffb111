"""`cuebook store`: copies runs between stores, and shows the space they use and what was removed."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from typing import Any

import click
import msgspec

from cuebook.config import load
from cuebook.kernel.errors import BadInput, NotFound, StoreError
from cuebook.service.copies.transfer import Copied, copy_decisions, copy_runs, full_check
from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import complain, print_table, say
from cuebook.wiring.stores import has_store
from cuebook.wiring.wiring import Wiring

_MOST_REMOVALS = 100
_ARGUMENTS = {"source": "FROM", "target": "TO"}


@click.group("store", help="Copy runs from one store to another, and show the space they use.")
def store_command() -> None:
    pass


@command(
    "copy",
    [*(click.Argument([name], metavar=shown) for name, shown in _ARGUMENTS.items()), options.AS_JSON],
)
def _copy(given: Given) -> int:
    """Copy all runs to another store, waiting ones included.

    FROM and TO are files or Postgres databases (postgresql://...). Every run is checked before, as by `cuebook audit
    --verify`, and its journal again after. Runs that TO
    already has are skipped, so an interrupted copy can be repeated. Users, secrets' handles, overrides and trust are
    copied too. FROM is not changed: afterwards, use only one of the two, or a waiting run could continue in both.

    Exit code 1 means that some runs could not be copied.
    """
    return asyncio.run(_copied(given))


async def _copied(given: Given) -> int:
    wirings = [_wiring(given, name) for name in ("source", "target")]
    if not has_store(wirings[0].config):
        raise NotFound(f"There is no store {given['source']}.", fix="Check the path.")
    if wirings[0].config.get("store") == wirings[1].config.get("store"):
        raise BadInput("FROM and TO are the same store.", fix="Choose two different stores.")
    opened = []
    try:
        for wiring in wirings:
            try:
                opened.append(wiring.open_store())
            except StoreError as error:
                raise BadInput(error.message, fix=error.fix) from None
        source, target = opened
        decisions = await copy_decisions(source, target)
        results = await copy_runs(source, target, lambda one: _report(one, given), full_check(source))
    finally:
        for store in opened:
            await store.close()
    return _summary(results, decisions, given)


def _wiring(given: Given, name: str) -> Wiring:
    try:
        return Wiring(load({"store": given[name]}))
    except BadInput as error:  # it names the option that other commands have
        message = error.message.replace("--store: ", f"{_ARGUMENTS[name]}: ", 1)
        raise BadInput(message, fix=error.fix) from None


def _report(one: Copied, given: Given) -> None:
    if one.detail and not given["as_json"]:
        complain(f"{one.run}: not copied, {one.detail}.")


def _summary(results: list[Copied], decisions: int, given: Given) -> int:
    counts = Counter("failed" if one.detail else one.result for one in results)
    waiting = sum(one.unfinished and one.result == "copied" for one in results)
    if given["as_json"]:
        found: dict[str, Any] = {
            "runs": [{"run": one.run, "result": one.result, "detail": one.detail} for one in results]
        }
        sys.stdout.write(views.json_line({**found, "decisions": decisions}))
    else:
        say(f"{_runs(counts['copied'])} copied, {counts['present']} already there, {counts['failed']} not copied.")
        if waiting:
            say(f"{waiting} of them can still continue. From now on, use only {given['target']}.")
    return 1 if counts["failed"] else 0


def _runs(number: int) -> str:
    return f"{number} run" if number == 1 else f"{number} runs"


@command("usage", [options.STORE, options.AS_JSON])
def _usage(given: Given) -> int:
    """Show the space that runs use, by playbook and kind.

    A text or a file that runs of several playbooks refer to counts for each of them. `free` is space in the file that was
    freed and that new runs use again.
    """

    async def look(service: Service) -> int:
        spaces = await service.retention.usage()
        if given["as_json"]:
            sys.stdout.write(views.json_line(msgspec.to_builtins(spaces)))
            return 0
        lines = [("PLAYBOOK", "KIND", "RUNS", "NUMBER", "SIZE")]
        for one in sorted(spaces, key=lambda one: (not one.name, -one.size)):
            runs = f"{one.runs:,}" if one.runs else ""
            if one.count:
                lines.append((one.name or "all", one.kind, runs, f"{one.count:,}", display.size_words(one.size)))
        print_table(lines)
        return 0

    return session.look(given, look)


@command("removals", [options.STORE, options.AS_JSON])
def _removals(given: Given) -> int:
    """List the runs that were deleted or purged, newest first, with who did that and why."""

    async def look(service: Service) -> int:
        found = await service.retention.removals(limit=None if given["as_json"] else _MOST_REMOVALS)
        if given["as_json"]:
            sys.stdout.write(views.json_line(msgspec.to_builtins(found)))
            return 0
        for one in found:
            reason = f": {one.reason}" if one.reason else ""
            forced = " (forced)" if one.forced else ""
            say(f"{display.moment(one.at)}  {one.run}  {one.name}  {one.what} by {one.by}{forced}{reason}")
        if not found:
            say("No run was deleted or purged.")
        return 0

    return session.look(given, look)


for _command in (_copy, _usage, _removals):
    store_command.add_command(_command)
