"""Which runs a list shows: as conditions in SQL, shared by all databases, and for rows in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from cuebook.kernel.events import ENDED, UNDER_WAY, WAITING
from cuebook.kernel.ports import RunFilter, RunMark
from cuebook.kernel.ports.run_filter import folded
from cuebook.kernel.run import RunRow
from cuebook.stores.refusals import LAST


class Language(NamedTuple):
    """Where the databases differ."""

    mark: str
    """The placeholder of a value."""
    among: str
    """Whether an expression is one of several, which are one value."""
    several: Callable[[Collection[str]], Any]
    """That value."""
    contains: str
    """Whether a text contains another one, which is in lower case."""
    part: Callable[[str], str]
    """The value for that."""
    aside: str = "{}"
    """A column whose index is not to be used, because another one finds fewer runs."""


TENANTS = """
    WITH RECURSIVE found (tenant) AS (
        SELECT min(tenant) FROM runs
        UNION ALL
        SELECT (SELECT min(tenant) FROM runs WHERE tenant > found.tenant) FROM found WHERE tenant IS NOT NULL
    )
    SELECT tenant FROM found WHERE tenant IS NOT NULL"""
"""From one to the next, because `DISTINCT` would read all runs."""
NEWEST_FIRST = "ORDER BY created DESC, key DESC"
_EQUAL = ("owner", "name")
_FAMILY = ("caller", "parent")
_SEARCHED = ("name", "owner", "trigger")
_UNFINISHED = f"status IN ({', '.join(repr(one) for one in sorted(UNDER_WAY | WAITING))})"
"""Exactly as in the index, which is small; otherwise the databases do not see that it has all runs with these statuses."""
_AFTER = (
    "created <= ? AND (created < ? OR key <"
    " coalesce((SELECT key FROM runs WHERE id = ?), (SELECT key FROM removals WHERE run = ?), 0))"
)
"""What follows a run that may be gone by now. Of runs that were created at the same moment, the key says which follow."""


def conditions(which: RunFilter, language: Language) -> tuple[str, list[Any]]:
    """The part of the statement after the table's name, and its values."""
    mark, among, several, contains, part, aside = language
    given: dict[str, Any] = {name: value for name, value in which.items() if value is not None}
    found: list[str] = []
    values: list[Any] = []

    def add(condition: str, *more: Any) -> None:
        found.append(condition.replace("?", mark))
        values.extend(more)

    only_these = "among" in given and not given.get("status")
    is_narrow = only_these or any(given.get(name) for name in _FAMILY)
    if "tenant" in given:
        add(f"{aside.format('tenant') if is_narrow else 'tenant'} = ?", given["tenant"])
    for name in _EQUAL:
        if name in given:
            add(f"{name} = ?", given[name])
    if "names" in given:
        add(among.format("name"), several(given["names"]))
    for name in _FAMILY:
        if name in given:  # the second condition is that of the index
            add(f"{name} = ?" + (f" AND {name} <> ''" if given[name] else ""), given[name])
    of_ids = f"key IN (SELECT key FROM runs WHERE {among.format('id')})"
    if "visible" in given:
        shown = (several(given["shown"]),) if given.get("shown") else ()
        seen = f"({among.format('owner')} OR {of_ids})" if shown else among.format("owner")
        add(seen, several(given["visible"]), *shown)
    if "since" in given:
        add("created >= ?", given["since"])
    if "until" in given:
        add("created < ?", given["until"])
    if "trigger" in given:
        kind = given["trigger"]
        if kind and ":" not in kind:
            add("(trigger = ? OR trigger >= ? AND trigger < ?)", kind, f"{kind}:", f"{kind};")
        else:
            add("trigger = ?", kind)
    for word in sorted(map(folded, given.get("words", ())), key=len, reverse=True):  # the rarest first, probably
        parts = [contains.format(column) for column in _SEARCHED]
        parts.append("key IN (SELECT key FROM runs WHERE id >= ? AND id < ?)")
        add(f"({' OR '.join(parts)})", *([part(word)] * len(_SEARCHED)), word, f"{word}{LAST}")
    if given.get("status") or "among" in given:
        either = []
        if given.get("status"):
            either.append(among.format("status"))
            values.append(several(given["status"]))
        if "among" in given:
            either.append(of_ids)
            values.append(several(given["among"]))
        add(f"({' OR '.join(either)})")
        if "among" not in given and not ENDED.intersection(given["status"]):
            found.append(_UNFINISHED)
    if "before" in given:
        position: RunMark = given["before"]
        add(_AFTER, position.created, position.created, position.run, position.run)
    return (f" WHERE {' AND '.join(found)}" if found else ""), values


def is_listed(row: RunRow, which: RunFilter) -> bool:
    """Whether a run is to be listed, except for the position."""
    given: dict[str, Any] = {name: value for name, value in which.items() if value is not None}
    if any(name in given and getattr(row, name) != given[name] for name in ("tenant", *_EQUAL, *_FAMILY)):
        return False
    if row.owner not in given.get("visible", (row.owner,)) and row.id not in given.get("shown", ()):
        return False
    if row.name not in given.get("names", (row.name,)):
        return False
    if not given.get("since", row.created) <= row.created or row.created >= given.get("until", math.inf):
        return False
    trigger = given.get("trigger", row.trigger)
    if row.trigger != trigger and not (trigger and ":" not in trigger and row.trigger.startswith(f"{trigger}:")):
        return False
    searched = [folded(getattr(row, column)) for column in _SEARCHED]
    for word in map(folded, given.get("words", ())):
        if not row.id.startswith(word) and not any(word in text for text in searched):
            return False
    status, among = given.get("status"), given.get("among")
    return (not status and among is None) or row.status in (status or ()) or row.id in (among or ())
