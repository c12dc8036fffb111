"""`cuebook schedule`: runs of playbooks at planned times."""

from __future__ import annotations

import click

from cuebook.dialects.playbook import Playbook
from cuebook.service.service import Service
from cuebook.service.triggers.cron import next_moment
from cuebook.service.triggers.schedules import CATCH_UP, Schedule, check_times
from cuebook.service.triggers.trigger import Target
from cuebook.surfaces.cli.options import Given
from cuebook.surfaces.cli.playbook_command import PlaybookCommand
from cuebook.surfaces.cli.trigger_commands import (
    ALLOW,
    TARGET,
    add_trigger,
    duration_of,
    list_command,
    managing,
    name_of,
    overlap_option,
)

HELP = """Run a playbook at the times of a cron expression.

FILE is read again at each firing, so its runs follow the file. A server (`cuebook serve`) or a worker starts the runs; of
several on one store, one does. The command shows what the runs would ask for approval. --allow gives the schedule a standing
permission for exactly that, as long as the playbook and the policy stay as they are; whatever else a run asks waits in the
inbox.

A cron expression has five fields: minute, hour, day of the month, month, day of the week, as in '30 6 * * 1-5'; or it is
@hourly, @daily, @weekly, @monthly or @yearly. In the time zone of --tz, a time that the clock skips in spring fires when it
jumps, and one that occurs twice in autumn fires once, unless the minutes or hours begin with a *: then it fires once for each
time that the clock shows.

Examples:

\b
cuebook schedule add FILE --cron '0 6 * * 1-5' --tz Europe/Berlin
cuebook schedule add FILE --cron @hourly --overlap queue --catch-up 30m --allow
"""

_ADD: list[click.Parameter] = [
    *TARGET,
    click.Option(["--cron"], metavar="EXPRESSION", required=True, help="When, as in '30 6 * * 1-5' or @daily."),
    click.Option(["--tz", "zone"], metavar="ZONE", default="UTC", help="The time zone, as in Europe/Berlin; UTC by default."),
    click.Option(
        ["--catch-up"], metavar="TIME", help="How late a firing may still start after a downtime, as in 30m; 1h by default."
    ),
    click.Option(["--jitter"], metavar="TIME", help="Delay each firing by up to this, by an amount that varies."),
    overlap_option("skip", "one does, more are skipped"),
    *ALLOW,
]  # fmt: skip


def _add(given: Given, playbook: Playbook) -> int:
    jitter = duration_of("--jitter", given["jitter"], 0.0)
    catch_up = duration_of("--catch-up", given["catch_up"], CATCH_UP)
    name = name_of(given, playbook, "schedule")

    def make(service: Service, target: Target, owner: str, tenant: str) -> Schedule:
        now = service.clock()
        check_times(given["cron"], given["zone"], jitter, catch_up, now)
        return Schedule(
            tenant=tenant,
            name=name,
            owner=owner,
            target=target,
            created=now,
            overlap=given["overlap"],
            cron=given["cron"],
            zone=given["zone"],
            next=next_moment(given["cron"], given["zone"], now),
            jitter=jitter,
            catch_up=catch_up,
        )

    return add_trigger(given, playbook, make)


@click.group("schedule", help="Run playbooks at planned times.")
def schedule_command() -> None:
    pass


_list = list_command(
    [Schedule],
    "List the schedules, when each fires next, and what became of its last firing.",
    "There are no schedules. `cuebook schedule add FILE --cron '30 6 * * 1-5'` adds one.",
)
_add_command = PlaybookCommand("add", _ADD, HELP, "Run {title} at planned times.", _add)
_add_command.short_help = "Run a playbook at the times of a cron expression."

for _command in (_add_command, _list, *managing("schedule", [Schedule])):
    schedule_command.add_command(_command)
