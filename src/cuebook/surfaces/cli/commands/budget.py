"""`cuebook budget`: what everyone together, one person or one playbook may use in a day and in a month."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any

import click
import msgspec

from cuebook.config import config_folder
from cuebook.formats.words import counted
from cuebook.gate.roles import Principal
from cuebook.kernel.errors import BadInput
from cuebook.service.budgets.administration import BudgetState
from cuebook.service.budgets.budget import EACH, name_of
from cuebook.service.budgets.objects import budget_object, limit_cells
from cuebook.service.service import Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.output import complain, print_table, say

_NONE = "none"
_LOOKED_AT = 1_000
"""Files of a folder among which a similar name is looked for."""
_WHOSE: list[click.Parameter] = [
    click.Option(
        ["--person"],
        metavar="NAME",
        default="",
        callback=options.not_empty,
        help="The runs of a person; '*' means each person without a budget of their own.",
    ),
    click.Option(
        ["--playbook"],
        metavar="NAME",
        default="",
        callback=options.not_empty,
        help="The runs of a playbook, as `cuebook runs` names it.",
    ),
]
_COMMON: list[click.Parameter] = [options.AS_USER, options.STORE, options.AS_JSON]


@click.group("budget", help="Limit what people and playbooks may use in a day and in a month.")
def budget_command() -> None:
    pass


@command(
    "set",
    [
        *_WHOSE,
        click.Option(["--day"], metavar="USD", help="US dollars in a day; 'none' removes this limit."),
        click.Option(["--month"], metavar="USD", help="US dollars in a month."),
        click.Option(["--day-tokens"], metavar="N", help="Tokens in a day."),
        click.Option(["--month-tokens"], metavar="N", help="Tokens in a month."),
        click.Option(
            ["--soft"], metavar="PERCENT", help="The part of a limit at which people are notified; 80% by default."
        ),
        click.Option(
            ["--unknown-cost/--no-unknown-cost"],
            default=None,
            help="Whether models without a known price may be called under a limit of money; by default, they may not.",
        ),
        *_COMMON,
    ],
)
def _set(given: Given) -> int:
    """Set the budget of all runs, of a person or of a playbook. Limits that are not given stay as they are.

    Before each model call, the most that it can cost is set aside. If that no longer fits, the run waits, and continues when
    the day or the month is over, when the budget is raised, or when an approver lets it continue with `cuebook budget allow`.
    At the soft mark, people are notified. Runs that waited for this budget continue if there is room now. An unknown person
    or playbook is accepted, with a warning.

    Examples:

    \b
    cuebook budget set --month 200
    cuebook budget set --person '*' --day 10
    cuebook budget set --playbook tea.md --month-tokens 1000000 --soft 50%
    """
    changes = _changes(given)

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        made, runs = await service.budgets.set(_name(given), changes, who)
        await _warn(given, service, who)
        return _report(given, [await service.budgets.state(made.name, who)], runs)

    return session.with_service(given, act)


@command("list", _COMMON)
def _list(given: Given) -> int:
    """List the budgets, what is used of them, and the runs that wait for them.

    An admin sees all of them, other people those that limit their own use.
    """

    async def look(service: Service) -> int:
        who = await session.acting(service, given)
        found, paused = await service.budgets.listed(who), await service.budgets.paused(who)
        if given["as_json"]:
            shown = [budget_object(one, paused.get(one.budget.name, ())) for one in found]
            sys.stdout.write(views.json_line(shown))
            return 0
        if not found:
            say("There are no budgets. `cuebook budget set --month 50` limits all runs together.")
            return 0
        _print(found)
        for one in found:
            _print_runs(f"waiting for {one.budget.name}", paused.get(one.budget.name, ()))
        return 0

    return session.with_service(given, look, looking=True)


@command("show", [*_WHOSE, *_COMMON])
def _show(given: Given) -> int:
    """Show one budget: its limits, what is used of them, who set it, and the runs that wait for it."""

    async def look(service: Service) -> int:
        who = await session.acting(service, given)
        one, paused = await service.budgets.state(_name(given), who), await service.budgets.paused(who)
        runs = paused.get(one.budget.name, ())
        if given["as_json"]:
            sys.stdout.write(views.json_line(budget_object(one, runs)))
            return 0
        _print([one])
        unknown = "may" if one.budget.unknown_cost else "may not"
        say(f"People are notified at {one.budget.soft:.0%}. Models without a known price {unknown} be called.")
        say(f"Set by {one.budget.by}, {display.moment(one.budget.changed)}.")
        _print_runs("Waiting", runs)
        return 0

    return session.with_service(given, look, looking=True)


@command("remove", [*_WHOSE, *_COMMON])
def _remove(given: Given) -> int:
    """Remove a budget: that of all runs together, or with --person or --playbook, another one. Runs that waited for it continue."""

    async def act(service: Service) -> int:
        name = _name(given)
        runs = await service.budgets.remove(name, await session.acting(service, given))
        if given["as_json"]:
            sys.stdout.write(views.json_line({"removed": name, "continued": list(runs)}))
            return 0
        say(f"Removed the budget '{name}'.")
        _print_continued(runs)
        return 0

    return session.with_service(given, act, looking=True)


@command(
    "allow",
    [
        click.Argument(["run"], shell_complete=completion.runs("paused")),
        click.Option(["--reason"], metavar="TEXT", default="", help="Why; it is recorded."),
        *_COMMON,
    ],
)
def _allow(given: Given) -> int:
    """Let one run continue although a budget is spent, until its day or month is over.

    What the run uses still counts, so other runs keep waiting. This requires the role approver, and is recorded.

    Examples:

    \b
    cuebook budget allow RUN --reason 'month end'
    """

    async def act(service: Service) -> int:
        who = await session.acting(service, given)
        made = await service.budgets.allow(given["run"], who, reason=given["reason"])
        if given["as_json"]:
            sys.stdout.write(views.json_line(msgspec.to_builtins(made)))
            return 0
        for one in made:
            until = "" if one.until is None else f" until {service.calendar.moment(one.until)}"
            say(f"Run {one.run} may continue{until} although the budget '{one.budget}' is spent.")
        _print_continued(list(dict.fromkeys(one.run for one in made)))
        return 0

    return session.look(given, act)


def _name(given: Given) -> str:
    return name_of(given["person"], given["playbook"])


async def _warn(given: Given, service: Service, who: Principal) -> None:
    """Warns of a budget that limits nothing yet, because its name may be mistyped. It is set all the same."""
    if name := given["playbook"]:
        from cuebook.surfaces.cli.commands.serve import playbook_folders

        config = options.configuration(given)
        folders = playbook_folders({"folders": ()}, config)
        folders.append(config_folder(os.environ) / "playbooks")
        if not await service.runs(name=name, limit=1, who=who) and not any((one / name).is_file() for one in folders):
            known = {one.name for one in await service.runs(who=who)}
            known |= {path.name for one in folders if one.is_dir() for path in islice(one.iterdir(), _LOOKED_AT)}
            words = f"no run has the playbook '{name}', and there is no such file in {', '.join(map(str, dict.fromkeys(folders)))}"
            _warn_of(words, "a playbook", name, known)
    if (name := given["person"]) and name not in (EACH, Principal().name):
        users = {one.name for one in await service.users(who)}
        if name not in users and not await service.runs(owner=name, limit=1, who=who):
            _warn_of(f"'{name}' is not a user and owns no run", "a person", name, users)


def _warn_of(words: str, whose: str, name: str, known: Collection[str]) -> None:
    close = get_close_matches(name, sorted(known), n=1)
    fix = f" Did you mean '{close[0]}'?" if close else ""
    complain(f"cuebook: {words}. The budget is set, but limits nothing until there is {whose} of this name.{fix}")


def _changes(given: Given) -> dict[str, Any]:
    """The limits that were given, checked."""
    found: dict[str, Any] = {}
    for name in ("day", "month", "day_tokens", "month_tokens"):
        if given[name] is not None:
            found[name] = _number(f"--{name.replace('_', '-')}", given[name], int if name.endswith("tokens") else float)
    if given["soft"] is not None:
        text = given["soft"].strip().removesuffix("%")
        found["soft"] = (_number("--soft", text, float) or 0.0) / 100
    if given["unknown_cost"] is not None:
        found["unknown_cost"] = given["unknown_cost"]
    if not found:
        raise BadInput("No limit was given.", fix="Give a limit, for example --month 50 or --day-tokens 200000.")
    return found


def _number(flag: str, text: str, kind: type[int] | type[float]) -> float | int | None:
    if text.strip().lower() == _NONE:
        return None
    try:
        return kind(text.strip().removeprefix("$").replace("_", ""))
    except ValueError:
        wanted = "a whole number" if kind is int else "a number"
        raise BadInput(f"{flag}: expected {wanted}, got '{text}'.", fix=f"For example: {flag} 50.") from None


def _report(given: Given, found: list[BudgetState], runs: Sequence[str]) -> int:
    if given["as_json"]:
        sys.stdout.write(views.json_line({**budget_object(found[0]), "continued": list(runs)}))
        return 0
    _print(found)
    _print_continued(runs)
    return 0


def _print(found: list[BudgetState]) -> None:
    lines = [("BUDGET", "PERIOD", "USED", "LIMIT", "LEFT")]
    for state in found:
        for limit in state.limits:
            whose = f" ({limit.person})" if limit.person and f"person:{limit.person}" != state.budget.name else ""
            for cells in limit_cells(limit):
                lines.append((f"{state.budget.name}{whose}", limit.name, *cells))
    print_table(lines)


def _print_continued(runs: Sequence[str]) -> None:
    if runs:
        how = display.command_line(f"resume {runs[0]}")
        _print_runs(f"{counted(len(runs), 'run')} can continue", runs)
        say(f"A server or a worker continues {'it' if len(runs) == 1 else 'them'}; without one, `{how}` does.")


def _print_runs(words: str, runs: Sequence[str]) -> None:
    if runs:
        say(f"{words}: {', '.join(runs)}")


for _command in (_set, _list, _show, _remove, _allow):
    budget_command.add_command(_command)
