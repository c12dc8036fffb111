"""Commands that remove runs: delete, prune and erase."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import click
import msgspec

from cuebook.config.settings import checked
from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import ENDED, WAITING
from cuebook.service.retention import Blocked, Criteria, Outcome
from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.options import Given, command, configuration
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import complain, say

_SHOWN = 10
_REMOVABLE = (*sorted(ENDED), *sorted(WAITING), "pending")
"""The states by which runs are selected; those after the first ones are refused unless that is forced."""
FORCE = click.Option(
    ["--force"], is_flag=True, help="Remove runs that others depend on or that have not ended; the reason is recorded."
)
CONTENTS = click.Option(
    ["--contents"], is_flag=True, help="Purge only the contents; the journal's chain stays and can be verified."
)
DRY_RUN = click.Option(["--dry-run"], is_flag=True, help="Only show what would be removed.")


@command(
    "delete",
    [
        click.Argument(["runs"], nargs=-1, required=True, metavar="RUN...", shell_complete=completion.runs()),
        CONTENTS,
        FORCE,
        click.Option(["--reason"], metavar="TEXT", default="", help="Why; it is recorded."),
        options.AS_USER,
        options.STORE,
        options.AS_JSON,
    ],
)
def delete_command(given: Given) -> int:
    """Delete runs, with the child runs that they started.

    Texts, playbooks and files that no other run refers to are freed. With --contents, only the contents of the journal are
    purged: its records keep their digests, so the chain still verifies, and a new record says who purged it and why.

    A run is refused if it has not ended, if it is a child, or if another run was forked from it. --force deletes it anyway
    and records the reason; of a run that others were forked from, the chain stays, because theirs begins with it.

    Examples:

    \b
    cuebook delete RUN --contents --reason 'request 118'
    """

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        outcome = Outcome()
        for name in given["runs"]:
            row = await service.get(name, who)
            more = {"force": given["force"], "contents": given["contents"], "reason": given["reason"]}
            one = await service.retention.delete(row.id, who, **more)
            outcome.deleted += one.deleted
            outcome.purged += one.purged
        return _report(given, outcome)

    return session.look(given, act)


@command(
    "prune",
    [
        click.Option(
            ["--older-than"],
            metavar="TIME",
            callback=options.not_empty,
            help="Only runs that have not changed for this long, as in 30d.",
        ),
        click.Option(["--status"], metavar="STATUS", multiple=True, help="Only runs in this state; repeatable."),
        click.Option(["--playbook"], metavar="NAME", callback=options.not_empty, help="Only runs of this playbook."),
        click.Option(
            ["--larger-than"],
            metavar="SIZE",
            callback=options.not_empty,
            help="Only runs whose records and files are larger, as in 10MB.",
        ),
        click.Option(
            ["--keep"], metavar="N", callback=options.not_empty, help="Keep the newest N runs of each playbook."
        ),
        CONTENTS,
        FORCE,
        DRY_RUN,
        options.AS_USER,
        options.STORE,
        options.AS_JSON,
    ],
)
def prune_command(given: Given) -> int:
    """Delete runs that have ended, by age, state, playbook and size.

    A run is deleted if all options that are given hold. Runs that other runs were forked from stay as long as those do. Runs
    that wait are named with `--status`, as in `--status awaiting_approval`, and are refused. --force removes both anyway, and
    that is recorded. Runs can be started and continued in the meantime, because the work is done in many short transactions.

    Examples:

    \b
    cuebook prune --older-than 90d --dry-run
    cuebook prune --status failed --playbook tea.md --keep 20
    """
    given_ones = {name: given[name] for name in ("older_than", "playbook", "larger_than", "keep")}
    criteria = msgspec.structs.replace(criteria_of(given_ones), status=tuple(map(_status, given["status"])))

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        more = {"contents": given["contents"], "dry_run": given["dry_run"], "reason": _words(given)}
        more["force"] = given["force"]
        if not given["dry_run"]:
            await service.sensitive.sweep(configuration(given).get("retention.sensitive"))
        return _report(given, await service.retention.prune(criteria, who, **more))

    return session.look(given, act)


@command(
    "erase",
    [
        click.Option(
            ["--owner"],
            metavar="NAME",
            default="",
            callback=options.not_empty,
            help="Erase the runs that this user started, and their schedules and triggers.",
        ),
        click.Option(
            ["--input", "inputs"],
            metavar="NAME=VALUE",
            multiple=True,
            help="Erase the runs with this input; with several, all of them must match.",
        ),
        FORCE,
        DRY_RUN,
        options.AS_USER,
        options.STORE,
        options.AS_JSON,
    ],
)
def erase_command(given: Given) -> int:
    """Erase one person's data: delete all runs that they started, or all runs with an input that names them.

    Child runs and runs that were forked from them are deleted too, and schedules and triggers that would start more of them,
    with the events that wait and what they were allowed in advance. What remains is a line for each run that says that it
    was deleted, when and by whom, but not whose data it was. If none is found, a warning says where it looked. Exit code 1 means that some runs could not be erased.

    Examples:

    \b
    cuebook erase --owner ada --dry-run
    cuebook erase --input email=ada@example.com
    """
    inputs = _pairs(given["inputs"])

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        more = {"owner": given["owner"], "inputs": inputs, "force": given["force"], "dry_run": given["dry_run"]}
        outcome = await service.retention.erase(who, **more)
        if not (outcome.deleted or outcome.purged or outcome.triggers or outcome.blocked):
            _nothing_found(given, who, inputs)
        return _report(given, outcome, strict=True)

    return session.look(given, act)


def _nothing_found(given: Given, who: Principal, inputs: dict[str, str]) -> None:
    """Says where it looked, because a mistyped name would look like success. Values of inputs are not repeated."""
    whose = [f"of '{given['owner']}'"] if given["owner"] else []
    whose += [f"with this value of the input '{name}'" for name in inputs]
    place = configuration(given).get("store")
    among = f", among those of the tenant '{who.tenant}'" if who.tenant != Principal().tenant else ""
    complain(f"cuebook: no run, schedule or trigger {' and '.join(whose)} was found in {place}{among}.")
    complain("  Names and values are compared exactly. `cuebook users list` and `cuebook runs` show what there is.")


def criteria_of(given: dict[str, Any]) -> Criteria:
    """The criteria from flags, checked as the settings of the same name are."""

    def value(name: str) -> Any:
        flag = f"--{name.replace('_', '-')}"
        return checked(f"retention.{name}", given[name], flag, flag=True) if given.get(name) else None

    return Criteria(
        older_than=value("older_than"),
        status=value("status") or (),
        playbook=value("playbook") or "",
        larger_than=value("larger_than"),
        keep=value("keep"),
    )


def _status(given: str) -> str:
    status = given.strip().replace(" ", "_")
    if status not in _REMOVABLE:
        raise BadInput(f"--status: runs cannot be pruned by '{given}'.", fix=f"Choose from: {', '.join(_REMOVABLE)}.")
    return status


def _pairs(given: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not name or not equals:
            raise BadInput(f"--input {one}: expected NAME=VALUE.", fix="For example: --input email=ann@example.com.")
        found[name] = value
    return found


def _words(given: Given) -> str:
    """The command without what names the store, as the reason that is recorded."""
    parts = ["prune"]
    for name in ("older_than", "playbook", "larger_than", "keep"):
        if given[name]:
            parts += [f"--{name.replace('_', '-')}", shlex.quote(str(given[name]))]
    for status in given["status"]:
        parts += ["--status", status]
    parts += ["--force"] if given["force"] else []
    return " ".join(parts)


def _report(given: Given, outcome: Outcome, *, strict: bool = False) -> int:
    dry = bool(given.get("dry_run"))
    if given["as_json"]:
        blocked = [{"run": one.run, "reason": one.reason, "fix": one.fix} for one in outcome.blocked]
        sys.stdout.write(
            views.json_line(
                {
                    "deleted": outcome.deleted,
                    "purged": outcome.purged,
                    "kept": blocked,
                    "size": outcome.size,
                    "dry_run": dry,
                    **({"triggers": outcome.triggers} if strict else {}),
                }
            )
        )
    else:
        would = "would be " if dry else ""
        size = f" ({display.size_words(outcome.size)})" if dry else ""
        counts = [f"{display.counted(len(outcome.deleted), 'run')} {would}deleted{size}"]
        if outcome.purged:
            counts.append(f"the contents of {display.counted(len(outcome.purged), 'run')} {would}purged")
        if outcome.triggers:
            counts.append(f"{display.counted(len(outcome.triggers), 'trigger')} {would}removed")
        if outcome.blocked:
            counts.append(f"{display.counted(len(outcome.blocked), 'run')} kept")
        say(", ".join(counts) + ".")
        _explain(outcome.blocked)
    return 1 if strict and outcome.blocked else 0


def _explain(blocked: list[Blocked]) -> None:
    for one in blocked[:_SHOWN]:
        complain(f"kept {one.run}: {one.reason} {one.fix}".rstrip())
    if len(blocked) > _SHOWN:
        complain(f"... and {len(blocked) - _SHOWN} more; --json lists them all.")
