"""Guards: conditions on results that decide an edge without a model, as far as they can be proved. Pure.

A guard takes its edge away where it is proved false, and decides for it where it alone is proved true. What cannot be
looked up proves nothing: then the model is asked, as ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cuebook.dialects.graph.model import Edge, Guard, Match
from cuebook.dialects.graph.paths import find, holds, missing


def proved(guard: Guard, values: Mapping[str, Any]) -> bool | None:
    """Whether the guard holds; None where that cannot be told."""
    verdicts = [_matched(match, values) for match in guard.output_matches]
    verdicts += [not missing((path,), values, of_nodes=True) for path in guard.output_required]
    if False in verdicts:
        return False
    return None if None in verdicts or not verdicts else True


def _matched(match: Match, values: Mapping[str, Any]) -> bool | None:
    found = find(values, match.path, of_nodes=True)
    if found.problem or any(value is None for value in found.values):
        return None
    verdicts = [holds(match, value) for value in found.values]
    return any(verdicts) if found.mode == "any" else all(verdicts)


def narrowed(
    edges: Sequence[Edge], guards: Mapping[int, Guard], values: Mapping[str, Any]
) -> tuple[list[Edge], Edge | None]:
    """The edges that are not proved false, and the one that alone is proved true."""
    verdicts = {edge.index: proved(guards[edge.index], values) for edge in edges if edge.index in guards}
    left = [edge for edge in edges if verdicts.get(edge.index) is not False]
    sure = [edge for edge in left if verdicts.get(edge.index)]
    return left, sure[0] if len(sure) == 1 else None
