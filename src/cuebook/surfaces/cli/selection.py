"""The options that select runs, for commands that list runs or act on many."""

from __future__ import annotations

import click

from cuebook.service.runs.lists import Asked
from cuebook.surfaces.cli.options import Given, not_empty

OPTIONS: list[click.Parameter] = [
    click.Option(
        ["--playbook"],
        metavar="NAME",
        callback=not_empty,
        help="Only runs of this playbook, named as in the list.",
    ),
    click.Option(["--owner"], metavar="NAME", callback=not_empty, help="Only runs that this user started."),
    click.Option(["--status"], metavar="STATUS", multiple=True, help="Only runs in this state; repeatable."),
    click.Option(["--since"], metavar="TIME", callback=not_empty, help="Only runs started at this time or later."),
    click.Option(["--until"], metavar="TIME", callback=not_empty, help="Only runs started before this time."),
    click.Option(
        ["--trigger"],
        metavar="TRIGGER",
        callback=not_empty,
        help="Only runs that this started, such as schedule:nightly.",
    ),
    click.Option(
        ["--search"],
        metavar="WORDS",
        callback=not_empty,
        help="Only runs with these words in the names of their playbook, owner or trigger, or at the start of their id.",
    ),
]


def asked_of(given: Given) -> Asked:
    names = ("playbook", "owner", "since", "until", "trigger", "search")
    return Asked(status=tuple(given["status"]), **{name: given[name] or "" for name in names})
