"""URLs with references: each has a fixed position once parsed, and its value cannot change another part of the URL. Pure.

A reference is the whole URL, its beginning, the whole host, or a part of the path, the query or the fragment. In such a part
it is a single value: characters that would end it are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal
from urllib.parse import quote, unquote

from cuebook.dialects.pipeline.model import Function, Ref

Place = Literal["whole", "base", "host", "path", "query", "fragment"]
Part = str | Ref | Function
_Now = Literal["", "authority", "base", "path", "query", "fragment"]

_SCHEME = re.compile(r"https?://", re.IGNORECASE)
_BASE = re.compile(r"https?://[^\s/?#@\\]+(?:/[^\s?#]*)?", re.IGNORECASE)
_HOST = re.compile(r"[\w.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class BadPlace(ValueError):
    """Raised if a URL cannot be built, with the reason as a clause and a fix."""

    def __init__(self, why: str, fix: str) -> None:
        self.why, self.fix = why, fix
        super().__init__(why)


def places(parts: Sequence[Part]) -> list[Place | None]:
    """The place of each reference, None for the text between them. Raises `BadPlace` if a reference is not allowed there."""
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
    fix = "Use it for the whole host or the whole beginning, as in https://${host}/path or ${base}/path."
    raise BadPlace("a reference is in the middle of the server's address", fix)


def _is_scheme(before: Sequence[Part]) -> bool:
    return len(before) == 1 and isinstance(before[0], str) and _SCHEME.fullmatch(before[0]) is not None


def _after(now: _Now, text: str) -> _Now:
    """The part of a URL in which this text ends."""
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
    """Whether the server's address contains text before an `@`."""
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


def address(parts: Sequence[Part], resolve: Callable[[Ref | Function], str]) -> str:
    """The URL with the values of its references. Raises `BadPlace` if a value would change another part of it."""
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
                f"'{shown(value)}' is not the beginning of a URL",
                "Pass a URL such as https://host/path, without ? or #.",
            )
        case "host":
            if _HOST.fullmatch(value):
                return value
            raise BadPlace(f"'{shown(value)}' is not a host", "Pass a host name such as api.example.com.")
        case "path" if _CONTROL.search(value):
            fix = "Remove it, for example with a command that prints no trailing newline."
            raise BadPlace("its path would contain a line break or another control character", fix)
    return quote(value, safe="")


def _check_segment(url: str, at: int) -> None:
    """Rejects path segments that are empty or lead upwards: servers also decode escaped slashes."""
    end = re.compile(r"[/?#]|$").search(url, at)
    segment = unquote(url[url.rfind("/", 0, at) + 1 : end.start() if end else len(url)])
    dots = {".", ".."}.intersection(re.split(r"[/\\]", segment))
    if dots or not segment:
        what = f"the segment '{min(dots)}'" if dots else "an empty segment"
        raise BadPlace(f"its path would contain {what}", "Pass a plain name.")


def shown(text: str) -> str:
    """The part of the text that a message may quote. Text before an @ may be a password."""
    return "…" if "@" in text else text[:60]
