"""Responses of the JSON API: runs, waits and playbooks as JSON objects."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from cuebook.kernel.run import RunRow, WaitRow
from cuebook.service.playbooks.library import Listed
from cuebook.service.runs import objects as run_objects
from cuebook.service.service import RunView


def answer(value: Any, status: int = 200, **headers: str) -> Response:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return Response(msgspec.json.encode(value, enc_hook=str), status, given, "application/json")


def row_object(row: RunRow, *, interrupted: bool = False) -> dict[str, Any]:
    """A short description of a run."""
    return {
        **run_objects.row_object(row, interrupted=interrupted),
        "owner": row.owner,
        "dialect": row.dialect,
        "step": row.step,
        **run_objects.steps_object(row),
        "totals": run_objects.totals_object(row.totals),
        "error": None if row.error is None else {"code": row.error.code, "message": str(row.error)},
    }


def run_object(view: RunView, *, interrupted: bool = False, waits_for: str = "") -> dict[str, Any]:
    """A run in full."""
    row = row_object(view.run, interrupted=interrupted)
    shown = run_objects.run_object(view, interrupted=interrupted, waits_for=waits_for)
    return {**row, **shown, "notes": view.notes}


def wait_object(wait: WaitRow) -> dict[str, Any]:
    return {**run_objects.wait_object(wait), "state": wait.state, "by": wait.by}


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
                "sensitive": declared.sensitive,
            }
            for declared in one.inputs
        ],
        "steps": [{"label": step.label, "title": step.title} for step in one.steps],
        "needs_model": one.needs_model,
        "models": list(one.models),
    }
