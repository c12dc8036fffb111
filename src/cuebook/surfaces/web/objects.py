"""Runs, waits and playbooks as the JSON API gives them."""

from __future__ import annotations

from typing import Any

from cuebook.kernel.run import RunRow, WaitRow
from cuebook.service import RunView
from cuebook.surfaces import wording
from cuebook.surfaces.library import Listed


def row_object(row: RunRow, *, interrupted: bool = False) -> dict[str, Any]:
    """A run at a glance."""
    return {
        **wording.row_object(row, interrupted=interrupted),
        "owner": row.owner,
        "dialect": row.dialect,
        "step": row.step,
        **wording.steps_object(row),
        "totals": wording.totals_object(row.totals),
        "error": None if row.error is None else {"code": row.error.code, "message": str(row.error)},
    }


def run_object(view: RunView, *, interrupted: bool = False) -> dict[str, Any]:
    """A run with everything about it."""
    row = row_object(view.run, interrupted=interrupted)
    return {**row, **wording.run_object(view, interrupted=interrupted), "inputs": view.inputs, "notes": view.notes}


def wait_object(wait: WaitRow) -> dict[str, Any]:
    return {**wording.wait_object(wait), "state": wait.state, "by": wait.by}


def playbook_object(one: Listed) -> dict[str, Any]:
    return {
        "id": one.id,
        "title": one.title,
        "dialect": one.dialect,
        "description": one.description,
        "name": one.name,
        "inputs": [
            {
                "name": declared.name,
                "type": declared.type,
                "required": declared.required,
                "default": declared.default,
                "options": list(declared.options),
                "description": declared.description,
            }
            for declared in one.inputs
        ],
        "steps": [{"label": step.label, "title": step.title} for step in one.steps],
        "needs_model": one.needs_model,
        "models": list(one.models),
    }
