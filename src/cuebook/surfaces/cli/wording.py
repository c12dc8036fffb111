"""How runs are put into words: statuses, amounts, times, what to do next."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Mapping
from typing import Any

import click

from cuebook.decisions import outcome_shape
from cuebook.kernel.context import Text
from cuebook.kernel.events import ArtifactMade
from cuebook.kernel.run import RunRow, StepRow, Totals, WaitRow
from cuebook.service import RunView
from cuebook.views import ARTIFACT_FILES

_SHORT = 60
"""Characters that are shown where there is room for a line."""

EXIT_CODES = {
    "completed": 0,
    "failed": 1,
    "paused": 3,
    "awaiting_input": 3,
    "awaiting_approval": 3,
    "cancelled": 5,
    "expired": 5,
}


def short(value: Any) -> str:
    """The beginning of a text, on one line."""
    text = " ".join(str(value).split())
    return text if len(text) <= _SHORT else text[: _SHORT - 1] + "…"


def exit_code(row: RunRow) -> int:
    if row.status == "paused" and row.reason == "budget":
        return 4
    if row.status == "failed" and row.reason == "forbidden":
        return 5
    return EXIT_CODES.get(row.status, 1)


def money(cost: float) -> str:
    if cost == 0:
        return "$0"
    return f"${cost:.6f}" if cost < 0.01 else f"${cost:.4f}"


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
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def moment(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def status_of(row: RunRow, alive: bool = True, waits: Iterable[WaitRow] = ()) -> str:
    """A run whose driver is gone is `running` in its journal; a person wants to know that nobody is at it."""
    if row.status == "awaiting_approval" and in_doubt(waits):
        return "in doubt"
    if row.status in ("running", "pending") and not alive:
        return "interrupted"
    if row.status == "paused" and row.reason:
        return f"paused ({row.reason})"
    return row.status.replace("_", " ")


def in_doubt(waits: Iterable[WaitRow]) -> bool:
    """Whether a run waits because nobody knows whether something happened, and for no approval."""
    kinds = {wait.kind for wait in waits}
    return "in_doubt" in kinds and "approval" not in kinds


def call(words: str) -> str:
    """A command as it reaches the runs that this call is about: in the store that it was given."""
    context = click.get_current_context(silent=True)
    store = context.params.get("store") if context is not None else None
    return f"cuebook {words} --store {shlex.quote(store)}" if store else f"cuebook {words}"


def what_next(row: RunRow, waits: list[WaitRow], alive: bool = False) -> str:
    """The command a person would give now."""
    return call(_next(row, waits, alive).strip())


def _next(row: RunRow, waits: list[WaitRow], alive: bool) -> str:
    match row.status:
        case "completed":
            return f"show {row.id}"
        case "failed" | "expired":
            return f"retry {row.id}"
        case "cancelled":
            return f"show {row.id}"
        case "awaiting_input":
            name, wait = _named(row, waits, "question")
            return f"answer {name} {_answers(wait)}"
        case "awaiting_approval" if any(wait.kind == "approval" for wait in waits):
            return f"decide {_named(row, waits, 'approval')[0]} approve|deny"
        case "awaiting_approval":
            return f"decide {_named(row, waits, 'in_doubt')[0]} repeat|stop"
        case "paused" if row.reason == "budget":
            return f"resume {row.id} {_larger(waits)}"
        case "paused":
            return f"resume {row.id}"
        case _:
            return f"events {row.id} --follow" if alive else f"resume {row.id}"


def besides(row: RunRow, waits: list[WaitRow]) -> list[tuple[str, str]]:
    """What else a person could do now, or should know before they do what comes next: name and words."""
    if row.status == "failed" and row.playbook:
        return [("mended", "a run keeps its playbook; one that you have changed is run anew, by `cuebook run FILE`")]
    lines = []
    for wait in waits:
        name = row.id if sum(one.kind == wait.kind for one in waits) == 1 else wait.id
        if wait.kind == "approval":
            lines.append(("in full", call(f"inbox {name}")))
        if wait.kind == "in_doubt":
            given = "" if "late" in wait.details else f" --outcome {shlex.quote(outcome_shape(wait))}"
            lines.append(("if done", call(f"decide {name} done{given}")))
    return lines


def others(waits: list[WaitRow]) -> list[tuple[str, str]]:
    """How to answer the questions that are open besides the first: name and words."""
    questions = [wait for wait in waits if wait.kind == "question"]
    return [("or", call(f"answer {wait.id} {_answers(wait)}")) for wait in questions[1:]]


def _named(row: RunRow, waits: list[WaitRow], kind: str) -> tuple[str, WaitRow | None]:
    """What a command calls the wait: its run will do where that has only one of its kind."""
    fitting = [wait for wait in waits if wait.kind == kind]
    if not fitting:
        return row.id, None
    return row.id if len(fitting) == 1 else fitting[0].id, fitting[0]


def _answers(wait: WaitRow | None) -> str:
    """What may stand for an answer in a command: the options where there are a few."""
    if wait is not None and wait.type == "confirm":
        return "yes|no"
    # A value that begins with @ is taken for a file's name.
    values = [shlex.quote(f"@{one}" if one.startswith("@") else one) for one in (wait.options if wait else ())]
    listed = "|".join(values)
    return listed if listed and len(listed) <= _SHORT else "VALUE"


def choices_of(wait: WaitRow) -> str:
    """What a question takes, for a person to read; empty where anything will do."""
    options = wait.options if wait.type == "select" else ("yes", "no") if wait.type == "confirm" else ()
    parts = [", ".join(options)] if options else []
    parts += [f"default {wait.default!r}"] if wait.default is not None else []
    return "; ".join(parts)


def _larger(waits: list[WaitRow]) -> str:
    code = next((str(wait.details.get("code")) for wait in waits if wait.kind == "budget"), "")
    return f"--budget-{code} MORE" if code in ("money", "tokens", "seconds", "steps") else ""


def final_output(view: RunView) -> Text | None:
    """The artifact, or the last output there is."""
    if view.artifact is not None:
        return view.artifact.content
    return list(view.outputs.values())[-1] if view.outputs else None


def row_object(row: RunRow) -> dict[str, Any]:
    """What every `--json` of a run begins with."""
    return {
        "run": row.id,
        "playbook": row.name,
        "status": row.status,
        "reason": row.reason,
        "model": row.model,
        "created": row.created,
        "updated": row.updated,
        "parent": row.parent or None,
    }


def as_object(view: RunView, alive: bool = False) -> dict[str, Any]:
    """A run as `--json` prints it."""
    row, totals = view.run, view.run.totals
    output = final_output(view)
    return {
        **row_object(row),
        "steps": [_step_object(step) for step in view.steps],
        "outputs": {label: str(text) for label, text in view.outputs.items()},
        "output": str(output) if output is not None else None,
        "artifact": None if view.artifact is None else _artifact_object(view.artifact),
        "values": view.values,
        "totals": totals_object(totals),
        "error": None if row.error is None else {"code": row.error.code, "message": str(row.error)},
        "waits": [wait_object(wait) for wait in view.waits],
        "next": what_next(row, view.waits, alive),
    }


def _artifact_object(artifact: ArtifactMade) -> dict[str, Any]:
    """What kind of thing the output is, and how it would be kept in a file."""
    suffix, content_type = ARTIFACT_FILES.get(artifact.type, (None, None))
    return {"type": artifact.type or None, "suffix": suffix, "content_type": content_type}


def wait_object(wait: WaitRow) -> dict[str, Any]:
    told = ("effect", "preview") if wait.kind == "in_doubt" else ()
    return {
        "wait": wait.id,
        "run": wait.run,
        "step": wait.place.step,
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


def approval_object(wait: WaitRow) -> dict[str, Any]:
    """What an approver decides about."""
    names = ("summary", "preview", "rules", "requester", "about", "digest", "on_expiry", "held", "suggestions")
    return {name: wait.details[name] for name in names if name in wait.details}


def approval_lines(wait: WaitRow) -> list[str]:
    """An approval in full, as plain text."""
    lines = [f"approval {wait.id}, run {wait.run}, step {wait.place.step or '-'}", wait.prompt, ""]
    lines += [*preview_lines(wait.details.get("preview", {})), ""]
    for name, words in (
        ("asked again", _changed(wait)),
        ("asked because", "; ".join(wait.details.get("rules", []))),
        ("asked by", wait.details.get("requester", "")),
        ("since", moment(wait.opened)),
        ("until", _until(wait)),
        ("digest", wait.details.get("digest", "")),
        ("yes", call(f"decide {wait.id} approve --reason WHY")),
        ("no", call(f"decide {wait.id} deny --reason WHY")),
    ):
        if words:
            lines.append(f"{name + ':':<15}{words}")
    choices = [f"{domain} {shlex.quote(pattern)}" for domain, pattern in wait.details.get("suggestions", [])]
    if choices and wait.details.get("purpose", "policy") == "policy":  # what a step asks for, no rule takes away
        lines.append(f"{'always:':<15}cuebook policy allow {choices[0]}")
    return lines


def preview_lines(preview: Mapping[str, str]) -> list[str]:
    """What a person is shown, each part below its name."""
    lines: list[str] = []
    for name, text in preview.items():
        lines += [f"{name}:", *(f"  | {line}" for line in str(text).split("\n"))]
    return lines


def _changed(wait: WaitRow) -> str:
    names = wait.details.get("changed")
    return f"since it was approved, this changed: {', '.join(names)}" if names else ""


def _until(wait: WaitRow) -> str:
    if wait.expires is None:
        return "held: its time is over, and it waits on" if wait.details.get("held") else "no end"
    ends = {"cancel": "the run ends then", "hold": "it waits on then", "deny": "it is denied then"}
    return f"{moment(wait.expires)} ({ends.get(wait.details.get('on_expiry', ''), 'it expires then')})"


def _step_object(step: StepRow) -> dict[str, Any]:
    return {
        "label": step.label,
        "title": step.title,
        "visit": step.visit,
        "status": step.status,
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
