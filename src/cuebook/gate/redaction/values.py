"""Masks secrets in a whole value: texts, keys, numbers and whatever is nested, and leaves the rest as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cuebook.gate.redaction.finding import Finder
from cuebook.gate.redaction.forms import SHORTEST
from cuebook.kernel.context import Text

CUT = "[nested too deeply to be searched for secrets]"
_CUT_WHERE = {"stdout": "truncated", "stderr": "stderr_truncated", "body": "truncated"}
"""Parts of an outcome, and what stands beside them that says whether their end was cut off."""
_PLAIN = ("value", "result", "state")
"""Fields that hold any value: in others a number stays a number."""
_CUT_SHORT = ("length", "watch")
"""How a reply ends that was not finished."""

_Mask = Callable[[str], str]


def masked(value: Any, finder: Finder, mask: _Mask, depth: int) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, int) and abs(value) >= 10 ** (SHORTEST - 1):
        return _masked_number(value, mask)
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, Text):
        return _masked_text(value, mask)
    if not isinstance(value, dict | list | tuple | set | frozenset | msgspec.Struct):
        return value
    if depth == 0:
        return CUT
    if isinstance(value, dict):
        return _masked_dict(value, finder, depth - 1)
    if isinstance(value, msgspec.Struct):
        return _masked_struct(value, finder, depth - 1)
    return _masked_items(value, finder, depth - 1)


def _masked_number(value: int, mask: _Mask) -> Any:
    """A secret of digits alone comes back as a number where someone reads it as JSON."""
    written = str(value)
    masked = mask(written)
    return value if masked is written else masked


def _masked_text(text: Text, mask: _Mask) -> Text:
    # What is not loaded was masked before it was stored.
    if not text.loaded:
        return text
    plain = str(text)
    masked = mask(plain)
    return text if masked is plain else Text(masked)


def _masked_items(value: Any, finder: Finder, depth: int) -> Any:
    items = [masked(item, finder, finder.text, depth) for item in value]
    if all(new is old for new, old in zip(items, value, strict=True)):
        return value
    if hasattr(value, "_make"):
        return value._make(items)
    return next(kind(items) for kind in (list, tuple, set, frozenset) if isinstance(value, kind))


def _masked_dict(value: dict[Any, Any], finder: Finder, depth: int) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    changed = False
    for key, item in value.items():
        cut = key in _CUT_WHERE and value.get(_CUT_WHERE[key]) is True
        new_key = masked(key, finder, finder.text, depth)
        new_item = masked(item, finder, finder.cut_text if cut else finder.text, depth)
        if new_key is not key:
            changed = True
            while new_key in made or new_key in value:  # two forms of one secret are two keys still
                new_key = f"{new_key}'"
        changed = changed or new_item is not item
        made[new_key] = new_item
    return made if changed else value


def _masked_struct(value: msgspec.Struct, finder: Finder, depth: int) -> msgspec.Struct:
    changes: dict[str, Any] = {}
    for field in value.__struct_fields__:
        old = getattr(value, field, None)
        if isinstance(old, int) and field not in _PLAIN:
            continue
        cut = field in _CUT_WHERE and getattr(value, _CUT_WHERE[field], False) is True
        cut = cut or (field == "content" and getattr(value, "finish", "") in _CUT_SHORT)
        new = masked(old, finder, finder.cut_text if cut else finder.text, depth)
        if new is not old:
            changes[field] = new
    return msgspec.structs.replace(value, **changes) if changes else value
