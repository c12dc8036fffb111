"""Runs, steps and waits as plain values, in the form that `--json`, REST, MCP and Python share."""

from __future__ import annotations

from typing import Any

import msgspec

from cuebook.dialects import registry
from cuebook.gate.policy import Override
from cuebook.kernel.context import Text
from cuebook.kernel.engine.files import KeptFile
from cuebook.kernel.engine.waits import CHILD
from cuebook.kernel.events import ENDED, WAITING, ArtifactMade
from cuebook.kernel.journal import step_at
from cuebook.kernel.run import Lease, RunRow, StepRow, Totals, WaitRow, is_worktree_step, stopped
from cuebook.kernel.short_ids import short_id
from cuebook.kernel.votes import rule_of, votes_of, votes_words
from cuebook.service.runs.tool_calls import call_object, plan_object
from cuebook.service.runs.views import ARTIFACT_FILES, Answered, RunView

INTERRUPTED = "interrupted"
"""The status of a run that could continue but that no process is driving."""


def row_object(row: RunRow, *, interrupted: bool = False) -> dict[str, Any]:
    """The fields that every JSON form of a run has."""
    return {
        "run": row.id,
        "playbook": row.name,
        "status": row.status,
        "interrupted": interrupted,
        "reason": row.reason,
        **({"needs": list(row.needs)} if row.needs else {}),
        "model": row.model,
        "created": row.created,
        "updated": row.updated,
        "owner": row.owner,
        "parent": row.parent or None,
        **({"trigger": row.trigger} if row.trigger else {}),
        **({"started_by": row.caller} if row.caller else {}),
    }


def final_output(view: RunView) -> Text | None:
    """The artifact, or else the last output."""
    if view.artifact is not None:
        return view.artifact.content
    return last_output(view)


def last_output(view: RunView) -> Text | None:
    """The last output of the playbook itself; the diff of a worktree comes after it."""
    outputs = [text for label, text in view.outputs.items() if not is_worktree_step(label)]
    return outputs[-1] if outputs else None


def run_object(view: RunView, *, interrupted: bool = False, waits_for: str = "") -> dict[str, Any]:
    """A run with all its details. `waits_for` says why it does not continue although it has work to do."""
    row, totals = view.run, view.run.totals
    output = final_output(view)
    return {
        **row_object(row, interrupted=interrupted),
        **({"waits_for": waits_for} if waits_for else {}),
        "steps": [_step_object(step, row) for step in view.steps],
        "outputs": {label: str(text) for label, text in view.outputs.items()},
        "output": str(output) if output is not None else None,
        "artifact": None if view.artifact is None else _artifact_object(view.artifact),
        "values": view.values,
        "inputs": view.inputs,
        "partial": view.partial,
        "incomplete": sorted(view.incomplete),
        "answers": {label: [answered_object(one) for one in given] for label, given in view.answers.items()},
        "calls": [call_object(one) for one in view.calls],
        "plans": [plan_object(one) for one in view.plans],
        "totals": totals_object(totals),
        "error": None if row.error is None else {"code": row.error.code, "message": str(row.error)},
        "waits": [wait_object(wait) for wait in view.waits],
        "overrides": [override_object(one) for one in view.overrides],
        **({"children": [row_object(one) for one in view.children]} if view.children else {}),
        "files": [file_object(one) for one in view.files],
    }


def file_object(file: KeptFile) -> dict[str, Any]:
    """A file that a step produced. Its content is found by its digest."""
    return {
        "step": file.step,
        "name": file.name,
        "filename": file.filename or None,
        "size": file.size,
        "digest": file.digest,
    }


def override_object(one: Override, now: float | None = None) -> dict[str, Any]:
    """An approval in advance. Those of one run do not expire."""
    made = {name: value for name, value in msgspec.to_builtins(one).items() if name != "tenant"}
    state = "revoked" if one.revoked else "holds" if now is None or one.holds(now) else "expired"
    return {**made, "run": one.run or None, "state": state}


def artifact_file(type: str) -> tuple[str, str]:
    """The file suffix and the content type for an artifact of this type."""
    return ARTIFACT_FILES.get(type, (".txt", "text/plain"))


def _artifact_object(artifact: ArtifactMade) -> dict[str, Any]:
    """The type of the output, with its file suffix and content type."""
    suffix, content_type = artifact_file(artifact.type)
    return {"type": artifact.type or None, "suffix": suffix, "content_type": content_type}


def answered_object(one: Answered) -> dict[str, str]:
    return {"question": one.question, "answer": one.answer, "by": one.by}


def wait_object(wait: WaitRow) -> dict[str, Any]:
    shown = ("effect", "preview") if wait.kind == "in_doubt" else ()
    return {
        "wait": wait.id,
        "short_id": short_id(wait.id),
        "run": wait.run,
        "step": step_at(wait.place),
        "kind": wait.kind,
        "prompt": wait.prompt,
        "type": wait.type,
        "options": list(wait.options),
        "default": wait.default,
        "opened": wait.opened,
        "expires": wait.expires,
        **({"schema": wait.details["schema"]} if "schema" in wait.details else {}),
        **({"by_whom": wait.details["by"]} if "by" in wait.details else {}),
        **({"approval": approval_object(wait)} if wait.kind == "approval" else {}),
        **({"child": _child_object(wait)} if CHILD in wait.details else {}),
        **({"assistant": _lease_object(wait.lease)} if wait.kind == "model" else {}),
        **{name: wait.details[name] for name in shown if name in wait.details},
    }


def _child_object(wait: WaitRow) -> dict[str, Any]:
    """The child run that asks, and its step."""
    asked = wait.details[CHILD]
    return {"run": asked["run"], "playbook": asked["name"], "step": asked["step"]}


def _lease_object(lease: Lease | None) -> dict[str, Any] | None:
    """The assistant that has a step; None if no one has taken it. Its claim is not shown to others."""
    if lease is None:
        return None
    return {
        "by": lease.by,
        "through": lease.through,
        "since": lease.since,
        "until": lease.until,
        "refused": len(lease.refused),
    }


def interrupted_object(row: RunRow, next: str) -> dict[str, Any]:
    """A run that someone has to resume, in the form of a wait."""
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
    """Why an interrupted run does not continue on its own."""
    if row.status in WAITING:
        return "Its wait was decided or has expired, but no process has continued it."
    if row.status in ENDED:
        return "A retry was requested, but no process has started it."
    if row.status == "pending":
        return "No process has taken it yet."
    return "No process is driving it."


def approval_object(wait: WaitRow) -> dict[str, Any]:
    """The details of an approval."""
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
        "offers",
        "once_only",
        "rule",
        "different_person",
    )
    made = {name: wait.details[name] for name in names if name in wait.details}
    rule = rule_of(wait.details)
    if rule.counts:
        words = votes_words(wait.details, wait.answer)
        made |= {"votes": votes_of(wait.answer), "votes_words": words}
    return {**made, "changes": list(rule.changes)} if rule.changes else made


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


def known_cost(totals: Totals) -> float | None:
    """The known cost; None if nothing is known."""
    return None if totals.unknown_costs > 0 and not totals.cost else totals.cost


def counts_lines(row: RunRow) -> bool:
    """Whether the steps of a run are executed lines, which have no total."""
    dialect = registry.find(row.dialect)
    return dialect is not None and dialect.talks


def steps_object(row: RunRow) -> dict[str, int]:
    """The step counts: done, total, skipped and failed."""
    count = row.count
    if counts_lines(row):
        lines = row.totals.steps_done
        return {"steps_done": lines, "steps_total": max(row.totals.steps, lines), "steps_skipped": 0, "steps_failed": 0}
    names = ("steps_done", "steps_total", "steps_skipped", "steps_failed")
    return dict(zip(names, (count.done, count.total, count.skipped, count.failed), strict=True))
