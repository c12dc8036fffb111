"""Commands that look and change nothing: runs, show, events, inbox, verify, replay."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from cuebook.dialects.program import PROGRAM
from cuebook.dialects.registry import Exporting, Tracing
from cuebook.kernel.errors import BadInput
from cuebook.kernel.events import RunStatus
from cuebook.kernel.expiry import settle
from cuebook.kernel.journal import Entry, step_at
from cuebook.kernel.run import RunRow, StepRow, WaitRow, stopped
from cuebook.service import RunView, Service
from cuebook.surfaces import wording
from cuebook.surfaces.cli import completion, live, onward, options, session
from cuebook.surfaces.cli.continuing import RUN
from cuebook.surfaces.cli.options import Given, command
from cuebook.surfaces.cli.plain import complain, hand_over, in_json, say
from cuebook.views import only_answered

if TYPE_CHECKING:
    from cuebook.dialects.program.observe import Projection

_EVENT_ID = re.compile(r"\d{1,9}(\.\d{1,9})?", re.ASCII)


def _looking(given: Given, look: Callable[[Service], Awaitable[int]]) -> int:
    async def work() -> int:
        async with session.opened(session.wiring_of(given)) as service:
            await settle(service.engine)
            return await look(service)

    return session.perform(work())


def _nothing(given: Given, words: str) -> int:
    say("[]" if given["as_json"] else words)
    return 0


@command(
    "runs",
    [
        click.Option(["--status"], metavar="STATUS", multiple=True, help="Only those in this state; repeatable."),
        click.Option(["--limit"], type=click.IntRange(1, 10_000), default=20, show_default=True, help="At most."),
        options.STORE,
        options.AS_JSON,
    ],
)
def runs_command(given: Given) -> int:
    """List runs, newest first.

    STATUS is pending, running, paused, awaiting_input, awaiting_approval, completed, failed, cancelled, expired or
    interrupted: that is a run that would go on if a process drove it, whatever else it is called.
    """
    wanted = [one.replace(" ", "_") for one in given["status"]]
    known = (*get_args(RunStatus), wording.INTERRUPTED)
    for one in wanted:
        if one not in known:
            close = get_close_matches(one, known, n=1)
            hint = f"Did you mean {close[0]}? " if close else ""
            raise BadInput(f"--status: no run is ever '{one}'.", fix=f"{hint}There are: {', '.join(known)}.")
    if not session.wiring_of(given).has_store():
        return _nothing(given, f"{session.no_runs(session.wiring_of(given))} {session.HOW_TO_START}")

    async def look(service: Service) -> int:
        left = {row.id for row in await service.interrupted()}
        among = left if wording.INTERRUPTED in wanted else None
        rows = await service.runs(status=wanted, among=among, limit=given["limit"] + 1)
        more = len(rows) > given["limit"]
        rows = rows[: given["limit"]]
        if not rows and not given["as_json"]:
            return _nothing(given, "There are no such runs." if given["status"] else session.NO_RUNS)
        if given["as_json"]:
            sys.stdout.write(live.json_line([_row_object(row, row.id in left) for row in rows]))
            return 0
        lines = [("RUN", "STARTED", "STATUS", "STEPS", "TOKENS", "COST", "PLAYBOOK")]
        for row in rows:
            totals = row.totals
            status = wording.status_of(row, interrupted=row.id in left)
            steps = wording.steps_of(row)
            cost = wording.cost_of(totals)
            lines.append((row.id, wording.moment(row.created), status, steps, f"{totals.tokens:,}", cost, row.name))
        _print_table(lines)
        if more:
            complain(f"These are the newest {len(rows)}; --limit shows more.")
        return 0

    return _looking(given, look)


@command(
    "show",
    [
        RUN,
        click.Option(["--output"], is_flag=True, help="Print the last output and nothing else."),
        click.Option(["--state"], is_flag=True, help="Print the state as the playbook's format has it, as JSON."),
        click.Option(["--trace"], is_flag=True, help="Print the trace and the results, as JSON."),
        click.Option(["--sent"], metavar="STEP", help="Print everything that a model was sent at this step."),
        options.STORE,
        options.AS_JSON,
    ],
)
def show_command(given: Given) -> int:
    """Show a run: its steps, outputs and what it waits for.

    With --state, it is what the format of Markdown playbooks calls the execution state, whatever the run's status; with
    --trace, what the format of workflow graphs calls the execution trace: each visit and attempt of a node, the edges
    that were followed and why, and the sources. Of a program, shown are what was said, the listing with the line it stands
    at, the stack and the variables; with --trace, all of that and every line it went through.
    """
    if sum(bool(given[name]) for name in ("output", "state", "trace", "sent")) > 1:
        raise BadInput("--output, --state, --trace and --sent do not go together.", fix="Give one of them.")

    async def look(service: Service) -> int:
        row = await service.get(given["run"])
        if given["sent"]:
            pieces = await service.sent(row.id, given["sent"])
            if given["as_json"]:
                sys.stdout.write(live.json_line([{"role": one.role, "text": one.text} for one in pieces]))
            else:
                say("\n\n".join(f"{one.role}:\n\n{one.text}" for one in pieces))
            return 0
        if given["state"] or given["trace"]:
            told = await (_state if given["state"] else _trace)(service, row)
            text = msgspec.json.format(msgspec.json.encode(told, enc_hook=str), indent=2)
            sys.stdout.write(in_json(text.decode()) + "\n")
            return 0
        view, interrupted = await service.view(row.id), await service.is_interrupted(row.id)
        output = wording.final_output(view)
        program = None if given["output"] else await _program(service, row)
        if given["as_json"]:
            told = {"program": program.plain()} if program is not None else {}
            sys.stdout.write(live.json_line({**onward.as_object(view, interrupted=interrupted), **told}))
        elif given["output"]:
            hand_over(f"{output}\n" if output is not None else "")
        else:
            say(_in_words(view, await session.title_of(service, row), program, interrupted=interrupted))
        return 0

    return _looking(given, look)


async def _program(service: Service, row: RunRow) -> Projection | None:
    """What a program's run has come to; None for a run of anything else."""
    if row.dialect != PROGRAM.name:
        return None
    from cuebook.dialects.program.observe import seen

    source = await session.source_of(service, row)
    entries = [entry async for entry in service.engine.entries(row.id)]
    return seen(entries, source.document if source is not None else None)


async def _state(service: Service, row: RunRow) -> dict[str, Any]:
    source = await session.source_of(service, row)
    if source is None or not isinstance(source.dialect, Exporting):
        raise BadInput(
            f"Run {row.id} has no state to export: its dialect, {row.dialect}, does not say what one looks like.",
            fix=f"`cuebook show {row.id} --json` shows it.",
        )
    return source.dialect.state(
        row,
        source.document,
        [entry async for entry in service.engine.entries(row.id)],
        await service.store.waits(run=row.id),
        await service.store.playbook(row.playbook),
        await session.settings_of(service, row.id),
    )


async def _trace(service: Service, row: RunRow) -> dict[str, Any]:
    source = await session.source_of(service, row)
    if source is None or not isinstance(source.dialect, Tracing):
        raise BadInput(
            f"Run {row.id} has no trace: its dialect, {row.dialect}, does not say what one looks like.",
            fix=f"`cuebook events {row.id}` shows what happened.",
        )
    entries = [entry async for entry in service.engine.entries(row.id)]
    return {"run": row.id, "status": row.status, **source.dialect.trace(source.document, entries)}


def _in_words(view: RunView, title: str, program: Projection | None, *, interrupted: bool) -> str:
    row = view.run
    parts = [f"{title}\n{row.name}, started {wording.moment(row.created)}"]
    if row.parent:
        parts.append(f"forked from run {row.parent}")
    if view.notes.get(""):
        parts.append("\n".join(view.notes[""]))
    if program is not None:
        from cuebook.surfaces.cli import talking

        parts += talking.in_words(program)
        closing = talking.summary_of(view, program, sits=sys.stdin.isatty() and sys.stdout.isatty())
    else:
        parts += _steps_in_words(view)
        closing = live.summary(view)
    next = [words for words in closing[1:] if words[0] in ("next", "or")]
    lines = [
        ("status", wording.status_of(row, view.waits, interrupted=interrupted)), *closing[1 : -max(1, len(next))]
    ]  # fmt: skip
    if interrupted:
        lines += [("because", wording.interrupted_words(row)), ("next", onward.what_next(row, [], interrupted=True))]
    elif row.status != "completed":
        lines += next if program is not None else [("next", onward.what_next(row, view.waits)), *next[1:]]
    parts.append("\n".join(f"{name + ':':<12}{words}" for name, words in lines if words))
    return "\n\n".join(parts)


def _steps_in_words(view: RunView) -> Iterator[str]:
    last = {step.label: number for number, step in enumerate(view.steps)}
    for number, step in enumerate(view.steps):
        head = (
            f"step {live.named(step.label, step.title)}{f' (visit {step.visit})' if step.visit > 1 else ''}\n"
            f"  {_step_line(step, view.run)}"
        )
        told = step.seq and last[step.label] == number  # what is known of a step is known of its last visit
        notes = [*_answers_in_words(view, step.label), *view.notes.get(step.label, [])] if told else []
        head += "".join(f"\n  {note}" for note in notes)
        if told and (source := view.passed_on.get(step.label)):
            yield f"{head}\n  its output is that of step {source}"
            continue
        output = view.outputs.get(step.label)
        if told and only_answered(step, output, view.answers.get(step.label, ())):
            yield f"{head}\n  its output is this answer"
            continue
        if told and output is None and (said := view.partial.get(step.label)):
            yield f"{head}\n  said before it was cut short:\n\n{said.rstrip()}"
            continue
        yield f"{head}\n\n{str(output).rstrip()}" if output is not None and told else head


def _answers_in_words(view: RunView, label: str) -> Iterator[str]:
    for one in view.answers.get(label, ()):
        yield f"asked: {' '.join(one.question.split())}"
        yield f"answered by {one.giver}: {one.answer}"


def _step_line(step: StepRow, run: RunRow) -> str:
    how = stopped(run, step)
    words = [how or step.status.replace("_", " ") + (f": {step.reason}" if step.reason else "")]
    if step.started and step.finished:
        words.append(wording.duration(step.totals.seconds or step.finished - step.started))
    if step.totals.calls:
        words += [wording.tokens_of(step.totals) + " tokens", wording.cost_of(step.totals), step.model]
    if step.finish == "length":
        words.append("cut at the token limit")
    return wording.joined(words)


@command(
    "events",
    [
        RUN,
        click.Option(["--follow"], is_flag=True, help="Go on until the run waits or ends."),
        click.Option(["--after"], metavar="ID", default="0", help="Only what came after this event."),
        options.STORE,
        click.Option(["--json", "as_json"], is_flag=True, help="Print every event as a line of JSON."),
    ],
)
def events_command(given: Given) -> int:
    """Show what happened in a run, and what happens.

    With --json, a line also has what the playbook's format calls the event, as its `type`: of a Markdown playbook these
    are `content`, `done` and `error`, and `reset` for a reply that begins again, of a workflow graph `workflow:start` to
    `workflow:end`. Where the format has several events for one of ours, the others follow on lines of their own.
    """
    if not _EVENT_ID.fullmatch(given["after"]):
        raise BadInput(f"--after: '{given['after']}' is no event id.", fix="Give one as `cuebook events` shows it.")

    async def look(service: Service) -> int:
        row = await service.get(given["run"])
        seen = int(given["after"].partition(".")[0])
        before = [entry async for entry in service.engine.entries(row.id) if entry.seq <= seen] if seen else []
        published = live.Published(await session.source_of(service, row), row.id, before)
        async for event in service.events(row.id, given["after"], follow=given["follow"]):
            lines = published.objects_of(event)
            if given["as_json"]:
                sys.stdout.writelines(live.json_line(line) for line in lines)
            else:
                say(_event_line(event, lines[0]))
            sys.stdout.flush()
        return 0

    return _looking(given, look)


def _event_line(event: live.Seen, shown: dict[str, Any]) -> str:
    step = event.place.step if isinstance(event, Entry) else event.step
    at = f"{wording.clock(event.at):<12}" if isinstance(event, Entry) else " " * 12
    data = ", ".join(_told(shown["data"]))
    return f"{shown['id']:>6}  {at}  {step:<4} {shown['event']:<14} {data}"[:200].rstrip()


def _told(data: dict[str, Any], before: str = "") -> Iterator[str]:
    """What an event holds, name by name; what is nested by its whole name, as in `outcome.text=...`."""
    for name, value in data.items():
        if value in ("", None, {}, []):
            continue
        if isinstance(value, dict):
            yield from _told(value, f"{before}{name}.")
        else:
            text = value if isinstance(value, str) else live.json_text(value)
            yield f"{before}{name}={wording.short(text)}"


@command(
    "inbox",
    [
        click.Argument(["wait"], required=False, shell_complete=completion.waits()),
        options.STORE,
        options.AS_JSON,
    ],
)
def inbox_command(given: Given) -> int:
    """List everything that waits for a person, or show one WAIT in full.

    Runs that were interrupted are listed too: they go on when somebody resumes them.
    """
    if given["wait"]:
        return _looking(given, lambda service: _one_wait(service, given))
    if not session.wiring_of(given).has_store():
        return _nothing(given, f"Nothing waits. {session.NO_RUNS}")

    async def look(service: Service) -> int:
        left = await service.interrupted()
        late = {row.id for row in left}
        waits = [one for one in await service.inbox() if one.run not in late or not _is_over(one)]
        names = {run: (await service.get(run)).name for run in dict.fromkeys(wait.run for wait in waits)}
        if given["as_json"]:
            resumes = [wording.interrupted_object(row, onward.what_next(row, [], interrupted=True)) for row in left]
            sys.stdout.write(
                live.json_line(
                    [*({**wording.wait_object(wait), "playbook": names[wait.run]} for wait in waits), *resumes]
                )
            )
            return 0
        if not waits and not left:
            return _nothing(given, "Nothing waits.")
        lines = [("WAIT", "RUN", "PLAYBOOK", "SINCE", "EXPIRES", "KIND", "STEP", "PROMPT")]
        for wait in waits:
            since, expires = wording.moment(wait.opened), "-" if wait.expires is None else wording.moment(wait.expires)
            kind, step, prompt = wait.kind.replace("_", " "), step_at(wait.place), wording.short(wait.prompt)
            lines.append((wait.id, wait.run, names[wait.run], since, expires, kind, step, prompt))
        for row in left:
            resume = f"`{onward.what_next(row, [], interrupted=True)}` goes on"
            lines.append(
                ("-", row.id, row.name, wording.moment(row.updated), "-", wording.INTERRUPTED, row.step, resume)
            )
        _print_table(lines)
        return 0

    return _looking(given, look)


def _is_over(wait: WaitRow) -> bool:
    return wait.expires is not None and wait.expires <= time.time()


async def _one_wait(service: Service, given: Given) -> int:
    wait = service.in_full(await session.wait_of(service, given["wait"], "approval"))
    if given["as_json"]:
        sys.stdout.write(live.json_line(wording.wait_object(wait)))
    elif wait.kind == "approval":
        say("\n".join(onward.approval_lines(wait)))
    else:
        row = await service.get(wait.run)
        say(f"{wait.id}, run {wait.run}, step {step_at(wait.place) or '-'}\n{wait.prompt}")
        for line in wording.preview_lines(wait.details.get("preview", {})):
            say(line)
        for name, words in (
            ("answers", wording.choices_of(wait)),
            ("until", wording.moment(wait.expires) if wait.expires is not None else ""),
            *onward.besides(row, [wait]),
            ("next", onward.what_next(row, [wait])),
        ):
            if words:
                say(f"{name + ':':<12}{words}")
    return 0


@command("verify", [RUN, options.STORE, options.AS_JSON])
def verify_command(given: Given) -> int:
    """Check that a run's journal was not changed, and that it says what is shown of the run.

    Prints the head of the chain: keep it elsewhere, and a rewrite of the whole journal shows too. Exit code 1 means
    that the journal is broken, or that the status, a step or a wait of the run is not what the journal says.
    """

    async def look(service: Service) -> int:
        row = await service.get(given["run"])
        verdict = await service.verify(row.id)
        broken = verdict.broken_at is not None
        if given["as_json"]:
            sys.stdout.write(live.json_line({"run": row.id, **msgspec.to_builtins(verdict)}))
        elif broken:
            complain(f"cuebook: run {row.id} is broken at record {verdict.broken_at}: {verdict.problem}.")
        else:
            say(f"run {row.id}: {wording.counted(verdict.records, 'record')}, unbroken, head {verdict.head}")
            if verdict.missing:
                say(f"missing: {wording.missing_texts(verdict)}")
        return 1 if broken else 0

    return _looking(given, look)


@command("replay", [RUN, options.STORE, options.AS_JSON])
def replay_command(given: Given) -> int:
    """Go through a run again on its journal alone, performing nothing.

    It tells whether this version of Cuebook would still take the run the way it went.
    """

    async def look(service: Service) -> int:
        row = await service.get(given["run"])
        shown = await service.replay(row.id)
        if given["as_json"]:
            failed = None if shown.failed is None else str(shown.failed)
            found = {"run": row.id, "complete": shown.complete, "effects": shown.effects, "failed": failed}
            sys.stdout.write(live.json_line({**found, "result": shown.result}))
            return 0
        end = "its end" if shown.complete else "where its journal ends"
        words = f"{wording.counted(shown.effects, 'outcome')} from the journal, up to {end}; nothing was performed."
        say(f"run {row.id}: {words}")
        if shown.failed is not None:
            say(f"it fails as it did: {shown.failed}")
        return 0

    return _looking(given, look)


def _row_object(row: RunRow, interrupted: bool) -> dict[str, Any]:
    return {
        **wording.row_object(row, interrupted=interrupted),
        "steps": wording.steps_object(row)["steps_total"],
        **wording.steps_object(row),
        "tokens": row.totals.tokens,
        "cost": wording.known_cost(row.totals),
    }


def _print_table(lines: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        say("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip())
