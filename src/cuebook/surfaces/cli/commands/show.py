"""Read-only commands for runs: runs, show, events, inbox, replay."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from typing import Any

import click
import msgspec

from cuebook.dialects import registry
from cuebook.dialects.presentation.projection import Conversation, Projection, seen
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import WAITING
from cuebook.kernel.journal import Entry, step_at
from cuebook.kernel.run import RunRow, StepRow, WaitRow, stopped
from cuebook.kernel.votes import votes_words
from cuebook.service.dispatch.follow import waits_for
from cuebook.service.runs import objects as run_objects
from cuebook.service.runs.children import is_purged
from cuebook.service.runs.items import folded
from cuebook.service.runs.lists import cursor_of
from cuebook.service.runs.tool_calls import call_object, plan_object
from cuebook.service.runs.views import only_answered
from cuebook.service.service import RunView, Service
from cuebook.surfaces import display
from cuebook.surfaces.cli import completion, next_steps, options, selection, session
from cuebook.surfaces.cli.commands.resume import RUN
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.terminal import calls_in_words, views
from cuebook.surfaces.cli.terminal.output import complain, hand_over, in_json, print_table, say

_EVENT_ID = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


def _nothing(given: Given, words: str) -> int:
    say("[]" if given["as_json"] else words)
    return 0


@command(
    "runs",
    [
        *selection.OPTIONS,
        click.Option(
            ["--limit"],
            type=click.IntRange(1, 10_000),
            default=20,
            show_default=True,
            help="The maximum number of runs.",
        ),
        click.Option(["--cursor"], metavar="CURSOR", default="", help="Continue where a page with this cursor ended."),
        options.STORE,
        options.AS_JSON,
    ],
)
def runs_command(given: Given) -> int:
    """List runs, newest first.

    A run is listed if all options that are given hold. STATUS is pending, running, paused, awaiting_input,
    awaiting_approval, completed, failed, cancelled, expired or interrupted. An interrupted run is unfinished, but no process
    is driving it, whatever its status. TIME is how long ago, as in 7d, or a local date, as in 2026-11-01 or 2026-11-01T09:30.
    TRIGGER is what started the run: schedule:NAME, webhook:NAME, files:NAME, after:NAME, compare:ID, trigger (a playbook's
    token), mcp or person. A kind alone, such as schedule, matches all of its names.

    If there are more runs, the cursor of the next page follows on stderr. With --json, each run has the cursor of the page
    after it. A page neither repeats nor misses a run, even if runs are started or deleted meanwhile.
    """
    asked = selection.asked_of(given)
    asked.checked(time.time(), (), "--")  # before a store is looked for
    if not session.wiring_of(given).has_store():
        return _nothing(given, f"{session.no_runs(session.wiring_of(given))} {session.HOW_TO_START}")

    async def look(service: Service) -> int:
        left = {row.id for row in await service.interrupted()}
        page = await service.page(
            asked.checked(service.clock(), left, "--"), limit=given["limit"], cursor=given["cursor"]
        )
        if not page.rows and not given["as_json"]:
            return _nothing(given, "No matching runs." if asked.says_something else session.NO_RUNS)
        if given["as_json"]:
            listed = [{**_row_object(row, row.id in left), "cursor": cursor_of(row)} for row in page.rows]
            sys.stdout.write(views.json_line(listed))
            return 0
        more = {
            "OWNER": [row.owner for row in page.rows] if any(row.owner != "local" for row in page.rows) else [],
            "STARTED BY": [row.trigger or "-" for row in page.rows] if any(row.trigger for row in page.rows) else [],
        }
        shown = {name: values for name, values in more.items() if values}
        lines = [("RUN", "STARTED", "STATUS", "STEPS", "TOKENS", "COST", *shown, "PLAYBOOK")]
        for number, row in enumerate(page.rows):
            totals = row.totals
            status = await _status_of(service, row, interrupted=row.id in left)
            steps = display.steps_of(row)
            cost = display.cost_of(totals)
            causes = [values[number] for values in shown.values()]
            started = display.moment(row.created)
            lines.append((row.id, started, status, steps, f"{totals.tokens:,}", cost, *causes, row.name))
        print_table(lines)
        if page.next:
            complain(f"There are more; --limit shows more at once, and --cursor {page.next} the next ones.")
        return 0

    return session.look(given, look)


@command(
    "show",
    [
        RUN,
        click.Option(["--output"], is_flag=True, help="Print the last output and nothing else."),
        click.Option(
            ["--state"], is_flag=True, help="Print the execution state that the playbook's format defines, as JSON."
        ),
        click.Option(["--trace"], is_flag=True, help="Print the trace and the results, as JSON."),
        click.Option(["--calls"], is_flag=True, help="Print every tool call with its arguments and its whole result."),
        click.Option(["--all", "every"], is_flag=True, help="List every step of a long loop, not only what failed."),
        click.Option(["--sent"], metavar="STEP", help="Print everything that was sent to a model at this step."),
        options.STORE,
        options.AS_JSON,
    ],
)
def show_command(given: Given) -> int:
    """Show a run: steps, outputs and what it is waiting for.

    --state prints the execution state and --trace the execution trace, if the playbook's format defines one, for a run in
    any state. A trace contains each visit and attempt of a step, the edges that were followed and why, and the sources; or
    every executed line. For a conversational playbook, the output is the conversation, the listing with the current line,
    the stack and the variables.
    """
    if sum(bool(given[name]) for name in ("output", "state", "trace", "calls", "sent")) > 1:
        raise BadInput("--output, --state, --trace, --calls and --sent are mutually exclusive.", fix="Choose one.")

    async def look(service: Service) -> int:
        row = await service.get(given["run"])
        if given["sent"]:
            pieces = await service.sent(row.id, given["sent"])
            if given["as_json"]:
                sys.stdout.write(views.json_line([{"role": one.role, "text": one.text} for one in pieces]))
            else:
                say("\n\n".join(f"{one.role}:\n\n{one.text}" for one in pieces))
            return 0
        if given["state"] or given["trace"]:
            exported = await (_state if given["state"] else _trace)(service, row)
            text = msgspec.json.format(msgspec.json.encode(exported, enc_hook=str), indent=2)
            sys.stdout.write(in_json(text.decode()) + "\n")
            return 0
        view, interrupted = await service.view(row.id), await service.is_interrupted(row.id)
        if given["calls"]:
            _print_calls(view, as_json=given["as_json"])
            return 0
        output = run_objects.final_output(view)
        program = None if given["output"] else (await _observed(service, row)).conversation
        held_up = await waits_for(service, row.id)
        later = await service.superseded_by(row)
        if given["as_json"]:
            more: dict[str, Any] = {"program": program.as_object()} if program is not None else {}
            shown = next_steps.as_object(view, interrupted=interrupted, waits_for=held_up)
            more |= {"superseded_by": later} if later else {}
            sys.stdout.write(views.json_line({**shown, **more}))
        elif given["output"]:
            hand_over(f"{output}\n" if output is not None else "")
        else:
            title = await session.title_of(service, row)
            words = _in_words(
                view, title, program, interrupted=interrupted, held_up=held_up, every=bool(given["every"])
            )
            say(f"{words}\ncontinued:  by run {later}, with a changed text" if later else words)
        return 0

    return session.look(given, look)


async def _observed(service: Service, row: RunRow) -> Projection:
    """The run's journal as projected by its dialect."""
    playbook = await session.playbook_of(service, row)
    entries = [entry async for entry in service.entries(row.id)]
    if playbook is not None:
        return playbook.observed(entries)
    dialect = registry.find(row.dialect)
    return Projection() if dialect is None or not dialect.talks else seen(dialect.observe(None), entries)


def _print_calls(view: RunView, *, as_json: bool) -> None:
    if as_json:
        made = {"calls": [call_object(one) for one in view.calls], "plans": [plan_object(one) for one in view.plans]}
        sys.stdout.write(views.json_line({"run": view.run.id, **made}))
        return
    say("\n\n".join(calls_in_words.whole(view.calls)) or "No model has called a tool in this run.")


async def _state(service: Service, row: RunRow) -> dict[str, Any]:
    playbook = await session.playbook_of(service, row)
    waits, settings = await service.waits(row.id), await session.settings_of(service, row.id)
    observed, text = await _observed(service, row), playbook.text if playbook is not None else ""
    state = observed.state(row, waits, text, settings)
    if state is None:
        raise BadInput(
            f"Run {row.id} has no state to export: its dialect, {row.dialect}, does not define one.",
            fix=f"`cuebook show {row.id} --json` shows the run.",
        )
    return state


async def _trace(service: Service, row: RunRow) -> dict[str, Any]:
    trace = (await _observed(service, row)).trace()
    if trace is None:
        raise BadInput(
            f"Run {row.id} has no trace: its dialect, {row.dialect}, does not define one.",
            fix=f"`cuebook events {row.id}` shows what happened.",
        )
    return {"run": row.id, "status": row.status, **trace}


def _in_words(
    view: RunView,
    title: str,
    program: Conversation | None,
    *,
    interrupted: bool,
    held_up: str = "",
    every: bool = False,
) -> str:
    row = view.run
    parts = [f"{title}\n{row.name}, started {display.moment(row.created)}{_started_by(row)}"]
    if row.parent:
        parts.append(f"forked from run {row.parent}")
    if row.caller:
        parts.append(f"started by run {row.caller}, which drives it and lists its questions")
    if is_purged(row):
        more = display.command_line(f"audit {row.id} --verify")
        parts.append(
            f"Its contents were purged: its inputs, steps and outputs are gone; `{more}` says by whom and when."
        )
    if view.inputs:
        parts.append("\n".join(["inputs:", *_inputs_in_words(view)]))
    if view.notes.get(""):
        parts.append("\n".join(view.notes[""]))
    if program is not None:
        from cuebook.surfaces.cli.terminal import conversation

        parts += conversation.in_words(program)
        parts += ["\n".join(calls_in_words.brief(view.calls, view.plans))] if view.calls else []
        closing = conversation.summary_of(view, program, sits=sys.stdin.isatty() and sys.stdout.isatty())
    else:
        parts += _steps_in_words(view, every=every)
        closing = views.summary(view)
    if view.children:
        started = [f"  {one.id}  {one.name}, {display.status_of(one)}" for one in view.children]
        parts.append("\n".join(["started these runs:", *started]))
    if view.overrides:
        listed = [f"  {one.id}  {display.override_words(one)}" for one in view.overrides]
        how = [] if all(one.revoked for one in view.overrides) else ["  `cuebook policy revoke ID` ends one of them"]
        parts.append("\n".join(["allowed for this run:", *listed, *how]))
    next = [words for words in closing[1:] if words[0] in ("next", "or")]
    lines = [
        ("status", display.status_of(row, view.waits, interrupted=interrupted, waits_for=held_up)),
        *closing[1 : -max(1, len(next))],
    ]
    lines.append(("waits for", _with_start(held_up)))
    if interrupted:
        lines += [
            ("because", run_objects.interrupted_words(row)),
            ("next", next_steps.what_next(row, [], interrupted=True)),
        ]
    elif display.is_decided(row, view.waits, held_up):
        lines.append(("next", next_steps.what_next(row, view.waits, waits_for=held_up)))
    elif row.status != "completed":
        lines += next if program is not None else [("next", next_steps.what_next(row, view.waits)), *next[1:]]
    parts.append("\n".join(f"{name + ':':<12}{words}" for name, words in lines if words))
    return "\n\n".join(parts)


def _started_by(row: RunRow) -> str:
    """What or who started a run; as in the list of runs, a sole local user is not named."""
    owner = "" if row.owner == "local" else row.owner
    if row.trigger:
        return f" by {row.trigger}{f' for {owner}' if owner else ''}"
    return f" by {owner}" if owner else ""


def _inputs_in_words(view: RunView) -> Iterator[str]:
    """The inputs as the journal has them: with marks for secrets and for the values of sensitive ones."""
    for name, value in view.inputs.items():
        yield f"  {name} = {display.short(value if isinstance(value, str) else views.json_text(value))}"


def _with_start(held_up: str) -> str:
    """What a run waits for, with the command that starts a worker."""
    return f"{held_up}; `{display.command_line('worker')}` starts one" if held_up.startswith("a worker") else held_up


def _steps_in_words(view: RunView, *, every: bool) -> Iterator[str]:
    last = {step.label: step.key for step in view.steps}
    for one in view.steps if every else folded(view.steps):
        if isinstance(one, StepRow):
            yield _step_in_words(view, one, last=last[one.label] == one.key)
            continue
        yield f"the items of step {one.loop}\n  {one.words}"
        for step in one.shown:
            yield _step_in_words(view, step, last=last[step.label] == step.key)
        more = display.command_line(f"show {view.run.id} --all")
        yield f"{one.hidden:,} more steps of the items of {one.loop}; `{more}` lists them"


def _step_in_words(view: RunView, step: StepRow, *, last: bool) -> str:
    """A step with its outputs and notes, which come from its last visit."""
    head = (
        f"step {views.named(step.label, step.title)}{f' (visit {step.visit})' if step.visit > 1 else ''}\n"
        f"  {_step_line(step, view.run)}"
    )
    has_details = step.seq and last
    made = [one for one in view.calls if (one.step, one.visit) == (step.label, step.visit)]
    plans = [one for one in view.plans if one.step == step.label] if has_details else []
    head += "".join(f"\n  {line}" for line in calls_in_words.brief(made, plans))
    kept = [one for one in view.files if one.step == step.label] if has_details else []
    head += "".join(f"\n  file {one.name}: {display.size_words(one.size)}" for one in kept)
    notes = [*_answers_in_words(view, step.label), *view.notes.get(step.label, [])] if has_details else []
    head += "".join(f"\n  {note}" for note in notes)
    if has_details and (source := view.passed_on.get(step.label)):
        return f"{head}\n  same output as step {source}"
    output = view.outputs.get(step.label)
    if has_details and only_answered(step, output, view.answers.get(step.label, ())):
        return f"{head}\n  its output is this answer"
    if has_details and output is None and (said := view.partial.get(step.label)):
        return f"{head}\n  partial reply before it was cut off:\n\n{said.rstrip()}"
    return f"{head}\n\n{str(output).rstrip()}" if output is not None and has_details else head


def _answers_in_words(view: RunView, label: str) -> Iterator[str]:
    for one in view.answers.get(label, ()):
        yield f"asked: {' '.join(one.question.split())}"
        yield f"answered by {one.giver}: {one.answer}"


def _step_line(step: StepRow, run: RunRow) -> str:
    how = stopped(run, step)
    named = display.step_status_of(step, run)
    words = [how or named + (f": {step.reason}" if step.reason else "")]
    if step.started and step.finished:
        words.append(display.duration(step.totals.seconds or step.finished - step.started))
    if step.totals.calls:
        words += [display.tokens_of(step.totals) + " tokens", display.cost_of(step.totals), step.model]
    if step.finish == "length":
        words.append("cut at the token limit")
    return display.joined(words)


@command(
    "events",
    [
        RUN,
        click.Option(["--follow"], is_flag=True, help="Follow the run until it waits or ends."),
        click.Option(["--after"], metavar="ID", default="0", help="Only show events after this one."),
        options.STORE,
        click.Option(["--json", "as_json"], is_flag=True, help="Print every event as a line of JSON."),
    ],
)
def events_command(given: Given) -> int:
    """Show the events of a run, and follow it.

    With --json, each line also has the name of the event in the playbook's format, as `type`, if the format names its
    events. If the format has several events for one Cuebook event, the others follow on separate lines.
    """
    if not _EVENT_ID.fullmatch(given["after"]):
        raise BadInput(
            f"--after: '{given['after']}' is not an event id.", fix="`cuebook events RUN` shows the id of each event."
        )

    async def look(service: Service) -> int:
        row = await service.get(given["run"])
        seen = int(given["after"].partition(".")[0])
        before = [entry async for entry in service.entries(row.id) if entry.seq <= seen] if seen else []
        published = views.Published(await session.playbook_of(service, row), row.id, before)
        async for event in service.events(row.id, given["after"], follow=given["follow"]):
            lines = published.objects_of(event)
            if given["as_json"]:
                sys.stdout.writelines(views.json_line(line) for line in lines)
            else:
                say(_event_line(event, lines[0]))
            sys.stdout.flush()
        return 0

    return session.look(given, look)


def _event_line(event: views.Seen, shown: dict[str, Any]) -> str:
    step = event.place.step if isinstance(event, Entry) else event.step
    at = f"{display.clock(event.at):<12}" if isinstance(event, Entry) else " " * 12
    data = ", ".join(_fields(shown["data"]))
    return f"{shown['id']:>6}  {at}  {step:<4} {shown['event']:<14} {data}".rstrip()


def _fields(data: dict[str, Any], before: str = "") -> Iterator[str]:
    """The fields of an event as `name=value`; nested ones have their full name, as in `outcome.text=...`."""
    for name, value in data.items():
        if value in ("", None, {}, []):
            continue
        if isinstance(value, dict):
            yield from _fields(value, f"{before}{name}.")
        else:
            text = value if isinstance(value, str) else views.json_text(value)
            yield f"{before}{name}={display.short(text)}"


@command(
    "inbox",
    [
        click.Argument(["wait"], required=False, shell_complete=completion.waits()),
        options.STORE,
        options.AS_JSON,
    ],
)
def inbox_command(given: Given) -> int:
    """List everything that needs someone's attention, or show one WAIT in full.

    The list includes interrupted runs, which `cuebook resume` continues.
    """
    if given["wait"]:
        return session.look(given, lambda service: _one_wait(service, given))
    if not session.wiring_of(given).has_store():
        return _nothing(given, f"Nothing is waiting. {session.NO_RUNS}")

    async def look(service: Service) -> int:
        left = await service.interrupted()
        late = {row.id for row in left}
        waits = [one for one in await service.inbox() if one.run not in late or not _is_over(one)]
        names = {run: (await service.get(run)).name for run in dict.fromkeys(wait.run for wait in waits)}
        if given["as_json"]:
            resumes = [
                run_objects.interrupted_object(row, next_steps.what_next(row, [], interrupted=True)) for row in left
            ]
            sys.stdout.write(
                views.json_line(
                    [*({**run_objects.wait_object(wait), "playbook": names[wait.run]} for wait in waits), *resumes]
                )
            )
            return 0
        if not waits and not left:
            return _nothing(given, "Nothing is waiting.")
        lines = [("WAIT", "RUN", "PLAYBOOK", "SINCE", "EXPIRES", "KIND", "STEP", "PROMPT")]
        for wait in waits:
            since, expires = display.moment(wait.opened), "-" if wait.expires is None else display.moment(wait.expires)
            votes = votes_words(wait.details, wait.answer)
            words = f"{votes}; {wait.prompt}" if votes else wait.prompt
            kind, step, prompt = wait.kind.replace("_", " "), step_at(wait.place), display.short(words)
            lines.append((wait.id, wait.run, names[wait.run], since, expires, kind, step, prompt))
        for row in left:
            resume = f"`{next_steps.what_next(row, [], interrupted=True)}` continues it"
            lines.append(
                ("-", row.id, row.name, display.moment(row.updated), "-", run_objects.INTERRUPTED, row.step, resume)
            )
        print_table(lines)
        return 0

    return session.look(given, look)


def _is_over(wait: WaitRow) -> bool:
    return wait.expires is not None and wait.expires <= time.time()


async def _one_wait(service: Service, given: Given) -> int:
    wait = service.in_full(await session.wait_of(service, given["wait"], "approval"))
    if given["as_json"]:
        sys.stdout.write(views.json_line(run_objects.wait_object(wait)))
    elif wait.kind == "approval":
        say("\n".join(next_steps.approval_lines(wait)))
    else:
        row = await service.get(wait.run)
        say(f"{wait.id}, run {wait.run}, step {step_at(wait.place) or '-'}\n{wait.prompt}")
        for line in display.preview_lines(wait.details.get("preview", {})):
            say(line)
        for name, words in (
            ("answers", display.choices_of(wait)),
            ("until", display.moment(wait.expires) if wait.expires is not None else ""),
            *next_steps.hints(row, [wait]),
            ("next", next_steps.what_next(row, [wait])),
        ):
            if words:
                say(f"{name + ':':<12}{words}")
    return 0


@command("replay", [RUN, options.STORE, options.AS_JSON])
def replay_command(given: Given) -> int:
    """Replay a run from its journal without performing anything.

    It shows whether this version of Cuebook still interprets the run in the same way.
    """

    async def look(service: Service) -> int:
        row = await service.get(given["run"])
        shown = await service.replay(row.id)
        if given["as_json"]:
            failed = None if shown.failed is None else str(shown.failed)
            found = {"run": row.id, "complete": shown.complete, "effects": shown.effects, "failed": failed}
            sys.stdout.write(views.json_line({**found, "result": shown.result}))
            return 0
        end = "its end" if shown.complete else "where its journal ends"
        words = f"{display.counted(shown.effects, 'outcome')} from the journal, up to {end}; nothing was performed."
        say(f"run {row.id}: {words}")
        if shown.failed is not None:
            say(f"it fails as before: {shown.failed}")
        return 0

    return session.look(given, look)


async def _status_of(service: Service, row: RunRow, *, interrupted: bool) -> str:
    """The status of a run. Where workers share the store, one that was answered waits for the next worker."""
    if interrupted or row.status not in WAITING or not service.is_shared:
        return display.status_of(row, interrupted=interrupted)
    return display.status_of(row, await service.waits(row.id), waits_for=await waits_for(service, row.id))


def _row_object(row: RunRow, interrupted: bool) -> dict[str, Any]:
    return {
        **run_objects.row_object(row, interrupted=interrupted),
        "steps": run_objects.steps_object(row)["steps_total"],
        **run_objects.steps_object(row),
        "tokens": row.totals.tokens,
        "cost": run_objects.known_cost(row.totals),
    }
