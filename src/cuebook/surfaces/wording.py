"""How runs are put into words and into plain values, for every surface: amounts, times, statuses, runs and waits."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cuebook.kernel.budgets import money_words
from cuebook.kernel.context import Text
from cuebook.kernel.events import ENDED, WAITING, ArtifactMade
from cuebook.kernel.journal import Verdict, step_at
from cuebook.kernel.run import RunRow, StepRow, Totals, WaitRow, stopped
from cuebook.service import RunView
from cuebook.views import ARTIFACT_FILES, Answered

SHORT = 60
"""Characters that are shown where there is room for a line."""

_NAMED = 3
"""Digests that are named where there may be many."""


def short(value: Any) -> str:
    """The beginning of a text, on one line."""
    text = " ".join(str(value).split())
    return text if len(text) <= SHORT else text[: SHORT - 1] + "…"


money = money_words


def cost_of(totals: Totals) -> str:
    if totals.unknown_costs > 0 and not totals.cost:
        return "unknown"
    if totals.unknown_costs > 0:
        return f"{money(totals.cost)} and {counted(totals.unknown_costs, 'call')} of unknown cost"
    return money(totals.cost)


def known_cost(totals: Totals) -> float | None:
    """What is known to have been spent; none where nothing is."""
    return None if totals.unknown_costs > 0 and not totals.cost else totals.cost


def counted(number: int, word: str) -> str:
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def steps_of(row: RunRow, unit: str = "") -> str:
    """How far a run is. A program goes in loops and comes to no number of lines: there it is how many were run."""
    return f"{row.totals.steps_done:,}" if row.dialect == "program" else row.count.words(unit)


def steps_words(row: RunRow) -> str:
    """The same in a sentence."""
    return f"{steps_of(row)} lines run" if row.dialect == "program" else steps_of(row, "steps done")


def steps_object(row: RunRow) -> dict[str, int]:
    """The same in figures."""
    count = row.count
    if row.dialect == "program":
        lines = row.totals.steps_done
        return {"steps_done": lines, "steps_total": max(row.totals.steps, lines), "steps_skipped": 0, "steps_failed": 0}
    names = ("steps_done", "steps_total", "steps_skipped", "steps_failed")
    return dict(zip(names, (count.done, count.total, count.skipped, count.failed), strict=True))


def joined(parts: Sequence[str]) -> str:
    """On one line, with commas: a sentence among them does not end before one."""
    *others, last = parts
    return ", ".join([*(part.removesuffix(".") for part in others), last])


def missing_texts(verdict: Verdict) -> str:
    """The texts that a journal leads to and that are gone; empty where there are none."""
    missing = verdict.missing
    if not missing:
        return ""
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    names = ", ".join(digest[:12] for digest in missing[:_NAMED])
    return f"{counted(len(missing), 'text')} that it refers to, purged or taken away (sha256 {names}{more})"


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
    """The time of a day, to the millisecond."""
    return f"{time.strftime('%H:%M:%S', time.localtime(at))}.{int(at % 1 * 1000):03d}"


INTERRUPTED = "interrupted"
"""The status of a run that would go on if a process drove it, whatever its journal says."""


def status_of(row: RunRow, waits: Iterable[WaitRow] = (), *, interrupted: bool = False) -> str:
    """A run whose driver is gone is still `running` in its journal, and one that was approved still awaits that."""
    if interrupted:
        return INTERRUPTED
    if row.status == "awaiting_approval" and in_doubt(waits):
        return "in doubt"
    if row.status == "paused" and row.reason:
        return f"paused ({row.reason})"
    return row.status.replace("_", " ")


def in_doubt(waits: Iterable[WaitRow]) -> bool:
    """Whether a run waits because nobody knows whether something happened, and for no approval."""
    kinds = {wait.kind for wait in waits}
    return "in_doubt" in kinds and "approval" not in kinds


def choices_of(wait: WaitRow) -> str:
    """What a question takes, for a person to read; empty where anything will do."""
    options = wait.options if wait.type == "select" else ("yes", "no") if wait.type == "confirm" else ()
    parts = [", ".join(options)] if options else []
    parts += [f"default {wait.default!r}"] if wait.default is not None else []
    return "; ".join(parts)


def asked_again(details: Mapping[str, Any]) -> str:
    """Why somebody is asked again who has approved it before; empty where nothing changed."""
    names = details.get("changed")
    return f"since it was approved, this changed: {', '.join(names)}" if names else ""


def preview_lines(preview: Mapping[str, str]) -> list[str]:
    """What a person is shown, each part below its name."""
    lines: list[str] = []
    for name, text in preview.items():
        lines += [f"{name}:", *(f"  | {line}" for line in str(text).split("\n"))]
    return lines


def final_output(view: RunView) -> Text | None:
    """The artifact, or the last output there is."""
    if view.artifact is not None:
        return view.artifact.content
    return list(view.outputs.values())[-1] if view.outputs else None


def incomplete_of(view: RunView) -> str:
    """Which steps have an output of which not all was kept as it was."""
    steps = ", ".join(sorted(view.incomplete))
    return f"the output of step{'s' if len(view.incomplete) > 1 else ''} {steps}"


def row_object(row: RunRow, *, interrupted: bool = False) -> dict[str, Any]:
    """What every `--json` of a run begins with."""
    return {
        "run": row.id,
        "playbook": row.name,
        "status": row.status,
        "interrupted": interrupted,
        "reason": row.reason,
        "model": row.model,
        "created": row.created,
        "updated": row.updated,
        "parent": row.parent or None,
    }


def run_object(view: RunView, *, interrupted: bool = False) -> dict[str, Any]:
    """A run with everything about it."""
    row, totals = view.run, view.run.totals
    output = final_output(view)
    return {
        **row_object(row, interrupted=interrupted),
        "steps": [_step_object(step, row) for step in view.steps],
        "outputs": {label: str(text) for label, text in view.outputs.items()},
        "output": str(output) if output is not None else None,
        "artifact": None if view.artifact is None else _artifact_object(view.artifact),
        "values": view.values,
        "partial": view.partial,
        "incomplete": sorted(view.incomplete),
        "answers": {label: [answered_object(one) for one in given] for label, given in view.answers.items()},
        "totals": totals_object(totals),
        "error": None if row.error is None else {"code": row.error.code, "message": str(row.error)},
        "waits": [wait_object(wait) for wait in view.waits],
    }


def artifact_file(type: str) -> tuple[str, str]:
    """How an artifact of a type is kept in a file: the end of its name, and its content type."""
    return ARTIFACT_FILES.get(type, (".txt", "text/plain"))


def _artifact_object(artifact: ArtifactMade) -> dict[str, Any]:
    """What kind of thing the output is, and how it would be kept in a file."""
    suffix, content_type = artifact_file(artifact.type)
    return {"type": artifact.type or None, "suffix": suffix, "content_type": content_type}


def answered_object(one: Answered) -> dict[str, str]:
    return {"question": one.question, "answer": one.answer, "by": one.by}


def wait_object(wait: WaitRow) -> dict[str, Any]:
    told = ("effect", "preview") if wait.kind == "in_doubt" else ()
    return {
        "wait": wait.id,
        "run": wait.run,
        "step": step_at(wait.place),
        "kind": wait.kind,
        "prompt": wait.prompt,
        "type": wait.type,
        "options": list(wait.options),
        "default": wait.default,
        "opened": wait.opened,
        "expires": wait.expires,
        **({"approval": approval_object(wait)} if wait.kind == "approval" else {}),
        **{name: wait.details[name] for name in told if name in wait.details},
    }


def interrupted_object(row: RunRow, next: str) -> dict[str, Any]:
    """A run that somebody has to resume, in the shape of a wait: nothing but the run can be named."""
    return {
        "wait": None,
        "run": row.id,
        "step": row.step,
        "kind": INTERRUPTED,
        "prompt": interrupted_words(row),
        "type": "",
        "options": [],
        "default": None,
        "opened": row.updated,
        "expires": None,
        "next": next,
    }


def interrupted_words(row: RunRow) -> str:
    """Why a run that is interrupted does not go on by itself."""
    if row.status in WAITING:
        return "What it waited for is decided, or its time is over, and no process has taken it up."
    if row.status in ENDED:
        return "A retry was asked for, and no process has taken it up."
    return "No process drives it."


def approval_object(wait: WaitRow) -> dict[str, Any]:
    """What an approver decides about."""
    names = (
        "summary",
        "preview",
        "rules",
        "requester",
        "about",
        "digest",
        "on_expiry",
        "held",
        "suggestions",
        "always",
    )
    return {name: wait.details[name] for name in names if name in wait.details}


def _step_object(step: StepRow, row: RunRow) -> dict[str, Any]:
    return {
        "label": step.label,
        "title": step.title,
        "visit": step.visit,
        "status": step.status,
        "stopped": stopped(row, step) or None,
        "reason": step.reason,
        "started": step.started,
        "finished": step.finished,
        "model": step.model,
        "finish": step.finish,
        "totals": totals_object(step.totals),
    }


def totals_object(totals: Totals) -> dict[str, Any]:
    return {
        "calls": totals.calls,
        "input_tokens": totals.input,
        "output_tokens": totals.output,
        "cached_tokens": totals.cached,
        "reasoning_tokens": totals.reasoning,
        "cost": known_cost(totals),
        "unknown_costs": totals.unknown_costs,
        "seconds": totals.seconds,
    }
