"""The table of a comparison as data, in the form that `--json` and REST share."""

from __future__ import annotations

from typing import Any

from cuebook.service.comparisons import Comparison
from cuebook.testing.comparison.results import Result
from cuebook.testing.comparison.table import Column, Group, Share, Table


def table_object(table: Table) -> dict[str, Any]:
    one = table.comparison
    return {
        "comparison": None if one is None else comparison_object(one),
        **{name.replace(" ", "_"): count for name, count in table.verdicts.items()},
        "checks": table.checks,
        "variants": [_column_object(column) for column in table.columns],
        "cases": [
            {"name": row.name, "line": row.line or None, "variants": [_group_object(group) for group in row.groups]}
            for row in table.rows
        ],
    }


def comparison_object(one: Comparison) -> dict[str, Any]:
    return {
        "id": one.id,
        "owner": one.owner,
        "created": one.created,
        "playbooks": list(dict.fromkeys(variant.playbook for variant in one.variants)),
        "models": list(dict.fromkeys(variant.model for variant in one.variants)),
        "cases": len(one.cases),
        "repeat": one.repeat,
        "runs": one.size,
    }


def _column_object(column: Column) -> dict[str, Any]:
    seconds = column.seconds
    return {
        "label": column.label,
        "playbook": column.variant.playbook,
        "digest": column.variant.digest,
        "model": column.variant.model or None,
        **{name.replace(" ", "_"): count for name, count in column.verdicts.items()},
        "cost": column.cost,
        "unknown_costs": column.unknown_costs,
        "cost_per_run": column.cost_per_run,
        "tokens": column.tokens,
        "seconds": None if seconds is None else dict(zip(("mean", "min", "max"), seconds, strict=True)),
        "same_output": _share_object(column.same_output),
        "same_verdict": _share_object(column.same_verdict),
        "checks": {
            name: {result.replace(" ", "_"): count for result, count in found.items()}
            for name, found in column.checks.items()
        },
    }


def _share_object(share: Share) -> dict[str, int] | None:
    return {"same": share.same, "of": share.of} if share.of else None


def _group_object(group: Group) -> dict[str, Any]:
    return {
        "same_output": _share_object(group.same_output),
        "same_verdict": _share_object(group.same_verdict),
        "runs": [result_object(one) for one in group.results],
    }


def result_object(one: Result) -> dict[str, Any]:
    return {
        "run": one.run or None,
        "verdict": one.verdict,
        "status": one.status or None,
        "reason": one.reason or None,
        "output": one.output,
        "cost": one.cost,
        "unknown_costs": one.unknown_costs,
        "tokens": one.tokens,
        "seconds": one.seconds,
        "checks": dict(one.checks),
        "failures": [
            {
                "line": miss.line,
                "step": miss.step or None,
                "about": miss.about,
                "expected": miss.expected,
                "got": miss.got,
            }
            for miss in one.mismatches
        ],
    }
