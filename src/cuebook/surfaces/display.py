"""Text that all surfaces share: amounts, times, statuses, runs and steps, and commands to suggest."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import msgspec

from cuebook.formats import words
from cuebook.formats.forms import Field, fields_of
from cuebook.gate.policy import Override
from cuebook.kernel.capabilities import in_words
from cuebook.kernel.effects import Browse, CallNode, RunCommand, RunPlaybook, SendHttp
from cuebook.kernel.engine.budget import money_words
from cuebook.kernel.engine.waits import NEEDS
from cuebook.kernel.events import FOR_HOST, WaitOpened
from cuebook.kernel.journal import Verdict
from cuebook.kernel.outcomes import CommandResult, HttpResponse, Page
from cuebook.kernel.run import RunRow, StepRow, Totals, WaitRow
from cuebook.service.runs.objects import INTERRUPTED, counts_lines
from cuebook.service.runs.views import RunView

_NAMED = 3
"""The maximum number of digests to list."""


SHORT, counted, short = words.SHORT, words.counted, words.short
money = money_words


def cost_of(totals: Totals) -> str:
    if totals.unknown_costs > 0 and not totals.cost:
        return "unknown"
    if totals.unknown_costs > 0:
        return f"{money(totals.cost)} and {counted(totals.unknown_costs, 'call')} of unknown cost"
    return money(totals.cost)


def steps_of(row: RunRow, unit: str = "") -> str:
    """The progress of a run: steps done, or lines executed if the run has loops and so no total."""
    return f"{row.totals.steps_done:,}" if counts_lines(row) else row.count.words(unit)


def steps_words(row: RunRow) -> str:
    """The progress of a run with its unit, for a sentence."""
    return f"{steps_of(row)} lines run" if counts_lines(row) else steps_of(row, "steps done")


def joined(parts: Sequence[str]) -> str:
    """The parts on one line, separated by commas; all but the last lose their full stop."""
    *others, last = parts
    return ", ".join([*(part.removesuffix(".") for part in others), last])


def missing_texts(verdict: Verdict) -> str:
    """The missing texts that a journal refers to; empty if there are none."""
    missing = verdict.missing
    if not missing:
        return ""
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    names = ", ".join(digest[:12] for digest in missing[:_NAMED])
    return f"{counted(len(missing), 'referenced text')}, purged or removed (sha256 {names}{more})"


def tokens_of(totals: Totals) -> str:
    parts = [f"{totals.input:,} in", f"{totals.output:,} out"]
    if totals.cached:
        parts.append(f"{totals.cached:,} cached")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    parts = [(hours, "h"), (minutes, "min"), (0 if hours else rest, "s")]
    return " ".join(f"{amount} {unit}" for amount, unit in parts if amount)


def moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def clock(at: float) -> str:
    """The time of day, to the millisecond."""
    return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at % 1 * 1000):03d}"


FOR_ASSISTANT = "waiting for the assistant"
"""The status of a run that waits for an assistant to do a step."""


_DECIDED = {"awaiting_input": "answered", "awaiting_approval": "decided", "paused": "resumed"}
"""The status of a run whose wait is over, but which no process has continued yet."""


def is_decided(row: RunRow, waits: Iterable[WaitRow], waits_for: str) -> bool:
    """Whether a run was answered, decided or resumed, and now waits for a worker. Its journal does not say so yet."""
    return bool(waits_for) and row.status in _DECIDED and row.reason != NEEDS and not list(waits)


def status_of(row: RunRow, waits: Iterable[WaitRow] = (), *, interrupted: bool = False, waits_for: str = "") -> str:
    """The status of a run for people. The journal of an interrupted run still says `running`, or that the run is
    waiting for an approval that has since been given. `waits_for` says why a run that has work to do does not continue.
    """
    if interrupted:
        return INTERRUPTED
    if is_decided(row, waits, waits_for):
        return _DECIDED[row.status]
    if row.status == "awaiting_approval" and in_doubt(waits):
        return "in doubt"
    if row.status == "awaiting_input" and row.reason == FOR_HOST:
        return FOR_ASSISTANT
    if row.status == "paused" and row.reason == NEEDS:
        return f"waits for {in_words(row.needs)}"
    if row.status == "paused" and row.reason:
        return f"paused ({row.reason})"
    return row.status.replace("_", " ")


def step_status_of(step: StepRow, run: RunRow) -> str:
    """The status of a step for people."""
    waits = step.status == "awaiting_input" and run.reason == FOR_HOST
    return FOR_ASSISTANT if waits else step.status.replace("_", " ")


def in_doubt(waits: Iterable[WaitRow]) -> bool:
    """Whether a run is waiting for a decision about an effect in doubt rather than for an approval."""
    kinds = {wait.kind for wait in waits}
    return "in_doubt" in kinds and "approval" not in kinds


def choices_of(wait: WaitRow) -> str:
    """The possible answers to a question, for people; empty if any text will do."""
    options = wait.options if wait.type == "select" else ("yes", "no") if wait.type == "confirm" else ()
    parts = [", ".join(options)] if options else []
    parts += [f"JSON with {', '.join(_field_words(one) for one in fields_of(wait.details.get('schema')))}"] * (
        wait.type == "form" and bool(fields_of(wait.details.get("schema")))
    )
    parts += [f"default {wait.default!r}"] if wait.default is not None else []
    return "; ".join(parts)


def _field_words(field: Field) -> str:
    """A field of a form, in words."""
    kind = "|".join(field.options) if field.options else field.kind
    limits = f" {field.range_words}" if field.range_words else ""
    return f"{field.name or 'value'} ({kind}{limits}{'' if field.required else ', optional'})"


def asked_again(details: Mapping[str, Any]) -> str:
    """Why an approval is asked for again; empty if nothing changed."""
    names = details.get("changed")
    return f"changed since it was approved: {', '.join(names)}" if names else ""


def preview_lines(preview: Mapping[str, str]) -> list[str]:
    """The preview of an action, each part below its name."""
    lines: list[str] = []
    for name, text in preview.items():
        lines += [f"{name}:", *(f"  | {line}" for line in str(text).split("\n"))]
    return lines


def patterns_words(patterns: Iterable[tuple[str, str]]) -> str:
    """What overrides would allow, in one line, each pattern exactly as it would be stored."""
    return ", ".join(f"{domain} {shlex.quote(pattern)}" for domain, pattern in patterns)


def override_words(one: Override, now: float | None = None) -> str:
    """One approval in advance, and its state."""
    state = "" if now is None else f"until {moment(one.expires)}" if one.expires is not None else "until it is revoked"
    if one.revoked:
        by = f" by {one.revoked_by}" if one.revoked_by else ""
        state = f"revoked{by}{f', {moment(one.revoked_at)}' if one.revoked_at is not None else ''}"
    elif now is not None and not one.holds(now):
        state = "expired"
    words = f"{one.domain} {shlex.quote(one.pattern)} (by {one.by}, {moment(one.created)})"
    return f"{words}, {state}" if state else words


def incomplete_of(view: RunView) -> str:
    """The steps whose output is incomplete."""
    steps = ", ".join(sorted(view.incomplete))
    return f"the output of step{'s' if len(view.incomplete) > 1 else ''} {steps}"


def command_line(words: str) -> str:
    """A command to suggest: with `--store`, if this call was given one, so that it reaches the same runs."""
    context = click.get_current_context(silent=True)
    store = context.params.get("store") if context is not None else None
    return f"cuebook {words} --store {shlex.quote(store)}" if store else f"cuebook {words}"


# --- steps ---

_LINES = 3
"""The number of output lines to show while a run is watched."""
_WIDE = 100
"""The maximum length of such a line."""
_PREVIEWED = 8
"""The number of lines to show of each part of a preview; `cuebook inbox WAIT` shows all of them."""


def action_line(effect: Any) -> str:
    """One line about a command or request that is about to start; empty for other effects."""
    match effect:
        case RunCommand(argv=argv):
            return f"runs {_cut(shlex.join(argv))}"
        case SendHttp(method=method, url=url):
            return f"sends {method.upper()} {_cut(url)}"
        case Browse(action=action, arguments=arguments):
            return f"in the browser: {_cut(browsing_words(action, arguments))}"
        case CallNode(node=node, capability=capability, action=action, arguments=arguments):
            return f"on {f'node {node}' if node else 'a node'}: {_cut(node_words(capability, action, arguments))}"
        case RunPlaybook(playbook=playbook):
            return f"runs the playbook {_cut(playbook)}"
        case _:
            return ""


def browsing_words(action: str, arguments: Mapping[str, Any]) -> str:
    """A command to the browser, with what it is about."""
    target = arguments.get("url") or arguments.get("selector") or ""
    return f"{action} {target}".rstrip()


def node_words(capability: str, action: str, arguments: Mapping[str, Any]) -> str:
    """An action of a node, with its arguments."""
    given = " ".join(
        f"{name}={value}" if isinstance(value, str) else f"{name}:={msgspec.json.encode(value).decode()}"
        for name, value in arguments.items()
    )
    return f"{capability} {action} {given}".rstrip()


def outcome_lines(outcome: Any) -> list[str]:
    """The result of a command or request, with a few lines of its output: the first ones, or the last after a failure."""
    match outcome:
        case CommandResult(exit_code=code, signal=signal):
            ended = f"killed by {signal}" if signal else f"exit code {code}"
            wrong = bool(code)
            text = str(outcome.stderr) if wrong and len(outcome.stderr) else str(outcome.stdout)
            cut = outcome.truncated
        case HttpResponse(status=status, truncated=cut):
            ended, wrong, text = f"status {status}", status >= 400, str(outcome.body)
        case Page(url=url, status=answered, truncated=cut):
            ended, wrong = f"{f'status {answered}, ' if answered else ''}at {_cut(url)}", (answered or 0) >= 400
            text = str(outcome.text)
        case _:
            return []
    lines = _lines(text)
    count = f", {counted(len(lines), 'line')}{' (cut at the limit)' if cut else ''}" if lines else ", no output"
    shown = lines[-_LINES:] if wrong else lines[:_LINES]
    left = len(lines) - len(shown)
    dots = ["| …"] if left else []
    quoted = [f"| {_cut(line)}" for line in shown]
    return [f"{ended}{count}", *(dots if wrong else []), *quoted, *([] if wrong else dots)]


def purge_lines(verdict: Verdict) -> list[str]:
    """What was purged from a journal, when and by whom."""
    return [
        f"purged: records {one.first} to {one.last}, on {moment(one.at)} by {one.by}"
        + (f" ({one.reason})" if one.reason else "")
        for one in verdict.purges
    ]


def size_words(size: int) -> str:
    """A number of bytes, for people."""
    for unit, least in (("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)):
        if size >= least:
            return f"{size / least:.1f} {unit}"
    return counted(size, "byte")


def output_lines(output: str) -> list[str]:
    """The first lines of a step's output."""
    lines = _lines(output)
    return [*(f"| {_cut(line)}" for line in lines[:_LINES]), *(["| …"] if len(lines) > _LINES else [])]


def _lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n") if text.strip() else []


def asked_lines(event: WaitOpened) -> list[str]:
    """A question with its preview. The preview is shortened, except for an effect in doubt."""
    preview = event.details.get("preview", {})
    if event.kind == "in_doubt":
        return [event.prompt, *preview_lines(preview)]
    lines = [event.prompt]
    if again := asked_again(event.details):
        lines.append(f"asked again: {again}")
    for name, text in preview.items() if event.kind == "approval" else ():
        parts = str(text).rstrip("\n").split("\n")
        lines.append(f"{name}:")
        lines += [f"| {_cut(line)}" for line in parts[:_PREVIEWED]]
        lines += ["| …"] if len(parts) > _PREVIEWED else []
    return lines


def _cut(line: str) -> str:
    line = line.replace("\t", "    ").rstrip("\r")
    return line if len(line) <= _WIDE else f"{line[: _WIDE - 1]}…"
