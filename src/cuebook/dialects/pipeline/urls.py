"""URLs with references in them: where each stands is settled at load, and what it leads to can change nothing else. Pure.

A reference is the whole URL, the beginning of one, the whole host, or a part of the path, the query or the fragment. There
it is one value: whatever would end it is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal
from urllib.parse import quote, unquote

from cuebook.dialects.pipeline.model import Ref

Place = Literal["whole", "base", "host", "path", "query", "fragment"]
Part = str | Ref
_Now = Literal["", "authority", "base", "path", "query", "fragment"]

_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_BASE = re.compile(r"https?://[^\s/?#@\\]+(?:/[^\s?#]*)?", re.IGNORECASE)
_HOST = re.compile(r"[\w.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class BadPlace(ValueError):
    """A URL that cannot be put together: why, as a clause, and what to do."""

    def __init__(self, why: str, fix: str) -> None:
        self.why, self.fix = why, fix
        super().__init__(why)


def places(parts: Sequence[Part]) -> list[Place | None]:
    """Where each reference stands, None for the words between them. `BadPlace` where none may."""
    found: list[Place | None] = []
    now: _Now = ""
    for number, part in enumerate(parts):
        if isinstance(part, str):
            now = _after(now, part)
            found.append(None)
            continue
        following = parts[number + 1] if number + 1 < len(parts) else ""
        place = _place(now, parts[:number], following)
        found.append(place)
        now = "base" if place == "base" else now
    return found


def _place(now: _Now, before: Sequence[Part], following: Part) -> Place:
    match now:
        case "" if not following:
            return "whole"
        case "" if isinstance(following, str) and following.startswith(("/", "?", "#")):
            return "base"
        case "path" | "query" | "fragment":
            return now
        case "authority" if _is_scheme(before) and isinstance(following, str) and following[:1] in ("", *"/?#:"):
            return "host"
    fix = "Let it be the whole host or the whole beginning, as in https://${host}/path or ${base}/path."
    raise BadPlace("a reference stands in the middle of the server's address", fix)


def _is_scheme(before: Sequence[Part]) -> bool:
    return len(before) == 1 and isinstance(before[0], str) and _SCHEME.fullmatch(before[0]) is not None


def _after(now: _Now, text: str) -> _Now:
    """The part of a URL that goes on behind these words."""
    if not now:
        now, text = "authority", _SCHEME.sub("", text, count=1)
    if now in ("authority", "base"):
        begin = re.search(r"[/?#]", text)
        if begin is None:
            return now
        now, text = "path", text[begin.start() :]
    if "#" in text:
        return "fragment"
    return "query" if now == "path" and "?" in text else now


def names_credentials(parts: Sequence[Part]) -> bool:
    """Whether something stands before an `@` in the words of the server's address."""
    now: _Now = ""
    for part in parts:
        if not isinstance(part, str):
            now = now or "base"
            continue
        text = part if now else re.sub(r"^[^/?#]*://", "", part)
        if now in ("", "authority", "base") and "@" in re.split(r"[/?#]", text, maxsplit=1)[0]:
            return True
        now = _after(now, part)
    return False


def address(parts: Sequence[Part], resolve: Callable[[Ref], str]) -> str:
    """The URL, with what the references lead to. `BadPlace` where something would change another part of it."""
    made = ""
    within: list[int] = []
    for part, place in zip(parts, places(parts), strict=True):
        if isinstance(part, str):
            made += part
            continue
        if place == "path":
            within.append(len(made))
        made += _fitting(resolve(part), place)
    for at in within:
        _check_segment(made, at)
    return made


def _fitting(value: str, place: Place | None) -> str:
    match place:
        case "whole":
            return value
        case "base":
            if _BASE.fullmatch(value):
                return value
            raise BadPlace(
                f"'{shown(value)}' is no beginning of a URL", "Give one as in https://host/path, without ? and #."
            )
        case "host":
            if _HOST.fullmatch(value):
                return value
            raise BadPlace(f"'{shown(value)}' is no host", "Give the name of a host, as in api.example.com.")
        case "path" if _CONTROL.search(value):
            fix = "Take it away, as a command does that prints no end of line."
            raise BadPlace("a line break or another control character would stand in its path", fix)
    return quote(value, safe="")


def _check_segment(url: str, at: int) -> None:
    """What stands between two slashes may be anything but nothing, and no way up: servers decode slashes as well."""
    end = re.compile(r"[/?#]|$").search(url, at)
    segment = unquote(url[url.rfind("/", 0, at) + 1 : end.start() if end else len(url)])
    dots = {".", ".."}.intersection(re.split(r"[/\\]", segment))
    if dots or not segment:
        what = f"'{min(dots)}'" if dots else "nothing"
        raise BadPlace(f"{what} would stand for a part of its path", "Give a value that names something.")


def shown(text: str) -> str:
    """So much of a text as is told. What stands before an @ may be a password."""
    return "…" if "@" in text else text[:60]
