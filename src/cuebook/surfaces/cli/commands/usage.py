"""`cuebook usage`: the runs, tokens and money of some days."""

from __future__ import annotations

import sys

import click

from cuebook.service.service import Service
from cuebook.service.usage import BY, By, Group, UsageReport, cost_words, report_object
from cuebook.service.usage.period import period_of
from cuebook.surfaces.cli import options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import print_table, say


@command(
    "usage",
    [
        click.Option(["--by"], type=click.Choice(BY), default="day", show_default=True, help="What to add up."),
        click.Option(["--since"], metavar="TIME", default="30d", show_default=True, help="As in 30d or 2026-11-01."),
        click.Option(["--until"], metavar="DAY", default="", help="The last day, as in 2026-11-30; today by default."),
        click.Option(["--playbook"], metavar="NAME", default="", help="Only runs of this playbook."),
        options.AS_USER,
        options.STORE,
        options.AS_JSON,
    ],
)
def usage_command(given: Given) -> int:
    """Show what runs used: runs, model calls, tokens and money, by day, playbook, model or person.

    Calls count for the day on which they began, in the time zone of the setting `usage.time_zone`, and for the person and
    the playbook that started the run. A cost that is not known is shown as unknown, and never as zero. Deleted runs still
    count. An admin sees everyone's use, other people their own.

    Examples:

    \b
    cuebook usage --since 7d
    cuebook usage --by person --since 2026-11-01 --until 2026-11-30
    """
    by: By = given["by"]

    async def look(service: Service) -> int:
        who = await session.acting(service, given)
        today = service.calendar.day(service.clock())
        since, until = period_of(given["since"], given["until"], today, "--")
        found = await service.usage(who, since=since, until=until, playbook=given["playbook"], parts=[by])
        if given["as_json"]:
            sys.stdout.write(views.json_line(report_object(found, by)))
            return 0
        _print(found, by)
        return 0

    return session.with_service(given, look, looking=True)


def _print(found: UsageReport, by: By) -> None:
    groups = found.by(by)
    if by == "day":
        groups = [one for one in groups if one.is_used]
    if not groups:
        say(f"Nothing was used from {found.since} to {found.until}.")
        return
    lines = [(by.upper(), *(() if by == "model" else ("RUNS",)), "CALLS", "TOKENS IN", "TOKENS OUT", "COST")]
    lines += [_line(one, one.name or "(erased)", by) for one in groups]
    if len(groups) > 1:
        lines.append(_line(found.total, "total", by))
    print_table(lines)


def _line(one: Group, name: str, by: By) -> tuple[str, ...]:
    used = one.used
    runs = () if by == "model" else (f"{used.runs:,}",)
    return (name, *runs, f"{used.calls:,}", f"{used.input:,}", f"{used.output:,}", cost_words(one))
