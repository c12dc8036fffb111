"""Extracts the value of `@output` from a reply: the whole text, a field of a JSON object, or a declared option. Pure."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any, NoReturn

import msgspec

from cuebook.dialects.markdown.model import Output

_OPENS = re.compile(r'\{(?=[ \t\r\n]*["}])')
_EFFORT = 5_000_000
"""The maximum number of characters to scan without finding JSON. Only text crafted to be slow reaches it."""
_BLIND = 100_000
"""The cost of an attempt whose error has no position."""
_COUNTING = 100
"""A parse error counts the lines before it. Counting through this many characters costs as much as parsing one."""
_AROUND = "\"'`*_ \t\r\n“”‘’«»"
_FINAL = ".,;:!?…"


class Captured(msgspec.Struct, frozen=True):
    """A value, and warnings about how it was extracted."""

    value: str
    warnings: tuple[str, ...] = ()


def capture(output: Output, text: str) -> Captured:
    """The value that is stored under the output's name."""
    kept = extracted(text, output.extract) if output.extract else Captured(text)
    if output.type != "enum" or not output.options:
        return kept
    chosen = option_in(kept.value, output.options)
    if chosen is not None:
        return Captured(chosen, kept.warnings)
    options = ", ".join(output.options)
    return Captured(kept.value, (*kept.warnings, f"{shown(kept.value)} is not one of {options}; it is kept unchanged."))


def extracted(text: str, field: str) -> Captured:
    """The field of the last JSON object that has it, top-level fields first; the whole text if no object has it."""
    holder = _holder(objects(text), field)
    if holder is None:
        return Captured(text, (f'no JSON object in the reply has a field "{field}", so the whole reply is kept.',))
    value = holder[field]
    if value is None:
        return Captured("", (f'the field "{field}" is null, so nothing is kept.',))
    try:
        return Captured(value_text(value))
    except RecursionError:
        return Captured(text, (f'the field "{field}" is nested too deeply, so the whole reply is kept.',))


def value_text(value: Any) -> str:
    """A string unchanged, any other value as compact JSON."""
    if not isinstance(value, str):
        value = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _storable(value)


def objects(text: str) -> list[dict[str, Any]]:
    """The outermost JSON objects, left to right: in prose, in code fences, in arrays, and in a truncated object."""
    found: list[dict[str, Any]] = []
    position = effort = 0
    while effort <= _EFFORT and (opening := _OPENS.search(text, position)) is not None:
        start = opening.start()
        try:
            value, position = _DECODER.raw_decode(text, start)
            found.append(value)
            continue
        except json.JSONDecodeError as error:
            effort += error.pos - start + error.pos // _COUNTING
        except (ValueError, RecursionError):
            effort += _BLIND
        position = start + 1
    return found


def option_in(text: str, options: tuple[str, ...]) -> str | None:
    """The option that the text matches, in its declared spelling."""
    bare = text.strip()
    plain = bare.strip(_AROUND).rstrip(_FINAL).strip(_AROUND)
    for said in (bare, plain):
        if said in options:
            return said
    folded = {option.casefold(): option for option in reversed(options)}
    return folded.get(bare.casefold()) or folded.get(plain.casefold())


def shown(text: str) -> str:
    """A value, quoted and shortened for a message."""
    return json.dumps(text if len(text) <= 40 else text[:40] + "…", ensure_ascii=False)


def _holder(found: list[dict[str, Any]], field: str) -> dict[str, Any] | None:
    at_top = [one for one in found if field in one]
    if at_top:
        return at_top[-1]
    inside = (_last_inside(one, field) for one in reversed(found))
    return next((one for one in inside if one is not None), None)


def _last_inside(value: dict[str, Any], field: str) -> dict[str, Any] | None:
    """The nested object that has the field and begins last."""
    holders: list[dict[str, Any]] = []
    left: list[Any] = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if field in one:
                holders.append(one)
            left.extend(reversed(one.values()))
        elif isinstance(one, list):
            left.extend(reversed(one))
    return holders[-1] if holders else None


def _storable(text: str) -> str:
    """The text without lone surrogates, which JSON can escape but no store can save."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")


def _finite(literal: str) -> float:
    value = float(literal)
    return value if isfinite(value) else _refuse(literal)


# Not strict: models write unescaped line breaks into strings, and their meaning is clear.
_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite, strict=False)
