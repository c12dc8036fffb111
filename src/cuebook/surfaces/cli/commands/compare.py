"""`cuebook compare`: the same cases over several models and playbooks, or runs that exist, side by side."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from cuebook.dialects.playbook import Playbook
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import ENDED
from cuebook.kernel.run import RunRow
from cuebook.service.comparisons import Cell, Comparison
from cuebook.service.service import Principal, Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import completion, options, session
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.playbook_command import read_file
from cuebook.surfaces.cli.terminal import views
from cuebook.surfaces.cli.terminal.ask import someone_is_there
from cuebook.surfaces.cli.terminal.output import complain, print_table, say
from cuebook.surfaces.explanation import NO_PRICE, asked_summary
from cuebook.testing.comparison.driver import AT_ONCE, drive_all, unfinished
from cuebook.testing.comparison.objects import comparison_object, table_object
from cuebook.testing.comparison.plan import Estimate, Plan, estimated, models_in, plan, read_cases
from cuebook.testing.comparison.results import Result, judged
from cuebook.testing.comparison.table import Group, Row, Table, labels_of, table_of, table_of_runs
from cuebook.testing.comparison.words import check_words, share_words, totals_of
from cuebook.testing.junit import in_words, shortened
from cuebook.wiring.wiring import Wiring

_SETTINGS = [one for one in options.SETTINGS if one.name != "model"]
_SETTING_NAMES = [str(one.name) for one in _SETTINGS]
_MOST_AT_ONCE = 50
_SHOWN = 300
"""The number of characters of an output in the terminal; --json and --html contain all of it."""


class _Interrupted(session.Interrupted):
    """The process was asked to stop while it was driving the runs of a comparison."""

    @property
    def onward(self) -> str:
        return f"`{display.command_line(f'compare --resume {self.run}')}` continues the comparison."


@command(
    "compare",
    [
        click.Argument(["playbook"], required=False, shell_complete=completion.any_file),
        click.Option(["--models"], metavar="A,B", help="The models to compare; by default the configured one."),
        click.Option(
            ["--prompts"],
            metavar="FILE",
            multiple=True,
            help="Another version of the playbook to compare with; repeatable.",
            shell_complete=completion.any_file,
        ),
        click.Option(
            ["--inputs"],
            metavar="FILE",
            help="The cases, as for `cuebook test`: their inputs, and what they expect.",
            shell_complete=completion.any_file,
        ),
        click.Option(["-k", "word"], metavar="WORD", help="Only use cases with this word in their name."),
        click.Option(
            ["--repeat"],
            type=click.IntRange(1, 100),
            default=1,
            metavar="N",
            help="How often to run each case with each model; 1 by default.",
        ),
        click.Option(["--max-cost"], type=click.FloatRange(0), metavar="USD", help="Spend no more than this in total."),
        click.Option(
            ["--parallel"],
            type=click.IntRange(1, _MOST_AT_ONCE),
            default=AT_ONCE,
            metavar="N",
            help=f"How many runs to drive at the same time; {AT_ONCE} by default.",
        ),
        click.Option(["--unattended"], is_flag=True, help="Run unattended: questions take their defaults."),
        click.Option(["--yes", "-y"], is_flag=True, help="Do not ask for confirmation."),
        click.Option(["--new"], is_flag=True, help="Start again, although the same comparison was started before."),
        click.Option(["--resume"], metavar="ID", help="Continue a comparison, or show its results."),
        click.Option(["--runs"], metavar="A,B", help="Compare these runs, which exist already."),
        click.Option(["--list", "listing"], is_flag=True, help="List all comparisons, newest first."),
        click.Option(["--html"], metavar="FILE", help="Also write the results as a page, with plots."),
        *_SETTINGS,
        options.STORE,
        options.AS_JSON,
    ],
    epilog="Exit codes: 0 all checks passed, 1 some failed, 2 bad input, 3 some runs wait for a person"
    " or were not started, 4 the money was not enough.",
)
def compare_command(given: Given) -> int:
    """Compare models, playbooks or runs.

    Runs PLAYBOOK with every case of --inputs, with each of --models and each version given by --prompts, --repeat times, and
    shows outputs, checks, cost, time and stability side by side. Each run is an ordinary run of the store. If the command is
    interrupted, the same command, or --resume ID, continues: what has ended is not run again.

    With --runs, nothing is run. --inputs then judges each run by the case with the same inputs.
    """
    _check(given)
    if given["listing"]:
        return session.with_service(given, lambda service: _list(given, service), looking=True)
    if given["runs"]:
        return session.with_service(given, lambda service: _chosen(given, service), looking=True)
    if given["resume"]:
        return _resume(given)
    wiring = session.wiring_of(given)
    playbooks = [read_file(one) for one in (given["playbook"], *_files(given["prompts"]))]
    file = Path(given["inputs"]) if given["inputs"] else None
    kept = {name: given[name] for name in ("word", "unattended", *_SETTING_NAMES) if given[name]}
    made = _planned(wiring, playbooks, models_in(given["models"] or ""), file, given["repeat"], kept)

    async def act(service: Service) -> tuple[Plan, Comparison]:
        mark = made.mark(service)
        known = None if given["new"] else await service.comparisons.same(mark, Principal())
        return made, known or made.comparison(service, Principal())

    return _perform(given, wiring, act)


def _check(given: Given) -> None:
    """Refuses options that do not go together."""
    modes = {"--runs": given["runs"], "--resume": given["resume"], "--list": given["listing"]}
    chosen = [name for name, value in modes.items() if value]
    if len(chosen) > 1:
        raise BadInput(f"{' and '.join(chosen)} are mutually exclusive.", fix="Use one of them.")
    if not chosen and not given["playbook"]:
        raise BadInput("Missing argument 'PLAYBOOK'.", fix="Name a playbook, or compare existing runs with --runs A,B.")
    if "-" in (given["playbook"], *given["prompts"]):
        raise BadInput("A comparison reads its playbooks again when it continues.", fix="Name a file instead of -.")
    starting = ("playbook", "models", "prompts", "word", "new", "unattended", *_SETTING_NAMES)
    left = [name for name in starting if chosen and given[name]]
    if left:
        named = ", ".join(name.upper() if name == "playbook" else _flag(name) for name in left)
        raise BadInput(f"{chosen[0]} cannot be combined with {named}.", fix="Leave it out.")
    if given["inputs"] and chosen and chosen != ["--runs"]:
        raise BadInput(f"{chosen[0]} cannot be combined with --inputs.", fix="Leave it out.")


def _files(given: Sequence[str]) -> list[str]:
    """The files, each in an option of its own or several separated by commas."""
    return [part for one in given for part in ([one] if Path(one).exists() else one.split(","))]


def _flag(name: str) -> str:
    return "-k" if name == "word" else f"--{name.replace('_', '-')}"


def _planned(
    wiring: Wiring,
    playbooks: Sequence[Playbook],
    models: Sequence[str],
    file: Path | None,
    repeat: int,
    kept: dict[str, Any],
) -> Plan:
    cases = read_cases(file, playbooks[0])
    word = kept.get("word")
    if word:
        cases = tuple(case for case in cases if word.casefold() in case.name.casefold())
        if not cases:
            raise BadInput(f"No case has '{word}' in its name.", fix="Choose another word.")
    unattended = bool(kept.get("unattended"))
    return plan(wiring, playbooks, models, cases, file, repeat, unattended=unattended, options=kept)


def _resume(given: Given) -> int:
    """Continues a comparison with what it was started with, or shows it if all of its runs have ended."""

    async def find(service: Service) -> Comparison:
        return await service.comparisons.get(given["resume"])

    known = _looked(given, find)
    settings = {**given, **{name: one for name, one in known.options.items() if name in _SETTING_NAMES}}
    wiring = session.wiring_of(settings)

    async def act(service: Service) -> tuple[Plan | None, Comparison]:
        if not unfinished(known, await service.comparisons.rows(known), Principal().tenant):
            return None, known
        made = _again(wiring, known)
        if made.mark(service) != known.mark:
            changed = [
                one.playbook
                for one, now in zip(known.variants, made.variants, strict=False)
                if one.digest != now.digest
            ]
            names = ", ".join(dict.fromkeys(changed)) or "its cases or the configuration"
            raise BadInput(
                f"Comparison {known.id} cannot continue: {names} changed since it was started.",
                fix="Undo the change, or start a new comparison.",
            )
        return made, known

    return _perform(given, wiring, act)


def _again(wiring: Wiring, known: Comparison) -> Plan:
    """The plan of a comparison, from the files as they are now."""
    paths = list(dict.fromkeys(one.path for one in known.variants))
    models = list(dict.fromkeys(one.model for one in known.variants)) if known.model else []
    file = Path(known.file) if known.file else None
    return _planned(wiring, [read_file(one) for one in paths], models, file, known.repeat, known.options)


def _looked(given: Given, find: Callable[[Service], Any]) -> Comparison:
    found: list[Comparison] = []

    async def look(service: Service) -> int:
        found.append(await find(service))
        return 0

    session.with_service(given, look, looking=True)
    return found[0]


# --- running ------------------------------------------------------------------------------------------------


def _perform(given: Given, wiring: Wiring, act: Callable[[Service], Any]) -> int:
    async def work() -> int:
        async with session.opened(wiring, create=True) as service, wiring.traced(service):
            await service.settle()
            await service.expire()
            made, comparison = await act(service)
            rows = await service.comparisons.rows(comparison)
            left = unfinished(comparison, rows, Principal().tenant)
            if made is None or not left:
                complain(
                    f"All {display.counted(comparison.size, 'run')} of comparison {comparison.id} have ended;"
                    " with --new they are run again."
                )
                return _report(given, await table_of(service, comparison))
            for note in made.notes:
                complain(note)
            estimate = await estimated(service, wiring, made, left)
            _announce(estimate, made, comparison, rows, left)
            await _confirm(given, service, estimate, made)
            if not rows:
                await service.comparisons.add(comparison, Principal())
            complain(f"Comparison {comparison.id}")
            enough = await _drive(given, service, made, comparison, rows, left, estimate)
            if service.notifies:
                await session.deliver(wiring, service)
            return _report(given, await table_of(service, comparison), enough=enough)

    return session.perform(work())


def _announce(
    estimate: Estimate, made: Plan, comparison: Comparison, rows: dict[Cell, RunRow], left: Sequence[Cell]
) -> None:
    """Says how many runs there are, and what each variant may cost."""
    done = comparison.size - len(left)
    models, texts = len({one.model for one in made.variants}), len({one.path for one in made.variants})
    parts = [display.counted(models, "model")] if models > 1 or texts == 1 else []
    parts += [display.counted(texts, "playbook")] if texts > 1 else []
    parts += [display.counted(len(made.cases), "case"), f"{made.repeat} times each" if made.repeat > 1 else "once each"]
    complain(f"{display.counted(made.size, 'run')}: {', '.join(parts)}.")
    if done or rows:
        begun = f", {len(rows) - done:,} begun" if len(rows) > done else ""
        complain(f"Continues comparison {comparison.id}: {done:,} of {comparison.size:,} have ended{begun}.")
    for number, variant in enumerate(made.variants):
        runs = sum(cell.variant == number for cell in left)
        if runs:
            name = variant.model or variant.playbook
            where = (
                f" with {variant.playbook}" if variant.model and len({one.path for one in made.variants}) > 1 else ""
            )
            complain(f"  {name}{where}: {display.counted(runs, 'run')}, {_cost_words(estimate, number)}")
    asked = dict.fromkeys(asked_summary(one) for one in estimate.explained.values() if one.asking)
    for words in asked:
        complain(words)


def _cost_words(estimate: Estimate, variant: int) -> str:
    if estimate.free(variant):
        return "free"
    most = estimate.most(variant)
    if most is not None:
        return f"at most {display.money(most)}"
    one = next(one for (number, _), one in estimate.explained.items() if number == variant)
    return f"cost {NO_PRICE}" if one.bound.calls is not None and one.terms.facts.price is None else "cost unbounded"


async def _confirm(given: Given, service: Service, estimate: Estimate, made: Plan) -> None:
    for playbook in dict.fromkeys(one.name for one in made.playbooks):
        for words in await service.spent_budgets(playbook) if estimate.costs_money else ():
            complain(words)
    if given["yes"] or not estimate.costs_money:
        return
    if not someone_is_there(given):
        raise BadInput("Nothing was started: this may cost money.", fix="Repeat the command with --yes.")
    if not click.confirm(f"Start {display.counted(len(estimate.left), 'run')}?", default=False, err=True):
        raise BadInput("Nothing was started.", fix="`cuebook explain` shows what a run would do.")


async def _drive(
    given: Given,
    service: Service,
    made: Plan,
    comparison: Comparison,
    rows: dict[Cell, RunRow],
    left: Sequence[Cell],
    estimate: Estimate,
) -> bool:
    ended, labels = [0], labels_of(comparison.variants)
    showing: set[asyncio.Task[None]] = set()

    def see(cell: Cell, row: RunRow | None, problem: str) -> None:
        task = asyncio.ensure_future(show(cell, row, problem))
        showing.add(task)
        task.add_done_callback(showing.discard)

    async def show(cell: Cell, row: RunRow | None, problem: str) -> None:
        ended[0] += 1
        case, name = comparison.cases[cell.case], labels[cell.variant]
        again = f" #{cell.repetition + 1}" if comparison.repeat > 1 else ""
        head = f"[{ended[0]:,}/{len(left):,}] {case.name}, {name}{again}"
        if row is None or problem:
            complain(f"{head}: {problem}")
        else:
            complain(f"{head}: {_result_words(await judged(service, row, case))}")

    try:
        enough = await drive_all(
            service,
            made,
            comparison,
            rows,
            left,
            see,
            at_once=given["parallel"],
            most=given["max_cost"],
            bound=estimate.bound,
        )
        await asyncio.gather(*showing)
    except asyncio.CancelledError:
        raise _Interrupted(comparison.id) from None
    return enough


def _result_words(one: Result) -> str:
    parts: list[str] = [one.verdict]
    if one.run:
        parts += [display.duration(one.seconds), "cost unknown" if one.cost is None else display.money(one.cost)]
    words = ", ".join(parts)
    return f"{words}: {display.short(one.reason)}" if one.reason else words


# --- runs that exist ----------------------------------------------------------------------------------------


async def _chosen(given: Given, service: Service) -> int:
    runs = [one.strip() for one in given["runs"].split(",") if one.strip()]
    cases = None
    if given["inputs"]:
        playbook = await service.playbook_of(await service.get(runs[0]))
        if playbook is None:
            raise BadInput(f"Run {runs[0]} belongs to a Python program, which has no cases.", fix="Leave out --inputs.")
        cases = read_cases(Path(given["inputs"]), playbook)
    return _report(given, await table_of_runs(service, runs, cases=cases))


async def _list(given: Given, service: Service) -> int:
    listed = await service.comparisons.listed()
    if given["as_json"]:
        sys.stdout.write(views.json_line([comparison_object(one) for one in listed]))
        return 0
    if not listed:
        complain("There are no comparisons yet. `cuebook compare PLAYBOOK --models A,B` starts one.")
        return 0
    lines = [("ID", "STARTED", "RUNS", "ENDED", "MODELS", "PLAYBOOKS")]
    for one in listed:
        rows = await service.comparisons.rows(one)
        ended = sum(row.status in ENDED for row in rows.values())
        models = dict.fromkeys(variant.model for variant in one.variants)
        started = display.moment(one.created)
        lines.append((one.id, started, f"{one.size:,}", f"{ended:,}", ", ".join(models), one.title))
    print_table(lines)
    return 0


# --- showing ------------------------------------------------------------------------------------------------


def _report(given: Given, table: Table, *, enough: bool = True) -> int:
    if given["html"]:
        from cuebook.surfaces.web.pages.comparison import as_file

        _write(given["html"], as_file(table))
    if given["as_json"]:
        sys.stdout.write(views.json_line(table_object(table)))
    else:
        _show(table)
    verdicts = table.verdicts
    if verdicts["failed"]:
        return 1
    if not enough:
        left = display.counted(verdicts["not started"] + verdicts["unfinished"], "run")
        complain(f"--max-cost was not enough for {left}. Raise it, or lower what a reply may cost with --max-tokens.")
        return 4
    return 0 if verdicts["passed"] == len(table.results) else 3


def _write(path: str, text: str) -> None:
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInput(f"--html: {path} cannot be written: {error.strerror}.", fix="Choose another path.") from None


def _show(table: Table) -> None:
    one = table.comparison
    if one is not None:
        file = f" of {Path(one.file).name}" if one.file else ""
        say(f"Comparison {one.id}: {one.title}, {display.counted(len(one.cases), 'case')}{file}")
        say("")
    labels = [column.label for column in table.columns]
    print_table([("", *labels), *((name, *cells) for name, cells in totals_of(table))])
    if table.checks not in ([], ["status"]):
        say("")
        print_table([("check", *labels), *_checks(table)])
    for row in table.rows:
        say("")
        _show_row(table, row)
    runs = [next((one.run for one in column.results if one.run), "") for column in table.columns]
    differs = all(runs[:2]) and len(runs) > 1
    waiting = next((one.run for one in table.results if one.verdict == "waiting"), "")
    if differs or waiting:
        say("")
    if differs:
        say(f"`{display.command_line(f'diff {shlex.join(runs[:2])}')}` compares two runs step by step.")
    if waiting:
        say(f"`{display.command_line(f'show {shlex.quote(waiting)}')}` shows what a waiting run needs.")


def _checks(table: Table) -> Iterator[tuple[str, ...]]:
    found = [column.checks for column in table.columns]
    for name in table.checks:
        yield (name, *(check_words(one[name]) if name in one else "-" for one in found))


def _show_row(table: Table, row: Row) -> None:
    say(row.name)
    for column, group in zip(table.columns, row.groups, strict=True):
        say(f"  {column.label}: {_group_words(group)}")
        for output, results in group.outputs:
            often = f"{len(results)} times: " if len(results) > 1 else ""
            if output is None and all(one.verdict in ("waiting", "purged") for one in results):
                continue
            text = "(no output)" if output is None else " ".join(output.split())
            ids = ", ".join(one.run for one in results)
            say(f"    {often}{text if len(text) <= _SHOWN else text[:_SHOWN] + '…'} [{ids}]")
        for one in group.results:
            if one.verdict == "waiting" and len(group.results) > 1:
                say(f"    {one.run} is {one.status.replace('_', ' ')}: {display.short(one.reason)}")
            if one.verdict == "failed":
                file = "" if table.comparison is None else table.comparison.file
                found = [in_words(Path(file).name or row.name, shortened(miss)) for miss in one.mismatches]
                say("\n".join(f"    {line}" for line in (f"{one.run} failed:", *"\n".join(found).split("\n"))))


def _group_words(group: Group) -> str:
    counts: dict[str, int] = {}
    for one in group.results:
        counts[one.verdict] = counts.get(one.verdict, 0) + 1
    if len(group.results) == 1:
        return _result_words(group.results[0])
    words = ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items()) or "no run"
    same = share_words(group.same_output)
    return f"{words}; the same output {same}" if same else words
